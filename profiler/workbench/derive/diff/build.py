"""From the diff of two variants to what its lines cost before and after. Pure.

    found = source_diff(Profiled(texts, costs), Profiled(texts, costs))
    found.hunks      each with its place, its lines, and their cost before and after
    found.files      both sources whole, side by side, row by row: what a page shows
    found.shifts     unchanged lines whose stall time changed most

A hunk's cost is that of its removed, added and rewritten lines. Lines that differ in comments or
blanks alone are shown as changed but count as unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import PurePath

from workbench.derive.diff.alignment import Source, align, pair_changed, source
from workbench.derive.diff.costs import Cost, LineCosts, add, line_costs
from workbench.derive.diff.functions import functions
from workbench.derive.diff.model import (
    NOTHING,
    DiffRow,
    FileDiff,
    Hunk,
    Line,
    Profiled,
    Shift,
    SourceDiff,
    base,
    is_host,
)
from workbench.derive.diff.relocated import ChangedLine, relocated_blocks
from workbench.ncu.capture import Capture
from workbench.words import LineKind

JOINED = 2  # hunks with so few unchanged lines between them are one


@dataclass
class _Numbers:
    last: int = 0


def pair_files(before: Iterable[str], after: Iterable[str]) -> list[tuple[str, str]]:
    """Files of both sides that belong together, in the order of ``after``; "" for no partner.

    First by equal names, then by equal base names, then the rest of one suffix in order.
    """
    left, result = list(before), {}
    names = list(after)
    for same in (
        lambda a, b: a == b,
        lambda a, b: base(a) == base(b),
        lambda a, b: PurePath(a).suffix == PurePath(b).suffix,
    ):
        for name in names:
            partner = next((a for a in left if name not in result and same(a, name)), None)
            if partner is not None:
                result[name] = partner
                left.remove(partner)
    return [(result.get(name, ""), name) for name in names] + [(name, "") for name in left]


def profiled(texts: Mapping[str, str], capture: Capture | None, why: str = "") -> Profiled:
    """One side from a capture; ``why`` tells the reason where there is none."""
    if capture is None:
        return Profiled(texts, None, why or "no capture")
    costs = line_costs(capture.lines, capture.metrics, capture.collected)
    if not costs.has_lines:
        return Profiled(texts, None, "its capture has no source lines")
    return Profiled(texts, costs)


def source_diff(before: Profiled, after: Profiled) -> SourceDiff:
    numbers = _Numbers()
    files = tuple(
        _file_diff(before, after, old, new, numbers)
        for old, new in pair_files(before.texts, after.texts)
    )
    kept = [(file, row) for file in files for row in file.rows if not row.counts]
    shifts = [
        Shift((file.before, file.after), row.before, row.after)
        for file, row in kept
        if row.before and row.after
    ]
    moved = [s for s in shifts if s.change] if before.costs and after.costs else []
    sides = (before, after)
    outside = [
        {f: c for f, c in side.costs.by_file().items() if f not in side.texts} if side.costs else {}
        for side in sides
    ]
    costs = (before.costs, after.costs)
    return SourceDiff(
        files,
        tuple(sorted(moved, key=lambda s: (-abs(s.change), s.files, s.after.number))),
        (
            add(row.before.cost for _, row in kept if row.before),
            add(row.after.cost for _, row in kept if row.after),
        ),
        {
            f: (_of(outside[0], f, before), _of(outside[1], f, after))
            for f in sorted({*outside[0], *outside[1]})
        },
        (_total(costs[0]), _total(costs[1])),
        (costs[0].duration if costs[0] else None, costs[1].duration if costs[1] else None),
        (before.why, after.why),
        relocated_blocks(_spots(files, 0), _spots(files, 1)),
    )


def _spots(files: Iterable[FileDiff], side: int) -> list[ChangedLine]:
    """Lines of GPU code that a hunk has on one side, in order."""
    found = []
    for file in files:
        name = (file.before, file.after)[side]
        lines = [(row.before, row.after)[side] for row in file.rows if row.counts]
        if not is_host(name):
            found += [ChangedLine(name, x.number, x.code, x.cost) for x in lines if x and x.code]
    return found


def _of(found: Mapping[str, Cost], file: str, side: Profiled) -> Cost:
    return found.get(file, side.costs.nothing if side.costs else NOTHING)


def _total(costs: LineCosts | None) -> Cost:
    return costs.total if costs else NOTHING


@lru_cache(maxsize=64)  # a step's sources are one side of its diff and of its children's
def _parsed(text: str, python: bool) -> tuple[Source, list[str]]:
    """A source, and the function that each of its lines stands in."""
    found = source(text, python=python)
    return found, functions(found, python=python)


def _file_diff(
    before: Profiled, after: Profiled, old: str, new: str, numbers: _Numbers
) -> FileDiff:
    python = is_host(new or old)
    (one, in_one), (other, in_other) = (
        _parsed(side.texts.get(name, ""), python) for side, name in ((before, old), (after, new))
    )
    whole, inside = (one, other), (in_one, in_other)
    (a, lines_a), (b, lines_b) = (
        _lines(side, file, text, names)
        for side, file, text, names in zip((before, after), (old, new), whole, inside, strict=True)
    )
    rows = list(_rows(a, b, lines_a, lines_b))
    hunks = []
    for start, stop in _groups(rows):
        numbers.last += 1
        rows[start:stop] = [
            DiffRow(row.kind, row.before, row.after, numbers.last) for row in rows[start:stop]
        ]
        hunks.append(_hunk(numbers.last, (old, new), rows[start:stop], inside))
    return FileDiff(old, new, tuple(rows), tuple(hunks))


def _lines(side: Profiled, file: str, text: Source, names: list[str]) -> tuple[Source, list[Line]]:
    """The source without the skipped function, and its lines with their numbers in the file."""
    costs = None if is_host(file) else side.costs
    kept = [i for i, name in enumerate(names) if not name or name != side.skipped]
    lines = [
        Line(i + 1, text.lines[i], costs.of(file, i + 1) if costs else NOTHING, text.code[i])
        for i in kept
    ]
    return Source(tuple(x.text for x in lines), tuple(x.code for x in lines)), lines


def _rows(a: Source, b: Source, lines_a: list[Line], lines_b: list[Line]) -> Iterator[DiffRow]:
    at_a = at_b = 0
    for i, j in [*align(a, b), (len(lines_a), len(lines_b))]:
        yield from _gap(a, b, lines_a, lines_b, range(at_a, i), range(at_b, j))
        if i < len(lines_a):
            same = lines_a[i].text == lines_b[j].text
            yield DiffRow(LineKind.SAME if same else LineKind.COSMETIC, lines_a[i], lines_b[j])
        at_a, at_b = i + 1, j + 1


def _gap(
    a: Source, b: Source, lines_a: list[Line], lines_b: list[Line], old: range, new: range
) -> Iterator[DiffRow]:
    pairs = pair_changed([a.code[i] for i in old], [b.code[j] for j in new])
    at_a, at_b = old.start, new.start
    for i, j in [*((old.start + x, new.start + y) for x, y in pairs), (old.stop, new.stop)]:
        yield from (
            DiffRow(_kind(a, k, LineKind.REMOVED), lines_a[k], None) for k in range(at_a, i)
        )
        yield from (DiffRow(_kind(b, k, LineKind.ADDED), None, lines_b[k]) for k in range(at_b, j))
        if i < old.stop and j < new.stop:
            yield DiffRow(LineKind.CHANGED, lines_a[i], lines_b[j])
        at_a, at_b = i + 1, j + 1


def _kind(found: Source, index: int, kind: LineKind) -> LineKind:
    return kind if found.code[index] else LineKind.COSMETIC


def _groups(rows: list[DiffRow]) -> list[tuple[int, int]]:
    """Where the hunks start and stop: runs of changes, with short gaps between them closed."""
    runs: list[tuple[int, int]] = []
    at = 0
    for same, group in groupby(rows, key=lambda row: row.kind == LineKind.SAME):
        size = len(list(group))
        if not same:
            if runs and at - runs[-1][1] <= JOINED:
                runs[-1] = (runs[-1][0], at + size)
            else:
                runs.append((at, at + size))
        at += size
    return runs


def _hunk(
    number: int, files: tuple[str, str], rows: list[DiffRow], inside: tuple[list[str], list[str]]
) -> Hunk:
    counted = [row for row in rows if row.counts]
    function = ""
    for row in counted or rows:
        if row.after or row.before:
            side = 1 if row.after else 0
            line = row.after or row.before
            assert line is not None
            function = function or inside[side][line.number - 1]
    return Hunk(
        number,
        files,
        tuple(rows),
        function,
        not counted,
        add(row.before.cost for row in counted if row.before),
        add(row.after.cost for row in counted if row.after),
    )
