"""Launches into groups, and the launches of two reports into pairs. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.derive.figures import added, summed
from workbench.ncu.report_file import Launch
from workbench.words import grouped

BY_HAND = "asked_for"
MATCHED = {
    "range": "the workbench's range, and name",
    "signature": "name and launch shape",
    "name_and_shape": "name without template arguments, and launch shape",
    "name": "name",
    "rest": "the only kernel left on either side",
    "asked_for": "the launches that were asked for",
}


@dataclass(frozen=True)
class LaunchGroup:
    """Launches of one kernel with one launch shape."""

    launches: tuple[Launch, ...]

    @property
    def typical(self) -> Launch:
        """The one whose duration is the median (the lower one of an even number)."""
        timed = sorted(
            (x for x in self.launches if x.microseconds is not None),
            key=lambda x: (x.microseconds or 0.0, x.index),
        )
        return timed[(len(timed) - 1) // 2] if timed else self.launches[0]

    @property
    def microseconds(self) -> float | None:
        """The time of all timed launches together; None where none was timed."""
        return summed(launch.microseconds for launch in self.launches)

    @property
    def rank(self) -> tuple[float, int]:
        """The most time first; what was not timed, or is no number, last."""
        time = self.microseconds
        is_timed = time is not None and math.isfinite(time)
        return (-(time or 0.0) if is_timed else 0.0, self.launches[0].index)


def groups(launches: Sequence[Launch]) -> list[LaunchGroup]:
    """Group launches by signature and launch shape, the most time first."""
    members = grouped(((launch.signature, launch.shape), launch) for launch in launches)
    made = [LaunchGroup(tuple(alike)) for alike in members.values()]
    return sorted(made, key=lambda group: group.rank)


@dataclass(frozen=True)
class LaunchPair:
    """Two launches that are compared, and by what they were matched."""

    before: Launch
    after: Launch
    how: str


@dataclass(frozen=True)
class PairGroup:
    """Pairs whose launches are of one kernel, shape and range on each side."""

    pairs: tuple[LaunchPair, ...]

    @property
    def typical(self) -> LaunchPair:
        """The pair whose duration before is the median."""
        chosen = LaunchGroup(tuple(pair.before for pair in self.pairs)).typical
        return next(pair for pair in self.pairs if pair.before == chosen)


@dataclass(frozen=True)
class Matching:
    """``pairs`` in the order of the first report; the others have no partner."""

    pairs: tuple[LaunchPair, ...]
    only_before: tuple[Launch, ...]
    only_after: tuple[Launch, ...]

    @property
    def groups(self) -> list[PairGroup]:
        """Group launches by signature and launch shape, the most time first."""
        members = grouped(
            ((*((x.signature, x.shape, x.range) for x in (p.before, p.after)), p.how), p)
            for p in self.pairs
        )
        made = [PairGroup(tuple(pairs)) for pairs in members.values()]
        return sorted(made, key=lambda g: -added(p.before.microseconds or 0.0 for p in g.pairs))


NOTHING_ELSE = object  # a key that no other launch has

# What the workbench profiled says by its range which variant it is of: many have one kernel's name.
RULES: tuple[tuple[str, Callable[[Launch], Any]], ...] = (
    ("range", lambda x: (x.range, x.signature, x.shape) if x.range else NOTHING_ELSE()),
    ("range", lambda x: (x.range, x.kernel) if x.range else NOTHING_ELSE()),
    ("signature", lambda x: (x.signature, x.shape)),
    ("name_and_shape", lambda x: (x.kernel, x.shape)),
    ("name", lambda x: x.signature),
    ("name", lambda x: x.kernel),
)


def match(before: Sequence[Launch], after: Sequence[Launch]) -> Matching:
    """Pair launches, the strictest rule first, equal ones in order of launch. The rest is paired
    only if it is one kernel on either side: it was renamed.
    """
    left, right = list(before), list(after)
    pairs: list[LaunchPair] = []
    for how, key in RULES:
        _take(left, right, pairs, how, key)
    if len({x.signature for x in left}) == 1 and len({x.signature for x in right}) == 1:
        _take(left, right, pairs, "rest", lambda x: None)
    pairs.sort(key=lambda pair: pair.before.index)
    return Matching(tuple(pairs), tuple(left), tuple(right))


def _take(
    left: list[Launch],
    right: list[Launch],
    pairs: list[LaunchPair],
    how: str,
    key: Callable[[Launch], Any],
) -> None:
    waiting = grouped((key(launch), launch) for launch in right)
    for launch in list(left):
        partners = waiting.get(key(launch))
        if partners:
            other = partners.pop(0)
            pairs.append(LaunchPair(launch, other, how))
            left.remove(launch)
            right.remove(other)
