"""SASS on a terminal: under each source line its instructions.

Lines come as pieces of (text, style), as in ``source_lines``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from workbench.derive.diff.model import base
from workbench.derive.sass import Costed
from workbench.render.document.stalls import stall_words
from workbench.render.numbers import count
from workbench.render.plain import clip, printable
from workbench.render.source_lines import (
    HOT,
    LEAST,
    Pieces,
    SourceLine,
    marks,
    source_line,
)

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
