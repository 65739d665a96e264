"""The blocks of which every output is made, how numbers read in them, and nothing of any format.

A builder makes them from judged values; a writer (terminal, Markdown, HTML, JSON) walks them. Text
is spans, never markup; tables have named columns, so that no writer looks for a cell by its place.
Numbers have three digits and sane units, and never read as nothing where there is some.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from workbench.derive.speedup import LEVEL, Ratio, Time
from workbench.render.text import one_line
from workbench.words import ABSENT, NONE

if TYPE_CHECKING:
    from workbench.derive.figures import Figure


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


def strong(text: str | Text) -> Text:
    """All of a text in strong."""
    return tuple(replace(span, strong=True) for span in line(text))


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


def place(file: str, number: int) -> Text:
    """A line by the base name of its file."""
    return code(f"{file.rsplit('/', 1)[-1]}:{number}")


def codes(names: Iterable[str], by: str = ", ") -> Text:
    return joined((code(name) for name in names), by)


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
        TableRow({f.key: as_cell(f.make(item)) for f in fields}, key(item), kind(item))
        for item in items
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
            inside = match["code"]  # a blank on either side keeps backticks apart from the fence
            if len(inside) > 2 and inside[0] == inside[-1] == " " and inside.strip():
                inside = inside[1:-1]
            yield Span(inside, code=True, strong=strong, em=em)
        elif match["href"]:
            yield Span(match["label"], strong=strong, em=em, href=match["href"])
        elif match["strong"]:
            strong = not strong
        else:
            em = not em
    yield Span(flat[position:], strong=strong, em=em)


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


NEAR_ONE = 1.1  # up to which a ratio is reported to a thousandth, as it is below one
COUNTS = "M"  # the unit of what is counted in millions; shown plain or with k, M, G
WHOLE = ("block", "register", "thread", "inst", "sample")
FLOORS = {"%": 0.05, "% of peak": 0.05, "GB/s": 0.5, "MB": 0.1}  # what is less is noise
SCALES = ((1e9, " G"), (1e6, " M"), (1e4, " k"))


def number(x: float | None, digits: int = 3) -> str:
    """To ``digits`` significant digits, whole above them, without an exponent where one can do."""
    if x is None or not math.isfinite(x):
        return ABSENT
    if x == 0:
        return "0"
    if not 1e-4 <= abs(x) < 1e9:
        return f"{x:.{digits - 1}e}"
    rounded = float(f"{x:.{digits - 1}e}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{x:,.0f}" if abs(x) >= 1e4 else f"{x:.{decimals}f}"


def count(x: float | None) -> str:
    """``56``, ``560 k``, ``2.03 M``: whole below ten thousand, where it is whole."""
    if x is None or not math.isfinite(x):
        return ABSENT
    for size, name in SCALES:
        if abs(x) >= size:
            return number(x / (1e3 if size == 1e4 else size)) + name
    return f"{x:,.0f}" if x == round(x) else number(x)


def quantity(x: float | None, unit: str) -> str:
    """A figure in its unit, which the text repeats only where it scales it; see ``unit_shown``."""
    if x is not None and 0 < x < FLOORS.get(unit, 0.0):
        return f"<{number(FLOORS[unit], 1)}"
    if unit == COUNTS and x is not None:
        return count(round(x * 1e6, 6))
    return count(x) if unit in WHOLE else number(x)


def figure_value(figure: Figure | None) -> str:
    return with_mark(figure.value, figure.unit) if figure else ABSENT


def figure_text(figure: Figure | None) -> str:
    return f"{figure_value(figure)} {unit_shown(figure.unit)}".strip() if figure else ABSENT


def with_mark(value: float | None, unit: str) -> str:
    """A quantity without its unit; a share that cannot be has a mark."""
    return quantity(value, unit) + " *" * is_impossible(value, unit)


def is_impossible(value: float | None, unit: str) -> bool:
    return value is not None and unit == "%" and value >= 100.5


def unit_shown(unit: str) -> str:
    """Return what stands beside a figure: nothing for counts, which carry their own k, M, G."""
    return "" if unit == COUNTS else unit


def with_unit(label: str, unit: str) -> str:
    unit = unit_shown(unit)
    return f"{label} ({unit})" if unit else label


def within(label: str) -> str:
    """A label inside a sentence: without its capital, unless that is of an acronym as in ``L2``."""
    return label[:1].lower() + label[1:] if label[1:2].islower() else label


def percent(share: float | None) -> str:
    """A share as percent; what is not nothing is not shown as nothing."""
    if share is None or not math.isfinite(share):
        return ABSENT
    value = 100 * share
    if 0 < abs(value) < 0.1:
        return f"{number(value, 2)} %"
    return f"{value:.1f} %" if abs(value) < 10 else f"{value:.0f} %"


LEAST_ERROR = 0.05  # points of a standard error that are shown


def share(value: float, error: float | None) -> str:
    """``13.8 ± 1.5 %``; without an error that is no tenth of a point."""
    if error is None or 100 * error < LEAST_ERROR:
        return percent(value)
    return f"{100 * value:.1f} ± {100 * error:.1f} %"


def factor(x: float) -> str:
    """``2.91x``; two decimals near one, where they decide."""
    return f"{number(x, 3)}x" if x < 100 else f"{x:,.0f}x"


def fine(x: float) -> str:
    """Format a factor that has an interval: near one the third decimal decides."""
    return f"{number(x, 4)}x" if 1 < x < NEAR_ONE else factor(x)


def times(before: float | None, after: float | None, unit: str = "") -> str:
    """How many times ``before`` goes into ``after``; a dash for zero and for noise."""
    is_large = before and after and min(before, after) >= FLOORS.get(unit, 0.0)
    return factor(after / before) if before and after and is_large else NONE


def ratio(value: Ratio | None) -> str:
    return fine(value.ratio) if value else ABSENT


def ends(value: Ratio | Time) -> str:
    """``[2.88, 2.95]``: the 95 % interval; ``[2.88, 2.95] at 99 %`` where it is of that level."""
    if value.low is None or value.high is None:
        return "[one session]" if value.sessions == 1 else f"[{ABSENT}]"
    both = (fine(end).removesuffix("x") for end in (value.low, value.high))
    return f"[{', '.join(both)}]{at_level(value)}"


def at_level(value: Ratio | Time) -> str:
    """`` at 99 %``, of an interval that was looked at before; else nothing."""
    return "" if value.level == LEVEL else f" at {value.level} %"


def interval(value: Ratio | None) -> str:
    """``2.91x [2.88, 2.95]``: the ratio and its interval, see ``ends``."""
    return f"{fine(value.ratio)} {ends(value)}" if value else ABSENT


def with_cycles(ratio: Ratio | None) -> str:
    """A ratio with its interval, and in cycles where the clock is a part of the ratio in time."""
    if ratio is None or ratio.cycles is None or not ratio.differs_in_cycles:
        return interval(ratio)
    return f"{interval(ratio)} ({fine(ratio.cycles.value)} in cycles)"


def microseconds(value: float | None) -> str:
    return ABSENT if value is None else f"{number(value)} µs"


INTERVAL = "[95 % interval]"


def took(time: Time | None) -> str:
    return microseconds(time.value if time else None)


def time_words(time: Time | None) -> str:
    """The time in microseconds."""
    return number(time.value) + " unchecked" * time.unchecked if time else ABSENT


def spread(time: Time | None) -> str:
    """The 95 % interval of a time."""
    return ends(time) if time else NONE
