"""The one chart engine: a canvas that writes SVG, its palette, widths of text, axes and legends.

Lengths are CSS pixels, y grows downwards. Elements carry classes and no colours: both files and the
page have the same body, and only their styles differ.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Literal, NamedTuple, TypeAlias, get_args

import markupsafe

from workbench.derive.figures import added
from workbench.judge.rows import Row
from workbench.render import doc
from workbench.render.document.printed_ladder import reason
from workbench.render.text import harmless
from workbench.words import ABSENT

XY: TypeAlias = tuple[float, float]
Theme: TypeAlias = Literal["light", "dark"]
Anchor: TypeAlias = Literal["start", "middle", "end"]
WIDTH, PHONE = 920.0, 350.0  # of a chart, and of its variant for a phone
EDGE = 8.0  # what the sides of a chart keep free
TEXT, SMALL = 12.0, 11.0  # sizes of text
# Advances of DejaVu Sans in em; the sans-serifs that stand in for it are narrower.
NARROW, BROAD, BOLD = frozenset("fijlrt.,:;|'()[] "), frozenset("mwMW%@=+"), 1.12
TITLE, LINE = 16.0, 16.0  # the size of a file's title, and the height of a line below it


class Shades(NamedTuple):
    light: str
    dark: str


def named(text: str) -> dict[str, str]:
    """Return ``name=value`` pairs."""
    return dict(pair.split("=") for pair in text.split())


# The series are Okabe and Ito's, distinct for colour-blind readers, on white and on black; what
# comes after grey is for rarer things, beside their names.
SERIES = named(
    "black=#000000 white=#ffffff blue=#0072b2 orange=#e69f00 green=#009e73 pink=#cc79a7 "
    "vermilion=#d55e00 sky=#56b4e9 yellow=#f0e442 grey=#8b8b8b purple=#6a3d9a brown=#8c510a "
    "olive=#6b6b00 maroon=#8e0152 forest=#1b7837 teal=#80cdc1 lime=#a6d854 rose=#f4a6a6 "
    "lilac=#c2a5cf sand=#d8b365"
)
DEEP = ("blue", "purple", "brown", "olive", "maroon", "forest")  # text on them is white
PALETTE: Mapping[str, Shades] = {
    "ink": Shades("#1f2328", "#f0f6fc"),
    "muted": Shades("#59636e", "#9198a1"),
    "faint": Shades("#d1d9e0", "#3d444d"),
    "paper": Shades("#ffffff", "#0d1117"),
    "step": Shades("#0068b0", "#58a6ff"),
    "reference": Shades("#8a5a00", "#e3a008"),
    "rejected": Shades("#c24e00", "#ff8a4c"),
    "violet": Shades("#6a3d9a", "#b08cf0"),
    "umber": Shades("#8c510a", "#c99558"),
    **{name: Shades(colour, colour) for name, colour in SERIES.items()},
}


def escape(text: str) -> str:
    """Return text for elements and attributes; control characters are spelt out."""
    return str(markupsafe.escape(harmless(text)))


def ink_on(fill: str) -> str:
    """Return the colour of text on a fill."""
    return "ink" if fill not in SERIES else "white" if fill in DEEP else "black"


class Stroke(NamedTuple):
    colour: str
    width: float = 1.0
    dash: str = ""


class Sign(NamedTuple):
    """A marker; not filled, it is an outline on paper."""

    shape: Literal["circle", "square", "diamond"]
    colour: str
    filled: bool = True
    size: float = 12.0


Look: TypeAlias = Sign | Stroke | str  # in a legend; a string is a fill
GRID, AXIS = Stroke("faint", 0.8), Stroke("muted", 0.8)
KEPT, REJECTED = Sign("circle", "step"), Sign("circle", "rejected", filled=False)
INCONCLUSIVE = Sign("square", "rejected", filled=False, size=11)
REFERENCE = Sign("diamond", "reference", size=14)
SIGNS = {
    doc.Marking.BASELINE: KEPT,
    doc.Marking.KEPT: KEPT,
    doc.Marking.REJECTED: REJECTED,
    doc.Marking.INCONCLUSIVE: INCONCLUSIVE,
    doc.Marking.PLAIN: INCONCLUSIVE,
    doc.Marking.REFERENCE: REFERENCE,
}


class Box(NamedTuple):
    x0: float
    y0: float
    x1: float
    y1: float

    @property
    def middle(self) -> XY:
        return (self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return the width of a line, in the unit of ``size``."""
    wide = (37 if c in NARROW else 95 if c in BROAD else 70 if c.isupper() else 62 for c in text)
    return size * added(wide) / 100 * (BOLD if bold else 1)


def fitted(text: str, room: float, size: float, *, bold: bool = False) -> str:
    """Return the text, or its two ends where not all fits, since names differ at their ends."""
    short = text
    for kept in range(len(text) - 1, 1, -1):
        if text_width(short, size, bold=bold) <= room:
            break
        head = (kept + 1) // 2
        short = f"{text[:head]}…{text[len(text) - (kept - head) :]}"
    return short


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return places in the ascending order of ``wanted``, ``gap`` apart or more; where they do not
    fit between ``low`` and ``high`` they begin above ``low``.
    """
    places: list[float] = []
    for place in wanted:
        places.append(max(place, places[-1] + gap if places else low))
    for n in reversed(range(len(places))):
        places[n] = min(places[n], places[n + 1] - gap if n + 1 < len(places) else high)
    return places


def even(low: float, high: float, most: int, digits: Sequence[float]) -> list[float]:
    """Return up to about ``most`` multiples of one of the ``digits`` times a power of ten."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(digit * power for digit in digits if digit * power >= rough)
    return [round(n * step, 12) for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


class Log(NamedTuple):
    """A logarithmic axis on which ``low`` stands at ``start`` and ``high`` at ``end``."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int) -> list[float]:
        """Return up to ``most`` even steps; in a wide range powers of ten, or 1, 2 and 5 of them"""
        span = self.high / self.low
        if span < 5:
            return even(self.low, self.high, most, (1, 2, 2.5, 5, 10))
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        digits = (1, 2, 5) if span < 100 else (1,)
        ticks = [digit * 10.0**power for power in powers for digit in digits]
        return [tick for tick in ticks if self.low <= tick <= self.high]


class Linear(NamedTuple):
    """An axis that begins with 0 at ``start``; ``high`` stands at ``end``."""

    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        return self.start + value / self.high * (self.end - self.start)

    def ticks(self, most: int) -> list[float]:
        return even(0.0, self.high, most, (1, 2, 5, 10))


class Plot(NamedTuple):
    """The two axes of a box."""

    x: Log
    y: Log

    def at(self, x: float, y: float) -> XY:
        return self.x.at(x), self.y.at(y)


def _number(value: float) -> str:
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")


def _place(at: XY) -> str:
    return f"{_number(at[0])} {_number(at[1])}"


def _box(box: Box) -> str:
    corner = f'x="{_number(box.x0)}" y="{_number(box.y0)}"'
    return f'{corner} width="{_number(box.x1 - box.x0)}" height="{_number(box.y1 - box.y0)}"'


class Canvas(list[str]):
    """The elements of a chart that is so wide; ``height`` is known once it is drawn."""

    def __init__(self, width: float = WIDTH) -> None:
        super().__init__()
        self.width, self.height = width, 0.0

    @property
    def right(self) -> float:
        return self.width - EDGE

    @property
    def narrow(self) -> bool:
        return self.width < WIDTH

    def most(self, wanted: float) -> float:
        """Return how wide a column may be: on a phone, a good third of the chart."""
        return min(wanted, 0.36 * self.width)

    def line(self, points: Sequence[XY], stroke: Stroke) -> None:
        dash = f' stroke-dasharray="{stroke.dash}"' if stroke.dash else ""
        look = f'class="s-{stroke.colour}" stroke-width="{_number(stroke.width)}"{dash}'
        self.append(f'<path d="M{"L".join(map(_place, points))}" fill="none" {look}/>\n')

    def bar(self, box: Box, fill: str) -> None:
        self.append(f'<rect class="f-{fill}" {_box(box)}/>\n')

    def strips(self, strips: Iterable[tuple[float, float, float]], stroke: Stroke) -> None:
        """Draw level strips, each from x to x at a height, as one element."""
        path = "".join(f"M{_place((x0, y))}H{_number(x1)}" for x0, x1, y in strips)
        if path:
            look = f'class="s-{stroke.colour}" stroke-width="{_number(stroke.width)}"'
            self.append(f'<path d="{path}" fill="none" {look}/>\n')

    def sign(self, at: XY, sign: Sign, words: str = "", size: float = 0.0) -> None:
        """Draw a sign, in a size of its own or another, with words that a pointer over it shows."""
        (x, y), half = at, (size or sign.size) / 2
        r = _number(half)
        shape, place = {
            "circle": ("circle", f'cx="{_number(x)}" cy="{_number(y)}" r="{r}"'),
            "square": ("rect", _box(Box(x - half, y - half, x + half, y + half))),
            "diamond": ("path", f'd="M{_place((x, y - half))}l{r} {r}l-{r} {r}l-{r} -{r}z"'),
        }[sign.shape]
        fill = sign.colour if sign.filled else "paper"
        look = f'{place} class="f-{fill} s-{sign.colour}" stroke-width="1.6"'
        title = f"><title>{escape(words)}</title></{shape}" if words else "/"
        self.append(f"<{shape} {look}{title}>\n")

    def text(
        self,
        at: XY,
        text: str,
        size: float = SMALL,
        colour: str = "ink",
        anchor: Anchor = "start",
        *,
        bold: bool = False,
        turn: float = 0.0,
        halo: bool = False,
    ) -> None:
        """Write one line; ``turn`` is clockwise, and a halo keeps it legible over lines."""
        classes = f"f-{colour}" + " b" * bold + " h s-paper" * halo
        place = f'x="{_number(at[0])}" y="{_number(at[1])}"'
        if turn:
            place = f'transform="translate({_place(at)})rotate({_number(turn)})"'
        side = f' text-anchor="{anchor}"' if anchor != "start" else ""
        look = f'class="{classes}" {place} font-size="{_number(size)}"{side}'
        self.append(f"<text {look}>{escape(text)}</text>\n")

    def name(self, at: XY, text: str, room: float, *, strong: bool = True) -> None:
        """Write the name of a step (``strong``), or of something beside it."""
        text = fitted(text, room, TEXT, bold=strong)
        self.text(at, text, TEXT, "ink" if strong else "muted", bold=strong)

    def wrapped(
        self, at: XY, text: str, size: float, step: float, anchor: Anchor = "start"
    ) -> float:
        """Write as many lines as the chart's width needs; return where the next would stand."""
        x, y = at
        for line in wrap(text, int((self.right - EDGE) / (0.62 * size))):
            self.text((x, y), line, size, "muted", anchor)
            y += step
        return y

    def legend(self, entries: Sequence[tuple[str, Look]], top: float) -> float:
        """Draw words, each with its sign, stroke or fill; return where the last line ends."""
        x, y = EDGE, top + 10
        for word, look in entries:
            wide = 22 + text_width(word, TEXT)
            if x > EDGE and x + wide > self.width:
                x, y = EDGE, y + 20
            if isinstance(look, Sign):
                self.sign((x + 8, y), look)
            elif isinstance(look, Stroke):
                self.line(((x, y), (x + 16, y)), look)
            else:
                self.bar(Box(x + 2, y - 6, x + 14, y + 6), look)
            self.text((x + 22, y + 0.35 * TEXT), word, TEXT)
            x += wide + 18
        return y + 10

    def axes(
        self, plot: Plot, ticks: Sequence[tuple[float, str]], x_title: str, y_title: str
    ) -> None:
        """Draw the grid, ticks with their words where there is room, and both titles."""
        box = Box(plot.x.start, plot.y.end, plot.x.end, plot.y.start)
        self.ticks(plot.x, ticks, box.y0, box.y1)
        for tick in plot.y.ticks(max(2, round((box.y1 - box.y0) / 60))):
            y = plot.y.at(tick)
            self.line(((box.x0, y), (box.x1, y)), GRID)
            self.text((box.x0 - 6, y + 4), f"{tick:g}", SMALL, "muted", "end")
        self.line(((box.x0, box.y0), (box.x0, box.y1), (box.x1, box.y1)), AXIS)
        self.text((box.middle[0], box.y1 + 34), x_title, SMALL, "muted", "middle")
        self.text((box.x0 - 6, box.y0 - 10), y_title, SMALL, "muted")

    def ticks(
        self, axis: Log | Linear, ticks: Sequence[tuple[float, str]], top: float, bottom: float
    ) -> None:
        """Draw the lines of an axis, and their words where there is room."""
        free = 0.0
        for tick, word in ticks:
            x, half = axis.at(tick), text_width(word, SMALL) / 2 + 2
            self.line(((x, top), (x, bottom)), GRID)
            middle = min(x, self.width - half)
            if middle - half > free:
                self.text((middle, bottom + 16), word, SMALL, "muted", "middle")
                free = middle + half

    def instead(self, words: str) -> float:
        """Write in place of a chart what was not collected; return where that ends."""
        return self.wrapped((self.width / 2, 60), words, 14, 20, "middle") + 40

    def missing(self, rows: Sequence[Row], top: float) -> float:
        """Name the variants that are not drawn, and why; return where the chart ends."""
        names = ", ".join(f"{row.variant} ({reason(row)})" for row in rows)
        if not rows:
            return top + 6
        return self.wrapped((EDGE, top + 15), f"{ABSENT}: {names}", SMALL, 15) - 7


@dataclass(frozen=True)
class Drawing(doc.Chart):
    """``title`` and ``subtitle`` stand over it in a file; ``fill`` draws it and returns where it
    ends.
    """

    title: str
    subtitle: str
    fill: Callable[[Canvas], float]

    def on(self, width: float = WIDTH) -> Canvas:
        """Return the chart without its title."""
        canvas = Canvas(width)
        canvas.height = self.fill(canvas)
        return canvas

    def svg(self, theme: Theme = "light", width: float = WIDTH) -> str:
        """Return a file for a light or a dark page, without a background of its own."""
        body, head = self.on(width), Canvas(width)
        over = Canvas(width).wrapped((EDGE, TITLE + 14), self.subtitle, TEXT, LINE)
        title = fitted(self.title, width - 2 * EDGE, TITLE, bold=True)
        head.text((EDGE, TITLE + 3 - over), title, TITLE, bold=True)
        head.wrapped((EDGE, TITLE + 5 + LINE - over), self.subtitle, TEXT, LINE)
        words, about = f"{self.title} {self.subtitle}", f"{self.alt} {self.caption}".strip()
        content = "".join([*head, *body])
        used = set(re.findall(r"\b[fs]-(\w+)", " ".join(re.findall('class="([^"]*)"', content))))
        shades = {name: getattr(PALETTE[name], theme) for name in PALETTE if name in used}
        wide, high = _number(width), _number(body.height + over)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" '
            f'viewBox="0 {_number(-over)} {wide} {high}" role="img" '
            f'aria-labelledby="{self.name}-title {self.name}-text">\n'
            f'<title id="{self.name}-title">{escape(words)}</title>\n'
            f'<desc id="{self.name}-text">{escape(about)}</desc>\n'
            f"<style>{_style(shades)}</style>\n"
            f"{content}</svg>\n"
        )

    def files(self) -> dict[str, str]:
        """Return the files by name: light and dark, and both as a phone shows them."""
        return {
            f"{self.name}{end}-{theme}.svg": self.svg(theme, width)
            for end, width in (("", WIDTH), ("-phone", PHONE))
            for theme in get_args(Theme)
        }

    def inline(self) -> str:
        """Return the chart for a page that has ``page_style`` and shows one of the two widths."""
        drawn = ((kind, self.on(width)) for kind, width in (("wide", WIDTH), ("phone", PHONE)))
        return "".join(
            f'<svg class="chart {kind}" data-chart="{escape(self.name)}" '
            f'viewBox="0 0 {_number(body.width)} {_number(body.height)}" role="img" '
            f'aria-label="{escape(self.alt)}">\n{"".join(body)}</svg>\n'
            for kind, body in drawn
        )

    def _repr_html_(self) -> str:
        """Return an image: ids and styles of one chart do not reach another's."""
        data = base64.b64encode(self.svg().encode(errors="replace")).decode()
        look = f'alt="{escape(self.alt)}" style="background:#fff;max-width:100%"'
        return f'<img src="data:image/svg+xml;base64,{data}" {look}>'


def page_style() -> str:
    """Return CSS that gives inline charts their colours in the page's ``color-scheme``."""
    return _style({k: f"light-dark({v.light},{v.dark})" for k, v in PALETTE.items()}, ".chart ")


def _style(shades: Mapping[str, str], scope: str = "") -> str:
    rules = {
        "text": "font-family:system-ui,sans-serif",
        ".b": "font-weight:600",
        ".h": "paint-order:stroke;stroke-width:3px;stroke-linejoin:round",
    }
    for name, shade in shades.items():
        rules |= {f".f-{name}": f"fill:{shade}", f".s-{name}": f"stroke:{shade}"}
    return "".join(f"{scope}{selector}{{{rule}}}" for selector, rule in rules.items())
