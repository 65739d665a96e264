"""Sums that are the same on every Python: since 3.12 ``sum`` adds floats otherwise than before."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add


def added(values: Iterable[float]) -> float:
    """One after the other, each sum rounded, as the figures on record were."""
    return reduce(add, values, 0)
