"""What the warps of each variant were doing: one stacked bar each, shares of all samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from workbench.derive.figures import stall_label
from workbench.judge.rows import Ablation, Row
from workbench.render.chart.bars import entries, fills, parts, stacked
from workbench.render.chart.key import key
from workbench.render.chart.lettering import fitted, text_width
from workbench.render.chart.marks import kind_of
from workbench.render.chart.scene import (
    Anchor,
    Box,
    Group,
    Item,
    Label,
    Line,
    Scene,
    Stroke,
    Width,
)
from workbench.render.chart.words import empty, not_drawn, where
from workbench.render.tables import percent
from workbench.words import Verdict

EDGE, NUMBER = 8.0, 11.0
GRID = Stroke("faint", 0.8)
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
SPOKEN = 6  # reasons
ALT = "Shares of warp state samples by stall reason, one bar a version."
CAPTION = (
    "Each bar is all warp state samples of a version: first the warps that issued, then every "
    "reason to wait, the same colour everywhere."
)


@dataclass(frozen=True)
class Layout:
    """``above``: the name stands over its bar, else before it."""

    width: float
    names: float
    size: float
    row: float
    bar: float
    above: bool


LAYOUTS = {
    Width.WIDE: Layout(920, 260, 12, 23, 18, above=False),
    Width.NARROW: Layout(360, 0, 11.5, 39, 18, above=True),
}


def stalls(ablation: Ablation, width: Width = Width.WIDE) -> Scene:
    layout = LAYOUTS[width]
    rows = [row for row in ablation.everything if row.stalls]
    if rows:
        items, height = _draw(rows, layout)
    else:
        items, height = empty("stall samples not collected", layout.width)
    absent = [row for row in ablation.everything if not row.stalls]
    foot, height = not_drawn(absent, layout.width, height)
    return Scene(
        name="stalls",
        size=width,
        width=layout.width,
        height=height,
        title="Where do the warps spend their time?",
        subtitle=f"{where(ablation)}; shares of all warp state samples",
        alt=ALT,
        caption=CAPTION,
        items=(*items, *foot),
    )


def name_of(row: Row) -> str:
    told = row.verdict in (Verdict.REJECTED, Verdict.INCONCLUSIVE)
    return f"{row.label} ({row.verdict})" if told else row.label


def _draw(rows: Sequence[Row], layout: Layout) -> tuple[list[Item], float]:
    colours = fills(row.stalls for row in rows)
    items, top = key(entries(colours), EDGE, 0, layout.width)
    top += 8
    widest = max(text_width(name_of(row), layout.size, bold=True) for row in rows)
    left = EDGE if layout.above else EDGE + min(widest, layout.names) + 8
    right = layout.width - 16
    gap = 10 if len({row.is_reference for row in rows}) == 2 else 0
    bottom = top + layout.row * len(rows) + gap
    for tick in TICKS:
        x = left + tick * (right - left)
        items.append(Line(((x, top), (x, bottom + 2)), GRID))
        side = {TICKS[0]: Anchor.START, TICKS[-1]: Anchor.END}.get(tick, Anchor.MIDDLE)
        items.append(Label((x, bottom + 16), f"{100 * tick:.0f} %", NUMBER, "muted", side))
    y = top
    for n, row in enumerate(rows):
        y += gap if row.is_reference and not rows[n - 1].is_reference else 0
        items.append(_row(row, colours, Box(left, y, right, y + layout.row), layout))
        y += layout.row
    return items, bottom + 24


def _row(row: Row, colours: dict[str, str], box: Box, layout: Layout) -> Group:
    bar = Box(box.x0, box.y1 - layout.bar - 2, box.x1, box.y1 - 2)
    total = fsum(row.stalls.values())
    shown = stacked(
        parts(row.stalls, colours), colours, bar, lambda part: f"{100 * part / total:.0f} %", NUMBER
    )
    own = not row.is_reference
    room = layout.width - 2 * EDGE if layout.above else box.x0 - 8 - EDGE
    text = fitted(name_of(row), room, layout.size, bold=True)
    y = bar.y0 - 5 if layout.above else bar.middle[1] + 0.35 * layout.size
    name = Label((EDGE, y), text, layout.size, "ink" if own else "muted", bold=own)
    told = [f"{stall_label(reason)} {percent(s)}" for reason, s in row.stalls.items()][:SPOKEN]
    area = Box(2, box.y0, layout.width - 2, box.y1)
    return Group(
        items=(name, *shown),
        variants=(row.variant,),
        kind=kind_of(row),
        areas=(area,),
        words=f"{row.label}: {', '.join(told)}",
    )
