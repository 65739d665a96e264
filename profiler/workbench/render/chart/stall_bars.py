"""What the warps of each variant were doing: one stacked bar each, shares of all samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from workbench.derive.figures import stall_label
from workbench.judge.rows import Ablation, Row
from workbench.render.chart.bars import entries, fills, parts, stacked
from workbench.render.chart.frame import framed
from workbench.render.chart.key import key
from workbench.render.chart.marks import kind_of
from workbench.render.chart.notes import where
from workbench.render.chart.rows import BEFORE, EDGE, name, row_left, tops
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
from workbench.render.document.stalls import share_of
from workbench.words import Verdict

NUMBER, GAP = 11.0, 10.0
GRID = Stroke("faint", 0.8)
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
SPOKEN = 6  # reasons
ALT = "Shares of warp state samples by stall reason, one bar a version."
CAPTION = (
    "Each bar is all samples of a version: first the warps that issued, then every reason to wait. "
    "A fix works on the widest colour; when that shrinks, the next one decides."
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
    drawn = _draw(rows, layout) if rows else "stall samples not collected"
    absent = [row for row in ablation.everything if not row.stalls]
    return framed(
        drawn,
        width,
        layout.width,
        absent,
        name="stalls",
        title="Where do the warps spend their time?",
        subtitle=f"{where(ablation)}; shares of all warp state samples",
        alt=ALT,
        caption=CAPTION,
    )


def name_of(row: Row) -> str:
    if row.verdict in (Verdict.REJECTED, Verdict.INCONCLUSIVE):
        return f"{row.label} ({row.verdict})"
    return row.label


def _draw(rows: Sequence[Row], layout: Layout) -> tuple[list[Item], float]:
    colours = fills(row.stalls for row in rows)
    items, top = key(entries(colours), EDGE, 0, layout.width)
    top += 8
    left = EDGE
    if not layout.above:
        left = row_left([name_of(row) for row in rows], layout.names, layout.size)
    right = layout.width - 16
    places, bottom = tops(rows, top, layout.row, GAP)
    for tick in TICKS:
        x = left + tick * (right - left)
        items.append(Line(((x, top), (x, bottom + 2)), GRID))
        side = {TICKS[0]: Anchor.START, TICKS[-1]: Anchor.END}.get(tick, Anchor.MIDDLE)
        items.append(Label((x, bottom + 16), f"{100 * tick:.0f} %", NUMBER, "muted", side))
    for row, y in zip(rows, places, strict=True):
        items.append(_row(row, colours, Box(left, y, right, y + layout.row), layout))
    return items, bottom + 24


def _row(row: Row, colours: dict[str, str], box: Box, layout: Layout) -> Group:
    bar = Box(box.x0, box.y1 - layout.bar - 2, box.x1, box.y1 - 2)
    total = fsum(row.stalls.values())
    shown = stacked(
        parts(row.stalls, colours), colours, bar, lambda part: f"{100 * part / total:.0f} %", NUMBER
    )
    room = layout.width - 2 * EDGE if layout.above else box.x0 - BEFORE - EDGE
    y = bar.y0 - 5 if layout.above else bar.middle[1] + 0.35 * layout.size
    label = name(name_of(row), (EDGE, y), room, layout.size, own=not row.is_reference)
    most = [f"{stall_label(r)} {share_of(s, row.figures)}" for r, s in row.stalls.items()][:SPOKEN]
    area = Box(2, box.y0, layout.width - 2, box.y1)
    return Group(
        items=(label, *shown),
        variants=(row.variant,),
        kind=kind_of(row),
        areas=(area,),
        words=f"{row.label}: {', '.join(most)}",
    )
