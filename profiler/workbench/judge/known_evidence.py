"""What is judged: all that is recorded of some variants, and nothing more to read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from workbench.derive.figures import Figure, figures
from workbench.derive.speedup import (
    Key,
    Ratio,
    SessionTimes,
    Time,
    TwoClocks,
    adds_nothing,
    ratio_of,
    session_times,
    time_of,
    two_clocks,
    wrong_outputs,
)
from workbench.evidence.journal import Journal
from workbench.evidence.records import Build, CaptureIndex, CeilingsFile, Check
from workbench.evidence.timing import Timing
from workbench.judge.bottlenecks import Bottleneck, bottlenecks_of
from workbench.judge.findings import NOT_COLLECTED, Finding, finding
from workbench.ncu.capture import Capture
from workbench.study.model import Ladder, Step, Work
from workbench.words import Parameter, Regime, Status


@dataclass(frozen=True, eq=False)
class VariantEvidence:
    """One variant at one shape.

    ``state`` is that of build, check, timing and capture. ``build``, ``checks`` (by shape),
    ``index`` and ``capture`` belong to the present sources; None where there is no such.
    ``correct`` is by the newest check at this shape.
    ``texts`` are its sources by their name in the line table, where they were asked for.
    ``due`` are shapes of the study at which a variant is always checked and this one was not as it
    is now, ``unchecked`` the others without such a check.
    ``damage`` says what is wrong with a capture that is recorded and does not count.
    ``tables_only``: the report of its capture was not kept.
    ``front_ends`` compile what the workbench does not, by its sources (names as there).
    ``unseen`` are its checks at shapes drawn from the study's ranges, None where not collected,
    and ``unseen_over`` its ratio over the parent at the first of them; ``seed`` is of the draw.
    """

    variant: str
    title: str
    state: Mapping[str, Status]
    correct: bool
    build: Build | None = None
    checks: Mapping[str, Check] = field(default_factory=dict)
    due: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    index: CaptureIndex | None = None
    capture: Capture | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    damage: str = ""
    tables_only: bool = False
    front_ends: tuple[str, ...] = ()
    unseen: Mapping[str, Check | None] = field(default_factory=dict)
    unseen_over: Ratio | None = None
    seed: str = ""

    @cached_property
    def figures(self) -> Mapping[str, Figure]:
        """Empty without a capture."""
        return figures(self.capture.metrics) if self.capture else {}

    @cached_property
    def bottlenecks(self) -> tuple[Bottleneck, ...]:
        """Empty without a capture."""
        return bottlenecks_of(self.capture, self.figures) if self.capture else ()

    @property
    def was_profiled(self) -> bool:
        """Whether there is a capture of what was timed."""
        return self.index is not None


@dataclass(frozen=True, eq=False)
class TimedTogether:
    """One timing; ``timed`` are its variants whose sources have not changed since."""

    file: str
    timed: frozenset[str]
    timing: Timing

    @cached_property
    def times(self) -> Mapping[Key, SessionTimes]:
        """Of the sessions that held steps and references side by side."""
        return session_times(self.timing.together)

    @cached_property
    def planned(self) -> frozenset[int]:
        """The numbers of the sessions with every variant, before others came for open verdicts."""
        numbers = sorted(session.number for session in self.timing.together)
        return frozenset(numbers[: self.timing.first_planned])

    @cached_property
    def alone(self) -> Mapping[Key, SessionTimes]:
        """Of the sessions that held references only."""
        return session_times(session for session in self.timing.sessions if session.alone)

    @cached_property
    def wrong(self) -> Mapping[str, str]:
        """Variants whose timed outputs were wrong, which have no time, and why."""
        return wrong_outputs(self.timing.together)

    @cached_property
    def two_clocks(self) -> Mapping[str, TwoClocks]:
        """By variant, of the same sessions; empty of a method with one clock."""
        return two_clocks(self.timing.together)

    def lost(self, variant: str) -> Finding | None:
        """Why a variant that was timed has no time; None where it was not timed or has one."""
        if variant in self.wrong:
            return finding("untimed.wrong_outputs", variant=variant)
        clocks = self.two_clocks.get(variant)
        return clocks_finding(clocks) if clocks and clocks.disagree else None

    @cached_property
    def chained(self) -> frozenset[str]:
        """Those of ``timed`` that were timed in the regime that decides."""
        return self.timed & self.timing.chained

    @cached_property
    def clocks(self) -> tuple[float, ...]:
        """SM clocks inside of all timed graphs, in MHz."""
        every = (series for session in self.timing.sessions for series in session.series)
        return tuple(mhz for series in every for mhz in series.mhz)


@dataclass(frozen=True, eq=False)
class ShapeEvidence:
    """A shape with its timings, oldest first, and variants; ``work`` is None unless asked for."""

    shape: str
    parameters: Mapping[str, Parameter]
    timings: tuple[TimedTogether, ...]
    variants: Mapping[str, VariantEvidence]
    work: Work | None = None


NEARLY = 0.9  # of the variants: with deleted steps an older timing may have a few more


def main_timing(evidence: ShapeEvidence, variants: Iterable[str]) -> TimedTogether | None:
    """The newest timing that has nearly the most of ``variants`` chained, of present sources;
    else the one with most of them in any regime. Of equals one of several sessions, and the newest.
    """
    names = set(variants)

    def worth(timing: TimedTogether) -> tuple[int, int, bool]:
        several = len(timing.timing.together) > 1
        return len(timing.chained & names), len(timing.timed & names), several

    best = max(reversed(evidence.timings), key=worth, default=None)
    if best is None or not best.timed & names:
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
        newest = [t for t in reversed(self.evidence.timings) if t.timed >= names]
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
            if lost := timing.lost(name):
                return lost
        idle = next((name for name in (variant, over) if self.is_idle(name)), None)
        return finding("untimed.adds_nothing", variant=idle) if idle else NOT_COLLECTED


def clocks_finding(clocks: TwoClocks) -> Finding:
    """Both times; where they disagree, the measurement failed and not the kernel."""
    code = "clocks.disagree" if clocks.disagree else "clocks.agree"
    return finding(code, microseconds=clocks.stamps, by_events=clocks.events)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The evidence of a study on one GPU, as it was at one moment.

    ``steps`` are those to be judged, of which ``only`` some variants are shown where it names any;
    ``shape`` is the one that is looked at. ``shapes`` has it and
    every other that the judgement needs, in the order of the study; ``gpu`` is the folder's name.
    ``notes`` are what was found wrong with files and cost no variant its evidence. ``journal`` says
    what was recorded when; None where nobody asked. Without ``everywhere`` it is enough for the
    table at ``shape`` alone. ``between`` and ``between_of`` as in ``known_between``.
    """

    study: str
    gpu: str
    ladder: Ladder
    steps: tuple[Step, ...]
    shape: str
    default_shape: str
    shapes: Mapping[str, ShapeEvidence]
    calibration: CeilingsFile | None = None
    notes: tuple[str, ...] = ()
    journal: Journal | None = None
    only: tuple[str, ...] = ()
    everywhere: bool = True
    between: float | None = None
    between_of: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The steps to be judged, and all references."""
        return (*(s.variant for s in self.steps), *(r.name for r in self.ladder.references))


def shapes_of(steps: Sequence[Step], table: str) -> list[str]:
    """Every shape at which some step is judged; that of the table first."""
    return list(dict.fromkeys([table, *(step.shape for step in steps if step.shape)]))


def asked_for(steps: Sequence[Step], names: Sequence[str], shape: str) -> list[Step]:
    """The baseline, the steps named, and those at this shape that start from one of them."""
    return [
        step
        for step in steps
        if step is steps[0]
        or step.variant in names
        or (step.parent in names and (step.shape or shape) == shape)
    ]


def judged_at(steps: Sequence[Step], shape: str, table: str) -> list[Step]:
    """Steps judged at a shape; one without a shape of its own is judged at the table's."""
    return [step for step in steps if (step.shape or table) == shape]


def shown_at(steps: Sequence[Step], shape: str, table: str) -> list[Step]:
    """Steps judged at a shape and those that they start from, in the order of the ladder."""
    judged = judged_at(steps, shape, table)
    names = {step.variant for step in judged} | {step.parent for step in judged}
    return [step for step in steps if step.variant in names]
