"""Which of a step's figures moved most against its parent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from workbench.derive.figures import ISSUING, Figure, stall_label

TOP = 8
STALL_POINTS = 5.0  # a stall reason moved where its share did by this much
LEAST_FACTOR = 1.02  # smaller changes are noise
LEAST_POINTS = 1.0  # and so are those of a percentage by less than this
FROM_NOTHING = 1e3  # the rank of a change from or to zero, which has no factor
SAME_AS_ANOTHER = frozenset({"cycles"})  # tells what the duration tells


@dataclass(frozen=True)
class Move:
    label: str
    before: float
    after: float
    unit: str

    @property
    def factor(self) -> float | None:
        return self.after / self.before if self.before and self.after else None


def moved(before: Mapping[str, Figure], after: Mapping[str, Figure], top: int = TOP) -> list[Move]:
    """The ``top`` largest relative changes among figures that have a better direction, then every
    stall reason whose share moved by at least ``STALL_POINTS``, the largest first.
    """
    ranked = []
    for key, figure in after.items():
        if key not in before or not figure.better or key in SAME_AS_ANOTHER or _stall(key):
            continue
        move = Move(figure.label, before[key].value, figure.value, figure.unit)
        size = _size(move)
        if size >= math.log(LEAST_FACTOR):
            ranked.append((-size, key, move))
    return [move for *_, move in sorted(ranked, key=lambda item: item[:2])[:top]] + _stalls(
        before, after
    )


def _stall(key: str) -> bool:
    return key.startswith("stall.")


def _size(move: Move) -> float:
    """How far apart, as a logarithm; 0 where it is too little to speak of."""
    if move.before == move.after:
        return 0.0
    if move.unit.startswith("%") and abs(move.after - move.before) < LEAST_POINTS:
        return 0.0
    factor = move.factor
    return abs(math.log(factor)) if factor and factor > 0 else math.log(FROM_NOTHING)


def _stalls(before: Mapping[str, Figure], after: Mapping[str, Figure]) -> list[Move]:
    if not any(map(_stall, before)) or not any(map(_stall, after)):
        return []  # not collected on one side, which is not a share of zero
    moves = []
    for key in sorted({key for key in (*before, *after) if _stall(key)}):
        reason = key.removeprefix("stall.")
        label = "Issuing, not stalled" if reason == ISSUING else f"Stall: {stall_label(reason)}"
        was, came = (found[key].value if key in found else 0.0 for found in (before, after))
        if abs(came - was) >= STALL_POINTS:
            moves.append(Move(label, was, came, "% of samples"))
    return sorted(moves, key=lambda move: (-abs(move.after - move.before), move.label))
