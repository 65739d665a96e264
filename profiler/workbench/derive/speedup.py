"""Times of variants and speedups from timing sessions and recordings, with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import fmean, median, variance
from typing import TYPE_CHECKING

from workbench.words import Regime, grouped

if TYPE_CHECKING:
    from workbench.evidence.records import Series, Session


# Quantiles 0.975 of Student's t for 1 to 30 degrees of freedom (NIST/SEMATECH e-Handbook of
# Statistical Methods, 1.3.6.7.2). With more the last one is taken: the interval is a little wide.
T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
T_995 = (  # and 0.995, where sessions were added because a verdict was open: see docs/trust.md
    63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169,
    3.106, 3.055, 3.012, 2.977, 2.947, 2.921, 2.898, 2.878, 2.861, 2.845,
    2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756, 2.750,
)  # fmt: skip
LEVEL, LEVEL_AGAIN = 95, 99  # percent
LEAST_APART = 0.01  # ratios in time and in cycles that differ by less say the same


class Ends:
    """An interval from ``low`` to ``high``, of which None is not collected."""

    low: float | None
    high: float | None

    @property
    def half_width(self) -> float | None:
        """Half of the width of the logarithm's interval."""
        if self.low is None or self.high is None:
            return None
        return math.log(self.high / self.low) / 2


@dataclass(frozen=True)
class Interval(Ends):
    """A geometric mean over ``sessions``, each an independent number, and the ends of its interval
    of ``level`` percent: None (not collected) of one session.
    """

    value: float
    low: float | None
    high: float | None
    sessions: int
    level: int = LEVEL


@dataclass(frozen=True)
class Ratio(Ends):
    """How many times faster; above 1 is faster. ``low`` and ``high`` are of the interval of
    ``level`` percent over ``sessions``, None (not collected) where there is but one; ``cycles`` is
    the same in SM cycles.
    """

    ratio: float
    low: float | None
    high: float | None
    sessions: int = 0
    cycles: Interval | None = None
    level: int = LEVEL

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends of the interval, or twice the ratio where there is none."""
        low, high = (self.ratio if end is None else end for end in (self.low, self.high))
        return low, high

    @property
    def other_level(self) -> int | None:
        """The level where it is not the usual one."""
        return None if self.level == LEVEL else self.level

    @property
    def at_level(self) -> str:
        return f" at {self.level} %" if self.other_level else ""

    @property
    def words(self) -> str:
        """``1.180x [1.170, 1.190]``, without what was not collected."""
        if self.low is None or self.high is None:
            return f"{self.ratio:.3f}x"
        return f"{self.ratio:.3f}x [{self.low:.3f}, {self.high:.3f}]"

    @property
    def numbers(self) -> dict[str, float | None]:
        """The ratio with its ends, as values of a finding."""
        return {"ratio": self.ratio, "low": self.low, "high": self.high}

    @property
    def differs_in_cycles(self) -> bool:
        """Whether the clock is a part of it: by more than both intervals and one percent."""
        if self.cycles is None:
            return False
        room = max(LEAST_APART, (self.half_width or 0.0) + (self.cycles.half_width or 0.0))
        return abs(math.log(self.ratio / self.cycles.value)) > room


def smaller(in_turn: Ratio | None, alone: Ratio | None) -> Ratio | None:
    """Take the smaller ratio, which is claimed: a power-hungry kernel has a lower clock alone."""
    measured = [ratio for ratio in (in_turn, alone) if ratio]
    return min(measured, key=lambda ratio: ratio.ratio) if in_turn else None


def over_sessions(logarithms: Sequence[float], *, again: bool = False) -> Interval:
    """Average one logarithm a session: mean ± t(0.975, S - 1) · sd / √S, then the exponential.

    ``again``: t(0.995, S - 1), for an interval that is looked at a second time.
    """
    sessions, level = len(logarithms), LEVEL_AGAIN if again else LEVEL
    middle = fmean(logarithms)
    if sessions < 2:
        return Interval(math.exp(middle), None, None, sessions, level)
    quantile = quantile_of(T_995 if again else T_975, sessions - 1)
    width = quantile * _deviation(tuple(logarithms)) / math.sqrt(sessions)
    ends = math.exp(middle - width), math.exp(middle + width)
    return Interval(math.exp(middle), *ends, sessions, level)


@lru_cache(maxsize=1 << 14)
def _deviation(drawn: tuple[float, ...]) -> float:
    """Compute ``statistics.stdev``, five times as fast; several tables have the same ratio."""
    middle = fmean(drawn)
    return math.sqrt(math.fsum((logarithm - middle) ** 2 for logarithm in drawn) / (len(drawn) - 1))


def between_sessions(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Estimate exp(mean(second) - mean(first)) of sessions that share nothing.

    Each has one logarithm. The interval is Student's t with the pooled spread (NIST/SEMATECH
    e-Handbook, 7.3.1), so that a single session on one side is taken to vary as those on the other
    do.
    """
    n, m = len(first), len(second)
    middle, freedom = fmean(second) - fmean(first), n + m - 2
    if freedom < 1:
        return Interval(math.exp(middle), None, None, n + m)
    squares = math.fsum(
        variance(side) * (len(side) - 1) for side in (first, second) if len(side) > 1
    )
    width = quantile_of(T_975, freedom) * math.sqrt(squares / freedom * (1 / n + 1 / m))
    return Interval(math.exp(middle), math.exp(middle - width), math.exp(middle + width), n + m)


def quantile_of(quantiles: Sequence[float], freedom: int) -> float:
    return quantiles[min(freedom, len(quantiles)) - 1]


@dataclass(frozen=True)
class Time:
    """Microseconds that a call adds, a geometric mean over instances and sessions, with its 95 %
    interval (None of one session). ``sm_clock_mhz`` is the median inside of the timed graphs, if
    collected. ``unchecked``: of calls in a stream, which no graph can capture.
    """

    value: float
    low: float | None
    high: float | None
    regime: Regime
    sessions: int
    instances: int
    sm_clock_mhz: float | None = None
    unchecked: bool = field(default=False, repr=False)
    level: int = LEVEL


@dataclass(frozen=True)
class InstanceTime:
    """One instance: microseconds and kilocycles that a call adds, medians over its rounds.

    ``kilocycles`` (microseconds × MHz ÷ 1000) and ``sm_clock_mhz`` are None where not collected.
    """

    microseconds: float
    kilocycles: float | None
    sm_clock_mhz: float | None
    unchecked: bool = False


SessionTimes = Mapping[int, tuple[InstanceTime, ...]]  # the instances of a variant by session
Key = tuple[str, Regime, bool]  # variant, regime, whether it is the A/A control


def instance_time(series: Series) -> InstanceTime:
    series = series.settled
    return InstanceTime(
        microseconds=median(series.added),
        kilocycles=_kilocycles(series),
        sm_clock_mhz=median(series.mhz) if series.mhz else None,
        unchecked=series.unchecked,
    )


def _kilocycles(series: Series) -> float | None:
    """Each graph's by the clock inside of it."""
    if not series.mhz or (series.around and not series.around_mhz):
        return None
    whole = [t * mhz for t, mhz in zip(series.microseconds, series.mhz, strict=True)]
    if series.around:
        around = zip(series.around, series.around_mhz, strict=True)
        whole = [w - t * mhz for w, (t, mhz) in zip(whole, around, strict=True)]
    return median(whole) / 1e3


def session_times(
    sessions: Iterable[Session], wrong_outputs: Collection[str] = ()
) -> Mapping[Key, SessionTimes]:
    """Collect instance times by variant, regime and A/A control.

    A variant has none in any session if an output of a timed call was wrong.
    """
    times: dict[Key, dict[int, tuple[InstanceTime, ...]]] = {}
    for session in sessions:
        measured = grouped(
            ((series.variant, series.regime, series.control), instance_time(series))
            for series in session.series
            if series.variant not in wrong_outputs
        )
        for key, instances in measured.items():
            times.setdefault(key, {})[session.number] = tuple(instances)
    return times


def adds_nothing(times: SessionTimes) -> bool:
    """Whether an instance takes no time at all, or less: such a call has no logarithm."""
    return any(instance.microseconds <= 0 for session in times.values() for instance in session)


def logarithms(times: SessionTimes, *, in_cycles: bool = False) -> list[float]:
    """Each session's mean logarithm of µs, or of kilocycles; empty if one is not above zero."""
    every = [
        [
            (instance.kilocycles or 0.0) if in_cycles else instance.microseconds
            for instance in session
        ]
        for session in times.values()
    ]
    if any(value <= 0 for session in every for value in session):
        return []
    return [math.fsum(map(math.log, session)) / len(session) for session in every]


def time_of(times: SessionTimes, regime: Regime) -> Time | None:
    """None without a session, and where a call adds nothing."""
    drawn = logarithms(times)
    if not drawn:
        return None
    interval = over_sessions(drawn)
    clocks = [o.sm_clock_mhz for s in times.values() for o in s if o.sm_clock_mhz is not None]
    return Time(
        value=interval.value,
        low=interval.low,
        high=interval.high,
        regime=regime,
        sessions=interval.sessions,
        instances=sum(len(session) for session in times.values()),
        sm_clock_mhz=median(clocks) if clocks else None,
        unchecked=any(instance.unchecked for session in times.values() for instance in session),
    )


def ratio_of(before: SessionTimes, after: SessionTimes, planned: int = 0) -> Ratio | None:
    """How many times faster ``after`` is, from the sessions that have both; None without any. If
    these are more than ``planned`` (0: as many as there are), its interval is the wider one of a
    second look.
    """
    shared = [number for number in before if number in after]
    sides = [{number: side[number] for number in shared} for side in (before, after)]
    quotients = []
    for in_cycles in (False, True):
        old, new = (logarithms(side, in_cycles=in_cycles) for side in sides)
        differences = [a - b for a, b in zip(old, new, strict=True)] if old and new else []
        quotients.append(
            over_sessions(differences, again=len(shared) > planned > 0) if differences else None
        )
    time, cycles = quotients
    return (
        Ratio(time.value, time.low, time.high, time.sessions, cycles, time.level) if time else None
    )


TINY = 1e-12  # the least variance of a logarithm


@dataclass(frozen=True)
class OverRecordings:
    """A ratio over recordings on GPUs of one model, with the interval of 95 percent of its mean and
    that in which a later recording lies. ``between`` is the standard deviation of its logarithm
    between recordings; ``low`` to ``between`` are None where nothing is known of that.
    ``between_of`` is the model of GPU that it was measured on, if that is another one.
    """

    ratio: float
    low: float | None
    high: float | None
    later_low: float | None
    later_high: float | None
    between: float | None
    recordings: int
    gpus: int = 1
    between_of: str = ""


def over_recordings(
    ratios: Sequence[Ratio], known_between: float | None = None, gpus: int = 1, between_of: str = ""
) -> OverRecordings:
    """Random effects: a recording varies with its sessions and between recordings. That variance
    is estimated by Paule and Mandel (Consensus values and weighting factors, J. Res. NBS 87, 1982;
    its interval with Student's t by Hartung and Knapp, Statistics in Medicine 20, 2001), and is
    not taken to be less than what is known of such ratios: few recordings say little of it.
    """
    values = [math.log(ratio.ratio) for ratio in ratios]
    variances = [variance_of(ratio) for ratio in ratios]
    freedom = len(values) - 1
    between = max(paule_mandel(values, variances), (known_between or 0.0) ** 2)
    middle, mean, _ = _weighted(values, variances, between)
    ratio = math.exp(middle)
    if known_between is None and not freedom:
        return OverRecordings(ratio, None, None, None, None, None, 1, gpus, between_of)
    quantile = T_975[-1] if known_between is not None else quantile_of(T_975, freedom)
    ends = [
        math.exp(middle + sign * quantile * math.sqrt(square))
        for square in (mean, mean + between + fmean(variances))
        for sign in (-1, 1)
    ]
    low, high, later_low, later_high = ends
    spread = math.sqrt(between)
    return OverRecordings(
        ratio, low, high, later_low, later_high, spread, len(values), gpus, between_of
    )


def paule_mandel(values: Sequence[float], variances: Sequence[float]) -> float:
    """The variance between values, each with its variance, at which the sum of their
    weighted squares is their degrees of freedom; 0 where it is less without any.
    """
    low, high = 0.0, (max(values) - min(values)) ** 2 * len(values)
    if _weighted(values, variances, low)[2] <= len(values) - 1:
        return low
    for _ in range(60):
        middle = (low + high) / 2
        too_many = _weighted(values, variances, middle)[2] > len(values) - 1
        low, high = (middle, high) if too_many else (low, middle)
    return high


def _weighted(
    values: Sequence[float], variances: Sequence[float], between: float
) -> tuple[float, float, float]:
    """Their mean, its variance, and the sum of their squares around it."""
    weights = [1 / max(variance + between, TINY) for variance in variances]
    total = math.fsum(weights)
    middle = math.fsum(w * value for w, value in zip(weights, values, strict=True)) / total
    squares = (w * (v - middle) ** 2 for w, v in zip(weights, values, strict=True))
    return middle, 1 / total, math.fsum(squares)


def variance_of(ratio: Ratio) -> float:
    """Derive the variance of the logarithm from its interval; 0 for one session, which has none."""
    quantiles = T_995 if ratio.level == LEVEL_AGAIN else T_975
    if ratio.half_width is None or ratio.sessions < 2:
        return 0.0
    return (ratio.half_width / quantile_of(quantiles, ratio.sessions - 1)) ** 2
