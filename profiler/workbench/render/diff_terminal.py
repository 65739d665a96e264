"""Hunks on a terminal: the diff with what each line cost, in two columns before its text.

Lines come as pieces of (text, style); signs and numbers carry the meaning, styles only repeat it.
"""

from __future__ import annotations

from collections.abc import Iterator

from workbench.derive.diff.costs import Cost
from workbench.derive.diff.model import DiffRow, FileDiff, Hunk, SourceDiff
from workbench.derive.diff.unified import signed, with_context
from workbench.derive.figures import stall_label
from workbench.render.hunks import (
    costs,
    moved_lines,
    pair,
    shift_costs,
    shift_place,
    stall_time,
    sums,
    told_shifts,
    where,
)
from workbench.render.plain import clip, printable

Pieces = list[tuple[str, str]]
HOT = 0.05
LEAST = 0.0005  # a share that rounds to 0.0 % is left blank
REASON = 16
STYLES = {"-": "red", "+": "green", " ": ""}


def gutter(cost: Cost | None) -> tuple[str, str]:
    """A line's share of all samples in 7 cells, and its style."""
    share = cost.share if cost else None
    if share is None or share < LEAST:
        return " " * 7, ""
    return f"{100 * share:5.1f} %", "bold" if share >= HOT else ""


def hunk_lines(file: FileDiff, hunk: Hunk, width: int | None) -> Iterator[Pieces]:
    """The heading, the costs before and after, and the diff with its gutters."""
    yield [(clip(printable(f"hunk {hunk.number}: {where(hunk)}"), width), "bold")]
    if hunk.cosmetic:
        yield [("  comments or blanks only", "dim")]
    elif hunk.host:
        yield [(clip("  host code: it costs nothing on the GPU by itself", width), "dim")]
    else:
        yield from ([("  " + clip(text, width and width - 2), "")] for text in costs(hunk))
    yield from diff_lines(with_context(file, hunk), width, plain=hunk.host)


def diff_lines(rows: list[DiffRow], width: int | None, *, plain: bool = False) -> Iterator[Pieces]:
    """``plain`` leaves the gutters out. Narrow terminals lose the reason, then the numbers."""
    reasons = not plain and (width is None or width >= 100)
    costs_of = {
        id(line): (row.before, row.after)
        for row in rows
        for line in (row.before, row.after)
        if line
    }
    for sign, line in signed(rows):
        before, after = costs_of[id(line)]
        pieces: Pieces = []
        if not plain:
            pieces += [gutter(before.cost if before and sign != "+" else None), (" ", "")]
            pieces += [gutter(after.cost if after and sign != "-" else None), (" ", "")]
        if reasons:
            hot = (line.cost.share or 0.0) >= LEAST
            reason = stall_label(line.cost.top_stall)[:REASON] if hot else ""
            pieces.append((f"{reason:<{REASON}} ", "dim"))
        if width is None or width >= 80:
            pieces.append((f"{line.number:>4} ", "dim"))
        used = sum(len(text) for text, _ in pieces) + 2
        text = clip(printable(line.text), None if width is None else width - used)
        yield [*pieces, (f"{sign} {text}".rstrip(), STYLES[sign])]


HEADING = "before each line: its stall samples as a share of all samples, in {} and in {}"


def source_lines(found: SourceDiff, names: tuple[str, str], width: int | None) -> Iterator[Pieces]:
    """All hunks, then the unchanged lines whose stall time changed most."""
    if found.has_costs and found.hunks:
        heading = HEADING.format(*names)
        yield [(clip(printable(heading), width), "dim")]
    for file in found.files:
        for hunk in file.hunks:
            yield [("", "")]
            yield from hunk_lines(file, hunk, width)
    if not found.hunks:
        yield [("the sources are the same", "")]
    if found.relocated:
        yield [("", "")]
        yield [(clip("code that moved as it was, part of the hunks above:", width), "bold")]
    yield from ([(clip(f"  {printable(text)}", width), "")] for text in moved_lines(found))
    shifts = told_shifts(found)
    if shifts:
        yield [("", "")]
        yield [(clip("unchanged lines whose stall time changed most:", width), "bold")]
    for shift in shifts:
        text = f"  {shift_place(shift)}  {shift_costs(shift)}"
        yield [(clip(printable(text), width), "")]
        yield [(clip(f"      {printable(shift.after.text.strip())}", width), "dim")]
    if found.has_costs:
        yield [("", "")]
    for name, before, after in sums(found) if found.has_costs else ():
        text = f"stall time, {name}: {pair(stall_time(before), stall_time(after))}"
        yield [(clip(printable(text), width), "")]


def write(lines: Iterator[Pieces], console: object = None) -> None:
    """Print the pieces through rich, which knows NO_COLOR and what is no terminal."""
    from rich.console import Console
    from rich.text import Text

    out = console if isinstance(console, Console) else Console(highlight=False)
    for pieces in lines:
        out.print(Text.assemble(*pieces), soft_wrap=True)


def terminal_width() -> int | None:
    """Columns of the terminal; None where the output goes elsewhere, which is never cut."""
    import shutil
    import sys

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
