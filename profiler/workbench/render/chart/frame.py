"""What every chart stands in: title, subtitle, key, rows with names, and who is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from workbench.judge.rows import Ablation, Row
from workbench.render.chart.scene import (
    XY,
    Anchor,
    Bar,
    Box,
    Item,
    Label,
    Marker,
    Plot,
    Polyline,
    Scene,
    Sign,
    Stroke,
    fitted,
    text_width,
    wrapped,
)
from workbench.render.document.blocks import Marking
from workbench.render.document.phrases import kind, reason
from workbench.words import ABSENT

Drawn = tuple[list[Item], float]  # and where it ends


WIDTH = 920.0  # of every chart


def framed(
    drawn: Drawn | str,
    absent: Sequence[Row] = (),
    *,
    name: str,
    title: str,
    subtitle: str,
    alt: str = "",
    caption: str = "",
) -> Scene:
    """What is ``drawn``, or in its place the words that say why nothing is; ``absent`` are named at
    the foot.
    """
    items, bottom = empty(drawn) if isinstance(drawn, str) else drawn
    foot, height = not_drawn(absent, bottom)
    return Scene(name, WIDTH, height, title, subtitle, (*items, *foot), alt, caption)


KEY_SIZE = 12.0
KEY_LINE = 20.0
GAP = 18.0
ROOM = 22.0  # of a sign


@dataclass(frozen=True)
class LegendEntry:
    """A sign (moved to its place), a fill or a stroke, and its word."""

    word: str
    look: Sign | str | Stroke


def key(
    entries: Sequence[LegendEntry], left: float, top: float, right: float
) -> tuple[list[Item], float]:
    """The items, and where the last line ends."""
    items: list[Item] = []
    x, y = left, top + KEY_LINE / 2
    for entry in entries:
        needs = ROOM + text_width(entry.word, KEY_SIZE)
        if x > left and x + needs > right:
            x, y = left, y + KEY_LINE
        items.append(_sign(entry.look, x, y))
        items.append(Label((x + ROOM, y + 0.35 * KEY_SIZE), entry.word, KEY_SIZE))
        x += needs + GAP
    return items, y + KEY_LINE / 2


def _sign(look: Sign | str | Stroke, x: float, y: float) -> Item:
    if isinstance(look, Sign):
        return replace(look, at=(x + 8, y))
    if isinstance(look, Stroke):
        return Polyline(((x, y), (x + 16, y)), look)
    return Bar(Box(x + 2, y - 6, x + 14, y + 6), look)


SMALL, NOTE, EDGE = 11.0, 15.0, 8.0
EMPTY = 120.0


def where(ablation: Ablation) -> str:
    return f"{ablation.study}, {ablation.shape}, {ablation.gpu}"


def empty(words: str) -> tuple[list[Item], float]:
    """In place of a chart: what was not collected."""
    return [Label((WIDTH / 2, EMPTY / 2), words, 14, "muted", Anchor.MIDDLE)], EMPTY


def not_drawn(rows: Sequence[Row], top: float) -> tuple[list[Item], float]:
    """At the foot, the variants that are missing and why; and where the picture ends."""
    if not rows:
        return [], top + 6
    text = f"{ABSENT}: " + ", ".join(f"{row.variant} ({reason(row)})" for row in rows)
    lines = wrapped(text, WIDTH - 2 * EDGE, SMALL)
    items: list[Item] = [
        Label((EDGE, top + NOTE * (n + 1)), line, SMALL, "muted") for n, line in enumerate(lines)
    ]
    return items, top + NOTE * len(lines) + 8


BEFORE = 8.0  # between a name and its row


def row_left(names: Sequence[str], most: float, size: float) -> float:
    """Where rows begin that have their names before them; names take at most ``most``."""
    return EDGE + min(max(text_width(name, size, bold=True) for name in names), most) + BEFORE


def name_label(text: str, at: XY, room: float, size: float, *, own: bool = True) -> Label:
    """Of a step (``own``) or of what is only beside it."""
    text = fitted(text, room, size, bold=own)
    return Label(at, text, size, "ink" if own else "muted", bold=own)


TICK, UP = 11.0, 60.0  # the size of words at ticks; pixels between ticks, about
GRID, AXIS = Stroke("faint", 0.8), Stroke("muted", 0.8)


def axes(plot: Plot, ticks: Sequence[tuple[float, str]], x_title: str, y_title: str) -> list[Item]:
    """Grid, ticks with their words (those of x are given), and titles under and over the axes."""
    box = plot.box
    items: list[Item] = []
    for tick, word in ticks:
        x = plot.x.at(tick)
        items.append(Polyline(((x, box.y0), (x, box.y1)), GRID))
        if word:
            items.append(Label((x, box.y1 + 16), word, TICK, "muted", Anchor.MIDDLE))
    for tick in plot.y.ticks(max(2, round(box.height / UP))):
        y = plot.y.at(tick)
        items.append(Polyline(((box.x0, y), (box.x1, y)), GRID))
        items.append(Label((box.x0 - 6, y + 4), f"{tick:g}", TICK, "muted", Anchor.END))
    items.append(Polyline(((box.x0, box.y0), (box.x0, box.y1), (box.x1, box.y1)), AXIS))
    items.append(Label((box.middle[0], box.y1 + 34), x_title, TICK, "muted", Anchor.MIDDLE))
    items.append(Label((box.x0 - 6, box.y0 - 10), y_title, TICK, "muted"))
    return items


NOWHERE = (0.0, 0.0)
SIGNS = {
    Marking.KEPT: Sign(NOWHERE, Marker.CIRCLE, "step"),
    Marking.REJECTED: Sign(NOWHERE, Marker.CIRCLE, "rejected", filled=False),
    Marking.INCONCLUSIVE: Sign(NOWHERE, Marker.SQUARE, "rejected", filled=False, size=11),
    Marking.REFERENCE: Sign(NOWHERE, Marker.DIAMOND, "reference", size=14),
}


def kind_of(row: Row) -> Marking:
    """As in a table, with the baseline among the kept, and what is not judged among the open."""
    as_drawn = {Marking.BASELINE: Marking.KEPT, Marking.PLAIN: Marking.INCONCLUSIVE}
    return as_drawn.get(kind(row), kind(row))
