"""How often the product's intervals hold: verdicts on ratios, and where their width comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.derive.intervals import Interval, over_sessions

Array = np.ndarray[Any, np.dtype[Any]]


def ratio_interval(first: Array, second: Array) -> Interval:
    """Of first ÷ second, both microseconds [session, instance]: how much faster the second is."""
    return over_sessions((np.log(first).mean(1) - np.log(second).mean(1)).tolist())


FASTER, SLOWER, SAME, OPEN = "faster", "slower", "no difference", "inconclusive"
LEAST_DIFFERENCE = 1.005  # what the interval must lie beyond for a difference to be claimed
SAME_WITHIN = 1.01  # what it must lie within for there to be none


def verdict(interval: Interval) -> str:
    """Of a variant, from the interval of the other's time ÷ its own."""
    low, high = interval.low, interval.high
    if low is None or high is None:
        return OPEN
    if low > LEAST_DIFFERENCE:
        return FASTER
    if high < 1 / LEAST_DIFFERENCE:
        return SLOWER
    if low > 1 / SAME_WITHIN and high < SAME_WITHIN:
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
