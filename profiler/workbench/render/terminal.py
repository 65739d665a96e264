"""Blocks on a terminal, through Rich. Whatever could steer the terminal is made harmless here."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.render.document.blocks import (
    Align,
    Block,
    Bullets,
    Callout,
    Cell,
    CodeBlock,
    Fold,
    Marking,
    Paragraph,
    Section,
    Table,
    TableColumn,
    TableRow,
    Text,
    filled,
    label,
    plain,
    words,
)
from workbench.render.numbers import clip, numbered, printable, whole_words

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text as Styled

GAP = 2  # cells between columns
NAME = 24  # what a row is called gets so much before other texts get more
COMFORTABLE = 48  # to which no text is cut for a column that is not
NEEDED = 5  # the highest rank of a column for which texts are cut
KINDS: Mapping[Marking, str] = {
    Marking.BASELINE: "bold",
    Marking.KEPT: "green",
    Marking.REJECTED: "red",
    Marking.INCONCLUSIVE: "yellow",
    Marking.REFERENCE: "cyan",
    Marking.PLAIN: "",
}


def write(blocks: Sequence[Block], console: Console, *, wide: bool = False) -> None:
    """A blank line between blocks. ``wide`` shows all columns and what is folded away."""
    for index, block in enumerate(blocks):
        if index:
            console.print()
        _write(block, console, wide)


def _write(block: Block, console: Console, wide: bool) -> None:
    match block:
        case Paragraph():
            console.print(styled(block.text))
        case Bullets():
            for line in _bullets(block, console):
                console.print(line, soft_wrap=True)
        case Callout():
            for item in block.items:
                console.print(styled(words("warning: "), "yellow bold").append_text(styled(item)))
        case CodeBlock():
            for text in block.text.splitlines():
                console.print(printable(text), markup=False, soft_wrap=True)
        case Table():
            _table(filled(block), console, wide)
        case Fold() if not wide:
            console.print(_more(plain(block.summary)))
        case Section(title=title, blocks=inside) | Fold(summary=title, blocks=inside):
            if title:
                console.print(styled(title, "bold"))
                console.print()
            write(inside, console, wide=wide)
        case _:  # charts, and diffs, which have a writer of their own
            pass


def _table(table: Table, console: Console, wide: bool) -> None:
    """``wide`` is as wide as it is, whatever the terminal: Rich would squeeze it."""
    if not wide:
        console.print(*drawn(table, console.width), sep="\n")
    else:
        known, whole = console.width, sum(each.width + GAP for each in fitted(table, None))
        console.width = max(known, whole)
        console.print(*drawn(table, None), soft_wrap=True)
        console.width = known
    for note in numbered(table.notes):
        console.print(styled(words(note)))


def styled(text: Text, style: str = "") -> Styled:
    from rich.text import Text as Styled

    shown = Styled(style=style)
    for span in text:
        looks = (("cyan", span.code), ("bold", span.strong), ("italic", span.em))
        shown.append(printable(span.text), " ".join(name for name, on in looks if on) or None)
    return shown


def _more(what: str) -> Styled:
    return styled(words(f"more with --wide: {what}"), "dim")


def _bullets(block: Bullets, console: Console) -> Iterator[Styled]:
    """Lines of an item hang under its first."""
    from rich.text import Text as Styled

    for number, item in enumerate(block.items, start=1):
        mark = f"{number}. " if block.ordered else "- "
        for line in styled(item).wrap(console, console.width - len(mark)):
            line.rstrip()
            yield Styled(mark).append_text(line)
            mark = " " * len(mark)


@dataclass(frozen=True)
class FittedColumn:
    """A column as it fits: its width in cells, and whether its notes are shown."""

    column: TableColumn
    width: int
    notes: bool


def drawn(table: Table, width: int | None) -> Iterator[RenderableType]:
    """The table with the columns that fit into ``width``, None for all of them."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Drawn

    columns = fitted(table, width)
    shown = Drawn(
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, GAP - 1, 0, 0),
        header_style="bold",
    )
    for each in columns:
        right = each.column.align == Align.RIGHT
        shown.add_column(
            "\n".join(header(each)),
            justify="right" if right else "left",
            vertical="bottom",
            width=each.width,
            no_wrap=True,
        )
    for row in table.rows:
        shown.add_row(*(_cell(row, each, first=not at) for at, each in enumerate(columns)))
    yield shown
    kept = [each.column for each in columns]
    if left := [label(column, notes=False) for column in table.columns if column not in kept]:
        yield _more(", ".join(left))


def header(shown: FittedColumn) -> list[str]:
    """Broken at blanks to the width of its column."""
    text = printable(label(shown.column, notes=shown.notes))
    return textwrap.wrap(text, max(shown.width, 1), break_long_words=False)


def _cell(row: TableRow, shown: FittedColumn, *, first: bool) -> Styled:
    cell = row.cells[shown.column.key]
    text = styled(cell.text, KINDS[row.kind] if first else "")
    if shown.notes and cell.note:
        text.append(f" {printable(cell.note)}")
    if text.cell_len > shown.width:
        if first and " " not in text.plain.strip():
            return styled((), KINDS[row.kind]).append(_middle(text.plain, shown.width))
        if cell.short:
            return styled(words(whole_words(printable(cell.short), shown.width)))
        text.truncate(shown.width, overflow="ellipsis")
    return text


def _middle(text: str, width: int) -> str:
    """Cut in its middle: names of variants differ at their ends."""
    tail = (width - 1) // 2
    return f"{clip(text, width - tail)}{text[len(text) - tail :]}"


def fitted(table: Table, width: int | None) -> list[FittedColumn]:
    """The columns by rank, as many as fit; then texts get their room, then notes."""
    ranked = sorted(table.columns, key=lambda column: column.rank)
    natural = {c.key: _width(table, c, notes=False) for c in ranked}
    full = {c.key: _width(table, c, notes=True) for c in ranked}
    if width is None:
        return [FittedColumn(c, full[c.key], True) for c in ranked]
    kept: list[TableColumn] = []
    sizes: dict[str, int] = {}
    for column in ranked:
        cut = column.least if column.rank <= NEEDED else COMFORTABLE
        needs = {
            c.key: natural[c.key] if c.align == Align.RIGHT else min(natural[c.key], cut)
            for c in (*kept, column)
        }
        if kept and sum(needs.values()) + GAP * len(kept) > width:
            break
        kept.append(column)
        sizes = needs
    room = width - sum(sizes.values()) - GAP * (len(kept) - 1)
    first = kept[0].key
    room = _widen(sizes, {first: min(natural[first], NAME)}, room)
    room = _widen(sizes, natural, room)
    for column in kept:
        more = full[column.key] - sizes[column.key]
        if more <= room:
            sizes[column.key] += more
            room -= more
    return [FittedColumn(c, sizes[c.key], sizes[c.key] >= full[c.key]) for c in kept]


def _widen(sizes: dict[str, int], wanted: Mapping[str, int], room: int) -> int:
    """Give the texts that are cut a cell each in turn; what is left of the room."""
    while room and (cut := [key for key, width in wanted.items() if sizes.get(key, width) < width]):
        for key in cut[:room]:
            sizes[key] += 1
        room -= min(room, len(cut))
    return room


def _width(table: Table, column: TableColumn, *, notes: bool) -> int:
    from rich.cells import cell_len

    cells = (row.cells[column.key] for row in table.rows)
    return max([_header_width(column, notes), *(cell_len(_plain(cell, notes)) for cell in cells)])


def _header_width(column: TableColumn, notes: bool) -> int:
    """Of the longest word; a text's header takes two lines at most."""
    text = label(column, notes=notes)
    least = max((len(word) for word in text.split()), default=0)
    while column.align == Align.LEFT and len(textwrap.wrap(text, max(least, 1))) > 2:
        least += 1
    return least


def _plain(cell: Cell, notes: bool) -> str:
    text = printable(plain(cell.text))
    return f"{text} {printable(cell.note)}" if notes and cell.note else text
