"""The first bad one of a row of states, of which the first is good and the last is bad. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Found:
    """Positions: ``first_bad`` was good at ``last_good``; those between could not be ``tested``."""

    last_good: int
    first_bad: int
    untested: tuple[int, ...] = ()


def first_bad(number: int, is_bad: Callable[[int], bool | None]) -> Found:
    """By halves. ``is_bad`` is asked of positions strictly between the first and the last of
    ``number``; None is that it cannot be told there, and another near the middle is asked.
    """
    good, bad = 0, number - 1
    unknown: set[int] = set()
    while left := [place for place in range(good + 1, bad) if place not in unknown]:
        middle = min(left, key=lambda place: abs(2 * place - good - bad))
        answer = is_bad(middle)
        if answer is None:
            unknown.add(middle)
        elif answer:
            bad = middle
        else:
            good = middle
    return Found(good, bad, tuple(range(good + 1, bad)))
