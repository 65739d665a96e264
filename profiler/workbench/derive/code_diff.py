"""The difference of two kernels' machine code, with what the instructions cost. Pure.

    diff = machine_code_diff(before, after)     two Listings
    diff.rows       both codes aligned, instruction by instruction
    diff.kinds      how many instructions of each kind, how often they ran, what they waited

The alignment maximises a score over the whole kernel (Needleman and Wunsch, 1970, without a penalty
for gaps): 4 for a pair with the same text, 3 where registers differ alone, 2 where constants or
addresses do. Instructions of another opcode or with operands of other kinds never pair.

An address in the kernel says nothing by itself: the target of a branch is the same if both targets
stand at the same place of the alignment. The names of a register mean nothing either, but another
name at the same place may mean another value: those pairs are counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from enum import StrEnum
from functools import cached_property
from itertools import accumulate, chain, groupby, pairwise, zip_longest
from typing import TYPE_CHECKING, NamedTuple

from workbench.derive.figures import summed, totals
from workbench.derive.source_diff import InstructionCost, Listing
from workbench.ncu.disassembly import kind_of
from workbench.words import grouped

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MOST_CELLS = 40_000_000  # of the table of scores, at two bytes
CONTEXT = 2  # unchanged instructions shown on both sides of a change
_REGISTER = re.compile(r"(?<![\w.])(U?[RP]|SB|B)(?:\d+|[ZT])(?![\w])")
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:0x[0-9a-f]+|\d+(?:\.\d*)?(?:e[-+]?\d+)?|INF|QNAN)(?!\w)")
_TARGET = re.compile(r"0x[0-9a-f]+(?=\)?$)")
PADDING = "NOP"  # after the end of the code
# What jumps, or names a place where warps meet again: CUDA Binary Utilities, instruction set.
_JUMPS = ("BRA", "BSSY", "CALL", "JMP", "SSY", "PBK", "WARPSYNC")
_ENDS = ("BRA", "BRX", "EXIT", "JMP", "JMX", "RET")
# Kinds of which one does the work of another, newer ones last.
FAMILIES = (
    ("HMMA", "HGMMA"),
    ("IMMA", "IGMMA"),
    ("QMMA", "QGMMA"),
    ("LDG", "LDGSTS", "UBLKCP", "UTMALDG"),
    ("STG", "UTMASTG"),
    ("BAR", "SYNCS"),
)
MEANINGS = {
    "HMMA": "tensor core, a warp",
    "HGMMA": "tensor core, a warpgroup",
    "IMMA": "tensor core, integers",
    "QGMMA": "tensor core, 8 bits",
    "LDG": "load, global memory",
    "STG": "store, global memory",
    "LDGSTS": "copy, global to shared memory",
    "UTMALDG": "TMA, global to shared memory",
    "UTMASTG": "TMA, shared to global memory",
    "UBLKCP": "bulk copy",
    "LDS": "load, shared memory",
    "STS": "store, shared memory",
    "LDSM": "matrix load, shared memory",
    "STSM": "matrix store, shared memory",
    "LDL": "load, local memory (spill)",
    "STL": "store, local memory (spill)",
    "MUFU": "special function",
    "BAR": "barrier of the block",
    "SYNCS": "barrier in shared memory",
    "SHFL": "exchange in a warp",
    "RED": "atomic",
    "ATOMG": "atomic, global memory",
}


class CodeChange(StrEnum):
    """How an instruction differs: not at all, in registers, in a constant, in where it jumps to, or
    in its place; or it is in one code alone.
    """

    SAME = "same"
    REGISTER = "register"
    CONSTANT = "constant"
    TARGET = "target"
    MOVED = "moved"
    REMOVED = "removed"
    ADDED = "added"


SAID = {
    CodeChange.SAME: "the same",
    CodeChange.REGISTER: "with other registers",
    CodeChange.CONSTANT: "with another constant",
    CodeChange.TARGET: "jumping elsewhere",
    CodeChange.MOVED: "moved in their block",
    CodeChange.REMOVED: "removed",
    CodeChange.ADDED: "added",
}


@dataclass(frozen=True)
class CodeRow:
    """An instruction of both codes, or of one. A moved one has two rows, each with one side."""

    before: InstructionCost | None
    after: InstructionCost | None
    change: CodeChange


@dataclass(frozen=True)
class KindCount:
    """Instructions of one kind. ``executed`` counts warps, ``microseconds`` are stall time under
    ncu; None is not collected.
    """

    kind: str
    before: int
    after: int
    executed_before: float | None
    executed_after: float | None
    microseconds_before: float | None
    microseconds_after: float | None

    @property
    def order(self) -> tuple[bool, int]:
        """First kinds that do work of their own and that one code lacks, then by the difference."""
        is_new = self.kind in MEANINGS and not (self.before and self.after)
        return not is_new, -abs(self.after - self.before)


@dataclass(frozen=True)
class CodeDiff:
    """The code of a ``kernel``, or of all kernels of a variant, on both sides."""

    kernel: str
    rows: tuple[CodeRow, ...]

    @property
    def sides(self) -> tuple[list[InstructionCost], list[InstructionCost]]:
        """What each code has of these rows."""
        rows = self.rows
        return [row.before for row in rows if row.before], [row.after for row in rows if row.after]

    @property
    def changed(self) -> CodeDiff:
        return replace(self, rows=tuple(r for r in self.rows if r.change != CodeChange.SAME))

    @cached_property
    def counts(self) -> Mapping[CodeChange, int]:
        """A moved instruction counts once."""
        counts = Counter(row.change for row in self.rows)
        counts[CodeChange.MOVED] //= 2
        return +counts

    @property
    def is_same(self) -> bool:
        return not self.changed.rows

    @cached_property
    def kinds(self) -> tuple[KindCount, ...]:
        """How many of each kind both codes have: what is new, then what differs most."""
        codes = [grouped((kind_of(cost.sass), cost) for cost in side) for side in self.sides]
        counts = []
        for kind in sorted({*codes[0], *codes[1]}):
            both = [code.get(kind, []) for code in codes]
            executed = (summed(cost.executed for cost in costs) for costs in both)
            times = (summed(cost.microseconds for cost in costs) for costs in both)
            counts.append(KindCount(kind, *map(len, both), *executed, *times))
        return tuple(sorted(counts, key=lambda count: count.order))

    @property
    def numbers(self) -> tuple[dict[str, int], dict[str, int]]:
        """How many instructions of each kind both codes have."""
        before, after = (Counter(kind_of(cost.sass) for cost in side) for side in self.sides)
        return before, after

    def in_words(self) -> str:
        """How the instructions of both codes belong together."""
        return ", ".join(
            f"{self.counts[c]:,} {said}" for c, said in SAID.items() if c in self.counts
        )

    def sentence(self) -> str:
        """Return what became of the code, in one line."""
        before, after = self.numbers
        if self.is_same:
            return f"the same machine code, {sum(before.values()):,} instructions"
        if before == after:
            return f"{sum(before.values()):,} instructions: {self.in_words()}"
        return sizes_and_summary(before, after)

    @property
    def hunks(self) -> Iterator[CodeDiff]:
        """Rows that changed with some around them, in the order of the code. Other registers alone
        make no hunk.
        """
        kept = (CodeChange.SAME, CodeChange.REGISTER)
        changed = [number for number, row in enumerate(self.rows) if row.change not in kept]
        near = {n + step for n in changed for step in range(-CONTEXT, CONTEXT + 1)}
        shown = enumerate(sorted(near & set(range(len(self.rows)))))
        spans = groupby(shown, lambda place: place[1] - place[0])  # numbers that follow each other
        return (replace(self, rows=tuple(self.rows[n] for _, n in span)) for _, span in spans)


def summary(before: Mapping[str, int], after: Mapping[str, int], most: int = 4) -> str:
    """The largest differences in the number of instructions of a kind, as one line; "" for none."""
    kinds = sorted({*before, *after} - {PADDING})
    left = {kind: after.get(kind, 0) - before.get(kind, 0) for kind in kinds}
    parts = []
    for family in FAMILIES:
        gone = [kind for kind in family if kind in before and kind not in after]
        come = [kind for kind in family if kind in after and kind not in before]
        if len(gone) == len(come) == 1:
            (old,), (new,) = gone, come
            parts.append(f"{after[new]:,} {new} in place of {before[old]:,} {old}")
            del left[old], left[new]
    for kind, difference in sorted(left.items(), key=lambda k: (-abs(k[1]), k[0] not in MEANINGS)):
        if difference:
            parts.append(f"{abs(difference):,} {'more' if difference > 0 else 'fewer'} {kind}")
    return "; ".join(parts[:most])


def sizes_and_summary(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """``1,070 → 716 instructions: 5 UTMALDG in place of 19 LDG; 145 fewer IMAD``."""
    sizes = f"{sum(before.values()):,} → {sum(after.values()):,} instructions"
    return f"{sizes}: {summary(before, after) or 'as many of each kind'}"


def machine_code_diff(before: Listing, after: Listing, *names: str) -> CodeDiff:
    """The difference of two variants or kernels with these ``names``. A variant's kernels pair by
    their order; one that is launched several times counts once, with what all launches cost.
    """
    kernels = zip_longest(_kernels(before), _kernels(after), fillvalue=())
    rows = chain.from_iterable(_aligned(*sides) for sides in kernels)
    return CodeDiff(" → ".join(dict.fromkeys(names)), tuple(rows))


def _kernels(listing: Listing) -> list[tuple[InstructionCost, ...]]:
    launches = (tuple(code) for _, code in groupby(listing.instructions, lambda cost: cost.launch))
    every = grouped((tuple(cost.sass for cost in code), code) for code in launches)
    return [tuple(map(_together, zip(*same, strict=True))) for same in every.values()]


def _together(costs: tuple[InstructionCost, ...]) -> InstructionCost:
    """One instruction with what it cost in all launches."""
    names = ("executed", "samples", "share", "microseconds")
    sums = {name: summed(getattr(cost, name) for cost in costs) for name in names}
    stalls = totals(item for cost in costs for item in cost.stalls.items())
    return replace(costs[0], stalls=stalls, **sums)  # type: ignore[arg-type]


class _Forms(NamedTuple):
    """The forms that instructions are compared by, as numbers in a row each: the text, it without
    the names of registers, and without constants too. ``targets`` are indices of the instructions
    that they jump to.
    """

    numbers: npt.NDArray[np.int32]
    targets: list[int | None]
    blocks: list[int]


def _forms(code: Sequence[InstructionCost], ids: dict[str, int]) -> _Forms:
    import numpy as np  # here, as a ladder imports this module and aligns nothing

    at_address = {cost.address: index for index, cost in enumerate(code)}
    numbers: list[list[int]] = []
    targets: list[int | None] = []
    for cost in code:
        text, target = cost.sass.rstrip(" ;"), None
        match = _TARGET.search(text) if kind_of(text) in _JUMPS else None
        if match and (target := at_address.get(int(match[0], 16))) is not None:
            text = f"{text[: match.start()]}<target>"
        masked = _REGISTER.sub(r"\1", text)
        forms = text, masked, _NUMBER.sub("#", masked)
        numbers.append([ids.setdefault(form, len(ids)) for form in forms])
        targets.append(target)
    starts = set(targets)
    begins = (n in starts or kind_of(code[n - 1].sass) in _ENDS for n in range(len(code)))
    return _Forms(np.array(numbers, np.int32).reshape(-1, 3), targets, list(accumulate(begins)))


def _aligned(
    before: Sequence[InstructionCost], after: Sequence[InstructionCost]
) -> Iterator[CodeRow]:
    import numpy as np

    ids: dict[str, int] = {}
    forms, forms_after = _forms(before, ids), _forms(after, ids)
    pairs = _pairs(forms, forms_after)
    moved = _moved(forms, forms_after, pairs)
    arrived = set(moved.values())
    stops = [(-1, -1), *pairs, (len(before), len(after))]
    places = np.array(stops)
    for (i, j), (stop_i, stop_j) in pairwise(stops):
        for n in range(i + 1, stop_i):
            change = CodeChange.MOVED if n in moved else CodeChange.REMOVED
            yield CodeRow(before[n], None, change)
        for n in range(j + 1, stop_j):
            yield CodeRow(None, after[n], CodeChange.MOVED if n in arrived else CodeChange.ADDED)
        if stop_i < len(before) and stop_j < len(after):
            change = _change(forms, forms_after, stop_i, stop_j, places)
            yield CodeRow(before[stop_i], after[stop_j], change)


def _change(
    before: _Forms, after: _Forms, i: int, j: int, places: npt.NDArray[np.int64]
) -> CodeChange:
    has_text, has_constants, _ = before.numbers[i] == after.numbers[j]
    if not has_text:
        return CodeChange.REGISTER if has_constants else CodeChange.CONSTANT
    targets = before.targets[i], after.targets[j]
    # The first pair from each target on: what was put in front of it belongs to its block.
    blocks = {
        int(places[:, side].searchsorted(x)) for side, x in enumerate(targets) if x is not None
    }
    return CodeChange.TARGET if None not in targets and len(blocks) > 1 else CodeChange.SAME


def _pairs(before: _Forms, after: _Forms) -> list[tuple[int, int]]:
    """Indices that belong together, rising. Of codes too long for a table only equal texts do."""
    import numpy as np

    height, width = len(before.numbers), len(after.numbers)
    if height * width > MOST_CELLS:
        texts = before.numbers[:, 0].tolist(), after.numbers[:, 0].tolist()
        blocks = SequenceMatcher(None, *texts, autojunk=False).get_matching_blocks()
        return [(block.a + n, block.b + n) for block in blocks for n in range(block.size)]
    size = np.uint16 if 4 * min(height, width) < 2**16 else np.uint32
    scores = np.zeros((height + 1, width + 1), size)
    weights = np.array([1, 1, 2], size)
    for i in range(height):
        gain = (before.numbers[i] == after.numbers) @ weights
        best = np.maximum(scores[i, 1:], scores[i, :-1] + gain)
        np.maximum.accumulate(best, out=scores[i + 1, 1:])
    pairs = []
    i, j = height, width
    while i and j:
        if scores[i, j] == scores[i - 1, j]:
            i -= 1
        elif scores[i, j] == scores[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((i, j))
    return pairs[::-1]


def _moved(before: _Forms, after: _Forms, pairs: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Instructions that stand at another place of the same block, but for their registers."""
    partners = {(before.blocks[i], after.blocks[j]) for i, j in pairs}
    places, places_after = map(set, zip(*pairs, strict=True)) if pairs else (set(), set())
    texts, texts_after = before.numbers[:, 1].tolist(), after.numbers[:, 1].tolist()
    free = grouped((text, j) for j, text in enumerate(texts_after) if j not in places_after)
    moved: dict[int, int] = {}
    for i, text in enumerate(texts):
        for j in free.get(text, ()) if i not in places else ():
            if (before.blocks[i], after.blocks[j]) in partners:
                free[text].remove(j)
                moved[i] = j
                break
    return moved
