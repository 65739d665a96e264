"""Which marks cover each other, and where a name may stand beside one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from workbench.render.chart.lettering import LINE, text_width
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
