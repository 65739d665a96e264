"""The key of a chart: signs and words in reading order, on as many lines as they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from workbench.render.chart.lettering import text_width
from workbench.render.chart.scene import Bar, Box, Item, Label, Line, Sign, Stroke

SIZE = 12.0
LINE = 20.0
GAP = 18.0
ROOM = 22.0  # of a sign


@dataclass(frozen=True)
class Entry:
    """A sign (moved to its place), a fill or a stroke, and its word."""

    word: str
    look: Sign | str | Stroke


def key(
    entries: Sequence[Entry], left: float, top: float, right: float
) -> tuple[list[Item], float]:
    """The items, and where the last line ends."""
    items: list[Item] = []
    x, y = left, top + LINE / 2
    for entry in entries:
        needs = ROOM + text_width(entry.word, SIZE)
        if x > left and x + needs > right:
            x, y = left, y + LINE
        items.append(_sign(entry.look, x, y))
        items.append(Label((x + ROOM, y + 0.35 * SIZE), entry.word, SIZE))
        x += needs + GAP
    return items, y + LINE / 2


def _sign(look: Sign | str | Stroke, x: float, y: float) -> Item:
    if isinstance(look, Sign):
        return replace(look, at=(x + 8, y))
    if isinstance(look, Stroke):
        return Line(((x, y), (x + 16, y)), look)
    return Bar(Box(x + 2, y - 6, x + 14, y + 6), look)
