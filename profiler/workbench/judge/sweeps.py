"""A variant at all combinations of its parameters, and variants over a range of shapes. Pure.

The fastest of many combinations is, by its own measurement, partly the luckiest: an interval from
the sessions that picked it leaves out the truth more often than it says. So the best is timed once
more beside the default, in fresh sessions, and the reported ratio is from those alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from workbench.derive.rooflines import DRAM
from workbench.derive.speedup import Ratio, Time
from workbench.evidence.records import Build
from workbench.judge.findings import Finding, finding
from workbench.judge.gates import accuracy_gate, compiler_gate, failed_check, first_line
from workbench.judge.times import (
    LEAST_INTENSITY,
    AcrossShapes,
    AtShape,
    ShapeTimes,
    at_shape,
    main_timing,
    warnings_of,
)
from workbench.load import ShapeEvidence, TimedTogether, VariantEvidence
from workbench.study.config import Gates
from workbench.study.model import Ladder
from workbench.words import CheckResult, GateState, Origin, Parameter, grouped, shown


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
    again_file: str = ""
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
        if evidence.variants[name].correct and not imprecision(evidence.variants[name], gates)
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

    combined = [combination(name, values) for name, values in space.combinations.items()]
    combined.sort(
        key=lambda c: (
            c.microseconds is None,
            c.microseconds.value if c.microseconds else 0.0,
            c.state,
        )
    )
    again = confirmation(evidence, timing, base, best)
    return Sweep(
        study=study,
        shape=evidence.shape,
        gpu=gpu,
        variant=base,
        parameters=space.axes,
        combinations=tuple(combined),
        evidence=source,
        again=ShapeTimes(evidence, again).ratio(base, best) if again else None,
        again_file=again.file if again else "",
        file=timing.file if timing else "",
        warnings=tuple(warnings_of({evidence.shape: timing}, reference)),
    )


def confirmation(
    evidence: ShapeEvidence, picking: TimedTogether | None, base: str, best: str
) -> TimedTogether | None:
    """The newest timing of both that had no part in picking the best; None where there is none."""
    if picking is None or not best or best == base:
        return None
    later = (t for t in reversed(evidence.timings) if t.file > picking.file)
    return next((t for t in later if {base, best} <= t.chained), None)


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
        text = compiler_error(build.error)
        return Fate.UNBUILT, finding("compiler.error", text, text=text)
    if why := refusal(build, gates):
        return Fate.REFUSED, why
    if check is not None and check.status == CheckResult.UNSUPPORTED:
        return Fate.UNSUPPORTED, finding("stopped", check.why, text=check.why)
    for name, other in evidence.checks.items():
        if other.status not in (CheckResult.CORRECT, CheckResult.UNSUPPORTED):
            return Fate.FAILED, failed_check(other, name if name != shape else "")
    if why := imprecision(evidence, gates):
        return Fate.INACCURATE, why
    return Fate.MISSING, None


def imprecision(evidence: VariantEvidence, gates: Gates) -> Finding | None:
    """Why its error is too large beside the primary reference's; None where it is not."""
    gate = accuracy_gate(evidence.checks, gates, "the reference")
    return gate.why if gate.state == GateState.FAILED else None


def compiler_error(message: str) -> str:
    """The compiler's own first error, where it is in a message; else the first line."""
    errors = (line for line in message.splitlines() if COMPILER_ERROR.search(line))
    return next(errors, first_line(message))


def refusal(build: Build | None, gates: Gates) -> Finding | None:
    """Why the compiler gate does not let a build pass; None where it does, or there is none."""
    gate = compiler_gate(build, gates)
    return gate.why if gate.state == GateState.FAILED else None


FEWEST = 2  # sizes that make a range
# The measured ceiling that a type's arithmetic is held against.
ARITHMETIC = {"float16": "tensor fp16", "bfloat16": "tensor bf16", "float32": "fp32",
              "float64": "fp64"}  # fmt: skip


@dataclass(frozen=True)
class OverSizes:
    """``sizes`` are the values of ``parameter`` by shape, rising; ``others`` are the parameters
    that all shapes share. ``references`` are among the ``variants``. ``ceilings`` are the measured
    ones that bound the study, in FLOP/s and byte/s; none of a GPU whose model nobody measured.
    """

    study: str
    gpu: str
    parameter: str
    sizes: Mapping[str, float]
    others: Mapping[str, Parameter]
    variants: tuple[AcrossShapes, ...]
    references: tuple[str, ...]
    in_flops: bool
    ceilings: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[Finding, ...] = ()

    @property
    def timed(self) -> tuple[AcrossShapes, ...]:
        """The variants that were timed at any of the sizes."""
        return tuple(line for line in self.variants if line.shapes)

    @property
    def versions(self) -> tuple[AcrossShapes, ...]:
        """All but the references."""
        return tuple(line for line in self.variants if line.variant not in self.references)

    def fastest_at(self, shape: str) -> tuple[AcrossShapes, AtShape] | None:
        """Among the versions; None where none was timed."""
        timed = [(line, point) for line in self.versions if (point := line.result_at(shape))]
        return min(timed, key=lambda pair: pair[1].microseconds.value, default=None)

    def share(self, point: AtShape) -> tuple[float, str] | None:
        """The share of its time that the work takes at the slowest ceiling, and which that is."""
        flops, moved = point.flops_per_second, point.bytes_per_second
        shares = (((moved if n == DRAM else flops) / r, n) for n, r in self.ceilings.items())
        return max(shares, default=None)


def ranges(shapes: Mapping[str, Mapping[str, Parameter]]) -> Iterator[tuple[str, list[str]]]:
    """Find parameters in which some shapes differ and in nothing else, with those shapes by the
    value.

    A shape may stand in several ranges; one whose shapes all stand in longer ones is none, nor are
    two shapes if one of them does.
    """
    groups = grouped(
        ((name, json.dumps({**parameters, name: None}, sort_keys=True)), shape)
        for shape, parameters in shapes.items()
        for name, value in parameters.items()
        if type(value) in (int, float)
    )
    longest: dict[str, int] = {}
    for members in groups.values():
        for shape in members:
            longest[shape] = max(len(members), longest.get(shape, 0))
    for (name, _), members in groups.items():
        longest_here = [longest[shape] == len(members) for shape in members]
        if len(members) >= FEWEST and (
            any(longest_here) if len(members) > FEWEST else all(longest_here)
        ):
            yield name, sorted(members, key=lambda shape: float(shapes[shape][name]))


def over_sizes(
    shapes: Sequence[ShapeEvidence],
    parameter: str,
    variants: Sequence[str],
    ladder: Ladder,
    *,
    study: str,
    gpu: str,
    ceilings: Mapping[str, float],
) -> OverSizes:
    """Judge variants over ``shapes`` that differ in ``parameter`` alone, and rise in it.

    ``ceilings`` are measured on the GPU's model, by id. Times of references are those beside the
    first of the ``variants``, if it was timed with them.
    """
    references = [reference.name for reference in ladder.references]
    work = shapes[-1].work
    in_flops = work is not None and work.flops >= LEAST_INTENSITY * work.bytes
    names = [*variants, *references]
    times = {shape.shape: ShapeTimes(shape, main_timing(shape, names)) for shape in shapes}
    bounds = (ARITHMETIC.get(work.dtype, ""), DRAM) if work else ()

    def across(name: str) -> AcrossShapes:
        beside = variants[0] if variants and name in references else ""
        results = (
            at_shape(shape_times, references, name, beside) for shape_times in times.values()
        )
        return AcrossShapes(name, tuple(filter(None, results)))

    by_size = {
        f"{parameter}={size_words(float(shape.parameters[parameter]))}": times[shape.shape].table
        for shape in shapes
    }
    return OverSizes(
        study=study,
        gpu=gpu,
        parameter=parameter,
        sizes={shape.shape: float(shape.parameters[parameter]) for shape in shapes},
        others={k: v for k, v in shapes[0].parameters.items() if k != parameter},
        variants=tuple(map(across, names)),
        references=tuple(references),
        in_flops=in_flops,
        ceilings={name: rate for name in bounds if (rate := ceilings.get(name))},
        warnings=tuple(warnings_of(by_size, ladder.primary_reference)),
    )


def size_words(value: float) -> str:
    """``512``: as it was given, whole where it is whole."""
    return f"{value:g}" if abs(value) < 1e6 else f"{value:.0f}"
