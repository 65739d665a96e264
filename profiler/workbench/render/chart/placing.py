"""Where things stand: scales and ticks, and the room that text takes.

Text is estimated, so that no font and no renderer decides where things go.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from workbench.render.chart.scene import XY, Box, Segment


def block(mark: XY, half: float = 8.0) -> Box:
    """What a mark covers."""
    return Box(mark[0] - half, mark[1] - half, mark[0] + half, mark[1] + half)


# Advances of DejaVu Sans in em; the sans-serifs that stand in for it are narrower.
NARROW, WIDE = frozenset("fijlrt.,:;|'()[] "), frozenset("mwMW%@")
BOLD = 1.1
LINE = 1.3  # line height in em
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

    def line(self, *points: XY) -> list[Segment]:
        """What is to be seen of a line from point to point, in places."""
        places = [self.at(*point) for point in points]
        pieces = [self.box.clipped(pair) for pair in pairwise(places)]
        return [piece for piece in pieces if piece]


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
