"""Two versions of a text side by side: which line of one stands beside which of the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import PurePath
from typing import NamedTuple

ALIKE = 0.55  # a removed and an added line stand side by side where they have this much in common
MOST_PAIRS = 10_000  # a rewritten block larger than this is not searched for lines that are alike


class Pair(NamedTuple):
    """Lines that stand side by side; ``alike`` says that one was made of the other."""

    before: int | None
    after: int | None
    alike: bool = False


@dataclass(frozen=True)
class Block:
    """A run of lines: ``equal``, with before and after in step, or ``changed``, with its pairs.

    Lines count from 0; the ends are exclusive. Each pair has a line of
    before, of after or both.
    """

    equal: bool
    before: tuple[int, int]
    after: tuple[int, int]
    pairs: tuple[Pair, ...] = ()


def side_by_side(before: Sequence[str], after: Sequence[str]) -> list[Block]:
    """Every line of both texts once, in order (difflib's matching blocks, no junk heuristic)."""
    blocks = []
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        pairs = () if tag == "equal" else _pairs(before, after, (i1, i2), (j1, j2))
        blocks.append(Block(tag == "equal", (i1, i2), (j1, j2), pairs))
    return blocks


def _pairs(
    before: Sequence[str], after: Sequence[str], old: tuple[int, int], new: tuple[int, int]
) -> tuple[Pair, ...]:
    """Lines that are alike side by side, the others between them in order."""
    result: list[Pair] = []
    i, j = old[0], new[0]
    for at, beside in [*_anchors(before, after, old, new), (old[1], new[1])]:
        result += [Pair(a, b) for a, b in zip_longest(range(i, at), range(j, beside))]
        if at < old[1] and beside < new[1]:
            result.append(Pair(at, beside, True))
        i, j = at + 1, beside + 1
    return tuple(result)


def _anchors(
    before: Sequence[str], after: Sequence[str], old: tuple[int, int], new: tuple[int, int]
) -> list[tuple[int, int]]:
    """The increasing pairing of lines with the greatest sum of likeness."""
    rows, columns = old[1] - old[0], new[1] - new[0]
    if not rows or not columns or rows * columns > MOST_PAIRS:
        return []
    alike = [[_likeness(before[old[0] + i], after[new[0] + j]) for j in range(columns)]
             for i in range(rows)]  # fmt: skip
    best = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    for i in reversed(range(rows)):
        for j in reversed(range(columns)):
            paired = best[i + 1][j + 1] + alike[i][j] if alike[i][j] else 0.0
            best[i][j] = max(best[i + 1][j], best[i][j + 1], paired)
    found = []
    i = j = 0
    while i < rows and j < columns:
        if alike[i][j] and best[i][j] == best[i + 1][j + 1] + alike[i][j]:
            found.append((old[0] + i, new[0] + j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return found


def _likeness(old: str, new: str) -> float:
    """0 for lines that are not alike; brackets and blanks alone make no two lines alike."""
    a, b = old.strip(), new.strip()
    if sum(map(str.isalnum, a)) < 2 or sum(map(str.isalnum, b)) < 2:
        return 0.0
    if 2 * min(len(a), len(b)) < ALIKE * (len(a) + len(b)):
        return 0.0
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    if matcher.quick_ratio() < ALIKE:
        return 0.0
    found = matcher.ratio()
    return found if found >= ALIKE else 0.0


def paired_files(
    before: Sequence[str], after: Sequence[str]
) -> list[tuple[str | None, str | None]]:
    """File names of a parent and its child: the same name first, then by suffix, in order."""
    left = [name for name in before if name not in after]
    result: list[tuple[str | None, str | None]] = []
    for name in after:
        same: str | None = name if name in before else None
        if same is None:
            same = next((n for n in left if PurePath(n).suffix == PurePath(name).suffix), None)
            if same is not None:
                left.remove(same)
        result.append((same, name))
    return [*result, *((name, None) for name in left)]
