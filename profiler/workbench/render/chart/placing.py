"""Where things stand: scales and ticks, the room that text takes, and names beside marks.

Text is estimated, so that no font and no renderer decides where things go.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from workbench.render.chart.scene import XY, Anchor, Box, Group, Item, Label, Line, Outline, Segment

RADII = (10.0, 16.0, 24.0, 36.0, 52.0, 72.0, 96.0, 128.0)
# Degrees, best first: right of the point, left, then round it.
ANGLES = (0, 180, 30, -30, 150, -150, 60, -60, 120, -120, 90, -90)
LEADER_FROM = 20.0  # from here on a line joins a name to its mark
MARK = 7.0  # half of a mark with its edge
NEAR = 8.0  # marks that are nearer cover each other's middle
CLEAR = 9.0  # of other marks, where a leader line ends
BELOW = 0.3  # of the size: how far a text's box reaches below its place


def text_box(
    at: XY, text: str, size: float, anchor: Anchor = Anchor.START, *, bold: bool = False
) -> Box:
    wide = text_width(text, size, bold=bold)
    x = at[0] - {Anchor.START: 0.0, Anchor.MIDDLE: wide / 2, Anchor.END: wide}[anchor]
    return Box(x, at[1] - (LINE - BELOW) * size, x + wide, at[1] + BELOW * size)


def _text_boxes(label: Label) -> list[Box]:
    """What a text covers; a turned one, which stands by its middle, by a box for each letter."""
    if not label.turn:
        at = label.at, label.text, label.size, label.anchor
        return [text_box(*at, bold=label.bold)]
    half, angle = text_width(label.text, label.size) / 2, math.radians(label.turn)
    steps = max(1, round(2 * half / label.size))
    along = [half * (2 * n / steps - 1) for n in range(steps + 1)]
    (x, y), rise = label.at, label.size / 3
    middle = (x + rise * math.sin(angle), y - rise * math.cos(angle))
    at_each = [(middle[0] + d * math.cos(angle), middle[1] + d * math.sin(angle)) for d in along]
    return [block(at, 0.6 * label.size) for at in at_each]


def block(mark: XY, half: float = MARK) -> Box:
    """What a mark covers."""
    return Box(mark[0] - half, mark[1] - half, mark[0] + half, mark[1] + half)


def around(marks: Sequence[XY], margin: float) -> Box:
    xs, ys = [x for x, _ in marks], [y for _, y in marks]
    return Box(min(xs), min(ys), max(xs), max(ys)).grown(margin)


def clusters(marks: Sequence[XY], near: float = NEAR) -> list[list[int]]:
    """Indices of marks that cover each other, in order of the first of each group.

    Marks of different groups are ``near`` or more apart, across or up.
    """
    together: list[list[int]] = []
    for i, mark in enumerate(marks):
        mine = [group for group in together if any(_covers(marks[n], mark, near) for n in group)]
        merged = sorted(n for group in mine for n in group)
        together = [group for group in together if group not in mine]
        together.append([*merged, i])
    return sorted(together)


def _covers(one: XY, other: XY, near: float) -> bool:
    return max(abs(one[0] - other[0]), abs(one[1] - other[1])) < near


@dataclass(frozen=True)
class Spot:
    """Where the first of some lines stands, and the line to its mark where they stand apart."""

    at: XY
    anchor: Anchor
    box: Box
    leader: Segment | None


@dataclass
class Space:
    """What is on the picture already, and the room that there is."""

    bounds: Box
    marks: list[XY]
    boxes: list[Box] = field(default_factory=list)
    lines: list[Segment] = field(default_factory=list)

    def keep_clear(self, items: Iterable[Item]) -> None:
        """Of lines and of words."""
        for item in items:
            if isinstance(item, Group):
                self.keep_clear(item.items)
            elif isinstance(item, Line):
                self.lines += pairwise(item.points)
            elif isinstance(item, Label):
                self.boxes += _text_boxes(item)
            elif isinstance(item, Outline):
                self.boxes.append(item.box)

    def put(self, own: Sequence[XY], lines: Sequence[str], size: float) -> Spot | None:
        """The nearest place where names cover nothing and nobody takes them for another's.

        ``own`` are their marks; a line stands under the other. Where there is none, names may
        cross lines: letters with a halo can be read over one, and a mark without a name cannot.
        """
        wide = max(text_width(line, size, bold=True) for line in lines)
        for crossing in (False, True):
            for radius in RADII:
                for spot in _around(own[0], radius, wide, LINE * size * len(lines), size):
                    if self._free(own, spot, crossing=crossing):
                        self.boxes.append(spot.box)
                        self.lines += [spot.leader] if spot.leader else []
                        return spot
        return None

    def _free(self, own: Sequence[XY], spot: Spot, *, crossing: bool) -> bool:
        box, others = spot.box, [mark for mark in self.marks if mark not in own]
        blocks = [block(mark) for mark in self.marks]
        if not box.within(self.bounds) or any(box.overlaps(b) for b in (*self.boxes, *blocks)):
            return False
        if not crossing and any(box.clipped(line) for line in self.lines):
            return False
        nearest = min((_apart(box, mark) for mark in others), default=math.inf)
        if spot.leader is None:
            return nearest > min(_apart(box, mark) for mark in own)
        apart = nearest > CLEAR * (2 if crossing else 1)  # the line to its mark is harder to follow
        free = apart and not any(other.clipped(spot.leader) for other in self.boxes)
        return free and not any(block(mark).clipped(spot.leader) for mark in others)


def _apart(box: Box, mark: XY) -> float:
    return math.dist((min(max(mark[0], box.x0), box.x1), min(max(mark[1], box.y0), box.y1)), mark)


def _around(at: XY, radius: float, wide: float, high: float, size: float) -> Iterator[Spot]:
    """Places at a distance, best side first."""
    for angle in ANGLES:
        cos, sin = round(math.cos(math.radians(angle)), 6), -round(math.sin(math.radians(angle)), 6)
        x = at[0] + radius * cos
        y = at[1] + radius * sin + (math.copysign(high / 2, sin) if sin else 0.0)
        anchor = Anchor.START if cos > 0 else Anchor.END if cos < 0 else Anchor.MIDDLE
        left = x - {Anchor.START: 0.0, Anchor.MIDDLE: wide / 2, Anchor.END: wide}[anchor]
        box = Box(left, y - high / 2, left + wide, y + high / 2)
        end = (min(max(at[0], box.x0), box.x1), min(max(at[1], box.y0), box.y1))
        leader = (at, end) if radius >= LEADER_FROM else None
        yield Spot((x, box.y0 + size), anchor, box, leader)


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
