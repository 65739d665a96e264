"""Places labels beside points so that they overlap nothing, the same way every time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

XY = tuple[float, float]
Segment = tuple[XY, XY]

RADII = (8.0, 13.0, 20.0, 30.0, 42.0, 56.0, 72.0, 90.0, 112.0)
# Degrees, best first: right of the point, left, then round it.
ANGLES = (0, 180, 30, -30, 150, -150, 60, -60, 120, -120, 90, -90)
LEADER_FROM = 20.0
MARKER = 6.0
GAP = 1.5
SAME_PLACE = 4.0
CLEAR = 10.0  # of other marks, where a leader line ends
NEARER = 0.5  # than any other mark is a label's own, at least
PADDING = 2.0  # of the text in its box


@dataclass(frozen=True)
class Box:
    x0: float
    y0: float
    x1: float
    y1: float

    def overlaps(self, other: Box) -> bool:
        return (
            self.x0 < other.x1 + GAP
            and other.x0 < self.x1 + GAP
            and self.y0 < other.y1 + GAP
            and other.y0 < self.y1 + GAP
        )

    def within(self, other: Box) -> bool:
        return (
            self.x0 >= other.x0
            and self.x1 <= other.x1
            and self.y0 >= other.y0
            and self.y1 <= other.y1
        )

    def crossed_by(self, segment: Segment) -> bool:
        """Liang and Barsky's clipping: does any part of the segment lie in the box?"""
        (ax, ay), (bx, by) = segment
        if (ax < self.x0 and bx < self.x0) or (ax > self.x1 and bx > self.x1):
            return False  # most segments are far away: this is ten times as fast
        if (ay < self.y0 and by < self.y0) or (ay > self.y1 and by > self.y1):
            return False
        start, end = 0.0, 1.0
        for step, low, high in (
            (bx - ax, self.x0 - ax, self.x1 - ax),
            (by - ay, self.y0 - ay, self.y1 - ay),
        ):
            if step == 0:
                if low > 0 or high < 0:
                    return False
                continue
            first, last = sorted((low / step, high / step))
            start, end = max(start, first), min(end, last)
        return start <= end


@dataclass(frozen=True)
class Anchor:
    """A point that wants a label of this size, all in points of the page.

    ``marks`` are further points that a reader may take the label for. One without ``must`` goes
    without a label where there is no room for it.
    """

    at: XY
    width: float
    height: float
    marks: tuple[XY, ...] = ()
    must: bool = True

    @property
    def own(self) -> tuple[XY, ...]:
        return (self.at, *self.marks)


@dataclass(frozen=True)
class Spot:
    """Where a label's text starts or ends, and its leader line where it stands apart.

    ``spare``: there was no room; here it would be least in the way, if it were shown alone.
    """

    at: XY
    side: str  # the text's horizontal alignment at that place
    leader: Segment | None
    spare: bool = False


def _spot(box: Box, anchor: Anchor, leader: Segment | None) -> Spot:
    """Text is set from the side next to its point: its true width is not quite the box's."""
    middle = (box.y0 + box.y1) / 2
    if box.x0 >= anchor.at[0]:
        return Spot((box.x0, middle), "left", leader)
    if box.x1 <= anchor.at[0]:
        return Spot((box.x1, middle), "right", leader)
    return Spot(((box.x0 + box.x1) / 2, middle), "center", leader)


Option = tuple[Box, Segment | None]


def _around(anchor: Anchor, radius: float) -> Iterator[Option]:
    """Boxes at a distance from the point, best side first, with their leader lines."""
    (x, y), half, tall = anchor.at, anchor.width / 2, anchor.height / 2
    for angle in ANGLES:
        cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        cx = x + radius * cos + half * (0 if abs(cos) < 0.01 else math.copysign(1, cos))
        cy = y + radius * sin + tall * (0 if abs(sin) < 0.01 else math.copysign(1, sin))
        box = Box(cx - half, cy - tall, cx + half, cy + tall)
        yield box, (anchor.at, _nearest(box, anchor.at)) if radius >= LEADER_FROM else None


def _nearest(box: Box, at: XY) -> XY:
    return (min(max(at[0], box.x0), box.x1), min(max(at[1], box.y0), box.y1))


def _block(mark: XY) -> Box:
    x, y = mark
    return Box(x - MARKER, y - MARKER, x + MARKER, y + MARKER)


def same_place(one: XY, other: XY) -> bool:
    """Whether markers cover each other, so that labels cannot tell two of one look apart."""
    return max(abs(one[0] - other[0]), abs(one[1] - other[1])) < SAME_PLACE


def _apart(box: Box, marks: Iterable[XY]) -> float:
    """How far a label stands from the nearest of these marks."""
    return min((math.dist(_nearest(box, mark), mark) for mark in marks), default=math.inf)


class _Page:
    """What is on the page already."""

    def __init__(
        self, boxes: Sequence[Box], marks: Iterable[XY], segments: Sequence[Segment], bounds: Box
    ) -> None:
        self.marks = {mark: _block(mark) for mark in marks}
        self.boxes = list(boxes)
        self.obstacles = [*boxes, *self.marks.values()]
        self.segments = list(segments)
        self.bounds = bounds

    def is_certain(self, anchor: Anchor, box: Box, leader: Segment | None) -> bool:
        """A reader takes a label for the nearest mark's, so that must be its own; with a leader
        line to its own it must stand clear of the others.
        """
        text = Box(box.x0 + PADDING, box.y0 + PADDING, box.x1 - PADDING, box.y1 - PADDING)
        least = CLEAR if leader else _apart(text, [anchor.at]) + NEARER
        return least < _apart(text, [mark for mark in self.marks if mark not in anchor.own])

    def is_free(self, anchor: Anchor, box: Box, leader: Segment | None) -> bool:
        """Whether nothing is in the way, which is most often clear at the first obstacle."""
        return (
            box.within(self.bounds)
            and not any(box.overlaps(other) for other in self.obstacles)
            and not any(box.crossed_by(segment) for segment in self.segments)
            and self.cost(anchor, box, leader) == 0
            and self.is_certain(anchor, box, leader)
        )

    def cost(
        self, anchor: Anchor, box: Box, leader: Segment | None, enough: float = math.inf
    ) -> float:
        """What is in the way of a label; at least ``enough`` where it is not counted to the end."""
        cost = 10.0 * sum(box.overlaps(other) for other in self.obstacles)
        if cost >= enough:
            return cost
        cost += 3.0 * sum(box.crossed_by(segment) for segment in self.segments)
        if leader:
            others = [block for mark, block in self.marks.items() if mark not in anchor.own]
            cost += 12.0 * sum(b.crossed_by(leader) for b in others)
            cost += 4.0 * sum(b.crossed_by(leader) for b in self.boxes)
        return cost

    def least(self, anchor: Anchor) -> Option:
        """The place with the least in the way; over the point where none is on the page."""
        best, least = None, math.inf
        for option in (option for radius in RADII for option in _around(anchor, radius)):
            if option[0].within(self.bounds):
                cost = self.cost(anchor, *option, enough=least)
                if cost < least and self.is_certain(anchor, *option):
                    best, least = option, cost
        return best or self._above(anchor)

    def _above(self, anchor: Anchor) -> Option:
        """For a label too wide to stand beside its point or in the middle of it."""
        (x, y), page = anchor.at, self.bounds
        left = max(page.x0, min(x - anchor.width / 2, page.x1 - anchor.width))
        top = y - LEADER_FROM - anchor.height
        if top < page.y0:
            top = y + LEADER_FROM
        box = Box(left, top, left + anchor.width, top + anchor.height)
        return box, (anchor.at, _nearest(box, anchor.at))

    def put(self, anchor: Anchor, box: Box, leader: Segment | None) -> Spot:
        self.boxes.append(box)
        self.obstacles.append(box)
        if leader:
            self.segments.append(leader)
        return _spot(box, anchor, leader)


def place(
    anchors: Sequence[Anchor],
    taken: Sequence[Box],
    lines: Sequence[Segment],
    bounds: Box,
    marks: Sequence[XY] = (),
) -> list[Spot]:
    """A spot for each anchor: the nearest free one, or the one with least in its way.

    ``marks`` are all points on the page, with a label or without. Labels that must be there go
    first, and of those that fit close to their point, so that one that does not cannot push them
    out.
    """
    page = _Page(taken, [*(anchor.at for anchor in anchors), *marks], lines, bounds)
    spots: dict[int, Spot] = {}
    for must in (True, False):
        mine = [i for i, anchor in enumerate(anchors) if anchor.must == must]
        for radius in RADII:
            for i in (i for i in mine if i not in spots):
                for option in _around(anchors[i], radius):
                    if page.is_free(anchors[i], *option):
                        spots[i] = page.put(anchors[i], *option)
                        break
        for i in (i for i in mine if i not in spots):
            option = page.least(anchors[i])
            spots[i] = page.put(anchors[i], *option) if must else _spare(anchors[i], option)
    return [spots[i] for i in range(len(anchors))]


def _spare(anchor: Anchor, option: Option) -> Spot:
    box, leader = option
    return replace(_spot(box, anchor, leader), spare=True)
