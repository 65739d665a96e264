"""Ratios and times with the intervals that hold: Student's t over sessions.

A session (a process) gives one number, whatever number of instances and rounds it is made of: what
its instances have in common cancels in a ratio, and what they do not is in the spread of the
sessions. docs/measuring.md has how often such intervals hold, and that those over rounds do not.
An interval holds for the GPU that the sessions ran on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, variance

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


@dataclass(frozen=True)
class Interval:
    """``value`` and the ends of its interval of ``level`` percent, which are None (not collected)
    of one session.

    A geometric mean over ``sessions``, each of which is one independent number.
    """

    value: float
    low: float | None
    high: float | None
    sessions: int
    level: int = LEVEL

    @property
    def half_width(self) -> float | None:
        """Of its logarithm."""
        if self.low is None or self.high is None:
            return None
        return math.log(self.high / self.low) / 2

    def holds(self, value: float) -> bool:
        """Whether a value lies in it; never without an interval."""
        return self.low is not None and self.high is not None and self.low <= value <= self.high


@dataclass(frozen=True)
class Ratio:
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
    def differs_in_cycles(self) -> bool:
        """Whether the clock is a part of it: by more than both intervals and one percent."""
        if self.cycles is None:
            return False
        own = Interval(self.ratio, self.low, self.high, self.sessions).half_width or 0.0
        room = max(LEAST_APART, own + (self.cycles.half_width or 0.0))
        return abs(math.log(self.ratio / self.cycles.value)) > room

    @property
    def inverse(self) -> Ratio:
        """How many times slower."""
        cycles = self.cycles
        return Ratio(
            1 / self.ratio,
            None if self.high is None else 1 / self.high,
            None if self.low is None else 1 / self.low,
            self.sessions,
            cycles
            and Interval(
                1 / cycles.value,
                None if cycles.high is None else 1 / cycles.high,
                None if cycles.low is None else 1 / cycles.low,
                cycles.sessions,
                cycles.level,
            ),
            self.level,
        )


def over_sessions(logarithms: Sequence[float], *, again: bool = False) -> Interval:
    """Of one logarithm a session: mean ± t(0.975, S - 1) · sd / √S, and back by the exponential.

    ``again``: t(0.995, S - 1), for an interval that is looked at a second time.
    """
    sessions, level = len(logarithms), LEVEL_AGAIN if again else LEVEL
    middle = fmean(logarithms)
    if sessions < 2:
        return Interval(math.exp(middle), None, None, sessions, level)
    quantile = _quantile(T_995 if again else T_975, sessions - 1)
    width = quantile * _deviation(tuple(logarithms)) / math.sqrt(sessions)
    return Interval(
        value=math.exp(middle),
        low=math.exp(middle - width),
        high=math.exp(middle + width),
        sessions=sessions,
        level=level,
    )


@lru_cache(maxsize=1 << 14)
def _deviation(drawn: tuple[float, ...]) -> float:
    """As ``statistics.stdev``, whose fractions take five times as long, to the last digit or two.
    Several tables have the same ratio.
    """
    middle = fmean(drawn)
    return math.sqrt(math.fsum((one - middle) ** 2 for one in drawn) / (len(drawn) - 1))


def between_sessions(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Of exp(mean(second) - mean(first)), one logarithm a session, of sessions that share nothing:
    Student's t with the pooled spread (NIST/SEMATECH e-Handbook, 7.3.1), so that a single session
    on one side is taken to vary as those on the other do.
    """
    n, m = len(first), len(second)
    middle, freedom = fmean(second) - fmean(first), n + m - 2
    if freedom < 1:
        return Interval(math.exp(middle), None, None, n + m)
    squares = math.fsum(
        variance(side) * (len(side) - 1) for side in (first, second) if len(side) > 1
    )
    width = _quantile(T_975, freedom) * math.sqrt(squares / freedom * (1 / n + 1 / m))
    return Interval(math.exp(middle), math.exp(middle - width), math.exp(middle + width), n + m)


def at_other_level(half_width: float, wanted: int, *, level: int, drawn: int) -> float:
    """Half of an interval of ``level`` percent over so many numbers ``drawn``, as one of ``wanted``
    percent.
    """
    known = {LEVEL: T_975, LEVEL_AGAIN: T_995}
    return half_width * _quantile(known[wanted], drawn - 1) / _quantile(known[level], drawn - 1)


def _quantile(quantiles: Sequence[float], freedom: int) -> float:
    return quantiles[min(freedom, len(quantiles)) - 1]


def mean_log(values: Sequence[float]) -> float:
    """Of the instances of one session."""
    return math.fsum(map(math.log, values)) / len(values)


def ratio_interval(
    first: Sequence[Sequence[float]],
    second: Sequence[Sequence[float]],
    *,
    again: bool = False,
) -> Interval:
    """Of first ÷ second, both [session][instance]: how much faster the second is."""
    return over_sessions(
        [mean_log(one) - mean_log(other) for one, other in zip(first, second, strict=True)],
        again=again,
    )


def time_interval(times: Sequence[Sequence[float]]) -> Interval:
    """The geometric mean over the instances of a session, then over sessions."""
    return over_sessions([mean_log(session) for session in times])
