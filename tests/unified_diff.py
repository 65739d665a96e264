"""Hunks as a unified diff that ``patch`` takes, to compare with other tools' output."""

from __future__ import annotations

from workbench.derive.source_diff import (
    CONTEXT,
    DiffRow,
    FileDiff,
    Hunk,
    SourceDiff,
    base,
    signed,
    with_context,
)

NO_FILE = "/dev/null"


def heading(file: FileDiff, hunk: Hunk, rows: list[DiffRow]) -> str:
    """``@@ -first,count +first,count @@ hunk number, function``, as ``patch`` takes it."""
    spans = []
    for side in (0, 1):
        lines = [line for row in rows if (line := row.after if side else row.before)]
        first = lines[0].line if lines else _line_above(file, rows[0], side)
        spans.append(f"{first},{len(lines)}")
    name = f", {hunk.function}()" if hunk.function else ""
    return f"@@ -{spans[0]} +{spans[1]} @@ hunk {hunk.number}{name}"


def _line_above(file: FileDiff, first: DiffRow, side: int) -> int:
    above = 0
    for row in file.rows:
        if row is first:
            break
        line = row.after if side else row.before
        above = line.line if line else above
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
