"""Blocks as HTML. Templates escape everything. Pure, but for its templates.

Charts come drawn from the caller; everything else follows from the blocks alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup

from workbench.render.document.blocks import (
    Align,
    Block,
    Cell,
    Chart,
    Fold,
    Marking,
    Section,
    SourceChange,
    Span,
    TableColumn,
    TableRow,
    filled,
    plain,
)
from workbench.render.numbers import harmless, with_unit
from workbench.render.templates import packaged_environment

if TYPE_CHECKING:
    import jinja2

TEMPLATE = "blocks.html.j2"
# Words that are marked wherever they fill a cell, so that a colour never stands for itself
OUTCOMES = {
    **dict.fromkeys(("passed", "confirmed", "kept"), "good"),
    **dict.fromkeys(("failed", "refuted", "rejected"), "bad"),
    **dict.fromkeys(("open", "not measurable", "inconclusive"), "unsure"),
}


def anchor(key: str) -> str:
    """An id from any text; the same behind ``#`` leads to it."""
    return quote(harmless(key), safe="")


def steps_of(section: Section) -> tuple[list[Section], list[Block]]:
    """The steps of a section, which stand beside a list of them, and its other blocks."""
    steps = [b for b in section.blocks if isinstance(b, Section) and b.variant]
    return steps, [b for b in section.blocks if b not in steps]


@dataclass(frozen=True)
class Writer:
    """``charts`` has each chart as HTML by its name, ``steps`` the key of each step's section by
    its variant: what names it leads there. Its methods are what the template asks for.
    """

    charts: Mapping[str, str]
    steps: Mapping[str, str]
    environment: jinja2.Environment | None = None

    anchor = staticmethod(anchor)
    filled = staticmethod(filled)
    steps_of = staticmethod(steps_of)

    def blocks(self, content: Iterable[Block], level: int = 2) -> str:
        """``level`` is that of the next headings."""
        macros: Any = (self.environment or packaged_environment()).get_template(TEMPLATE).module
        return str(macros.blocks(list(content), self, level, ""))

    @cached_property
    def without_steps(self) -> Writer:
        return Writer({}, {})

    def href(self, span: Span) -> str:
        """Only to places on the page and to the web: a file beside the report may not be there."""
        is_step = span.code and span.text in self.steps
        href = span.href or (f"#{self.steps[span.text]}" if is_step else "")
        if href.startswith("#"):
            return f"#{anchor(href[1:])}"
        return href if href.startswith(("https://", "http://")) else ""

    def chart(self, block: Chart) -> Markup:
        return Markup(self.charts.get(block.name, ""))

    def is_diff(self, block: Fold) -> bool:
        """A fold that is there for a diff alone is open: where there is room, it is read."""
        return all(isinstance(each, SourceChange) for each in block.blocks)

    def cell(self, row: TableRow, column: TableColumn) -> Cell:
        return row.cells.get(column.key, Cell(()))

    def step(self, row: TableRow, head: Cell) -> str:
        """Return where the head of a row leads."""
        has_link = row.key not in self.steps or any(span.href for span in head.text)
        return "" if has_link else f"#{anchor(self.steps[row.key])}"

    def marked(self, cell: Cell, row: TableRow, column: TableColumn) -> tuple[str, str]:
        """A verdict takes the sign of its row, an outcome that of its word."""
        word = plain(cell.text)
        if column.key == "verdict" and row.kind is not Marking.PLAIN:
            return word, row.kind
        return word, OUTCOMES.get(word, "")

    def classes(self, column: TableColumn, ladder: bool) -> Markup:
        names = ["n"] * (column.align is Align.RIGHT) + [f"c-{column.key}"] * ladder
        return Markup(' class="{}"').format(" ".join(names)) if names else Markup()

    def label(self, column: TableColumn) -> str:
        return with_unit(column.label, column.unit)
