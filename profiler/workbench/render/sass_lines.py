"""SASS on a terminal: under each source line its instructions, and two kernels' side by side.

Lines come as pieces of (text, style), as in ``source_lines``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from workbench.derive.diff.model import base
from workbench.derive.sass.blocks import Aligned, Block, BlockPair
from workbench.derive.sass.listing import Costed
from workbench.derive.sass.mix import Amount
from workbench.render.document.stalls import stall_words
from workbench.render.numbers import count, number, percent
from workbench.render.plain import clip, printable
from workbench.render.source_lines import (
    HOT,
    LEAST,
    Pieces,
    SourceLine,
    marks,
    source_line,
)
from workbench.words import ABSENT, NONE

PAIRS, ROWS = 3, 12  # of a diff, where not all of it is wanted
CONTEXT = 2  # equal instructions around what differs
SASS_WIDTH = 56
PTX_FROM = 140  # columns of a terminal
Files = Mapping[str, Sequence[SourceLine]]
Lines = Mapping[tuple[str, int], Sequence[Costed]]


def instruction(one: Costed, width: int | None) -> Pieces:
    """Share of all samples, the reason, executions, address, SASS, and where there is room PTX."""
    share = one.share or 0.0
    told = f"{share:6.1%}" if share >= LEAST else " " * 6
    reason = stall_words(one.top_stall)[:18] if share >= LEAST else ""
    executed = "" if one.executed is None else count(one.executed)
    head = f"   {told} {reason:<18} {executed:>8}  {one.address:#06x}  "
    pieces: Pieces = [(head, "dim")]
    room = None if width is None else width - len(head)
    ptx = f"  // {one.ptx}" if (width is None or width >= PTX_FROM) and one.ptx else ""
    sass = printable(one.sass)
    if ptx:
        pieces += [(f"{sass:<{SASS_WIDTH}}", "bold" if share >= HOT else "")]
        left = None if room is None else room - max(len(sass), SASS_WIDTH)
        return [*pieces, (clip(printable(ptx), left), "dim")]
    return [*pieces, (clip(sass, room), "bold" if share >= HOT else "")]


def source(files: Files, lines: Lines, width: int | None) -> Iterator[Pieces]:
    """Every source with each line's instructions under it, then those of no shown line."""
    heading = "stall samples by line and by instruction, as a share of all samples; executions"
    for file, text in files.items():
        if not any(line.ran for line in text):
            yield [(f"{printable(file)}: no instruction was executed there", "")]
            continue
        yield [(f"{printable(file)}: {heading}", "bold")]
        for line in text:
            yield source_line(line, width)
            yield from (instruction(one, width) for one in lines.get((file, line.line), ()))
        yield [("", "")]
    shown = {(file, line.line) for file, text in files.items() for line in text}
    if rest := [one for place, found in lines.items() if place not in shown for one in found]:
        yield [("instructions of no line that is shown:", "bold")]
        yield from (instruction(one, width) for one in rest)


def hottest(files: Files, lines: Lines, most: int, width: int | None) -> Iterator[Pieces]:
    """The hottest source lines of all files, each with its instructions; where no line is known,
    the hottest instructions.
    """
    known = [(file, line) for file, text in files.items() for line in text if line.samples]
    ranked = sorted(known, key=lambda item: -(item[1].samples or 0))[:most]
    if not ranked:
        every = sorted((one for found in lines.values() for one in found), key=_coldness)[:most]
        yield [(f"no line is known; the {len(every)} hottest instructions:", "bold")]
        yield from (instruction(one, width) for one in every)
        return
    yield [(f"the {len(ranked)} hottest lines, by share of all stall samples:", "bold")]
    for file, line in ranked:
        name = f"{base(file)}:{line.line}"
        room = None if width is None else width - 51
        yield [("", "")]
        text = clip(printable(line.text.strip()), room)
        yield [*marks(line), (f" {name:<20} ", "dim"), (text, "bold")]
        yield from (instruction(one, width) for one in lines.get((file, line.line), ()))


def _coldness(one: Costed) -> tuple[float, int, int]:
    return -(one.share or 0.0), one.launch, one.address


def _cost(cost: Amount) -> str:
    time = f"{number(cost.microseconds)} µs" if cost.microseconds is not None else ABSENT
    return time if cost.share is None else f"{time} ({percent(cost.share)})"


def _where(block: Block | None) -> str:
    if block is None:
        return NONE
    first, last = block.span
    place = max(block.instructions, key=lambda one: one.share or 0.0).place
    line = f", {base(place[0])}:{place[1]}" if place[1] else ""
    launch = f"launch {block.launch}, " if block.launch else ""
    return f"{launch}{first:#x}-{last:#x}{line}"


def heading(number_: int, pair: BlockPair) -> str:
    """Where a pair of blocks stands and what it cost."""
    costs = [_cost(block.cost) if block else NONE for block in (pair.before, pair.after)]
    places = [_where(block) for block in (pair.before, pair.after)]
    if None in (pair.before, pair.after):
        side, place = (1, "new") if pair.before is None else (0, "gone")
        return f"block {number_}, {place}: {places[side]}: {costs[side]}"
    return f"block {number_}: {places[0]} → {places[1]}: {costs[0]} → {costs[1]}"


def diff(pairs: Sequence[BlockPair], width: int | None, *, every: bool) -> Iterator[Pieces]:
    """The hot blocks, those with the most stall time first; ``every`` shows all and all of them."""
    shown = pairs if every else pairs[:PAIRS]
    for n, pair in enumerate(shown, start=1):
        yield [(clip(printable(heading(n, pair)), width), "bold")]
        if pair.is_same:
            yield [("  the same instructions, but for the names of registers", "dim")]
        else:
            yield from _rows(pair.rows, width, every=every)
        yield [("", "")]
    if left := len(pairs) - len(shown):
        yield [(f"{left} more blocks with 2 % of the samples or more: --wide shows all", "dim")]


def _rows(rows: Sequence[Aligned], width: int | None, *, every: bool) -> Iterator[Pieces]:
    """What differs with a little around it: the longest waits of it where not all is wanted."""
    differs = [n for n, row in enumerate(rows) if not row.same]
    if not every and len(differs) > ROWS:
        differs = sorted(sorted(differs, key=lambda n: (-_share(rows[n]), n))[:ROWS])
    near = range(-CONTEXT, CONTEXT + 1)
    wanted = sorted({n + by for n in differs for by in near if 0 <= n + by < len(rows)})
    if not every:
        chosen = set(differs)
        wanted = [n for n in wanted if rows[n].same or n in chosen]
    last = -1
    for n in wanted:
        if n > last + 1:
            yield [(f"  ... {n - last - 1} instructions", "dim")]
        yield _row(rows[n], width)
        last = n
    if last + 1 < len(rows):
        yield [(f"  ... {len(rows) - last - 1} instructions", "dim")]


def _share(row: Aligned) -> float:
    return max((one.share or 0.0) for one in (row.before, row.after) if one)


def _row(row: Aligned, width: int | None) -> Pieces:
    shares = "".join(_gutter(one) for one in (row.before, row.after))
    sign, style = (" ", "") if row.same else ("-", "red") if row.after is None else ("+", "green")
    one = row.after or row.before
    assert one is not None
    text = f"{sign} {printable(one.sass)}"
    return [(shares, "dim"), (clip(text, None if width is None else width - len(shares)), style)]


def _gutter(one: Costed | None) -> str:
    share = one.share if one else None
    return f"{100 * share:5.1f} % " if share is not None and share >= LEAST else " " * 8
