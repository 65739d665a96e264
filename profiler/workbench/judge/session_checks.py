"""Checks a timing by its own sessions: A/A controls, references alone, clocks. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import fmean, median

from workbench.derive.speedup import (
    Interval,
    Ratio,
    between_sessions,
    logarithms,
    over_sessions,
    ratio_of,
)
from workbench.judge.findings import Finding, change, finding, percent, suffix
from workbench.load import LadderEvidence, TimedTogether
from workbench.words import ABSENT, Regime

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
    throttling, fewer = _throttling(timing, most_mhz), tuple(_fewer(timing))
    interference = interference_of(timing, reference)
    controls = [
        Control(variant, regime, ratio)
        for (variant, regime, control), second in timing.times.items()
        if control and (first := timing.times.get((variant, regime, False)))
        if (ratio := ratio_of(first, second, timing.timing.first_planned))
    ]
    return TimingFacts(
        file=timing.file,
        sessions=timing.timing.fewest,
        most=len(timing.timing.together),
        instances=max((session.instances for session in timing.timing.together), default=0),
        rounds=max((len(series.microseconds) for series in every), default=0),
        alone=sum(session.alone for session in sessions),
        copies=timing.timing.copies,
        throttling=throttling,
        wrong=tuple(timing.timing.wrong),
        fewer=fewer,
        controls=tuple(controls),
        interference=interference,
    )


def _fewer(timing: TimedTogether) -> Iterator[str]:
    """Variants of which a session had fewer instances than it was to have."""
    planned = max((session.instances for session in timing.timing.together), default=0)
    for (variant, regime, control), times in timing.times.items():
        short = any(len(instances) < planned for instances in times.values())
        if regime == Regime.CHAINED and not control and short:
            yield variant


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


def highest_mhz(evidence: LadderEvidence) -> float | None:
    """The highest SM clock recorded for this GPU, in captures and in timed graphs."""
    shapes = evidence.shapes.values()
    captured = (v.figures.get("sm_clock") for shape in shapes for v in shape.variants.values())
    timed = (mhz for shape in shapes for timing in shape.timings for mhz in timing.clocks)
    return max((*(1e3 * clock.value for clock in captured if clock), *timed), default=None)
