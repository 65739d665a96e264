"""Two kernels' SASS block by block, aligned with the names of registers left out. Pure.

A block is what runs from a place that is branched to, or stands behind a branch, up to the next.
The blocks in which warps waited longest are looked at: each after block is paired with the before
block that has most of its instructions, and the two are aligned instruction by instruction. What
ptxas calls a register, a predicate or a barrier, and where it places code, is no difference.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property

from workbench.derive.sass.listing import Costed
from workbench.derive.sass.mix import Amount, amount
from workbench.ncu.instructions import BRANCHES

HOT = 0.02  # of all samples: a block with less is not looked at
SIMILAR = 0.3  # of the instructions of the larger block, to be taken for the same
MOST = 1500  # instructions of a block that are aligned: beyond, the time grows with the square
_REGISTER = re.compile(r"(?<![\w.])(U?[RPB]|SB|UR|UP)\d+(?![\w])")
_TARGET = re.compile(r"`\([^)]*\)|\b0x[0-9a-f]+$")
_COPY = re.compile(r"\.reuse\b")


@dataclass(frozen=True)
class Block:
    """Neighbouring instructions of one launch."""

    instructions: tuple[Costed, ...]

    @cached_property
    def cost(self) -> Amount:
        return amount(self.instructions)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        return tuple(map(normal, self.instructions))

    @property
    def launch(self) -> int:
        return self.instructions[0].launch

    @property
    def span(self) -> tuple[int, int]:
        """The addresses of its first and its last instruction."""
        return self.instructions[0].address, self.instructions[-1].address


@dataclass(frozen=True)
class Aligned:
    """An instruction on both sides; None where a side has none like it."""

    before: Costed | None
    after: Costed | None

    @property
    def same(self) -> bool:
        return self.before is not None and self.after is not None


@dataclass(frozen=True)
class BlockPair:
    """Two blocks instruction by instruction; one alone where the other side has none like it."""

    before: Block | None
    after: Block | None
    rows: tuple[Aligned, ...]

    @property
    def wait(self) -> float:
        """Stall time of both in microseconds, or shares where it is not known: what ranks them."""
        costs = [block.cost for block in (self.before, self.after) if block]
        if all(cost.microseconds is not None for cost in costs):
            return max(cost.microseconds or 0.0 for cost in costs)
        return max(cost.share or 0.0 for cost in costs)

    @property
    def is_same(self) -> bool:
        return all(row.same for row in self.rows)


def normal(one: Costed) -> str:
    """An instruction without the names that ptxas chose: registers, predicates, barriers, where a
    branch goes. Zero registers stay what they are, and so do constants, shapes and offsets.
    """
    parsed = one.parsed
    text = _COPY.sub("", one.sass.rstrip(" ;"))
    if parsed.is_a(*BRANCHES, "BSSY", "WARPSYNC"):
        text = _TARGET.sub("TARGET", text)
    return _REGISTER.sub(lambda match: match[1], text)


def blocks(instructions: Iterable[Costed]) -> list[Block]:
    """Those of all launches, in order."""
    launches: dict[int, list[Costed]] = {}
    for one in instructions:
        launches.setdefault(one.launch, []).append(one)
    return [block for code in launches.values() for block in _split(code)]


def _split(code: Sequence[Costed]) -> list[Block]:
    entered = {one.parsed.target for one in code if one.parsed.target is not None}
    found: list[list[Costed]] = [[]]
    for one in code:
        if found[-1] and one.address in entered:
            found.append([])
        found[-1].append(one)
        if one.parsed.is_a(*BRANCHES):
            found.append([])
    return [Block(tuple(each)) for each in found if each]


def hot(found: Sequence[Block]) -> list[Block]:
    """Those in which warps waited, the longest first."""
    waited = [block for block in found if (block.cost.share or 0.0) >= HOT]
    return sorted(waited, key=lambda block: (-(block.cost.share or 0.0), block.span))


def pairs(before: Iterable[Costed], after: Iterable[Costed]) -> list[BlockPair]:
    """The hot blocks of both sides, those with the most stall time first."""
    old, new = blocks(before), blocks(after)
    left, found = list(old), []
    for block in hot(new):
        twin = _likest(block, left)
        if twin is not None:
            left.remove(twin)
        found.append(_pair(twin, block))
    found += [_pair(block, None) for block in hot(old) if block in left]
    return sorted(found, key=lambda pair: -pair.wait)


def _likest(block: Block, others: Sequence[Block]) -> Block | None:
    """The one that shares the most instructions, in whatever order; None where none is alike. Of
    equals that in which warps waited longest.
    """
    mine = Counter(block.keys)
    likeness = [
        ((mine & Counter(other.keys)).total() / max(len(block.keys), len(other.keys)), other)
        for other in others
    ]
    best = max(likeness, key=lambda item: (item[0], item[1].cost.share or 0.0), default=None)
    return best[1] if best is not None and best[0] >= SIMILAR else None


def _pair(before: Block | None, after: Block | None) -> BlockPair:
    return BlockPair(before, after, tuple(_aligned(before, after)))


def _aligned(before: Block | None, after: Block | None) -> Iterable[Aligned]:
    old = before.instructions if before else ()
    new = after.instructions if after else ()
    if before is None or after is None or max(len(old), len(new)) > MOST:
        yield from (Aligned(one, None) for one in old)
        yield from (Aligned(None, one) for one in new)
        return
    matcher = SequenceMatcher(None, before.keys, after.keys, autojunk=False)
    for tag, i, i2, j, j2 in matcher.get_opcodes():
        if tag == "equal":
            pairs = zip(old[i:i2], new[j:j2], strict=True)
            yield from (Aligned(one, other) for one, other in pairs)
        else:
            yield from (Aligned(one, None) for one in old[i:i2])
            yield from (Aligned(None, one) for one in new[j:j2])
