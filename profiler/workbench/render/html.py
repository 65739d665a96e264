"""Blocks as HTML: the one place where anything is escaped. Pure.

Charts come drawn from the caller; everything else follows from the blocks alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape as escape_html
from typing import TypeAlias
from urllib.parse import quote

from workbench.render.document.blocks import (
    LADDER,
    Align,
    Block,
    Bullets,
    Callout,
    Cell,
    Chart,
    CodeBlock,
    Fold,
    LinesBlock,
    Marking,
    Paragraph,
    Section,
    SourceChange,
    Span,
    Table,
    TableColumn,
    TableRow,
    Text,
    filled,
    plain,
)
from workbench.render.numbers import harmless, with_unit

Attribute: TypeAlias = str | float | bool | None
DEEPEST = 6  # HTML has no heading below h6
WITHOUT_SCRIPT = (
    '<p class="scriptless">The diff is put together by a script, which is switched off.</p>'
)
STEP_BUTTONS = (
    '<p class="step-buttons needs-script"><button type="button" class="plain" data-go="-1" '
    'aria-keyshortcuts="p" title="previous step (p)">‹ previous</button><span></span>'
    '<button type="button" class="plain" data-go="1" aria-keyshortcuts="n" '
    'title="next step (n)">next ›</button></p>'
)
# Words that are marked wherever they fill a cell, so that a colour never stands for itself
OUTCOMES = {
    **dict.fromkeys(("passed", "confirmed", "kept"), "good"),
    **dict.fromkeys(("failed", "refuted", "rejected"), "bad"),
    **dict.fromkeys(("open", "not measurable", "inconclusive"), "unsure"),
}


def escape(text: str) -> str:
    """For elements and attributes; control characters, those of direction too, are spelt out."""
    return escape_html(harmless(text))


def tag(name: str, inside: str, **attributes: Attribute) -> str:
    """An element around HTML; attributes are escaped, those that are None or False left out."""
    return f"<{name}{_attributes(attributes)}>{inside}</{name}>"


def _attributes(attributes: dict[str, Attribute]) -> str:
    given = (
        (key.rstrip("_").replace("_", "-"), value)
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return "".join(
        f" {key}" if value is True else f' {key}="{escape(str(value))}"' for key, value in given
    )


def anchor(key: str) -> str:
    """An id from any text; the same behind ``#`` leads to it."""
    return quote(harmless(key), safe="")


def inline(text: Text, steps: Mapping[str, str] | None = None) -> str:
    """``steps``: a step's name in code leads to the section whose key it has there."""
    return "".join(_span(span, steps or {}) for span in text)


def _span(span: Span, steps: Mapping[str, str]) -> str:
    inside = escape(span.text)
    for wanted, name in ((span.code, "code"), (span.em, "em"), (span.strong, "strong")):
        inside = tag(name, inside) if wanted else inside
    to_step = f"#{steps[span.text]}" if span.code and span.text in steps else ""
    return _link(span.href or to_step, inside)


def _link(href: str, inside: str) -> str:
    """Only to places on the page and to the web: a file beside the report may not be there."""
    if href.startswith("#"):
        return tag("a", inside, href=f"#{anchor(href[1:])}")
    if href.startswith(("https://", "http://")):
        return tag("a", inside, href=href, rel="noreferrer")
    return inside


@dataclass(frozen=True)
class Writer:
    """``charts`` has each chart as HTML by its name, ``steps`` the key of each step's section by
    its variant: what names it leads there.
    """

    charts: Mapping[str, str]
    steps: Mapping[str, str]

    def blocks(self, content: Iterable[Block], level: int = 2, about: str = "") -> str:
        """``level`` is that of the next headings; ``about`` is the variant that it is about."""
        return "\n".join(self._block(block, level, about) for block in content)

    def _block(self, block: Block, level: int, about: str) -> str:
        match block:
            case Paragraph():
                return tag("p", self.inline(block.text))
            case Bullets():
                return tag("ol" if block.ordered else "ul", self._items(block.items))
            case Callout():
                title = tag("strong", escape(block.title))
                inside = title + tag("ul", self._items(block.items))
                return tag("div", inside, class_="warning", role="note")
            case CodeBlock():
                return tag("pre", tag("code", escape(block.text)), tabindex=0)
            case Chart():
                return self._figure(block)
            case SourceChange():
                return tag("div", WITHOUT_SCRIPT, class_="diffs", data_diff=block.variant)
            case LinesBlock():
                return ""  # a page has its own viewer
            case Table():
                return self._table(block, about)
            case Fold():
                return self._fold(block, level, about)
            case Section():
                return self._section(block, level)

    def inline(self, text: Text) -> str:
        return inline(text, self.steps)

    def _items(self, items: Iterable[Text]) -> str:
        return "".join(tag("li", self.inline(item)) for item in items)

    def _fold(self, block: Fold, level: int, about: str) -> str:
        """A fold that is there for a diff alone is open: where there is room, it is read."""
        opened = all(isinstance(each, SourceChange) for each in block.blocks)
        inside = self.blocks(block.blocks, level, about)
        return tag("details", f"{tag('summary', inline(block.summary))}\n{inside}", open=opened)

    def _figure(self, block: Chart) -> str:
        drawn = self.charts.get(block.name, "")
        caption = (
            tag("figcaption", self.inline(block.caption), class_="note") if block.caption else ""
        )
        return tag("figure", drawn + caption, data_chart=block.name)

    def _section(self, block: Section, level: int) -> str:
        """A step's section is one of a list, of which a script leaves one open; one without a
        title is read with what stands before it.
        """
        if not block.title:
            return self._parts(block, level)
        key = anchor(block.key)
        title = tag(f"h{min(level, DEEPEST)}", inline(block.title), id=f"{key}--title")
        return tag(
            "article" if block.variant else "section",
            f"\n{title}\n{self._parts(block, level + 1)}\n",
            id=key,
            class_=f"step {block.kind}" if block.variant else None,
            data_variant=block.variant or None,
            tabindex=-1,
            aria_labelledby=f"{key}--title",
        )

    def _parts(self, section: Section, level: int) -> str:
        """The blocks of a section, those of steps beside a list of them."""
        steps = [b for b in section.blocks if isinstance(b, Section) and b.variant]
        rest = [b for b in section.blocks if b not in steps]
        parts = self.blocks(rest, level, section.variant)
        if not steps:
            return parts
        listed = tag("nav", tag("ol", _listed(steps)), class_="step-list", aria_label="Steps")
        panel = tag("div", STEP_BUTTONS + self.blocks(steps, level), class_="step-panel")
        return f"{parts}\n{tag('div', listed + panel, class_='steps')}"

    def _table(self, block: Table, about: str) -> str:
        """In a box that scrolls. A ladder is sorted by its headings."""
        ladder, block = block.name.startswith(LADDER), filled(block)
        heads = "".join(_head(column, ladder) for column in block.columns)
        rows = "\n".join(self._row(row, block.columns, ladder) for row in block.rows)
        words = f"{block.name.replace('_', ' ')} {about}".strip()
        caption = tag("caption", escape(words), class_="hidden")
        inside = f"{caption}<thead>{tag('tr', heads)}</thead>\n<tbody>{rows}</tbody>"
        made = tag("table", inside, class_=f"data {block.name}{' is-ladder' if ladder else ''}")
        return tag("div", made, class_="scroll", tabindex=0, role="region", aria_label=words)

    def _row(self, row: TableRow, columns: Sequence[TableColumn], ladder: bool) -> str:
        head, *rest = columns
        cells = [self._row_head(row, head), *(self._cell(row, c, ladder) for c in rest)]
        kind = row.kind if row.kind is not Marking.PLAIN else None
        return tag("tr", "".join(cells), class_=kind, data_key=row.key or None)

    def _row_head(self, row: TableRow, column: TableColumn) -> str:
        cell = row.cells.get(column.key, Cell(()))
        inside = inline(cell.text)
        if row.key in self.steps and not any(span.href for span in cell.text):
            inside = tag("a", inside, href=f"#{anchor(self.steps[row.key])}")
        side = "n" if column.align is Align.RIGHT else None
        return tag("th", inside + _note(cell), scope="row", class_=side)

    def _cell(self, row: TableRow, column: TableColumn, ladder: bool) -> str:
        cell = row.cells.get(column.key, Cell(()))
        inside = self._marked(cell, row, column) + _note(cell)
        side = "n" if column.align is Align.RIGHT else None
        if not ladder:
            return tag("td", inside, class_=side)
        return tag(
            "td",
            inside,
            class_=_classes(side, f"c-{column.key}"),
            data_sort="" if cell.sort is None else cell.sort,
            data_label=with_unit(column.label, column.unit),
        )

    def _marked(self, cell: Cell, row: TableRow, column: TableColumn) -> str:
        """A verdict takes the sign of its row, an outcome that of its word."""
        word = plain(cell.text)
        if column.key == "verdict" and row.kind is not Marking.PLAIN:
            return mark(word, row.kind)
        return mark(word, OUTCOMES[word]) if word in OUTCOMES else self.inline(cell.text)


def _listed(steps: Iterable[Section]) -> str:
    items = []
    for step in steps:
        inside = f"{tag('span', inline(step.title))} {mark(step.badge, step.kind)}"
        link = tag("a", inside, href=f"#{anchor(step.key)}", data_variant=step.variant)
        items.append(tag("li", link))
    return "".join(items)


def mark(word: str, kind: str) -> str:
    """A word with the sign and the colour of its kind."""
    return tag("span", escape(word), class_=f"mark {kind}")


def _note(cell: Cell) -> str:
    return tag("small", escape(cell.note)) if cell.note else ""


def _classes(*names: str | None) -> str | None:
    return " ".join(name for name in names if name) or None


def _head(column: TableColumn, sortable: bool) -> str:
    unit = f" {tag('small', escape(column.unit))}" if column.unit else ""
    note = f" {tag('small', escape(column.note))}" if column.note else ""
    label = f"{tag('span', escape(column.label))}{unit}{note}"
    inside = tag("button", label, type="button", class_="sort") if sortable else label
    side = "n" if column.align is Align.RIGHT else None
    classes = _classes(side, f"c-{column.key}" if sortable else None)
    return tag("th", inside, scope="col", class_=classes, title=column.source or None)
