"""What a chart is made of, in the place where it is drawn: CSS pixels, y downwards.

A scene knows no format and no theme: its colours are names of ``PALETTE``, each in a light and a
dark shade, told apart by colour-blind readers. The series are Okabe and Ito's, which read on white
and on black alike. Builders make a scene; ``svg`` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    CROSS = "cross"


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

    def clipped(self, segment: Segment) -> Segment | None:
        """The part of a segment that lies inside (Liang and Barsky); None where none does."""
        (ax, ay), (bx, by) = segment
        start, end = 0.0, 1.0
        for step, low, high in (
            (bx - ax, self.x0 - ax, self.x1 - ax),
            (by - ay, self.y0 - ay, self.y1 - ay),
        ):
            if step == 0:
                if low > 0 or high < 0:
                    return None
                continue
            first, last = sorted((low / step, high / step))
            start, end = max(start, first), min(end, last)
        if start > end:
            return None
        at = [(ax + part * (bx - ax), ay + part * (by - ay)) for part in (start, end)]
        return at[0], at[1]


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
    """Items that belong to variants. ``areas`` make it something to choose: where it is hit, with
    round corners, and ``words`` as its accessible name; several variants are a list to choose from.

    Without areas it only belongs to its variant: a page may mark it, or choose by a click.
    """

    items: tuple[Item, ...]
    variants: tuple[str, ...]
    kind: str = ""
    areas: tuple[Box, ...] = ()
    round: float = 4.0
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
