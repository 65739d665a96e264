"""The interval of a ratio from sessions of several instances, and how often such intervals hold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
LEVEL = 0.95
# Student's t, two-sided 95 %, for 1 to 30 degrees of freedom.
T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True)
class Interval:
    """Of a ratio: its value, and the ends of the 95 % interval."""

    ratio: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        return math.log(self.high / self.low) / 2

    def holds(self, ratio: float) -> bool:
        return self.low <= ratio <= self.high


def ratio_interval(first: Array, second: Array) -> Interval:
    """Of first ÷ second, both microseconds [session, instance]: how much faster the second is.

    A session gives one number, the difference of the mean logarithms of its instances; the
    interval is Student's t over the sessions. What a session's instances have in common cancels,
    what they do not is in the spread of the sessions.
    """
    per_session = np.log(first).mean(1) - np.log(second).mean(1)
    sessions = len(per_session)
    if not 2 <= sessions <= len(T_95) + 1:
        raise ValueError(f"{sessions} sessions: from 2 to {len(T_95) + 1} are expected")
    middle = float(per_session.mean())
    width = T_95[sessions - 2] * float(per_session.std(ddof=1)) / math.sqrt(sessions)
    return Interval(
        ratio=math.exp(middle),
        low=math.exp(middle - width),
        high=math.exp(middle + width),
    )


FASTER, SLOWER, SAME, OPEN = "faster", "slower", "no difference", "inconclusive"
LEAST_DIFFERENCE = 1.005  # what the interval must lie beyond for a difference to be claimed
SAME_WITHIN = 1.01  # what it must lie within for there to be none


def verdict(interval: Interval) -> str:
    """Of a variant, from the interval of the other's time ÷ its own."""
    if interval.low > LEAST_DIFFERENCE:
        return FASTER
    if interval.high < 1 / LEAST_DIFFERENCE:
        return SLOWER
    if interval.low > 1 / SAME_WITHIN and interval.high < SAME_WITHIN:
        return SAME
    return OPEN


@dataclass(frozen=True)
class Spread:
    """Standard deviations of a logarithm: of instances, and of sessions beyond them."""

    instances: float
    sessions: float


def spread(times: Array) -> Spread:
    """Of microseconds [session, instance]."""
    logs = np.log(times)
    within = float(logs.var(axis=1, ddof=1).mean())
    between = float(logs.mean(1).var(ddof=1)) - within / logs.shape[1]
    return Spread(instances=math.sqrt(within), sessions=math.sqrt(max(0.0, between)))
