"""The hierarchical roofline as three small charts side by side: DRAM, L2 and L1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.derive.roofline.ceilings import DRAM, L1, L2, Ceilings
from workbench.judge.rows import Ablation
from workbench.render.canvas import FONT_SIZE, LIGHT, POINTS, text_width
from workbench.render.ceilings import (
    LEFT,
    MEMORY,
    SMALL,
    TERA,
    Area,
    Frame,
    Roofs,
    draw_axes,
    roofs,
)
from workbench.render.labels import XY, Box, Segment
from workbench.render.measured_roofs import draw_measured, measured_lines
from workbench.render.roofline_chart import (
    WRONG,
    Mark,
    draw_key,
    draw_labels,
    draw_note,
    draw_path,
    ends,
)
from workbench.render.tables import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 9.0, 5.6
SLOPE_LABEL = 0.25  # of the slope's length, from below: clear of the points
BOTTOM, TOP, BETWEEN = 0.195, 0.845, 0.022
END = 0.975  # room for half of a tick's label
NEAR = 12.0  # points on the page
NAMED = 10  # variants; of more only the ends of the ladder and the references are named
TITLES = {
    DRAM: "DRAM",
    L2: "L2 to the SMs",
    L1: "L1, global and local loads",
}
LABELS = {DRAM: "FLOP per DRAM byte", L2: "FLOP per L2 byte", L1: "FLOP per L1 byte"}


def level_marks(ablation: Ablation, level: str) -> list[Mark]:
    """The points at one level; none for a variant that moved nothing through it."""
    found = []
    for row in ablation.everything:
        for at in row.point.levels if row.point else ():
            if at.level == level and row.point and math.isfinite(at.intensity):
                found.append(Mark(row, row.point, at.intensity))
    return found


def draw(ablation: Ablation) -> Figure:
    """Drawn for a light page; ``canvas.swap`` makes the dark one."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT))
    where = f"{ablation.study}, {ablation.shape}, {ablation.gpu}"
    figure.text(
        LEFT,
        0.952,
        "Roofline at every level of memory",
        color=LIGHT.ink,
        fontsize=FONT_SIZE + 2.5,
        fontweight="bold",
    )
    few = len(ablation.everything) <= NAMED
    rest = "" if few else "; the table names the steps between"
    figure.text(LEFT, 0.913, f"{where}; the same axes in all three{rest}", color=LIGHT.muted)
    draw_note(figure, ablation)
    marks = {level: level_marks(ablation, level) for level in TITLES}
    ceilings = ablation.ceilings
    if ceilings is None or not any(marks.values()):
        figure.text(
            0.5,
            0.5,
            "traffic by level not collected",
            color=LIGHT.muted,
            ha="center",
            fontsize=FONT_SIZE + 2,
        )
        return figure
    every = [mark for group in marks.values() for mark in group]
    packed = any(mark.point.ceiling == "half" for mark in every)
    compute = roofs(ceilings, packed=packed)
    always = None if few else ends(ablation)
    wide = (END - LEFT - 2 * BETWEEN) / 3
    for i, level in enumerate(TITLES):
        left = LEFT + i * (wide + BETWEEN)
        area = Area(left, BOTTOM, left + wide, TOP, WIDTH, HEIGHT)
        axes = figure.add_axes((left, BOTTOM, wide, TOP - BOTTOM))
        view = common_frame(ceilings, compute, every, area)
        bandwidth = ceilings.bandwidth(level)
        dashed: list[tuple[XY, XY]] = []
        if bandwidth is not None:
            roof = replace(compute, bandwidth=bandwidth / TERA)
            dashed = measured_lines(ablation, level, roof).lines(view, roof)
        _panel(axes, view, level, bandwidth, compute, marks[level], dashed, always, first=i == 0)
    draw_key(figure, every, 0.08 * HEIGHT * POINTS, measured=ablation.measured is not None)
    return figure


def common_frame(
    ceilings: Ceilings, compute: Roofs, marks: Sequence[Mark], area: Area | None = None
) -> Frame:
    """The same axes for every level: with the points and ridges of all of them."""
    bandwidths = [b for level in TITLES if (b := ceilings.bandwidth(level))]
    xs = [compute.low * TERA / max(bandwidths), compute.high * TERA / min(bandwidths)]
    xs += [mark.at[0] for mark in marks]
    ys = [compute.low, compute.high, *(mark.at[1] for mark in marks)]
    return Frame(min(xs) / 2.5, max(xs) * 2.5, min(ys) / 3, max(ys) * 2.2, area or Area())


def _panel(
    axes: Axes,
    view: Frame,
    level: str,
    bandwidth: float | None,
    compute: Roofs,
    marks: list[Mark],
    dashed: list[tuple[XY, XY]],
    always: set[str] | None,
    *,
    first: bool,
) -> None:
    draw_axes(axes, view, LABELS[level], "Performance (TFLOP/s)" if first else "")
    if not first:
        axes.tick_params(axis="y", labelleft=False)
    axes.set_title(
        TITLES[level], color=LIGHT.ink, fontsize=FONT_SIZE, loc="left", pad=5, fontweight="bold"
    )
    if bandwidth is None:
        x, y = math.sqrt(view.x0 * view.x1), math.sqrt(view.y0 * view.y1)
        axes.text(x, y, "not collected", color=LIGHT.muted, ha="center")
        return
    taken, lines = _roofs(axes, view, bandwidth / TERA, compute, marks)
    lines += draw_measured(axes, view, dashed)
    lines += draw_path(axes, view, marks)
    for mark in marks:
        axes.plot(*mark.at, zorder=4, **{**mark.look.sign, "markersize": 5.5})
        if mark.point.above_roof:
            axes.plot(*mark.at, zorder=5, **{**WRONG, "markersize": 11})
    wanted = [
        mark
        for mark in marks
        if always is None or mark.row.is_reference or mark.row.variant in always
    ]
    draw_labels(axes, view, marks, wanted, taken, lines, short=True, always=always)


def _crowd(box: Box, view: Frame, marks: list[Mark]) -> int:
    """How many points have their marker, or their own label beside it, in the box."""
    near = Box(box.x0 - NEAR, box.y0 - NEAR, box.x1 + NEAR, box.y1 + NEAR)
    places = [view.page(*mark.at) for mark in marks]
    return sum(near.x0 <= x <= near.x1 and near.y0 <= y <= near.y1 for x, y in places)


def _roofs(
    axes: Axes, view: Frame, bandwidth: float, compute: Roofs, marks: list[Mark]
) -> tuple[list[Box], list[Segment]]:
    """The slope and the flat roofs; give what the points' labels must keep clear of."""
    taken: list[Box] = []
    lines: list[Segment] = []
    start = max(view.x0, view.y0 / bandwidth)
    ridge = compute.high / bandwidth
    axes.fill_between(
        [start, ridge],
        view.y0,
        [start * bandwidth, compute.high],
        color=MEMORY,
        alpha=0.1,
        linewidth=0,
    )
    ends = ((start, start * bandwidth), (ridge, compute.high))
    axes.plot(*zip(*ends, strict=True), color=LIGHT.ink, linewidth=1.4)
    lines.append((view.page(*ends[0]), view.page(*ends[1])))
    for name, value in compute.compute:
        at = (value / bandwidth, value)
        axes.plot([at[0], view.x1], [value, value], color=LIGHT.ink, linewidth=1.4)
        (x, y), right = view.page(*at), view.page(view.x1, value)[0]
        lines.append(((x, y), (right, y)))
        text = f"{name.replace('Tensor, dense', 'Tensor')} {number(value)}"
        width = text_width(text, SMALL - 1)
        sides = [
            Box(right - 2 - width, y, right - 2, y + 1.3 * SMALL),
            Box(x + 9, y, x + 9 + width, y + 1.3 * SMALL),
        ]
        box = min(sides, key=lambda side: _crowd(side, view, marks))
        axes.annotate(
            text,
            (box.x0, y + 2),
            xycoords="figure points",
            ha="left",
            va="bottom",
            color=LIGHT.muted,
            fontsize=SMALL - 1,
        )
        taken.append(box)
    (ax, ay), (bx, by) = (view.page(*end) for end in ends)
    angle = math.atan2(by - ay, bx - ax)
    x, y = ax + SLOPE_LABEL * (bx - ax), ay + SLOPE_LABEL * (by - ay)
    text = f"{number(bandwidth)} TB/s"
    half = text_width(text, SMALL) / 2
    taken.append(Box(x - half, y - 0.6 * half, x + half, y + 0.6 * half + 2 * SMALL))
    axes.annotate(
        text,
        (x, y),
        xycoords="figure points",
        textcoords="offset points",
        xytext=(-4 * math.sin(angle), 4 * math.cos(angle)),
        rotation=math.degrees(angle),
        rotation_mode="anchor",
        ha="center",
        va="bottom",
        color=LIGHT.ink,
        fontsize=SMALL,
    )
    return taken, lines
