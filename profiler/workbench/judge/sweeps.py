"""A variant at all combinations of its parameters. Pure.

The fastest of many combinations is, by its own measurement, partly the luckiest: an interval from
the sessions that picked it leaves out the truth more often than it says. So the best is timed once
more beside the default, in fresh sessions, and the reported ratio is from those alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from workbench.derive.speedup import Ratio, Time
from workbench.judge.findings import Finding, finding
from workbench.judge.gates import accuracy_gate, compiler_gate, failed_check, first_line
from workbench.judge.provenance import timing_warnings
from workbench.judge.session_checks import timing_facts
from workbench.judge.times import ShapeTimes, main_timing
from workbench.load import ShapeEvidence, TimedTogether, VariantEvidence
from workbench.study.config import Gates
from workbench.words import CheckResult, Origin, Parameter, shown


@dataclass(frozen=True)
class Combination:
    """One of them, with its ``values``; ``why`` says why it was not timed.

    ``over_default`` and ``over_best`` are how many times faster it is, in the sessions that timed
    all of them. ``registers`` (the most of its kernels) and ``spill_bytes`` (bytes) are the
    compiler's, ``shared_bytes`` what a block has, static and dynamic; ``occupancy_percent`` (%) is
    of a capture. None is not collected.
    """

    variant: str
    values: Mapping[str, Parameter]
    is_default: bool
    state: Fate
    why: Finding | None = None
    microseconds: Time | None = None
    over_default: Ratio | None = None
    over_best: Ratio | None = None
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    occupancy_percent: float | None = None

    @property
    @shown
    def may_be_best(self) -> bool:
        """Whether its own interval does not separate it from the fastest."""
        return self.over_best is not None and (
            self.over_best.high is None or self.over_best.high >= 1
        )


@dataclass(frozen=True)
class Sweep:
    """``combinations`` by time, untimed ones last. ``again`` is how many times faster ``best`` is
    than ``default`` in sessions that had no part in picking it, if any; with one alternative to the
    default nothing was picked, and the first sessions' ratio is no worse.
    """

    study: str
    shape: str
    gpu: str
    variant: str
    parameters: Mapping[str, tuple[Parameter, ...]]
    combinations: tuple[Combination, ...]
    evidence: Origin
    again: Ratio | None = None
    file: str = ""
    warnings: tuple[Finding, ...] = ()

    @property
    def timed(self) -> tuple[Combination, ...]:
        return tuple(c for c in self.combinations if c.microseconds is not None)

    @property
    def best(self) -> Combination | None:
        """The fastest in the sessions that timed all; None where nothing was timed."""
        return next(iter(self.timed), None)

    @property
    def default(self) -> Combination | None:
        """None where the default parameters were not timed."""
        return next((c for c in self.timed if c.is_default), None)

    @property
    @shown
    def picked(self) -> bool:
        """Whether the best is one of several alternatives to the default."""
        return self.best is not None and not self.best.is_default and len(self.timed) > 2

    @property
    @shown
    def best_over_default(self) -> Ratio | None:
        """From sessions that had no part in picking it; None where it was picked without any."""
        if self.best is None or self.best.is_default:
            return None
        return self.again or (None if self.picked else self.best.over_default)

    @property
    def tied(self) -> tuple[Combination, ...]:
        """Others that do not differ measurably from the best."""
        return tuple(c for c in self.timed if c is not self.best and c.may_be_best)


@dataclass(frozen=True)
class Space:
    """The combinations to sweep: the ``text`` that was typed, the ``base`` variant with its own
    parameters, and the values of each combination by its name, those of ``base`` first.
    """

    text: str
    base: str
    axes: dict[str, tuple[Parameter, ...]]
    combinations: dict[str, dict[str, Parameter]]


def judge_sweep(
    evidence: ShapeEvidence,
    space: Space,
    *,
    gates: Gates,
    study: str,
    gpu: str,
    source: Origin,
    reference: str = "",
) -> Sweep:
    """Rank all combinations of a space by the timing that has the most of them."""
    base = space.base
    names = [
        name
        for name in space.combinations
        if evidence.variants[name].correct
        and not accuracy_gate(evidence.variants[name].checks, gates, REFERENCE).failure
    ]
    timing = main_timing(evidence, names)
    recorded = ShapeTimes(evidence, timing)
    held = [name for name in names if timing and name in timing.chained]
    times = {name: time for name in held if (time := recorded.time(name))}
    best = min(times, key=lambda name: times[name].value, default="")

    def over(before: str, after: str) -> Ratio | None:
        both = before != after and {before, after} <= times.keys()
        return recorded.ratio(before, after) if both else None

    def combination(name: str, values: Mapping[str, Parameter]) -> Combination:
        variant, time = evidence.variants[name], times.get(name)
        fate, why = (Fate.TIMED, None) if time else fate_of(variant, evidence.shape, gates)
        kernels = variant.build.kernels if variant.build else ()
        declared = max((k.shared_bytes for k in kernels), default=None)
        nodes = timing.timing.nodes.get(name, ()) if timing else ()
        asked = max((node.shared_bytes for node in nodes), default=None)  # by launches, beside it
        most = max((k.registers for k in kernels), default=None)
        occupancy = variant.figures.get("achieved_occupancy")
        registers = variant.figures.get("registers")
        return Combination(
            variant=name,
            values=values,
            is_default=name == base,
            state=fate,
            why=why,
            microseconds=time,
            over_default=over(base, name),
            over_best=over(best, name),
            registers=int(registers.value) if registers and registers.value else most,
            spill_bytes=sum(k.spill_store_bytes + k.spill_load_bytes for k in kernels)
            if kernels
            else None,
            shared_bytes=declared if asked is None else (declared or 0) + asked,
            occupancy_percent=occupancy.value if occupancy else None,
        )

    def place(c: Combination) -> tuple[bool, float, Fate]:
        return c.microseconds is None, c.microseconds.value if c.microseconds else 0.0, c.state

    combined = [combination(name, values) for name, values in space.combinations.items()]
    again = confirmation(evidence, timing, base, best)
    facts = timing_facts(timing, reference, max(timing.clocks, default=None) if timing else None)
    return Sweep(
        study=study,
        shape=evidence.shape,
        gpu=gpu,
        variant=base,
        parameters=space.axes,
        combinations=tuple(sorted(combined, key=place)),
        evidence=source,
        again=ShapeTimes(evidence, again).ratio(base, best) if again else None,
        file=timing.file if timing else "",
        warnings=tuple(timing_warnings({evidence.shape: facts}, [evidence.shape], None)),
    )


def confirmation(
    evidence: ShapeEvidence, picking: TimedTogether | None, base: str, best: str
) -> TimedTogether | None:
    """The newest timing of both that had no part in picking the best; None where there is none."""
    if picking is None or not best or best == base:
        return None
    later = (t for t in reversed(evidence.timings) if t.file > picking.file)
    return next((t for t in later if {base, best} <= t.chained), None)


REFERENCE = "the reference"  # in what is said of an error
COMPILER_ERROR = re.compile(r"\(\d+\): (?:catastrophic )?error\b")


class Fate(StrEnum):
    """How far a combination came."""

    TIMED = "timed"
    UNBUILT = "not built"
    REFUSED = "refused"  # by the compiler gate
    UNSUPPORTED = "unsupported"
    FAILED = "failed"
    INACCURATE = "inaccurate"  # correct, and with a larger error than the gate allows
    MISSING = "not measured"


def fate_of(evidence: VariantEvidence, shape: str, gates: Gates) -> tuple[Fate, Finding | None]:
    """Say how far a combination came that was not timed, and why."""
    build, check = evidence.build, evidence.checks.get(shape)
    if build is not None and build.error:
        # The compiler's own first error, where it is in a message.
        errors = (line for line in build.error.splitlines() if COMPILER_ERROR.search(line))
        text = next(errors, first_line(build.error))
        return Fate.UNBUILT, finding("compiler.error", text, text=text)
    if why := compiler_gate(build, gates).failure:
        return Fate.REFUSED, why
    if check is not None and check.status == CheckResult.UNSUPPORTED:
        return Fate.UNSUPPORTED, finding("stopped", check.why, text=check.why)
    for name, other in evidence.checks.items():
        if other.status not in (CheckResult.CORRECT, CheckResult.UNSUPPORTED):
            return Fate.FAILED, failed_check(other, name if name != shape else "")
    if why := accuracy_gate(evidence.checks, gates, REFERENCE).failure:
        return Fate.INACCURATE, why
    return Fate.MISSING, None
