"""Blocks on a terminal, through Rich. Whatever could steer the terminal is made harmless here."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.render import doc
from workbench.render.text import clip, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text as Styled

GAP = 2  # cells between columns
COMFORTABLE = 48  # to which no text is cut for a column that is not
NEEDED = 5  # the highest rank of a column for which texts are cut
CLOSE = 6  # columns from which on the gap is smaller rather than a text cut
KINDS: Mapping[doc.Marking, str] = {
    doc.Marking.BASELINE: "bold",
    doc.Marking.KEPT: "green",
    doc.Marking.REJECTED: "red",
    doc.Marking.INCONCLUSIVE: "yellow",
    doc.Marking.REFERENCE: "cyan",
    doc.Marking.PLAIN: "",
}


def write(blocks: Iterable[doc.Block], console: Console) -> None:
    """A blank line between blocks."""
    for index, block in enumerate(blocks):
        if index:
            console.print()
        _write(block, console)


def _write(block: doc.Block, console: Console) -> None:
    from rich.text import Text as Styled

    match block:
        case doc.Paragraph():
            console.print(styled(block.text))
        case doc.Bullets():
            for number, item in enumerate(block.items, start=1):
                mark = f"{number}. " if block.ordered else "- "
                for line in styled(item).wrap(console, console.width - len(mark)):
                    line.rstrip()
                    console.print(Styled(mark).append_text(line), soft_wrap=True)
                    mark = " " * len(mark)  # lines of an item hang under its first
        case doc.Callout():
            for item in block.items:
                console.print(
                    styled(doc.line("warning: "), "yellow bold").append_text(styled(item))
                )
        case doc.CodeBlock():
            for text in block.text.splitlines():
                console.print(printable(text), markup=False, soft_wrap=True)
        case doc.LinesBlock():
            for pieces in block.lines:
                shown = [(printable(p.text), p.style) for p in pieces if p.least <= console.width]
                cut = Styled.assemble(*shown)
                cut.rstrip()
                cut.truncate(console.width, overflow="ellipsis")
                console.print(cut, soft_wrap=True)
        case doc.Table():
            console.print(*drawn(block, console.width), sep="\n")
        case doc.Section(title=title, blocks=inside) | doc.Fold(summary=title, blocks=inside):
            if title:
                console.print(styled(title, "bold"))
                console.print()
            write(inside, console)
        case _:  # charts, and diffs, which have a writer of their own
            pass


def styled(text: doc.Text, style: str = "") -> Styled:
    from rich.text import Text as Styled

    shown = Styled(style=style)
    for span in text:
        looks = (("cyan", span.code), ("bold", span.strong), ("italic", span.em))
        shown.append(printable(span.text), " ".join(name for name, on in looks if on) or None)
    return shown


@dataclass
class Fitted:
    """A column on a terminal: its width, and the sizes between which that is chosen."""

    column: doc.Field[Any]
    least: int
    short: int
    natural: int
    full: int  # with the notes of its cells
    width: int = 0

    @property
    def has_notes(self) -> bool:
        return self.width >= self.full > self.natural


def drawn(table: doc.Table, width: int) -> Iterator[RenderableType]:
    """The table with the columns that fit into ``width``."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Drawn

    columns, gap = fitted(table, width)
    shown = Drawn(
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, gap - 1, 0, 0),
        header_style="bold",
    )
    for each in columns:
        right = each.column.is_number
        shown.add_column(
            "\n".join(_header(each.column, each.width, notes=each.has_notes)),
            justify="right" if right else "left",
            vertical="bottom",
            width=each.width,
            no_wrap=True,
        )
    for row in table.rows:
        shown.add_row(*(_cell(row, each, first=not at) for at, each in enumerate(columns)))
    yield shown
    kept = [each.column for each in columns]
    if left := [doc.label(column, notes=False) for column in table.columns if column not in kept]:
        yield styled(doc.line(f"more with --markdown: {', '.join(left)}"), "dim")


def _cell(row: doc.TableRow, shown: Fitted, *, first: bool) -> Styled:
    cell = row.cells[shown.column.key]
    style = KINDS[row.kind] if first else ""
    text = styled(cell.text, style)
    if shown.has_notes and cell.note:
        text.append(f" {printable(cell.note)}")
    if text.cell_len <= shown.width and (
        shown.width >= shown.natural or not cell.short or not first
    ):
        return text
    if first:  # names of variants differ at their ends
        name = printable(cell.short) or text.plain
        tail = (shown.width - 1) // 2
        cut = f"{clip(name, shown.width - tail)}{name[len(name) - tail :]}"
        return styled((), style).append(name if cell_width(name) <= shown.width else cut)
    if cell.short:
        return styled(doc.line(whole_words(printable(cell.short), shown.width)))
    text.truncate(shown.width, overflow="ellipsis")
    return text


LEADING = ("a", "an", "and", "at", "by", "for", "from", "in", "of", "on", "one", "per", "the", "to")


def whole_words(text: str, width: int) -> str:
    """Return as many words as fit, without one at the end that needs a next; a long one is cut."""
    if len(text) <= width:
        return text
    kept = text[: width + 1].rpartition(" ")[0].split()
    while len(kept) > 1 and kept[-1] in LEADING:
        kept.pop()
    return " ".join(kept) or clip(text, width)


def fitted(table: doc.Table, width: int) -> tuple[list[Fitted], int]:
    """The columns that fit, in their order, and the cells between them.

    Columns are taken by rank while their least widths fit. The room that is left goes, by rank, to
    short texts, then to whole texts and to notes. A smaller gap comes before a text that is cut.
    """
    every = [_sizes(table, column) for column in table.columns]
    kept: list[Fitted] = []
    for each in sorted(every, key=lambda each: each.column.rank):
        if kept and sum(c.least for c in kept) + each.least + GAP * len(kept) > width:
            break
        kept.append(each)
        each.width = each.least
    room = width - sum(each.least for each in kept) - GAP * (len(kept) - 1)
    room = _widen(kept, "short", _widen(kept[:1], "short", room))
    gap = GAP
    if len(kept) >= CLOSE and any(each.width < each.short for each in kept):
        gap, room = 1, _widen(kept, "short", room + len(kept) - 1)
    room = _widen(kept, "natural", room)
    for each in kept:
        if each.full - each.width <= room:
            room -= each.full - each.width
            each.width = each.full
    return [each for each in every if each in kept], gap


def _widen(columns: Sequence[Fitted], size: str, room: int) -> int:
    """Give the columns below a size a cell each in turn; what is left of the room."""
    while room and (below := [each for each in columns if each.width < getattr(each, size)]):
        for each in below[:room]:
            each.width += 1
        room -= min(room, len(below))
    return room


def _sizes(table: doc.Table, column: doc.Field[Any]) -> Fitted:
    cells = [row.cells[column.key] for row in table.rows]
    head = _header_width(column, notes=False)
    natural = max([head, *(cell_width(_plain(cell, notes=False)) for cell in cells)])
    short = max([head, *(cell_width(cell.short or _plain(cell, notes=False)) for cell in cells)])
    full = natural
    if any(cell.note for cell in cells):
        texts = (cell_width(_plain(cell, notes=True)) for cell in cells)
        full = max([_header_width(column, notes=True), *texts])
    cut = column.least if column.rank <= NEEDED else COMFORTABLE
    least = max(head, min(short, cut))
    if column.is_number:
        least = natural
    return Fitted(column, least, max(least, min(short, natural)), natural, full)


def _header(column: doc.Field[Any], width: int, *, notes: bool) -> list[str]:
    """Broken at blanks to the width of its column; what its notes are has a line of its own."""
    parts = [doc.label(column, notes=False), column.note if notes else ""]
    lines = (textwrap.wrap(printable(p), max(width, 1), break_long_words=False) for p in parts)
    return [line for each in lines for line in each]


def _header_width(column: doc.Field[Any], *, notes: bool) -> int:
    """The longest word; a text's header takes two lines at most."""
    least = max((len(word) for word in doc.label(column, notes=notes).split()), default=0)
    while not column.is_number and len(_header(column, least, notes=notes)) > 2:
        least += 1
    return least


def cell_width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _plain(cell: doc.Cell, notes: bool) -> str:
    text = printable(doc.plain(cell.text))
    return f"{text} {printable(cell.note)}" if notes and cell.note else text
