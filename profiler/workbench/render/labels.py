"""Places labels beside points so that they overlap nothing, the same way every time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

XY = tuple[float, float]
Segment = tuple[XY, XY]

RADII = (8.0, 13.0, 20.0, 30.0, 42.0, 56.0, 72.0, 90.0, 112.0)
# Degrees, best first: right of the point, left, then round it.
ANGLES = (0, 180, 30, -30, 150, -150, 60, -60, 120, -120, 90, -90)
LEADER_FROM = 20.0
MARKER = 6.0
GAP = 1.5


@dataclass(frozen=True)
class Box:
    x0: float
    y0: float
    x1: float
    y1: float

    def overlaps(self, other: Box) -> bool:
        return (
            self.x0 < other.x1 + GAP and other.x0 < self.x1 + GAP
            and self.y0 < other.y1 + GAP and other.y0 < self.y1 + GAP
        )  # fmt: skip

    def within(self, other: Box) -> bool:
        return (
            self.x0 >= other.x0 and self.x1 <= other.x1
            and self.y0 >= other.y0 and self.y1 <= other.y1
        )  # fmt: skip

    def crossed_by(self, segment: Segment) -> bool:
        """Liang and Barsky's clipping: does any part of the segment lie in the box?"""
        (ax, ay), (bx, by) = segment
        if (ax < self.x0 and bx < self.x0) or (ax > self.x1 and bx > self.x1):
            return False  # most segments are far away: this is ten times as fast
        if (ay < self.y0 and by < self.y0) or (ay > self.y1 and by > self.y1):
            return False
        start, end = 0.0, 1.0
        for step, low, high in ((bx - ax, self.x0 - ax, self.x1 - ax),
                                (by - ay, self.y0 - ay, self.y1 - ay)):  # fmt: skip
            if step == 0:
                if low > 0 or high < 0:
                    return False
                continue
            first, last = sorted((low / step, high / step))
            start, end = max(start, first), min(end, last)
        return start <= end


@dataclass(frozen=True)
class Anchor:
    """A point that wants a label of this size, all in points of the page."""

    at: XY
    width: float
    height: float


@dataclass(frozen=True)
class Spot:
    """Where a label's text starts or ends, and its leader line where it stands apart."""

    at: XY
    side: str  # the text's horizontal alignment at that place
    leader: Segment | None


def _spot(box: Box, anchor: Anchor, leader: Segment | None) -> Spot:
    """Text is set from the side next to its point: its true width is not quite the box's."""
    middle = (box.y0 + box.y1) / 2
    if box.x0 >= anchor.at[0]:
        return Spot((box.x0, middle), "left", leader)
    if box.x1 <= anchor.at[0]:
        return Spot((box.x1, middle), "right", leader)
    return Spot(((box.x0 + box.x1) / 2, middle), "center", leader)


def _around(anchor: Anchor, radius: float) -> Iterator[tuple[Box, Segment | None]]:
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


def _block(anchor: Anchor) -> Box:
    x, y = anchor.at
    return Box(x - MARKER, y - MARKER, x + MARKER, y + MARKER)


class _Page:
    """What is on the page already."""

    def __init__(self, boxes: Sequence[Box], segments: Sequence[Segment], bounds: Box) -> None:
        self.boxes = list(boxes)
        self.segments = list(segments)
        self.bounds = bounds

    def is_free(self, anchor: Anchor, box: Box, leader: Segment | None) -> bool:
        """Whether ``cost`` is zero, which is most often clear at the first obstacle."""
        return (
            box.within(self.bounds)
            and not any(box.overlaps(other) for other in self.boxes)
            and self.cost(anchor, box, leader) == 0
        )

    def cost(
        self, anchor: Anchor, box: Box, leader: Segment | None, enough: float = math.inf
    ) -> float:
        """What is in the way of a label; at least ``enough`` where it is not counted to the end."""
        if not box.within(self.bounds):
            return 1000.0
        cost = 10.0 * sum(box.overlaps(other) for other in self.boxes)
        if cost >= enough:
            return cost
        cost += 3.0 * sum(box.crossed_by(segment) for segment in self.segments)
        if leader:
            mine = _block(anchor)
            cost += 4.0 * sum(b.crossed_by(leader) for b in self.boxes if b != mine)
        return cost

    def put(self, anchor: Anchor, box: Box, leader: Segment | None) -> Spot:
        self.boxes.append(box)
        if leader:
            self.segments.append(leader)
        return _spot(box, anchor, leader)


def place(
    anchors: Sequence[Anchor], taken: Sequence[Box], lines: Sequence[Segment], bounds: Box
) -> list[Spot]:
    """A spot for each anchor: the nearest free one, or the one with least in its way.

    Those that fit close to their point go first, so that one that does not cannot push them out.
    """
    page = _Page([*taken, *map(_block, anchors)], lines, bounds)
    spots: dict[int, Spot] = {}
    for radius in RADII:
        for i, anchor in enumerate(anchors):
            if i in spots:
                continue
            for box, leader in _around(anchor, radius):
                if page.is_free(anchor, box, leader):
                    spots[i] = page.put(anchor, box, leader)
                    break
    for i, anchor in enumerate(anchors):
        if i not in spots:
            best, least = None, math.inf
            for option in (option for radius in RADII for option in _around(anchor, radius)):
                cost = page.cost(anchor, *option, enough=least)
                if cost < least:
                    best, least = option, cost
            assert best is not None
            spots[i] = page.put(anchor, *best)
    return [spots[i] for i in range(len(anchors))]
