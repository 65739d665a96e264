"""Sums that are the same on every Python: since 3.12 ``sum`` adds floats otherwise than before."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add
from typing import TypeVar

K = TypeVar("K")


def added(values: Iterable[float]) -> float:
    """One after the other, each sum rounded, as the figures on record were."""
    return reduce(add, values, 0)


def totals(parts: Iterable[tuple[K, float]]) -> dict[K, float]:
    """The sum of each key's values, in the order in which the keys first come."""
    sums: dict[K, float] = {}
    for key, value in parts:
        sums[key] = sums.get(key, 0.0) + value
    return sums
