"""The roofline over DRAM: the whole of it, and beside it the crowd, enlarged until it is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.derive.roofline.point import DRAM
from workbench.judge.rows import Ablation
from workbench.render.chart import ground, names
from workbench.render.chart.key import key
from workbench.render.chart.lettering import text_width
from workbench.render.chart.marks import Mark, arrows, choices, entries, marks_at, sign
from workbench.render.chart.placing import Space, around, clusters
from workbench.render.chart.roofs import Roofs, roofs
from workbench.render.chart.scale import Plot, plot
from workbench.render.chart.scene import (
    Box,
    Item,
    Line,
    Outline,
    Scene,
    Stroke,
    Width,
)
from workbench.render.chart.words import empty, not_drawn, where

SIZE = 12.0  # of names
ROW = 16.0  # between names in a column
CROWD = 4  # marks that touch are a crowd
TOUCH = 20.0
FRAME = Stroke("muted", 1.0, (3, 3))
X_TITLE, Y_TITLE = "FLOP per DRAM byte", "TFLOP/s"
ALT = "Roofline over DRAM: performance of every version against its arithmetic intensity."
CAPTION = (
    "The slope is what DRAM can feed, the flat lines are what each kind of arithmetic can compute, "
    "both at the clocks of one capture; a percentage is of the roof as it is drawn over the point. "
    "The tables hold every version against the roofs at the clocks of its own capture. Height does "
    "not rank versions that do different work."
)


@dataclass(frozen=True)
class Layout:
    """Of one width; ``side``: the enlarged crowd stands beside the whole, else under it."""

    width: float
    left: float
    height: float  # of the whole roofline's plot
    part: float  # the width of its plot, beside an enlarged crowd
    names: float  # the most that names take beside the crowd
    size: float
    side: bool


LAYOUTS = {
    Width.WIDE: Layout(920, 46, 400, 330, 290, SIZE, side=True),
    Width.NARROW: Layout(360, 40, 270, 312, 215, 11, side=False),
}
TOP, FOOT, EDGE, BETWEEN = 26.0, 40.0, 8.0, 56.0


def roofline(ablation: Ablation, width: Width = Width.WIDE) -> Scene:
    layout = LAYOUTS[width]
    drawn = roofs(ablation)
    marks = marks_at(ablation, DRAM, drawn) if drawn else []
    absent = [row for row in ablation.everything if not row.point]
    if drawn is None:
        items, height = empty("ceilings not collected", layout.width)
    else:
        items, height = _draw(marks, drawn, layout)
    foot, height = not_drawn(absent, layout.width, height)
    return Scene(
        name="roofline",
        size=width,
        width=layout.width,
        height=height,
        title="How close does each version come to the hardware's limit?",
        subtitle=f"{where(ablation)}; percentages are of the roof drawn over each point",
        alt=ALT,
        caption=CAPTION if drawn else "",
        items=(*items, *foot),
    )


def _draw(marks: Sequence[Mark], drawn: Roofs, layout: Layout) -> tuple[list[Item], float]:
    box = Box(layout.left, TOP, layout.left + layout.part, TOP + layout.height)
    whole = _whole(box, marks, drawn)
    crowd = _crowd(whole, marks)
    if not crowd and layout.side:
        whole = _whole(Box(box.x0, box.y0, layout.width - EDGE, box.y1), marks, drawn)
    rest = [mark for mark in marks if mark not in crowd]
    items: list[Item] = [
        *ground.region(whole, DRAM, drawn),
        *ground.axes(whole, X_TITLE, Y_TITLE),
        *ground.ridges(whole, DRAM, drawn, words=True),
    ]
    places = [whole.at(*mark.at) for mark in marks]
    frame = around([whole.at(*mark.at) for mark in crowd], 8) if crowd else None
    lines, segments = ground.roof_lines(whole, DRAM, drawn)
    named = ground.roof_names(whole, DRAM, drawn, places)
    slope = ground.slope_name(whole, drawn.memory[DRAM], drawn.compute[0].rate)
    items += [*lines, *(label for label, _ in named), *slope]
    space = Space(whole.box.grown(-3), places, [box for _, box in named], list(segments))
    paths = arrows(marks, places, whole.box)
    items += paths
    space.keep_clear(paths)
    if frame:
        items += [item for mark in crowd for item in sign(mark, whole.at(*mark.at), 0.6)]
        items.append(Outline(frame, FRAME, 3))
        space.boxes.append(frame)
    apart = [whole.at(*mark.at) for mark in rest]
    chosen = choices(rest, apart, counted=False)
    space.keep_clear(chosen)
    items += [*names.beside(rest, apart, space, layout.size), *chosen]
    bottom = whole.box.y1 + FOOT
    if crowd and frame:
        near, bottom = _near(crowd, marks, drawn, layout, whole, frame)
        items += near
    legend, bottom = key(entries(marks, measured=drawn.measured), EDGE, bottom + 4, layout.width)
    return [*items, *legend], bottom


def _whole(box: Box, marks: Sequence[Mark], drawn: Roofs) -> Plot:
    """All ridges and points, with room for their names."""
    rates = [roof.rate for roof in drawn.compute]
    xs = [drawn.ridge(DRAM, roof) for roof in drawn.compute] + [mark.at[0] for mark in marks]
    ys = [*rates, *(mark.at[1] for mark in marks)]
    return plot(box, (min(xs) / 3, max(xs) * 3), (min(ys) / 2, max(ys) * 1.6))


def _crowd(whole: Plot, marks: Sequence[Mark]) -> list[Mark]:
    """The most marks that touch, and what lies between them; empty where all stand apart."""
    places = [whole.at(*mark.at) for mark in marks]
    most = max(clusters(places, TOUCH), key=len, default=[])
    if len(most) < CROWD:
        return []
    box = around([places[i] for i in most], 0)
    return [mark for mark, at in zip(marks, places, strict=True) if box.holds(at)]


def _near(
    crowd: Sequence[Mark],
    marks: Sequence[Mark],
    drawn: Roofs,
    layout: Layout,
    whole: Plot,
    frame: Box,
) -> tuple[list[Item], float]:
    """The crowd enlarged, each named in a column beside it."""
    column = names.APART + min(
        layout.names, max(text_width(mark.text, layout.size, bold=True) for mark in crowd) + 6
    )
    left = whole.box.x1 + BETWEEN if layout.side else layout.left
    top = TOP if layout.side else whole.box.y1 + FOOT + 34
    high = max(layout.height, ROW * len(crowd) + 4)
    box = Box(left, top, layout.width - EDGE - column, top + high)
    near = plot(box, *_range(crowd))
    places = [near.at(*mark.at) for mark in crowd]
    lines, _ = ground.roof_lines(near, DRAM, drawn)
    items: list[Item] = [*_tie(frame, box, layout)]
    items += ground.axes(near, X_TITLE, f"{Y_TITLE}, enlarged")
    items += [*lines]
    items += arrows(marks, [near.at(*mark.at) for mark in marks], box)
    named = [(mark, mark.text, at) for mark, at in zip(crowd, places, strict=True)]
    items += names.column(named, box, layout.width - EDGE, layout.size, ROW)
    items += choices(crowd, places, counted=False)
    items += [label for label, _ in ground.roof_names(near, DRAM, drawn, places)]
    return items, box.y1 + FOOT


def _range(crowd: Sequence[Mark]) -> tuple[tuple[float, float], tuple[float, float]]:
    xs, ys = [mark.at[0] for mark in crowd], [mark.at[1] for mark in crowd]
    wide, high = max(xs) / min(xs), max(max(ys) / min(ys), 1.2)
    across, up = max(wide**0.3, 1.006), high**0.06
    # More on the left, where the roofs are named.
    return (min(xs) / across**2.5, max(xs) * across), (min(ys) / up, max(ys) * up)


def _tie(frame: Box, box: Box, layout: Layout) -> list[Item]:
    """From the crowd's frame to where it is enlarged."""
    if not layout.side:
        return []
    return [
        Line(((frame.x1, frame.y0), (box.x0, box.y0)), FRAME),
        Line(((frame.x1, frame.y1), (box.x0, box.y1)), FRAME),
    ]
