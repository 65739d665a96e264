"""Scales: from figures to places on the picture, and the ticks between."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from workbench.render.chart.scene import XY, Box, Segment

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

    def between(self) -> list[float]:
        """The other digits of every decade, for marks without words."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)))
        ticks = [digit * 10.0**power for power in powers for digit in range(2, 10)]
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
    """Places in the order of ``wanted``, ``gap`` apart or more and as near to it as can be.

    Least squares, by pooling neighbours that want the same place (isotonic regression). Where they
    do not fit between ``low`` and ``high`` they go beyond ``high``.
    """
    pools: list[
        tuple[float, int]
    ] = []  # the mean of what they want, less the gaps before; how many
    for i, place in enumerate(wanted):
        mean, count = place - gap * i, 1
        while pools and pools[-1][0] >= mean:
            before, many = pools.pop()
            mean, count = (before * many + mean * count) / (many + count), many + count
        pools.append((mean, count))
    top = max(low, high - gap * (len(wanted) - 1))
    settled = [min(max(mean, low), top) for mean, count in pools for _ in range(count)]
    return [place + gap * i for i, place in enumerate(settled)]
