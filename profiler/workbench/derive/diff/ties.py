"""Which hunks belong together: no hunk is sold without what it costs elsewhere. Pure.

- A hunk that calls a function or lambda which another hunk adds or removes is tied to it: the code
  that a loop was is now behind a call.
- A hunk that takes a wait away is tied to the hunks of its function that bring one, and the other
  way round: a wait that moves is not gone.

Ties by calls go from the caller to what it calls, and on to what that calls.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# What a line waits by: barriers of a block or warp, mbarriers, asynchronous copies, wgmma, grids.
_WAIT = re.compile(
    r"\b__sync(?:threads|warp)\w*|\bbar(?:rier)?(?:\.cta)?\.(?:sync|red)\b|\w*(?<![a-z])wait(?![a-z])"
    r"|\btry_wait|\.sync\s*\(|\b\w*barrier\w*(?:sync|wait)\w*\s*\(",
    re.IGNORECASE,
)
_CALL = re.compile(r"\b([A-Za-z_]\w*)\s*(?:<[^<>;(){}]*>)?\s*\(")
_LAMBDA = re.compile(r"\bauto\s*&{0,2}\s*(\w+)\s*=\s*\[")


def is_wait(code: str) -> bool:
    """Whether a line without its comments waits for other warps, copies or grids."""
    return _WAIT.search(code) is not None


def calls(code: str) -> set[str]:
    return set(_CALL.findall(code))


def lambdas(code: str) -> set[str]:
    """Names that a line gives to lambdas."""
    return set(_LAMBDA.findall(code))


@dataclass(frozen=True)
class Names:
    """What one side of a hunk, its changed lines, defines and calls; ``waits``: whether it waits.

    ``function`` is where the hunk stands.
    """

    function: str
    defines: frozenset[str]
    calls: frozenset[str]
    waits: bool


Sides = tuple[Names, Names]  # before and after


def ties(hunks: Sequence[Sides]) -> list[tuple[int, ...]]:
    """For each hunk the indices of those it is tied to, rising."""
    called = [
        {
            index
            for side in (0, 1)
            for index, other in enumerate(hunks)
            if other[side].defines & hunk[side].calls
        }
        for hunk in hunks
    ]
    moved = [_moved(hunks, index) for index in range(len(hunks))]
    return [
        tuple(sorted((_reached(called, index) | moved[index]) - {index}))
        for index in range(len(hunks))
    ]


def _reached(called: Sequence[set[int]], start: int) -> set[int]:
    found, left = {start}, [start]
    while left:
        more = called[left.pop()] - found
        found |= more
        left += more
    return found


def _moved(hunks: Sequence[Sides], index: int) -> set[int]:
    """Hunks of the same function that wait on the one side on which this one does not."""
    before, after = hunks[index]
    if before.waits == after.waits:
        return set()
    return {
        other
        for other, (old, new) in enumerate(hunks)
        if (old.waits, new.waits) == (after.waits, before.waits)
        if new.function == after.function
    }
