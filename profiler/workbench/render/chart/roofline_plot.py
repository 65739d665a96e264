"""The roofline over the level that inputs come from, and beside it the crowd, enlarged until it is
none.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.judge.rows import Ablation
from workbench.render.chart import ground, names
from workbench.render.chart.frame import Drawn, framed
from workbench.render.chart.key import key
from workbench.render.chart.lettering import text_width
from workbench.render.chart.marks import Mark, arrows, choices, entries, marks_at, sign
from workbench.render.chart.notes import NO_ARITHMETIC, where
from workbench.render.chart.placing import around, clusters
from workbench.render.chart.roofs import Roofs, roofs
from workbench.render.chart.scale import Plot, plot
from workbench.render.chart.scene import (
    Box,
    Item,
    Line,
    Outline,
    Scene,
    Stroke,
)

SIZE = 12.0  # of names
ROW = 16.0  # between names in a column
CROWD = 4  # marks that touch are a crowd
TOUCH = 20.0
FRAME = Stroke("muted", 1.0, (3, 3))
Y_TITLE = "TFLOP/s"
ALT = "Roofline over {level}: performance of every version against its arithmetic intensity."
CAPTION = (
    "The slope is what {level} can feed, the flat lines what each kind of arithmetic can compute, "
    "at the clocks of one capture; a percentage is of the roof drawn over the point (the tables "
    "have each capture's own). Height does not rank versions that do different work. Far under "
    "every roof a version waits for what the stalls name."
)


WIDTH, LEFT, HEIGHT = 920.0, 46.0, 400.0
PART = 330.0  # the width of the whole's plot, beside an enlarged crowd
NAMES = 290.0  # the most that names take beside the crowd
TOP, FOOT, EDGE, BETWEEN = 26.0, 40.0, 8.0, 56.0


def roofline(ablation: Ablation) -> Scene:
    known = roofs(ablation)
    marks = marks_at(ablation, ablation.base, known) if known else []
    absent = [row for row in ablation.everything if not row.point]
    drawn: Drawn | str
    if known is None:
        drawn = "ceilings not collected"
    elif ablation.moves_only:
        drawn = NO_ARITHMETIC
    else:
        drawn = _draw(marks, known)
    return framed(
        drawn,
        WIDTH,
        absent,
        name="roofline",
        title="How close does each version come to the hardware's limit?",
        subtitle=f"{where(ablation)}; percentages are of the roof drawn over each point",
        alt=ALT.format(level=ablation.base.upper()),
        caption=CAPTION.format(level=ablation.base.upper()) if known else "",
    )


def _draw(marks: Sequence[Mark], drawn: Roofs) -> tuple[list[Item], float]:
    box = Box(LEFT, TOP, LEFT + PART, TOP + HEIGHT)
    whole = _plot(box, marks, drawn)
    crowd = _crowd(whole, marks)
    if not crowd:
        whole = _plot(Box(box.x0, box.y0, WIDTH - EDGE, box.y1), marks, drawn)
    items: list[Item] = []
    near: list[Item] = []
    bottom = whole.box.y1 + FOOT
    frame = None
    if crowd:
        frame = around([whole.at(*mark.at) for mark in crowd], 8)
        near_plot = _near_plot(crowd, whole.box)
        near = _near(near_plot, crowd, marks, drawn)
        bottom = near_plot.box.y1 + FOOT
        items = _tie(frame, near_plot.box)
    items += _whole(whole, marks, crowd, drawn, [*items, *_frame(frame)])
    legend, bottom = key(entries(marks, measured=drawn.measured), EDGE, bottom + 4, WIDTH)
    return [*items, *near, *legend], bottom


def _x_title(drawn: Roofs) -> str:
    return f"FLOP per {drawn.base.upper()} byte"


def _frame(box: Box | None) -> list[Item]:
    return [Outline(box, FRAME, 3)] if box else []


def _whole(
    whole: Plot,
    marks: Sequence[Mark],
    crowd: Sequence[Mark],
    drawn: Roofs,
    over: Sequence[Item],
) -> list[Item]:
    """Everything, the crowd only as a place; ``over`` is what no name may cover besides."""
    places = [whole.at(*mark.at) for mark in marks]
    under, space = ground.draw(whole, drawn.base, drawn, places)
    paths = arrows(marks, places, whole.box)
    rest = [mark for mark in marks if mark not in crowd]
    apart = [whole.at(*mark.at) for mark in rest]
    chosen = choices(rest, apart)
    space.keep_clear((*paths, *chosen, *over))
    return [
        *ground.axes(whole, _x_title(drawn), Y_TITLE),
        *under,
        *paths,
        *(item for mark in crowd for item in sign(mark, whole.at(*mark.at), 0.6)),
        *(item for item in over if isinstance(item, Outline)),
        *names.beside(rest, apart, space, SIZE),
        *chosen,
    ]


def _plot(box: Box, marks: Sequence[Mark], drawn: Roofs) -> Plot:
    """All ridges and points, with room for their names."""
    rates = [roof.rate for roof in drawn.compute]
    xs = [drawn.ridge(drawn.base, roof) for roof in drawn.compute] + [mark.at[0] for mark in marks]
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


def _near_plot(crowd: Sequence[Mark], whole: Box) -> Plot:
    """Where the crowd is enlarged, with a column for names right of it."""
    widest = max(text_width(mark.text, SIZE, bold=True) for mark in crowd) + 6
    column = names.APART + min(NAMES, widest)
    high = max(HEIGHT, ROW * len(crowd) + 4)
    box = Box(whole.x1 + BETWEEN, TOP, WIDTH - EDGE - column, TOP + high)
    return plot(box, *_range(crowd))


def _near(
    near: Plot,
    crowd: Sequence[Mark],
    marks: Sequence[Mark],
    drawn: Roofs,
) -> list[Item]:
    places = [near.at(*mark.at) for mark in crowd]
    named = [(mark, mark.text, at) for mark, at in zip(crowd, places, strict=True)]
    return [
        *ground.axes(near, _x_title(drawn), f"{Y_TITLE}, enlarged"),
        *ground.roof_lines(near, drawn.base, drawn)[0],
        *(label for label, _ in ground.roof_names(near, drawn.base, drawn, places)),
        *arrows(marks, [near.at(*mark.at) for mark in marks], near.box),
        *names.column(named, near.box, WIDTH - EDGE, SIZE, ROW),
        *choices(crowd, places),
    ]


def _range(crowd: Sequence[Mark]) -> tuple[tuple[float, float], tuple[float, float]]:
    xs, ys = [mark.at[0] for mark in crowd], [mark.at[1] for mark in crowd]
    wide, high = max(xs) / min(xs), max(max(ys) / min(ys), 1.2)
    across, up = max(wide**0.3, 1.006), high**0.06
    # More on the left, where the roofs are named.
    return (min(xs) / across**2.5, max(xs) * across), (min(ys) / up, max(ys) * up)


def _tie(frame: Box, box: Box) -> list[Item]:
    """From the crowd's frame to where it is enlarged."""
    return [
        Line(((frame.x1, frame.y0), (box.x0, box.y0)), FRAME),
        Line(((frame.x1, frame.y1), (box.x0, box.y1)), FRAME),
    ]
