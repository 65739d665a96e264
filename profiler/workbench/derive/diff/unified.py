"""Hunks as text: a unified diff that ``patch`` takes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from workbench.derive.diff.model import DiffRow, FileDiff, Hunk, Line, SourceDiff, base
from workbench.words import LineKind

CONTEXT = 3  # unchanged lines shown around a hunk
NO_FILE = "/dev/null"


def with_context(file: FileDiff, hunk: Hunk, context: int = CONTEXT) -> list[DiffRow]:
    """The hunk's rows with unchanged ones around, never into another hunk nor shown twice."""
    start = next(i for i, row in enumerate(file.rows) if row.hunk == hunk.number)
    stop = start + len(hunk.rows)
    first = start
    while first > 0 and start - first < context and not file.rows[first - 1].hunk:
        first -= 1
    if first > 0 and hunk is not file.hunks[0]:
        above = max(i for i in range(start) if file.rows[i].hunk) + 1
        first = max(first, min(above + context, start))
    last = stop
    while last < len(file.rows) and last - stop < context and not file.rows[last].hunk:
        last += 1
    return list(file.rows[first:last])


def signed(rows: list[DiffRow]) -> Iterator[tuple[str, Line]]:
    """Rows in the order of a unified diff: each run of changes with its removed lines first."""
    for same, group in groupby(rows, key=lambda row: row.kind == LineKind.SAME):
        run = list(group)
        if same:
            yield from ((" ", row.after) for row in run if row.after)
        else:
            yield from (("-", row.before) for row in run if row.before)
            yield from (("+", row.after) for row in run if row.after)


def heading(file: FileDiff, hunk: Hunk, rows: list[DiffRow]) -> str:
    """``@@ -first,count +first,count @@ hunk number, function``, as ``patch`` takes it."""
    spans = []
    for side in (0, 1):
        lines = [line for row in rows if (line := row.after if side else row.before)]
        first = lines[0].number if lines else _line_above(file, rows[0], side)
        spans.append(f"{first},{len(lines)}")
    name = f", {hunk.function}()" if hunk.function else ""
    return f"@@ -{spans[0]} +{spans[1]} @@ hunk {hunk.number}{name}"


def _line_above(file: FileDiff, first: DiffRow, side: int) -> int:
    above = 0
    for row in file.rows:
        if row is first:
            break
        line = row.after if side else row.before
        above = line.number if line else above
    return above


def unified(diff: SourceDiff, context: int = CONTEXT) -> str:
    """All hunks as a unified diff, one ``@@`` each, under the files' base names."""
    text: list[str] = []
    for file in diff.files:
        if not file.hunks:
            continue
        text.append(f"--- {base(file.before) or NO_FILE}")
        text.append(f"+++ {base(file.after) or NO_FILE}")
        for hunk in file.hunks:
            rows = with_context(file, hunk, context)
            text.append(heading(file, hunk, rows))
            text += [sign + line.text for sign, line in signed(rows)]
    return "\n".join(text)
