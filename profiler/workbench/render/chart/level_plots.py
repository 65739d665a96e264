"""The hierarchical roofline: a plot for each level of memory, all with the same axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.derive.roofline.ceilings import DRAM, L1, L2
from workbench.judge.rows import Ablation
from workbench.render.chart import ground, names
from workbench.render.chart.frame import Drawn, framed
from workbench.render.chart.key import key
from workbench.render.chart.lettering import text_width
from workbench.render.chart.marks import Mark, arrows, choices, entries, marks_at
from workbench.render.chart.notes import NO_ARITHMETIC, where
from workbench.render.chart.roofs import Roofs, roofs
from workbench.render.chart.scale import Plot, plot
from workbench.render.chart.scene import XY, Anchor, Box, Item, Label, Scene, Width

SIZE, ROW = 11.0, 14.0
SIGN = 0.8  # of the size of a mark
TITLES = {DRAM: "DRAM", L2: "L2 to the SMs", L1: "L1, global and local loads"}
UNITS = {DRAM: "FLOP per DRAM byte", L2: "FLOP per L2 byte", L1: "FLOP per L1 byte"}
ALT = (
    "Rooflines of every level of memory: performance of every version against FLOP per byte there."
)
CAPTION = (
    "A version has the same height in all. Close under a slope that level limits it; far under all "
    "of them it waits on latency. A number beside marks says how many cover each other."
)
TOP, FOOT, EDGE = 44.0, 40.0, 8.0


@dataclass(frozen=True)
class Layout:
    width: float
    left: float
    height: float  # of a plot
    between: float
    names: float  # what they take beside the last plot, at most
    side: bool  # the plots stand beside each other, else under


LAYOUTS = {
    Width.WIDE: Layout(920, 42, 400, 14, 190, side=True),
    Width.NARROW: Layout(360, 40, 250, 0, 0, side=False),
}


def levels(ablation: Ablation, width: Width = Width.WIDE) -> Scene:
    layout = LAYOUTS[width]
    known = roofs(ablation)
    marks = {level: marks_at(ablation, level, known) for level in TITLES} if known else {}
    drawn: Drawn | str
    if known is not None and ablation.moves_only:
        drawn = NO_ARITHMETIC
    elif known is None or not any(marks.values()):
        drawn = "traffic by level not collected"
    else:
        drawn = _draw(marks, known, layout, _ends(ablation))
    absent = [row for row in ablation.everything if not row.point]
    return framed(
        drawn,
        width,
        layout.width,
        absent,
        name="roofline-levels",
        title="How close at every level of memory?",
        subtitle=f"{where(ablation)}; the same axes in all three",
        alt=ALT,
        caption=CAPTION,
    )


def _ends(ablation: Ablation) -> set[str]:
    """What is named where not all can be: the ends of the ladder, and the reference."""
    best = {ablation.best.variant} if ablation.best else set()
    return {ablation.rows[0].variant, ablation.reference} | best


def _draw(
    marks: dict[str, list[Mark]], drawn: Roofs, layout: Layout, ends: set[str]
) -> tuple[list[Item], float]:
    every = [mark for group in marks.values() for mark in group]
    xs, ys = _range(every, drawn)
    items: list[Item] = []
    plots: dict[str, Plot] = {}
    panels: list[tuple[Plot, str]] = []
    for box, level in zip(_boxes(every, layout), TITLES, strict=True):
        first = not plots
        plots[level] = plot(box, xs, ys)
        items.append(Label((box.x0, box.y0 - 26), TITLES[level], 12, bold=True))
        y_words = first or not layout.side
        items += ground.axes(plots[level], UNITS[level], "TFLOP/s" * y_words, y_words=y_words)
        if level not in drawn.memory:
            items.append(Label(box.middle, "not collected", 12, "muted", Anchor.MIDDLE))
            continue
        panels.append((plots[level], level))
    if layout.side:
        items += _column(marks, plots, layout)
    for at, level in panels:
        items += _panel(at, level, marks[level], drawn, set() if layout.side else ends)
    bottom = max(at.box.y1 for at in plots.values()) + FOOT
    legend, bottom = key(entries(every, measured=drawn.measured), EDGE, bottom + 4, layout.width)
    return [*items, *legend], bottom


def _range(marks: Sequence[Mark], drawn: Roofs) -> tuple[tuple[float, float], tuple[float, float]]:
    xs = [mark.at[0] for mark in marks]
    xs += [drawn.ridge(level, roof) for level in drawn.memory for roof in drawn.compute]
    ys = [mark.at[1] for mark in marks] + [roof.rate for roof in drawn.compute]
    return (min(xs) / 2, max(xs) * 2), (min(ys) / 1.6, max(ys) * 1.6)


def _boxes(marks: Sequence[Mark], layout: Layout) -> list[Box]:
    count = len(TITLES)
    if not layout.side:
        step = TOP + layout.height + FOOT
        tops = [TOP + step * n for n in range(count)]
        return [Box(layout.left, top, layout.width - EDGE, top + layout.height) for top in tops]
    rows = {mark.row.label for mark in marks}
    column = min(layout.names, max(text_width(row, SIZE, bold=True) for row in rows) + 4)
    right = layout.width - EDGE - column - names.APART
    wide = (right - layout.left - (count - 1) * layout.between) / count
    high = max(layout.height, ROW * len(rows))
    lefts = [layout.left + n * (wide + layout.between) for n in range(count)]
    return [Box(left, TOP, left + wide, TOP + high) for left in lefts]


def _panel(at: Plot, level: str, marks: Sequence[Mark], drawn: Roofs, ends: set[str]) -> list[Item]:
    """One level; only ``ends`` are named, beside their marks."""
    places = [at.at(*mark.at) for mark in marks]
    under, space = ground.draw(at, level, drawn, places, rates=False)
    paths, chosen = arrows(marks, places, at.box), choices(marks, places, SIGN)
    space.keep_clear((*paths, *chosen))
    named = [mark for mark in marks if mark.row.variant in ends]
    beside = names.beside(named, [at.at(*mark.at) for mark in named], space, SIZE)
    return [*under, *paths, *beside, *chosen]


def _column(marks: dict[str, list[Mark]], plots: dict[str, Plot], layout: Layout) -> list[Item]:
    """Every name at its height, with a line to its mark in the last plot that has one."""
    last: dict[str, tuple[Mark, XY]] = {}
    for level, here in marks.items():
        last |= {mark.row.variant: (mark, plots[level].at(*mark.at)) for mark in here}
    named = [(mark, mark.row.label, place) for mark, place in last.values()]
    box = list(plots.values())[-1].box
    return names.column(named, box, layout.width - EDGE, SIZE, ROW)
