"""Times and ratios of variants, in every regime at one shape and at all shapes of a study. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from workbench.derive.figures import added
from workbench.derive.speedup import (
    Ratio,
    SessionTimes,
    Time,
    TwoClocks,
    adds_nothing,
    ratio_of,
    smaller,
    time_of,
)
from workbench.evidence.timing import GraphNode
from workbench.judge.findings import NOT_COLLECTED, Finding, finding
from workbench.load import ShapeEvidence, TimedTogether
from workbench.study.model import Ladder
from workbench.words import Parameter, Regime, shown

NEARLY = 0.9  # of the variants: with deleted steps an older timing may have a few more


def main_timing(evidence: ShapeEvidence, variants: Iterable[str]) -> TimedTogether | None:
    """The newest timing that has nearly the most of ``variants`` chained, of present sources;
    else the one with most of them in any regime. Of equals one of several sessions, and the newest.
    """
    names = set(variants)

    def worth(timing: TimedTogether) -> tuple[int, int, bool]:
        several = len(timing.timing.together) > 1
        return len(timing.chained & names), len(timing.current & names), several

    best = max(reversed(evidence.timings), key=worth, default=None)
    if best is None or not best.current & names:
        return None
    most, _, several = worth(best)
    for timing in reversed(evidence.timings) if most else ():
        held, _, also_several = worth(timing)
        if held >= NEARLY * most and also_several >= several:
            return timing
    return best


@dataclass(frozen=True, eq=False)
class ShapeTimes:
    """``table`` is the timing that the table is of.

    Times and ratios are of the sessions that were planned, which have every variant, so that all of
    a table are of the same; ``every`` takes those too that came where a verdict was open.
    """

    evidence: ShapeEvidence
    table: TimedTogether | None

    def together(self, *variants: str) -> TimedTogether | None:
        """The table's timing if it has them all, else the newest with them, chained if possible."""
        names = set(variants)
        newest = [t for t in reversed(self.evidence.timings) if t.current >= names]
        own = [t for t in newest if t is self.table]
        chained = [t for t in newest if t.chained >= names]
        return next(iter((*own, *chained, *newest)), None)

    def instances(
        self,
        variant: str,
        regime: Regime = Regime.CHAINED,
        *,
        beside: str = "",
        every: bool = False,
    ) -> SessionTimes:
        """Those behind a time, in the timing that has ``beside`` too; empty if none is current."""
        timing = self.together(*filter(None, (beside, variant)))
        known = timing.times.get((variant, regime, False), {}) if timing else {}
        if timing is None or every:
            return known
        return {number: found for number, found in known.items() if number in timing.planned}

    def time(self, variant: str, regime: Regime = Regime.CHAINED) -> Time | None:
        """None where its present sources were not timed so, or where its calls add nothing."""
        return time_of(self.instances(variant, regime), regime)

    def beside(self, other: str, variant: str, regime: Regime = Regime.CHAINED) -> Time | None:
        """The time of the variant in the timing that its ratio over ``other`` is of."""
        return time_of(self.instances(variant, regime, beside=other), regime)

    def ratio(
        self,
        over: str | None,
        variant: str,
        regime: Regime = Regime.CHAINED,
        *,
        every: bool = False,
    ) -> Ratio | None:
        """How many times faster than ``over``; None unless both are correct."""
        known = [self.evidence.variants.get(name) for name in (over, variant) if name]
        if not over or not all(one and one.correct for one in known):
            return None
        timing, own = self.together(over, variant), self.together(variant)
        if timing is None or own is None or timing.timing.method != own.timing.method:
            return None
        before = self.instances(over, regime, beside=variant, every=every)
        after = self.instances(variant, regime, beside=over, every=every)
        return ratio_of(before, after, timing.timing.first_planned) if before and after else None

    def ratios(self, over: str, variant: str) -> dict[Regime, Ratio]:
        """In every regime in which there is one."""
        every = {regime: self.ratio(over, variant, regime) for regime in Regime}
        return {regime: ratio for regime, ratio in every.items() if ratio is not None}

    def least(
        self, others: Iterable[str], variant: str, regime: Regime = Regime.CHAINED
    ) -> tuple[str, Ratio | None]:
        """The one of ``others`` with the smallest ratio over it; "" if none was timed beside it."""
        ratios = {name: self.ratio(name, variant, regime) for name in others}
        known = {name: ratio for name, ratio in ratios.items() if ratio is not None}
        least = min(known, key=lambda name: known[name].ratio, default="")
        return least, known.get(least)

    def is_idle(self, variant: str) -> bool:
        """Whether a chained call of it adds no time to its neighbours."""
        return adds_nothing(self.instances(variant, every=True))

    def why_no_ratio(self, over: str, variant: str) -> Finding:
        """Why there is no chained ratio of two variants."""
        timing = self.together(over, variant)
        if timing is None or not {over, variant} <= timing.chained:
            return NOT_COLLECTED
        for name in (variant, over):
            if lost := lost_time(timing, name):
                return lost
        idle = next((name for name in (variant, over) if self.is_idle(name)), None)
        return _adds_nothing(idle) if idle else NOT_COLLECTED


def clocks_finding(clocks: TwoClocks) -> Finding:
    """Both times; where they disagree, the measurement failed and not the kernel."""
    code = "clocks.disagree" if clocks.disagree else "clocks.agree"
    message = f"{clocks.stamps:.3g} µs by stamps, {clocks.events:.3g} µs by events"
    if clocks.disagree:
        message = f"the measurement failed, not the kernel: {message}"
    return finding(code, message, microseconds=clocks.stamps, by_events=clocks.events)


def _adds_nothing(variant: str) -> Finding:
    message = f"a call of {variant} adds no time to its neighbours"
    return finding("untimed.adds_nothing", message, variant=variant)


def lost_time(timing: TimedTogether, variant: str) -> Finding | None:
    """Why a variant that was timed has no time; None where it was not timed or has one."""
    if variant in timing.wrong:
        message = f"the outputs of timed calls of {variant} were wrong: it has no time"
        return finding("untimed.wrong_outputs", message, variant=variant)
    clocks = timing.two_clocks.get(variant)
    return clocks_finding(clocks) if clocks and clocks.disagree else None


@dataclass(frozen=True)
class InRegime:
    """Its time in one regime, and how many times faster than others it is there; None is not
    collected. ``fastest`` names the reference that ``speedup_over_fastest`` is over: the fastest
    there.
    """

    microseconds: Time | None = None
    speedup_over_baseline: Ratio | None = None
    speedup_over_parent: Ratio | None = None
    speedup_over_reference: Ratio | None = None
    speedup_over_fastest: Ratio | None = None
    fastest: str = ""


def in_regimes(
    times: ShapeTimes, ladder: Ladder, variant: str, parent: str | None = None
) -> Mapping[Regime, InRegime]:
    """A variant in the regimes in which its present sources were timed."""
    references = [reference.name for reference in ladder.references]
    found: dict[Regime, InRegime] = {}
    for regime in Regime:
        if time := times.time(variant, regime):
            fastest, over = times.least(references, variant, regime)
            found[regime] = InRegime(
                microseconds=time,
                speedup_over_baseline=times.ratio(ladder.steps[0].variant, variant, regime),
                speedup_over_parent=times.ratio(parent, variant, regime),
                speedup_over_reference=times.ratio(ladder.primary_reference, variant, regime),
                speedup_over_fastest=over,
                fastest=fastest,
            )
    return found


LEAST_INTENSITY = 4.0  # FLOP a byte: with fewer, no GPU since Turing is bound by arithmetic


@dataclass(frozen=True)
class AtShape:
    """Chained times at one shape, and how much faster the variant is than ``fastest``, the fastest
    reference timed there: those of the timing that has both.

    ``flops_per_second`` and ``bytes_per_second`` are the study's work over the time, whatever the
    kernel computes and moves besides.
    ``accuracy`` the error there as a multiple of the primary reference's. ``nodes`` are what
    one call of the fastest reference is made of. ``not_timed`` are references that were not timed
    beside the variant: the fastest one might be among them. ``alone`` is the ratio over the fastest
    with no other kernel, at the power limit.
    """

    shape: str
    parameters: Mapping[str, Parameter] = field(repr=False)
    microseconds: Time
    fastest: str
    reference_microseconds: Time | None
    speedup_over_fastest: Ratio | None
    flops_per_second: float = field(repr=False)
    bytes_per_second: float = field(repr=False)
    accuracy: float | None
    nodes: tuple[GraphNode, ...] = field(default=(), repr=False)
    not_timed: tuple[str, ...] = ()
    alone: Ratio | None = None

    @property
    def claimed(self) -> Ratio | None:
        """Over the fastest reference, in turn or alone: the smaller."""
        return smaller(self.speedup_over_fastest, self.alone)

    @property
    @shown
    def tflops(self) -> float:
        return self.flops_per_second / 1e12

    @property
    @shown
    def terabytes_per_second(self) -> float:
        """Of the least bytes."""
        return self.bytes_per_second / 1e12

    @property
    def is_traffic(self) -> bool:
        """Whether it has so little arithmetic a byte that the bytes are what counts."""
        return self.flops_per_second < LEAST_INTENSITY * self.bytes_per_second


@dataclass(frozen=True)
class AcrossShapes:
    """``geometric_mean`` and ``worst`` are of the claimed ratios over the fastest reference at
    each shape; None without any. ``newer`` are later outcomes of the ladder, and at how many of
    these shapes they were timed.
    """

    variant: str
    shapes: tuple[AtShape, ...]
    newer: Mapping[str, int] = field(default_factory=dict)

    def at(self, shape: str) -> AtShape | None:
        return next((result for result in self.shapes if result.shape == shape), None)

    @property
    def ratios(self) -> list[float]:
        """Over the fastest reference, where one was timed beside the variant."""
        return [r.claimed.ratio for r in self.shapes if r.claimed]

    @property
    @shown
    def geometric_mean(self) -> float | None:
        """None without any ratio."""
        return geometric_mean(self.ratios)

    @property
    def untimed(self) -> Mapping[str, tuple[str, ...]]:
        """Reference to the shapes at which it was not timed, where it was at another."""
        found: dict[str, tuple[str, ...]] = {}
        for name in dict.fromkeys(name for r in self.shapes for name in r.not_timed):
            shapes = tuple(r.shape for r in self.shapes if name in r.not_timed)
            if len(shapes) < len(self.shapes):
                found[name] = shapes
        return found

    @property
    def worst(self) -> AtShape | None:
        """Where the variant does least well."""
        compared = [r for r in self.shapes if r.claimed]
        return min(compared, key=lambda r: r.claimed.ratio if r.claimed else 0, default=None)


def geometric_mean(ratios: Iterable[float]) -> float | None:
    """None without any ratio."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(added(logs) / len(logs)) if logs else None


def across_shapes(every: Iterable[ShapeTimes], ladder: Ladder, variant: str) -> AcrossShapes:
    """The variant at every shape where its present sources were timed."""
    references = [reference.name for reference in ladder.references]
    results = (at_shape(times, references, variant) for times in every)
    return AcrossShapes(variant, tuple(filter(None, results)))


def at_shape(
    times: ShapeTimes, references: Iterable[str], variant: str, beside: str = ""
) -> AtShape | None:
    """``beside`` is whose timing a time is of, where it is not that of the fastest reference."""
    evidence = times.evidence
    time, work, known = times.time(variant), evidence.work, evidence.variants.get(variant)
    if time is None or work is None or known is None or not known.correct:
        return None
    others = [name for name in references if name != variant]
    fastest, over = times.least(others, variant)
    check = known.checks.get(evidence.shape)
    error = check.times_reference if check else None
    timing = times.together(fastest, variant) if fastest else None
    if beside or fastest:
        time = times.beside(beside or fastest, variant) or time
    seconds = time.value * 1e-6
    return AtShape(
        shape=evidence.shape,
        parameters=evidence.parameters,
        microseconds=time,
        fastest=fastest,
        reference_microseconds=times.beside(variant, fastest) if fastest else None,
        speedup_over_fastest=over,
        flops_per_second=work.flops / seconds,
        bytes_per_second=work.bytes / seconds,
        accuracy=None if error is None else float(error),
        nodes=timing.timing.nodes.get(fastest, ()) if timing else (),
        not_timed=tuple(r for r in others if times.ratio(r, variant) is None),
        alone=times.least(others, variant, Regime.ALONE)[1],
    )
