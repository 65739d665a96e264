"""From the diff of two variants to what its lines cost before and after. Pure.

    diff = source_diff(Profiled(texts, costs), Profiled(texts, costs))
    diff.hunks      each with its place, its lines, and their cost before and after
    diff.files      both sources whole, side by side, row by row: what a page shows
    diff.shifts     unchanged lines whose stall time changed most

A hunk's cost is that of its removed, added and rewritten lines, and of waits that stay amid them.
Lines that differ in comments or blanks alone are shown as changed but count as unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from workbench.derive.diff.costs import NO_COSTS, Cost, add, line_costs
from workbench.derive.diff.line_diff import (
    DiffRow,
    FileDiff,
    Hunk,
    ProfiledSource,
    Shift,
    SourceDiff,
    base,
    is_host,
)
from workbench.derive.diff.side_by_side import Text, changed_spans, numbered, side_by_side, text_of
from workbench.ncu.capture import Capture


def pair_files(before: Iterable[str], after: Iterable[str]) -> list[tuple[str, str]]:
    """Files of both sides that belong together, in the order of ``after``; "" for no partner: by
    name, then by base name, then in order the rest of one suffix.
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


def profiled(texts: Mapping[str, str], capture: Capture | None, why: str = "") -> ProfiledSource:
    """One side from a capture; ``why``: what became of one."""
    if capture is None:
        return ProfiledSource(texts, None, why or "no_capture")
    costs = line_costs(capture.lines, capture.metrics, capture.collected)
    if not costs.has_lines:
        return ProfiledSource(texts, None, "no_lines")
    return ProfiledSource(texts, costs)


def imported(texts: Mapping[str, str], capture: Capture) -> ProfiledSource:
    """One side of a capture made elsewhere, from the sources in the report itself."""
    side = profiled(texts, capture)
    if side.costs is not None and not texts:
        return profiled({}, None, "no_text")
    return side


def source_diff(before: ProfiledSource, after: ProfiledSource) -> SourceDiff:
    """Every file of both sides, and what the lines cost where both have costs."""
    files: list[FileDiff] = []
    for names in pair_files(before.texts, after.texts):
        first = 1 + sum(len(file.hunks) for file in files)
        files.append(_file_diff(before, after, names, first_hunk=first))
    unchanged = [row for file in files for row in file.rows if not row.counts]
    old, new = before.costs or NO_COSTS, after.costs or NO_COSTS
    return SourceDiff(
        files=tuple(files),
        shifts=_shifts(files) if before.costs and after.costs else (),
        unchanged=(
            add(row.before.cost for row in unchanged if row.before),
            add(row.after.cost for row in unchanged if row.after),
        ),
        elsewhere=_elsewhere(before, after),
        totals=(old.total, new.total),
        durations=(old.duration, new.duration),
        why=(before.why, after.why),
    )


def _shifts(files: Iterable[FileDiff]) -> tuple[Shift, ...]:
    """Unchanged lines that cost another time, the largest change first."""
    shifts = [
        Shift(files=(file.before, file.after), before=row.before, after=row.after)
        for file in files
        for row in file.rows
        if row.before and row.after and not row.counts
    ]
    changed = [shift for shift in shifts if shift.change_microseconds]
    return tuple(
        sorted(changed, key=lambda s: (-abs(s.change_microseconds), s.files, s.after.line))
    )


def _elsewhere(before: ProfiledSource, after: ProfiledSource) -> dict[str, tuple[Cost, Cost]]:
    """What files cost on both sides that stand in the sources of none."""
    costs = [side.costs or NO_COSTS for side in (before, after)]
    old, new = (
        {file: cost for file, cost in known.by_file().items() if file not in side.texts}
        for known, side in zip(costs, (before, after), strict=True)
    )
    return {
        file: (old.get(file, costs[0].nothing), new.get(file, costs[1].nothing))
        for file in sorted({*old, *new})
    }


def _file_diff(
    before: ProfiledSource, after: ProfiledSource, names: tuple[str, str], *, first_hunk: int
) -> FileDiff:
    python = is_host(names[1] or names[0])
    old, new = text_of(before, names[0], python=python), text_of(after, names[1], python=python)
    plain = list(side_by_side(old, new))
    spans = changed_spans(plain)
    rows = numbered(plain, spans, first_hunk)
    hunks = tuple(_hunk(names, rows[start:stop], (old, new)) for start, stop in spans)
    return FileDiff(names[0], names[1], tuple(rows), hunks)


def _hunk(files: tuple[str, str], rows: Sequence[DiffRow], texts: tuple[Text, Text]) -> Hunk:
    counted = [row for row in rows if row.counts]
    names = (_function(row, texts) for row in counted or rows)
    return Hunk(
        number=rows[0].hunk,
        files=files,
        rows=tuple(rows),
        function=next((name for name in names if name), ""),
        comments_only=not any(row.differs for row in rows),
        before=add(row.before.cost for row in counted if row.before),
        after=add(row.after.cost for row in counted if row.after),
    )


def _function(row: DiffRow, texts: tuple[Text, Text]) -> str:
    if row.after:
        return texts[1].function(row.after)
    return texts[0].function(row.before) if row.before else ""
