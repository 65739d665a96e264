"""Times and ratios of variants at one shape and at all shapes of a study, and checks of their
sessions: A/A controls, references alone, clocks. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median

from workbench.derive.figures import added
from workbench.derive.speedup import (
    Interval,
    OverRecordings,
    Ratio,
    SessionTimes,
    Time,
    adds_nothing,
    between_sessions,
    logarithms,
    over_recordings,
    over_sessions,
    ratio_of,
    smaller,
    time_of,
)
from workbench.evidence.records import timing_name
from workbench.judge.findings import NOT_COLLECTED, Finding, change, finding, percent, suffix
from workbench.load import LadderEvidence, ShapeEvidence, TimedTogether
from workbench.study.model import Ladder
from workbench.words import ABSENT, HEADLINE, Parameter, Regime, grouped, shown

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
        of_table = [t for t in newest if t is self.table]
        chained = [t for t in newest if t.chained >= names]
        return next(iter((*of_table, *chained, *newest)), None)

    def refereed(self, variant: str, beside: str | None) -> ShapeTimes:
        """The times in the recording that the referee's are looked for in: that of the ratio over
        ``beside``. If the referee's host was too busy then, it is the newest with both its times.
        """
        both = self.together(variant, beside) if beside else None
        names = {variant, beside} if beside and both else {variant}
        ours = both or self.together(variant)
        if ours and names & ours.timing.unrefereed:
            newest = (t for t in reversed(self.evidence.timings) if t.chained >= names)
            ours = next((t for t in newest if t.timing.refereed >= names), ours)
        return replace(self, table=ours)

    def instances(
        self,
        variant: str,
        regime: Regime = Regime.CHAINED,
        *,
        beside: str = "",
        every: bool = False,
    ) -> SessionTimes:
        """Return the instance times behind a time, in the timing that has ``beside`` too."""
        timing = self.together(*filter(None, (beside, variant)))
        every_session = timing.times.get((variant, regime, False), {}) if timing else {}
        if timing is None or every:
            return every_session
        return {
            number: instances
            for number, instances in every_session.items()
            if number in timing.planned
        }

    def time(
        self, variant: str, regime: Regime = Regime.CHAINED, *, beside: str = ""
    ) -> Time | None:
        """None where its present sources were not timed so, or where its calls add nothing;
        ``beside`` another, it is of the timing that their ratio is of.
        """
        return time_of(self.instances(variant, regime, beside=beside), regime)

    def ratio(
        self,
        over: str | None,
        variant: str,
        regime: Regime = Regime.CHAINED,
        *,
        every: bool = False,
    ) -> Ratio | None:
        """How many times faster than ``over``; None unless both are correct."""
        sides = [self.evidence.variants.get(name) for name in (over, variant) if name]
        if not over or not all(
            variant_evidence and variant_evidence.correct for variant_evidence in sides
        ):
            return None
        timing, alone = self.together(over, variant), self.together(variant)
        if timing is None or alone is None or timing.timing.method != alone.timing.method:
            return None
        before = self.instances(over, regime, beside=variant, every=every)
        after = self.instances(variant, regime, beside=over, every=every)
        return ratio_of(before, after, timing.timing.first_planned) if before and after else None

    def ratios(self, over: str, variant: str) -> dict[Regime, Ratio]:
        every = {regime: self.ratio(over, variant, regime) for regime in Regime}
        return {regime: ratio for regime, ratio in every.items() if ratio is not None}

    def least(
        self, others: Iterable[str], variant: str, regime: Regime = Regime.CHAINED
    ) -> tuple[str, Ratio | None]:
        """The one of ``others`` with the smallest ratio over it; "" if none was timed beside it."""
        ratios = {name: self.ratio(name, variant, regime) for name in others}
        timed = {name: ratio for name, ratio in ratios.items() if ratio is not None}
        least = min(timed, key=lambda name: timed[name].ratio, default="")
        return least, timed.get(least)

    def over_parent(
        self, parent: str, variant: str
    ) -> tuple[Ratio | None, Ratio | None, Finding, bool]:
        """The chained ratio of a step over its parent, that at the power limit, why there is no
        ratio, and whether a call of the step adds no time.
        """
        chained, alone = (
            self.ratio(parent, variant, regime, every=True) for regime in (HEADLINE, Regime.ALONE)
        )
        return chained, alone, self.why_no_ratio(parent, variant), self.is_idle(variant)

    def over_recordings(
        self, whole: LadderEvidence, names: tuple[str, str], ratio: Ratio, between_of: str = ""
    ) -> OverRecordings | None:
        """The ``ratio`` of two variants over all recordings of the same sources: others by the
        journal's medians, which vary as this one does. None where they were not timed together.
        """
        timing, journal = self.together(*names), whole.journal
        if timing is None:
            return None
        wanted = {name: timing.timing.fingerprints[name] for name in names}
        ratios, gpus = [ratio], {timing.timing.provenance.gpu_uuid}
        for entry in journal.sessions if journal else ():
            is_other = entry.shape == self.evidence.shape and entry.file != timing_name(timing.file)
            if entry.cut_short or not is_other:
                continue
            prints = {name: entry.fingerprints.get(name) for name in names}
            before, after = (float(entry.medians.get(name, 0)) for name in names)
            if prints == wanted and before > 0 and after > 0:
                middle = before / after
                low, high = (end and end * middle / ratio.ratio for end in (ratio.low, ratio.high))
                ratios.append(replace(ratio, ratio=middle, low=low, high=high))
                gpus.add(entry.gpu_uuid)
        return over_recordings(ratios, whole.between, len(gpus), between_of)

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
        if idle is None:
            return NOT_COLLECTED
        message = f"a call of {idle} adds no time to its neighbours"
        return finding("untimed.adds_nothing", message, variant=idle)


def lost_time(timing: TimedTogether, variant: str) -> Finding | None:
    """Why a variant that was timed has no time; None where it was not timed or has one."""
    if variant in timing.timing.wrong:
        message = f"the outputs of timed calls of {variant} were wrong: it has no time"
        return finding("untimed.wrong_outputs", message, variant=variant)
    return None


@dataclass(frozen=True)
class InRegime:
    """The time of a variant in one regime, and how many times faster than others it is there; None
    is not collected.

    ``fastest`` names the fastest reference there, which ``speedup_over_fastest`` is over.
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
    by_regime: dict[Regime, InRegime] = {}
    for regime in Regime:
        if time := times.time(variant, regime):
            fastest, over = times.least(references, variant, regime)
            by_regime[regime] = InRegime(
                microseconds=time,
                speedup_over_baseline=times.ratio(ladder.steps[0].variant, variant, regime),
                speedup_over_parent=times.ratio(parent, variant, regime),
                speedup_over_reference=times.ratio(ladder.primary_reference, variant, regime),
                speedup_over_fastest=over,
                fastest=fastest,
            )
    return by_regime


LEAST_INTENSITY = 4.0  # FLOP a byte: with fewer, no GPU since Turing is bound by arithmetic


@dataclass(frozen=True)
class AtShape:
    """Chained times at one shape, and how much faster the variant is than ``fastest``, the fastest
    reference timed there: those of the timing that has both.

    ``flops_per_second`` and ``bytes_per_second`` are the study's work over the time, whatever the
    kernel computes and moves besides.
    ``accuracy`` the error there as a multiple of the primary reference's. ``not_timed`` are
    references that were not timed beside the variant: the fastest one might be among them.
    ``alone`` is the ratio over the fastest with no other kernel, at the power limit. ``references``
    are the times of all beside it.
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
    not_timed: tuple[str, ...] = ()
    alone: Ratio | None = None
    references: Mapping[str, Time] = field(default_factory=dict, repr=False)

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
        return self.bytes_per_second / 1e12

    @property
    def is_traffic(self) -> bool:
        """Whether it has so little arithmetic a byte that the bytes are what counts."""
        return self.flops_per_second < LEAST_INTENSITY * self.bytes_per_second


@dataclass(frozen=True)
class AcrossShapes:
    """``geometric_mean`` is of the claimed ratios over the fastest reference at each shape; None
    without any.
    """

    variant: str
    shapes: tuple[AtShape, ...]

    @property
    def ratios(self) -> list[float]:
        """Over the fastest reference, where one was timed beside the variant."""
        return [r.claimed.ratio for r in self.shapes if r.claimed]

    @property
    @shown
    def geometric_mean(self) -> float | None:
        return geometric_mean(self.ratios)

    @property
    def untimed(self) -> Mapping[str, tuple[str, ...]]:
        """Reference to the shapes at which it was not timed, where it was at another."""
        shapes_by_reference: dict[str, tuple[str, ...]] = {}
        for name in dict.fromkeys(name for r in self.shapes for name in r.not_timed):
            shapes = tuple(r.shape for r in self.shapes if name in r.not_timed)
            if len(shapes) < len(self.shapes):
                shapes_by_reference[name] = shapes
        return shapes_by_reference


def geometric_mean(ratios: Iterable[float]) -> float | None:
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(added(logs) / len(logs)) if logs else None


def across_shapes(
    every: Iterable[ShapeTimes], references: Sequence[str], variant: str
) -> AcrossShapes:
    """The variant at every shape where its present sources were timed."""
    results = (at_shape(times, references, variant) for times in every)
    return AcrossShapes(variant, tuple(filter(None, results)))


def at_shape(times: ShapeTimes, references: Iterable[str], variant: str) -> AtShape | None:
    """None where its present sources were not timed there, or are not correct."""
    evidence = times.evidence
    time, work, recorded = times.time(variant), evidence.work, evidence.variants.get(variant)
    if time is None or work is None or recorded is None or not recorded.correct:
        return None
    others = [name for name in references if name != variant]
    fastest, over = times.least(others, variant)
    check = recorded.checks.get(evidence.shape)
    error = check.times_reference if check else None
    time = times.time(variant, beside=fastest) or time
    seconds = time.value * 1e-6
    return AtShape(
        shape=evidence.shape,
        parameters=evidence.parameters,
        microseconds=time,
        fastest=fastest,
        reference_microseconds=times.time(fastest, beside=variant) if fastest else None,
        speedup_over_fastest=over,
        flops_per_second=work.flops / seconds,
        bytes_per_second=work.bytes / seconds,
        accuracy=None if error is None else float(error),
        not_timed=tuple(r for r in others if times.ratio(r, variant) is None),
        alone=times.least(others, variant, Regime.ALONE)[1],
        references={r: time for r in others if (time := times.time(r, beside=variant))},
    )


TWIN_WITHIN = 1.01  # an interval of A/A controls that lies wholly beyond is no accident of 1 in 20
COMPANY_WITHIN = 0.03
BEFORE = {
    "interference.slowed": "something in these sessions slows the reference down: ",
    "interference.sped_up": "something in these sessions speeds the reference up: ",
    "interference.uncertain": "too uncertain to say: ",
}
LIMITS = (("power", "power-limited"), ("therm", "temperature-limited"))


@dataclass(frozen=True)
class Control:
    """A variant over a second group of its own instances: 1 where the intervals hold."""

    variant: str
    regime: Regime
    ratio: Ratio

    @property
    def is_off(self) -> bool:
        """Whether its interval excludes 1.0 by more than a percent."""
        low, high = self.ratio.low, self.ratio.high
        return (
            low is not None
            and high is not None
            and not (low <= TWIN_WITHIN and high >= 1 / TWIN_WITHIN)
        )


@dataclass(frozen=True)
class Interference:
    """The primary reference without steps and beside them: microseconds, and their ratio with its
    95 % interval, ``in_cycles`` if known, since other kernels change the clock. What waits for
    memory takes fewer cycles and more time at a lower clock: ratios in cycles and ``by_time`` on
    two sides of 1 are no difference.
    """

    reference: str
    alone: float = field(repr=False)
    together: float = field(repr=False)
    ratio: float
    in_cycles: bool = field(repr=False)
    low: float | None = None
    high: float | None = None
    by_time: Interval | None = field(default=None, repr=False)

    @property
    def is_disturbed(self) -> bool:
        """Whether it differs by more than 3 %, wherever in its interval it is."""
        low, high = (self.ratio if end is None else end for end in (self.low, self.high))
        return self.is_off and (low > 1 + COMPANY_WITHIN or high < 1 - COMPANY_WITHIN)

    @property
    def is_off(self) -> bool:
        """Whether it seems to differ by more than 3 %."""
        return abs(self.ratio - 1) > COMPANY_WITHIN and not self.is_clock

    @property
    def is_clock(self) -> bool:
        """Whether it differs in cycles, and to the other side in time."""
        if self.by_time is None or abs(self.ratio - 1) <= COMPANY_WITHIN:
            return False
        return (self.by_time.value > 1) != (self.ratio > 1)

    def said(self, shape: str = "") -> Finding:
        """Whether the reference takes as long beside the steps; if not, no ratio over it counts.
        ``shape`` where it is not the table's.
        """
        code = "interference.uncertain" if self.is_off else "interference.undisturbed"
        if self.is_disturbed:
            code = "interference.slowed" if self.ratio > 1 else "interference.sped_up"
        ends = ""
        if self.low is not None and self.high is not None:
            ends = f" [{change(self.low)}, {change(self.high)}]"
        unit = "cycles" if self.in_cycles else "time"
        in_time = self.by_time.value if self.by_time and self.is_clock else None
        clock = f", {change(in_time)} % in time, at another clock" if in_time else ""
        return finding(
            code,
            f"{BEFORE.get(code, '')}{self.reference} takes {self.alone:.4g} µs alone and "
            f"{self.together:.4g} µs beside the steps, {change(self.ratio)} %{ends} in {unit}"
            f"{clock}{suffix(shape)}",
            reference=self.reference,
            alone_us=self.alone,
            together_us=self.together,
            ratio=self.ratio,
            low=self.low,
            high=self.high,
            unit=unit,
            ratio_in_time=in_time,
            shape=shape,
        )


@dataclass(frozen=True)
class Throttling:
    """The GPU slowed itself down in a ``share`` of the rounds, for NVML's ``reasons``.
    ``sm_clock_mhz`` is that of the slowest ``variant``, ``most_mhz`` the highest seen on this GPU;
    None is not collected.
    """

    share: float
    reasons: tuple[str, ...]
    variant: str = ""
    sm_clock_mhz: float | None = None
    most_mhz: float | None = None

    @property
    def limits(self) -> tuple[str, ...]:
        """The power or temperature limits among the reasons."""
        return tuple(word for key, word in LIMITS if any(key in r.lower() for r in self.reasons))

    def finding(self, shapes: tuple[str, ...]) -> Finding:
        """At which shapes, how often, and down to which clock."""
        limits, reasons = self.limits or ("throttled",), () if self.limits else self.reasons
        because = f" ({', '.join(reasons)})" if reasons else ""
        clock, slowest, most = ABSENT, self.sm_clock_mhz, self.most_mhz
        if slowest is not None and most is not None:
            clock = f"{slowest / 1e3:.2f} GHz of {most / 1e3:.2f} ({self.variant})"
        return finding(
            "timing.throttled",
            f"the GPU was {' and '.join(limits)}{because} at "
            f"{', '.join(shapes)}, {'at most ' if len(shapes) > 1 else ''}in {percent(self.share)} "
            f"of the rounds: SM clock {clock}",
            limits=limits,
            reasons=reasons,
            shapes=shapes,
            several=len(shapes) > 1 or None,
            share=self.share,
            variant=self.variant,
            sm_clock_mhz=slowest,
            most_mhz=most,
            clock=ABSENT if clock == ABSENT else None,
        )


@dataclass(frozen=True)
class TimingFacts:
    """One timing: ``sessions`` (``most`` where a verdict was open) of ``instances`` of each variant
    in ``rounds``, and ``alone`` of references only. Calls take ``copies`` of constant inputs in
    turn. Variants had ``wrong`` timed outputs, or had ``fewer`` instances, for slow calls or too
    little memory.
    """

    file: str = field(repr=False)
    sessions: int
    instances: int
    rounds: int
    alone: int = field(repr=False)
    copies: int = field(repr=False)
    controls: tuple[Control, ...]
    interference: Interference | None
    throttling: Throttling | None
    most: int = field(repr=False)
    wrong: tuple[str, ...] = field(default=(), repr=False)
    fewer: tuple[str, ...] = field(default=(), repr=False)


def timing_facts(
    timing: TimedTogether | None, reference: str, most_mhz: float | None = None
) -> TimingFacts | None:
    """``most_mhz`` is the highest SM clock recorded for the GPU."""
    if timing is None:
        return None
    sessions = timing.timing.sessions
    every = [
        series
        for s in timing.timing.together
        for series in s.series
        if series.regime == Regime.CHAINED
    ]
    return TimingFacts(
        file=timing.file,
        sessions=timing.timing.fewest,
        most=len(timing.timing.together),
        instances=max((session.instances for session in timing.timing.together), default=0),
        rounds=max((len(series.microseconds) for series in every), default=0),
        alone=sum(session.alone for session in sessions),
        copies=timing.timing.copies,
        controls=tuple(_controls(timing)),
        interference=interference_of(timing, reference),
        throttling=_throttling(timing, most_mhz),
        wrong=tuple(timing.timing.wrong),
        fewer=tuple(_fewer(timing)),
    )


def _fewer(timing: TimedTogether) -> Iterator[str]:
    """Variants of which a session had fewer instances than it was to have."""
    planned = max((session.instances for session in timing.timing.together), default=0)
    for (variant, regime, control), times in timing.times.items():
        short = any(len(instances) < planned for instances in times.values())
        if regime == Regime.CHAINED and not control and short:
            yield variant


def _controls(timing: TimedTogether) -> Iterator[Control]:
    planned = timing.timing.first_planned
    for (variant, regime, control), second in timing.times.items():
        first = timing.times.get((variant, regime, False))
        ratio = ratio_of(first, second, planned) if control and first else None
        if ratio is not None:
            yield Control(variant, regime, ratio)


def interference_of(timing: TimedTogether, reference: str) -> Interference | None:
    """None where the reference was not timed chained both alone and beside the steps."""
    key = (reference, Regime.CHAINED, False)
    sides = [times_by_key.get(key, {}) for times_by_key in (timing.alone, timing.times)]
    times = [logarithms(side) for side in sides]
    if not all(times):
        return None
    cycles = [logarithms(side, in_cycles=True) for side in sides]
    in_cycles = all(cycles)
    by_time = between_sessions(*times)
    ratio = between_sessions(*cycles) if in_cycles else by_time
    before, after = (over_sessions(side).value for side in times)
    return Interference(
        reference=reference,
        alone=before,
        together=after,
        ratio=ratio.value,
        in_cycles=in_cycles,
        low=ratio.low,
        high=ratio.high,
        by_time=by_time if in_cycles else None,
    )


def _throttling(timing: TimedTogether, most_mhz: float | None) -> Throttling | None:
    """None where the GPU did not slow itself down, or nothing is known of it."""
    together = timing.timing.together
    shares = [float(s.throttled) for s in together if s.throttled is not None]
    if not shares or not any(shares):
        return None
    clocks = {
        variant: median(mhz)
        for (variant, regime, control), times in timing.times.items()
        if regime == Regime.CHAINED and not control and variant in timing.current
        if (mhz := [o.sm_clock_mhz for s in times.values() for o in s if o.sm_clock_mhz])
    }
    slowest = min(clocks, key=clocks.__getitem__, default="")
    return Throttling(
        share=fmean(shares),
        reasons=tuple(dict.fromkeys(reason for s in together for reason in s.reasons)),
        variant=slowest,
        sm_clock_mhz=clocks.get(slowest),
        most_mhz=most_mhz,
    )


def _session_warnings(facts: TimingFacts, shape: str) -> Iterator[Finding]:
    if facts.wrong:
        names = ", ".join(facts.wrong)
        message = (
            f"outputs of timed calls were wrong{suffix(shape)}, so that there is no time: {names}"
        )
        yield finding("timing.wrong_outputs", message, variants=facts.wrong, shape=shape)
    for control in facts.controls:
        if control.is_off:
            ratio, low, high = control.ratio.ratio, control.ratio.low, control.ratio.high
            yield finding(
                "timing.control",
                f"the A/A control of {control.variant}, {control.regime.value}{suffix(shape)}, is "
                f"{ratio:.3f} [{low:.3f}, {high:.3f}] and not 1: differences of this size mean "
                "nothing here",
                variant=control.variant,
                regime=control.regime.value,
                shape=shape,
                **control.ratio.numbers,
            )
    if facts.interference is not None and facts.interference.is_disturbed:
        yield facts.interference.said(shape)


def timing_warnings(by_shape: Mapping[str, TimingFacts | None], table: str) -> Iterator[Finding]:
    """Shapes other than the ``table``'s are named."""
    timed = {shape: facts for shape, facts in by_shape.items() if facts}
    for shape, facts in timed.items():
        yield from _session_warnings(facts, "" if shape == table else shape)
    yield from throttling_warnings({s: f.throttling for s, f in timed.items() if f.throttling})


def throttling_warnings(by_shape: Mapping[str, Throttling]) -> Iterator[Finding]:
    """One a reason with its shapes, of the largest share and then of the lowest clock."""
    limits = grouped(
        (throttling.limits or throttling.reasons, shape) for shape, throttling in by_shape.items()
    )
    for shapes in limits.values():
        worst = max(
            (by_shape[shape] for shape in shapes),
            key=lambda throttling: (throttling.share, -(throttling.sm_clock_mhz or math.inf)),
        )
        yield worst.finding(tuple(shapes))
