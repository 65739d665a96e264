"""The blocks of which every output is made, and nothing of any format.

A builder makes them from judged values; a writer (terminal, Markdown, HTML, JSON) walks them. Text
is spans, never markup; tables have named columns, so that no writer looks for a cell by its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from workbench.render.numbers import one_line, with_unit


@dataclass(frozen=True)
class Span:
    """A run of text in one style; ``href`` is empty where it is no link."""

    text: str
    code: bool = False
    strong: bool = False
    em: bool = False
    href: str = ""


Text: TypeAlias = tuple[Span, ...]


class Marking(StrEnum):
    """How a row, a step or a mark is marked in every output; never by colour alone."""

    BASELINE = "baseline"
    KEPT = "kept"
    REJECTED = "rejected"
    INCONCLUSIVE = "inconclusive"
    REFERENCE = "reference"
    PLAIN = "plain"


@dataclass(frozen=True)
class Cell:
    """``note`` is its interval or the like; ``short`` stands in for a text that does not fit;
    ``sort`` orders it in a ladder, None last.
    """

    text: Text
    note: str = ""
    short: str = ""
    sort: float | str | None = None


T = TypeVar("T")
Content: TypeAlias = str | Text | Cell


@dataclass(frozen=True)
class Field(Generic[T]):
    """A column of a table: ``make`` makes its cell of what a row is about. ``unit`` stands under
    the label; ``source`` is the metric or file behind its figures. Numbers are aligned right.

    ``rank`` orders columns by how much a reader needs them, 0 first: where there is no room, the
    highest go. ``note`` says what the notes of its cells are, as ``[95 % interval]``. A text that
    is needed may be cut to ``least`` cells.
    """

    key: str
    label: str
    make: Callable[[T], Content]
    unit: str = ""
    is_number: bool = False
    rank: int = 0
    source: str = ""
    note: str = ""
    least: int = 16

    def cell(self, item: T) -> Cell:
        return as_cell(self.make(item))


@dataclass(frozen=True)
class TableRow:
    """``cells`` by the keys of the columns; ``key`` names what it is about, such as a variant."""

    cells: Mapping[str, Cell]
    key: str = ""
    kind: Marking = Marking.PLAIN


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[Field[Any], ...]
    rows: tuple[TableRow, ...]


@dataclass(frozen=True)
class Paragraph:
    text: Text


@dataclass(frozen=True)
class Bullets:
    items: tuple[Text, ...]
    ordered: bool = False


@dataclass(frozen=True)
class Callout:
    """Something that must be seen first: warnings, what is stale or not comparable."""

    items: tuple[Text, ...]


@dataclass(frozen=True)
class CodeBlock:
    text: str
    language: str = ""


@dataclass(frozen=True)
class Chart:
    """A chart (``render.chart.svg.Drawing`` draws it); ``alt`` says what it shows, ``caption`` how
    to read it.
    """

    name: str
    alt: str
    caption: str


@dataclass(frozen=True)
class SourceChange:
    """The diff of a step with what its lines cost: fenced in Markdown, a viewer on a page."""

    variant: str


@dataclass(frozen=True)
class Fold:
    """A block that most readers skip; ``summary`` says what is in it."""

    summary: Text
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Section:
    """A titled part, or a document; ``key`` is its anchor. A step has its ``variant``, its ``kind``
    and the word for that, its ``badge``. One without a title is read as part of what stands before
    it.
    """

    key: str
    title: Text
    blocks: tuple[Block, ...]
    kind: Marking = Marking.PLAIN
    variant: str = ""
    badge: str = ""


class Piece(NamedTuple):
    """Text of a line in a style of the terminal, which must be ``least`` cells wide to show it."""

    text: str
    style: str = ""
    least: int = 0


Line: TypeAlias = Sequence[Piece]


@dataclass(frozen=True)
class LinesBlock:
    """Lines of source, which a terminal cuts to its width."""

    lines: Sequence[Line]


Block: TypeAlias = (
    Paragraph
    | Bullets
    | Callout
    | CodeBlock
    | Chart
    | SourceChange
    | LinesBlock
    | Table
    | Fold
    | Section
)


def warned(warnings: Sequence[str | Text]) -> list[Block]:
    """Return what must be read first, where there is anything."""
    return [Callout(tuple(map(line, warnings)))] if warnings else []


def label(column: Field[Any], *, notes: bool = True) -> str:
    """``time, chained (µs)``, with what its notes are."""
    text = with_unit(column.label, column.unit)
    return f"{text} {column.note}" if notes and column.note else text


def plain(text: Text) -> str:
    return "".join(span.text for span in text)


def code(text: str) -> Text:
    return (Span(text, code=True),) if text else ()


def strong(text: str) -> Text:
    return (Span(text, strong=True),) if text else ()


def bold(text: Text) -> Text:
    """All of a text in strong."""
    return tuple(replace(span, strong=True) for span in text)


def line(*parts: str | Text) -> Text:
    """Spans from strings and texts, one after the other."""
    return tuple(
        span
        for part in parts
        if part
        for span in ((Span(part),) if isinstance(part, str) else part)
    )


def paragraph(*parts: str | Text) -> Paragraph:
    """Make a paragraph of strings and texts, one after the other."""
    return Paragraph(line(*parts))


def bullets(items: Iterable[str | Text], *, ordered: bool = False) -> Bullets:
    return Bullets(tuple(map(line, items)), ordered)


def fold(summary: str | Text, *blocks: Block) -> Fold:
    return Fold(line(summary), blocks)


def section(
    key: str,
    title: str | Text,
    *blocks: Block,
    kind: Marking = Marking.PLAIN,
    variant: str = "",
    badge: str = "",
) -> Section:
    return Section(key, line(title), blocks, kind, variant, badge)


def cell(text: str | Text, note: str = "", short: str = "") -> Cell:
    return Cell(line(text), note, short)


def joined(texts: Iterable[str | Text], by: str = ", ") -> Text:
    """The texts with ``by`` between them."""
    spans: list[Span] = []
    for index, text in enumerate(texts):
        spans += line(by if index else "", text)
    return tuple(spans)


def numeric(key: str, label: str, make: Callable[[T], Content], **more: Any) -> Field[T]:
    """A ``Field`` that is aligned right."""
    return Field(key, label, make, is_number=True, **more)


def as_cell(content: Content) -> Cell:
    return content if isinstance(content, Cell) else cell(content)


def table(
    name: str,
    fields: Sequence[Field[T]],
    items: Iterable[T],
    *,
    key: Callable[[T], str] = lambda _: "",
    kind: Callable[[T], Marking] = lambda _: Marking.PLAIN,
) -> Table:
    rows = tuple(
        TableRow({f.key: f.cell(item) for f in fields}, key(item), kind(item)) for item in items
    )
    return Table(name, tuple(fields), rows)


def only(shown: Table, keys: Sequence[str]) -> Table:
    """The table with these columns alone, in this order; a key that it lacks is passed over."""
    by_key = {column.key: column for column in shown.columns}
    return replace(shown, columns=tuple(by_key[k] for k in keys if k in by_key))


_TOKEN = re.compile(
    r"\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?<!`)(?P<fence>`+)(?!`)(?P<code>.+?)(?<!`)(?P=fence)(?!`)"
    r"|\[(?P<label>[^\]\[]+)\]\((?P<href>https?://[^\s()<>]+)\)"
    r"|(?P<strong>\*\*)"
    r"|(?P<em>(?<![*\w])\*(?=\S)|(?<=\S)\*(?![*\w]))",
    re.DOTALL,
)
_SENTENCE = re.compile(r"[.!?](?=\s)")
_CLAUSE = re.compile(r"[,;:]? \(|[,;:] ")


def authored(text: str) -> Text:
    """One paragraph. Strong or emphasis that is opened but never closed ends with it."""
    return _merged(_spans(one_line(text)))


def first_clause(text: str) -> str:
    return _CLAUSE.split(plain(authored(text)))[0]


def paragraphs(text: str) -> tuple[Paragraph, ...]:
    """Parted by blank lines."""
    parts = re.split(r"\n\s*\n", text.strip())
    return tuple(Paragraph(authored(part)) for part in parts if part.strip())


def first_sentence(text: str) -> Text:
    """Return the first sentence of an author's first paragraph; a full stop inside of code ends
    none.
    """
    kept: list[Span] = []
    for span in authored(re.split(r"\n\s*\n", text.strip())[0]):
        end = None if span.code else _SENTENCE.search(span.text)
        if end:
            return (*kept, replace(span, text=span.text[: end.end()]))
        kept.append(span)
    return tuple(kept)


def _spans(flat: str) -> Iterator[Span]:
    strong = em = False
    position = 0
    for match in _TOKEN.finditer(flat):
        yield Span(flat[position : match.start()], strong=strong, em=em)
        position = match.end()
        if match["escaped"]:
            yield Span(match["escaped"], strong=strong, em=em)
        elif match["fence"]:
            yield Span(_unpadded(match["code"]), code=True, strong=strong, em=em)
        elif match["href"]:
            yield Span(match["label"], strong=strong, em=em, href=match["href"])
        elif match["strong"]:
            strong = not strong
        else:
            em = not em
    yield Span(flat[position:], strong=strong, em=em)


def _unpadded(inside: str) -> str:
    """A blank on either side keeps backticks apart from the fence, and is no part of the code."""
    padded = len(inside) > 2 and inside[0] == inside[-1] == " " and inside.strip()
    return inside[1:-1] if padded else inside


def _merged(spans: Iterator[Span]) -> Text:
    """Neighbours of one style as one, empty ones gone."""
    kept: list[Span] = []
    for span in spans:
        if not span.text:
            continue
        if kept and replace(kept[-1], text="") == replace(span, text=""):
            kept[-1] = replace(span, text=kept[-1].text + span.text)
        else:
            kept.append(span)
    return tuple(kept)
