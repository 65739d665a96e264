"""What a chart is made of, in the place where it is drawn: CSS pixels, y downwards.

A scene knows no format and no theme: its colours are names of ``PALETTE``, each in a light and a
dark shade, distinct for colour-blind readers. The series are Okabe and Ito's, which read on white
and on black alike. Builders make a scene; ``svg`` writes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

XY: TypeAlias = tuple[float, float]
Segment: TypeAlias = tuple[XY, XY]


class Anchor(StrEnum):
    """Which end of a text stands at its place."""

    START = "start"
    MIDDLE = "middle"
    END = "end"


class Marker(StrEnum):
    CIRCLE = "circle"
    SQUARE = "square"
    DIAMOND = "diamond"


@dataclass(frozen=True)
class Box:
    x0: float
    y0: float
    x1: float
    y1: float

    @property
    def width(self) -> float:
        return self.x1 - self.x0

    @property
    def height(self) -> float:
        return self.y1 - self.y0

    @property
    def middle(self) -> XY:
        return (self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2


@dataclass(frozen=True)
class Stroke:
    colour: str
    width: float = 1.0
    dash: tuple[float, ...] = ()


@dataclass(frozen=True)
class Polyline:
    """Straight from point to point."""

    points: tuple[XY, ...]
    stroke: Stroke


@dataclass(frozen=True)
class Bar:
    """A filled rectangle; ``part`` names what it stands for, for a page that tells more of it."""

    box: Box
    fill: str
    part: str = ""


@dataclass(frozen=True)
class Sign:
    """A marker; not filled, it is an outline on paper."""

    at: XY
    shape: Marker
    colour: str
    filled: bool = True
    size: float = 12.0


@dataclass(frozen=True)
class Label:
    """One line of text; ``turn`` in degrees, clockwise. ``halo`` keeps it legible over lines."""

    at: XY
    text: str
    size: float
    colour: str = "ink"
    anchor: Anchor = Anchor.START
    bold: bool = False
    turn: float = 0.0
    halo: bool = False


@dataclass(frozen=True)
class VariantItems:
    """Items that belong to a variant. ``areas`` make it something to choose: where it is hit, and
    ``words`` as its accessible name.

    Without areas it only belongs to its variant: a page may mark it, or choose by a click.
    """

    items: tuple[Item, ...]
    variant: str
    kind: str = ""
    areas: tuple[Box, ...] = ()
    words: str = ""


Item: TypeAlias = Polyline | Bar | Sign | Label | VariantItems


@dataclass(frozen=True)
class Scene:
    """A chart. ``title`` and ``subtitle`` stand over it in a file; ``alt`` says what
    it shows, ``caption`` how to read it.
    """

    name: str
    width: float
    height: float
    title: str
    subtitle: str
    items: tuple[Item, ...]
    alt: str = ""
    caption: str = ""


@dataclass(frozen=True)
class Shades:
    light: str
    dark: str


def _both(colour: str) -> Shades:
    return Shades(colour, colour)


PALETTE: Mapping[str, Shades] = MappingProxyType(
    {
        "ink": Shades("#1f2328", "#f0f6fc"),
        "muted": Shades("#59636e", "#9198a1"),
        "faint": Shades("#d1d9e0", "#3d444d"),
        "paper": Shades("#ffffff", "#0d1117"),
        "step": Shades("#0068b0", "#58a6ff"),
        "reference": Shades("#8a5a00", "#e3a008"),
        "rejected": Shades("#c24e00", "#ff8a4c"),
        "black": _both("#000000"),
        "white": _both("#ffffff"),
        "blue": _both("#0072b2"),
        "orange": _both("#e69f00"),
        "green": _both("#009e73"),
        "pink": _both("#cc79a7"),
        "vermilion": _both("#d55e00"),
        "sky": _both("#56b4e9"),
        "yellow": _both("#f0e442"),
        "grey": _both("#8b8b8b"),
    }
)


def ink_on(fill: str) -> str:
    """The name of the colour of text on a fill: white on blue alone reads better than black."""
    shades = PALETTE[fill]
    if shades.light != shades.dark:
        return "ink"
    return "white" if fill == "blue" else "black"


def block(mark: XY, half: float = 8.0) -> Box:
    return Box(mark[0] - half, mark[1] - half, mark[0] + half, mark[1] + half)


# Advances of DejaVu Sans in em; the sans-serifs that stand in for it are narrower.
NARROW, WIDE = frozenset("fijlrt.,:;|'()[] "), frozenset("mwMW%@")
BOLD = 1.1
ELLIPSIS = "…"


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Width of a line in the unit of ``size``."""
    units = sum(round(100 * _advance(character)) for character in text)
    return size * units / 100 * (BOLD if bold else 1)


def _advance(character: str) -> float:
    if character in NARROW:
        return 0.37
    return 0.95 if character in WIDE else 0.7 if character.isupper() else 0.62


def fitted(text: str, room: float, size: float, *, bold: bool = False) -> str:
    """The text, or its two ends where there is no room for all: names differ at their ends."""
    kept = len(text)
    short = text
    while kept > 2 and text_width(short, size, bold=bold) > room:
        kept -= 1
        head = (kept + 1) // 2
        short = f"{text[:head]}{ELLIPSIS}{text[len(text) - (kept - head) :]}"
    return short


def cut(text: str, room: float, size: float) -> str:
    """The text, or its beginning where there is no room for all."""
    if text_width(text, size) <= room:
        return text
    while text and text_width(text + ELLIPSIS, size) > room:
        text = text[:-1]
    return text.rstrip() + ELLIPSIS


def wrapped(words: str, room: float, size: float) -> list[str]:
    """Lines of whole words that fit; a word that is too long stands alone."""
    lines: list[str] = []
    for word in words.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size) <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


NICE = (1.0, 2.0, 2.5, 5.0, 10.0)
DECADES = 30.0  # from a range so wide on, ticks are powers of ten
STEPS = 5.0  # in a narrower one they are evenly spaced


@dataclass(frozen=True)
class Log:
    """``low`` stands at ``start`` and ``high`` at ``end``."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int) -> list[float]:
        """Round values in the range, at most about ``most``."""
        span = self.high / self.low
        if span < STEPS:
            return evenly(self.low, self.high, most)
        digits = (1,) if span >= DECADES else (1, 2, 5)
        every = max(1, math.ceil(math.log10(span) / most)) if span >= DECADES else 1
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        ticks = [digit * 10.0**power for power in powers if power % every == 0 for digit in digits]
        return [tick for tick in ticks if self.low <= tick <= self.high]


def evenly(low: float, high: float, most: int) -> list[float]:
    """Multiples of a round step between two values, at most about ``most``."""
    rough = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((nice * power for nice in NICE if nice * power >= rough), 10 * power)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Plot:
    """Two logarithmic axes and the box that they span."""

    box: Box
    x: Log
    y: Log

    def at(self, x: float, y: float) -> XY:
        return self.x.at(x), self.y.at(y)


def plot(box: Box, xs: tuple[float, float], ys: tuple[float, float]) -> Plot:
    return Plot(box, Log(*xs, box.x0, box.x1), Log(*ys, box.y1, box.y0))


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places in the ascending order of ``wanted``, ``gap`` apart or more; where they do not fit
    between ``low`` and ``high`` they begin above ``low``.
    """
    places: list[float] = []
    for place in wanted:
        places.append(max(place, places[-1] + gap if places else low))
    for n in reversed(range(len(places))):
        places[n] = min(places[n], places[n + 1] - gap if n + 1 < len(places) else high)
    return places
