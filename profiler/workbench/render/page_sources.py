"""The sources behind a page: each text once, its heat by variant, and the diffs as places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.derive.heat import COUNTERS, Heat, LineHeat
from workbench.derive.sides import Block, paired_files, side_by_side
from workbench.judge.ablation import Ablation


@dataclass(frozen=True)
class SourceFile:
    """A source as shown: ``key`` names it on the page, ``virtual`` in the line table."""

    key: str
    virtual: str
    text: str


@dataclass(frozen=True)
class Sources:
    """Each variant's files, and where its capture says that the warps waited."""

    files: Mapping[str, tuple[SourceFile, ...]] = field(default_factory=dict)
    heat: Mapping[str, Heat] = field(default_factory=dict)

    def pairs(self, parent: str, variant: str) -> list[tuple[str | None, str | None]]:
        """Files that differ between a parent and its child, as keys."""
        before = {file.key: file.text for file in self.files.get(parent, ())}
        after = {file.key: file.text for file in self.files.get(variant, ())}
        found = paired_files(list(before), list(after))
        return [(a, b) for a, b in found if before.get(a or "") != after.get(b or "")]


def code_first(keys: Iterable[str]) -> list[str]:
    """Modules last: the code that runs on the GPU is the argument."""
    return sorted(keys, key=lambda key: key.endswith(".py"))


def texts(sources: Sources) -> dict[str, str]:
    """Every file once, whichever variants share it."""
    return {file.key: file.text for files in sources.files.values() for file in files}


def diffs(ablation: Ablation, sources: Sources) -> dict[str, list[dict[str, Any]]]:
    """Of each step against its parent."""
    held = texts(sources)
    found: dict[str, list[dict[str, Any]]] = {}
    for row in ablation.rows:
        if row.step is None or row.step.parent is None:
            continue
        pairs = sources.pairs(row.step.parent, row.variant)
        for before, after in sorted(
            pairs, key=lambda pair: str(pair[1] or pair[0]).endswith(".py")
        ):
            old = held[before].splitlines() if before else []
            new = held[after].splitlines() if after else []
            blocks = [_block(block) for block in side_by_side(old, new)]
            found.setdefault(row.variant, []).append(
                {"before": before, "after": after, "blocks": blocks}
            )
    return found


def _block(block: Block) -> list[Any]:
    """[first before, first after, length] of equal lines, or [pairs], null where no line is."""
    if block.equal:
        return [block.before[0], block.after[0], block.before[1] - block.before[0]]
    return [[[p.before, p.after, 1] if p.alike else [p.before, p.after] for p in block.pairs]]


def heat(sources: Sources, reasons: list[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """Variant to file to line to its shares; a reason is its place in ``reasons``."""
    places = {reason: place for place, reason in enumerate(reasons)}
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for variant, files in sources.files.items():
        known = sources.heat.get(variant)
        if known is None:
            continue
        for file in files:
            lines = known.files.get(file.virtual, {})
            if lines:
                shown = {str(number): _line(line, places) for number, line in lines.items()}
                found.setdefault(variant, {})[file.key] = shown
    return found


def _line(line: LineHeat, places: Mapping[str, int]) -> list[Any]:
    """[[reason, share], ...] of stall samples, then the share of each of ``COUNTERS`` or null."""
    stalls = [[places[reason], round(share, 5)] for reason, share in line.stalls.items()]
    counters = [round(line.counters[key], 5) if key in line.counters else None for key in COUNTERS]
    return [stalls, *counters]


def all_reasons(sources: Sources, first: list[str]) -> list[str]:
    """``first``, then every further stall reason that some line has."""
    more = {
        reason
        for known in sources.heat.values()
        for lines in known.files.values()
        for line in lines.values()
        for reason in line.stalls
    }
    return [*first, *sorted(more - set(first))]
