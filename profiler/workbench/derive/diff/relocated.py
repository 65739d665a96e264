"""Blocks of code that a diff removes in one place and adds in another, as they were. Pure.

A helper that moves into an included file is no new code: its lines keep their cost, and only the
place is another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.derive.diff.alignment import trivial
from workbench.derive.diff.costs import Cost, add

LEAST_LINES = 3  # of code that says something: fewer are alike by chance


@dataclass(frozen=True)
class ChangedLine:
    """One line that was removed or added: its file, number, code without comments, and cost."""

    file: str
    number: int
    code: str
    cost: Cost


@dataclass(frozen=True)
class RelocatedBlock:
    """A block of lines with its place and cost on both sides; ``lines`` are (first, last)."""

    files: tuple[str, str]
    before_lines: tuple[int, int]
    after_lines: tuple[int, int]
    before: Cost
    after: Cost


def relocated_blocks(
    removed: Sequence[ChangedLine], added: Sequence[ChangedLine]
) -> tuple[RelocatedBlock, ...]:
    """The longest blocks first found in the order of ``added``, each line in one block at most.

    Both are in file order and without lines that have no code; lines of a block follow each other
    with nothing but blanks and comments between them.
    """
    starts: dict[str, list[int]] = {}
    for index, line in enumerate(removed):
        if not trivial(line.code):
            starts.setdefault(line.code, []).append(index)
    used: set[int] = set()
    result = []
    at = 0
    while at < len(added):
        sizes = [
            (_size(removed, added, start, at, used), -start)
            for start in starts.get(added[at].code, ())
        ]
        size, start = max(sizes, default=(0, 0))
        block = added[at : at + size]
        if sum(not trivial(line.code) for line in block) < LEAST_LINES:
            at += 1
            continue
        source = removed[-start : -start + size]
        used.update(range(-start, -start + size))
        result.append(_block(source, block))
        at += size
    return tuple(result)


def _size(
    removed: Sequence[ChangedLine],
    added: Sequence[ChangedLine],
    start: int,
    at: int,
    used: set[int],
) -> int:
    size = 0
    while start + size < len(removed) and at + size < len(added):
        one, other = removed[start + size], added[at + size]
        if start + size in used or one.code != other.code:
            break
        if (one.file, other.file) != (removed[start].file, added[at].file):
            break
        size += 1
    return size


def _block(source: Sequence[ChangedLine], target: Sequence[ChangedLine]) -> RelocatedBlock:
    return RelocatedBlock(
        files=(source[0].file, target[0].file),
        before_lines=(source[0].number, source[-1].number),
        after_lines=(target[0].number, target[-1].number),
        before=add(line.cost for line in source),
        after=add(line.cost for line in target),
    )
