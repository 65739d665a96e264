"""Two sources side by side, row by row. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

from workbench.derive.diff.alignment import SourceText, align, is_wait, pair_changed, source
from workbench.derive.diff.costs import NO_COSTS
from workbench.derive.diff.line_diff import (
    DiffRow,
    FileDiff,
    Hunk,
    ProfiledSource,
    SourceRow,
    is_host,
)
from workbench.words import LineKind

JOINED = 2  # hunks with so few unchanged lines between them are one


@dataclass(frozen=True)
class Text:
    """One file of one side: its source without the skipped function, its lines with their costs,
    and the function that each line of the whole file stands in.
    """

    source: SourceText
    lines: Sequence[SourceRow]
    functions: Sequence[str]

    def function(self, line: SourceRow) -> str:
        """The function that a line stands in; "" outside of any."""
        return self.functions[line.line - 1]


def text_of(side: ProfiledSource, file: str, *, python: bool) -> Text:
    """An empty one where the side has no such file."""
    whole, names = _parsed(side.texts.get(file, ""), python)
    costs = NO_COSTS if is_host(file) else side.costs or NO_COSTS
    lines = [
        SourceRow(
            line=i + 1,
            text=whole.lines[i],
            cost=costs.of(file, i + 1),
            code=whole.code[i],
        )
        for i, name in enumerate(names)
        if not name or name != side.skipped
    ]
    kept = SourceText(tuple(x.text for x in lines), tuple(x.code for x in lines))
    return Text(kept, lines, names)


@lru_cache(maxsize=64)  # a step's sources are one side of its diff and of its children's
def _parsed(text: str, python: bool) -> tuple[SourceText, list[str]]:
    """A source, and the function that each of its lines stands in."""
    parsed = source(text, python=python)
    return parsed, functions(parsed, python=python)


def side_by_side(before: Text, after: Text) -> Iterator[DiffRow]:
    """Every line of both, those that are the same in one row."""
    ends = (len(before.lines), len(after.lines))
    at_a = at_b = 0
    for i, j in [*align(before.source, after.source), ends]:
        yield from _between(before.lines[at_a:i], after.lines[at_b:j])
        if (i, j) != ends:
            same = before.lines[i].text == after.lines[j].text
            kind = LineKind.SAME if same else LineKind.COSMETIC
            yield DiffRow(kind, before.lines[i], after.lines[j])
        at_a, at_b = i + 1, j + 1


def _between(old: Sequence[SourceRow], new: Sequence[SourceRow]) -> Iterator[DiffRow]:
    """Lines between two that are the same: rewritten ones paired, the others on their own."""
    ends = (len(old), len(new))
    at_a = at_b = 0
    for i, j in [*pair_changed([x.code for x in old], [x.code for x in new]), ends]:
        yield from (DiffRow(_kind(x, LineKind.REMOVED), x, None) for x in old[at_a:i])
        yield from (DiffRow(_kind(x, LineKind.ADDED), None, x) for x in new[at_b:j])
        if (i, j) != ends:
            yield DiffRow(LineKind.CHANGED, old[i], new[j])
        at_a, at_b = i + 1, j + 1


def _kind(line: SourceRow, kind: LineKind) -> LineKind:
    return kind if line.code else LineKind.COSMETIC


def changed_spans(rows: Sequence[DiffRow]) -> list[tuple[int, int]]:
    """Where the hunks start and stop: runs of changes, with short gaps between them closed."""
    spans: list[tuple[int, int]] = []
    at = 0
    for same, group in groupby(rows, key=lambda row: row.kind == LineKind.SAME):
        stop = at + len(list(group))
        if not same and spans and at - spans[-1][1] <= JOINED:
            spans[-1] = (spans[-1][0], stop)
        elif not same:
            spans.append((at, stop))
        at = stop
    return spans


def numbered(
    rows: Sequence[DiffRow], spans: Sequence[tuple[int, int]], first: int
) -> list[DiffRow]:
    """The rows, those of each span with its hunk's number."""
    result = list(rows)
    for number, (start, stop) in enumerate(spans, start=first):
        inside = rows[start:stop]
        real = any(row.differs for row in inside)
        result[start:stop] = [
            replace(
                row,
                hunk=number,
                waits=real
                and not row.differs
                and row.after is not None
                and is_wait(row.after.code),
            )
            for row in inside
        ]
    return result


_NAME = re.compile(r"([A-Za-z_~]\w*)\s*(?:<[^;{}]*>)?\s*\(")
_QUALIFIER = re.compile(
    r"__launch_bounds__|__cluster_dims__|__maxnreg__|__attribute__|__declspec|alignas|__align__"
    r"|requires|decltype|noexcept|if|for|while|switch"
)
_PYTHON_NAME = re.compile(r"(?:async\s+)?(?:def|class)\s+(\w+)")


def functions(text: SourceText, *, python: bool = False) -> list[str]:
    """For each line the top-level function it belongs to; "" outside of any."""
    return _python_functions(text) if python else _c_functions(text)


def _python_functions(text: SourceText) -> list[str]:
    names, now = [], ""
    for line, code in zip(text.lines, text.code, strict=True):
        if code and not line[:1].isspace() and not code.startswith((")", "]", "}")):
            match = _PYTHON_NAME.match(code)
            now = match[1] if match else ""
        names.append(now)
    return names


def _c_functions(text: SourceText) -> list[str]:
    names = [""] * len(text.lines)
    header, start, depth, inside, opened = "", 0, 0, "", 0
    macro = False
    for number, code in enumerate(text.code):
        macro, skip = (macro or code.startswith("#")) and code.endswith("\\"), macro
        if skip or code.startswith("#"):
            names[number] = inside
            continue
        for character in re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'', '""', code) + " ":
            if not inside and not header.strip():
                start = number
            if character == "{":
                if not inside:
                    name = _function_name(header)
                    if name:
                        inside, opened = name, depth
                        names[start:number] = [name] * (number - start)
                    header = ""
                depth += 1
            elif character == "}":
                depth = max(0, depth - 1)
                if inside and depth == opened:
                    names[number], inside = inside, ""
                header = ""
            elif character == ";" and not inside:
                header = ""
            elif not inside:
                header += character
        if inside:
            names[number] = inside
    return names


def _function_name(header: str) -> str:
    candidates = (match[1] for match in _NAME.finditer(header))
    return next((name for name in candidates if not _QUALIFIER.fullmatch(name)), "")


CONTEXT = 3  # unchanged lines shown around a hunk


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


def signed(rows: list[DiffRow]) -> Iterator[tuple[str, SourceRow]]:
    """Rows in the order of a unified diff: each run of changes with its removed lines first."""
    for same, group in groupby(rows, key=lambda row: row.kind == LineKind.SAME):
        run = list(group)
        if same:
            yield from ((" ", row.after) for row in run if row.after)
        else:
            yield from (("-", row.before) for row in run if row.before)
            yield from (("+", row.after) for row in run if row.after)
