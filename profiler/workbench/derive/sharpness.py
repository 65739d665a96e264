"""How good a predicted range was, sharpness included. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

ALPHA = 0.2  # nobody stated a confidence: a range is taken as one that holds four times in five


@dataclass(frozen=True)
class Sharpness:
    """The interval scores of a range and of "no change", both of the log factor; 0 is the best."""

    range: float
    no_change: float

    @property
    def is_better(self) -> bool:
        """Whether the range said more than that nothing changes."""
        return self.range < self.no_change


def interval_score(low: float, high: float, value: float, alpha: float = ALPHA) -> float:
    """The width of the interval, and 2/alpha times the distance of a value outside of it.

    Negatively oriented and proper for the central 1 - alpha interval: Gneiting and Raftery (2007),
    Strictly proper scoring rules, eq. 43.
    """
    return (high - low) + 2 / alpha * (max(low - value, 0.0) + max(value - high, 0.0))


def sharpness(factors: tuple[float, float], before: float, after: float) -> Sharpness | None:
    """Of a range of factors over ``before``; None where a logarithm has no value.

    "No change" is the interval that holds the factor 1 alone.
    """
    if min(*factors, before, after) <= 0 or math.inf in (*factors, before, after):
        return None
    low, high = (math.log(factor) for factor in factors)
    value = math.log(after / before)
    return Sharpness(interval_score(low, high, value), interval_score(0.0, 0.0, value))
