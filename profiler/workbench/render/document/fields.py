"""Tables of named columns: a column and how a cell of it is made stand together, once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from workbench.render.document.blocks import (
    Align,
    Cell,
    Column,
    Kind,
    Table,
    TableRow,
    Text,
    words,
)
from workbench.render.numbers import finite, number

T = TypeVar("T")
Content: TypeAlias = str | Text | Cell


@dataclass(frozen=True)
class Field(Generic[T]):
    """A column with what makes its cell of a row's value."""

    column: Column
    make: Callable[[T], Content]

    def cell(self, item: T) -> Cell:
        return as_cell(self.make(item))


def field(
    key: str,
    label: str,
    make: Callable[[T], Content],
    *,
    unit: str = "",
    note: str = "",
    right: bool = False,
    rank: int = 0,
    source: str = "",
    json: str = "",
) -> Field[T]:
    align = Align.RIGHT if right else Align.LEFT
    return Field(Column(key, label, unit, align, rank, source, json, note), make)


def as_cell(content: Content) -> Cell:
    if isinstance(content, Cell):
        return content
    return Cell(words(content) if isinstance(content, str) else content)


def figure_cell(value: float | None, text: str = "", note: str = "") -> Cell:
    """A number as people read it, with itself for sorting and JSON."""
    known = finite(value)
    return Cell(words(text or number(value)), sort=known, note=note, data=known)


def table(
    name: str,
    fields: Sequence[Field[T]],
    items: Iterable[T],
    *,
    key: Callable[[T], str] = lambda _: "",
    kind: Callable[[T], Kind] = lambda _: Kind.PLAIN,
    caption: Text = (),
) -> Table:
    rows = tuple(
        TableRow({f.column.key: f.cell(item) for f in fields}, key(item), kind(item))
        for item in items
    )
    return Table(name, tuple(f.column for f in fields), rows, caption)


def only(shown: Table, keys: Sequence[str]) -> Table:
    """The table with these columns alone, in this order; a key that it lacks is passed over."""
    by_key = {column.key: column for column in shown.columns}
    return Table(
        shown.name, tuple(by_key[k] for k in keys if k in by_key), shown.rows, shown.caption
    )
