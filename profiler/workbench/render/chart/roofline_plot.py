"""The roofline over the level that inputs come from, and beside it the crowd, enlarged until it is
none: axes with ticks, roofs, marks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from workbench.judge.rows import Ablation
from workbench.render.chart import marks as names
from workbench.render.chart.frame import NO_ARITHMETIC, Drawn, framed, key, where
from workbench.render.chart.marks import (
    MEASURED,
    Mark,
    Roof,
    Roofs,
    arrows,
    choices,
    entries,
    marks_at,
    roofs,
    sign,
)
from workbench.render.chart.placing import (
    Log,
    Plot,
    Space,
    around,
    clusters,
    plot,
    text_box,
    text_width,
)
from workbench.render.chart.scene import (
    XY,
    Anchor,
    Box,
    Item,
    Label,
    Line,
    Outline,
    Polygon,
    Scene,
    Segment,
    Stroke,
)
from workbench.render.numbers import number

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
    marks = marks_at(ablation, known) if known else []
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
    return f"FLOP per {drawn.memory.name} byte"


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
    under, space = draw(whole, drawn, places)
    paths = arrows(marks, places, whole.box)
    rest = [mark for mark in marks if mark not in crowd]
    apart = [whole.at(*mark.at) for mark in rest]
    chosen = choices(rest, apart)
    space.keep_clear((*paths, *chosen, *over))
    return [
        *axes(whole, _x_title(drawn), Y_TITLE),
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
    xs = [drawn.ridge(roof) for roof in drawn.compute] + [mark.at[0] for mark in marks]
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
        *axes(near, _x_title(drawn), f"{Y_TITLE}, enlarged"),
        *roof_lines(near, drawn)[0],
        *(label for label, _ in roof_names(near, drawn, places)),
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


TICK, SMALL = 11.0, 11.0
GRID, AXIS, ROOF = Stroke("faint", 0.8), Stroke("muted", 0.8), Stroke("ink", 1.6)
DROP = Stroke("muted", 0.8, (2, 3))
ACROSS, UP = 90.0, 60.0  # pixels between ticks, about


def draw(plot: Plot, roofs: Roofs, marks: Sequence[XY]) -> tuple[list[Item], Space]:
    """Everything under the marks, and the room that it leaves."""
    lines, segments = roof_lines(plot, roofs)
    named = roof_names(plot, roofs, marks)
    slope = slope_name(plot, roofs, marks)
    under = [*region(plot, roofs), *ridges(plot, roofs)]
    space = Space(plot.box.grown(-3), list(marks), [box for _, box in named], list(segments))
    space.keep_clear(slope)
    return [*under, *lines, *(label for label, _ in named), *slope], space


def axes(plot: Plot, x_title: str, y_title: str) -> list[Item]:
    """Grid, ticks with their words, and titles under and over the axes."""
    box = plot.box
    items: list[Item] = []
    for tick in plot.x.ticks(max(2, round(box.width / ACROSS))):
        x = plot.x.at(tick)
        items.append(Line(((x, box.y0), (x, box.y1)), GRID))
        items.append(Label((x, box.y1 + 16), f"{tick:g}", TICK, "muted", Anchor.MIDDLE))
    for tick in plot.y.ticks(max(2, round(box.height / UP))):
        y = plot.y.at(tick)
        items.append(Line(((box.x0, y), (box.x1, y)), GRID))
        items.append(Label((box.x0 - 6, y + 4), f"{tick:g}", TICK, "muted", Anchor.END))
    items += _small_ticks(plot)
    items.append(Line(((box.x0, box.y0), (box.x0, box.y1), (box.x1, box.y1)), AXIS))
    items.append(Label((box.middle[0], box.y1 + 34), x_title, TICK, "muted", Anchor.MIDDLE))
    items.append(Label((box.x0 - 6, box.y0 - 10), y_title, TICK, "muted"))
    return items


def _small_ticks(plot: Plot) -> list[Item]:
    """Between decades, as one line an axis: each mark would be an element of its own."""
    box = plot.box
    return [
        *(Line(((x, box.y1), (x, box.y1 + 3)), AXIS) for x in map(plot.x.at, _between(plot.x))),
        *(Line(((box.x0 - 3, y), (box.x0, y)), AXIS) for y in map(plot.y.at, _between(plot.y))),
    ]


def _between(scale: Log) -> list[float]:
    return scale.between() if scale.high / scale.low > 5 else []


def roof_lines(plot: Plot, roofs: Roofs) -> tuple[list[Item], list[Segment]]:
    """Every roof as far as it is on the picture, measured ones dashed; and all as segments."""
    rise = roofs.memory
    items: list[Item] = []
    segments: list[Segment] = []
    for line in _slope(plot, rise.rate, roofs.compute[0].rate):
        items.append(Line(line, ROOF))
        segments.append(line)
    for roof in roofs.compute:
        ridge = roof.rate / rise.rate
        for line in plot.line((ridge, roof.rate), (1e3 * plot.x.high, roof.rate)):
            items.append(Line(line, ROOF))
            segments.append(line)
    for line in measured_lines(plot, roofs):
        items.append(Line(line, MEASURED))
        segments.append(line)
    return items, segments


def _slope(plot: Plot, rate: float, top: float) -> list[Segment]:
    start = min(plot.x.low, plot.y.low / rate) / 2
    return plot.line((start, start * rate), (top / rate, top))


def measured_lines(plot: Plot, roofs: Roofs) -> list[Segment]:
    """The measured slope ends at the highest flat line that there is."""
    rise = roofs.memory
    rate = rise.measured or rise.rate
    lines = [
        line
        for roof in roofs.compute
        if roof.measured
        for line in plot.line(
            (roof.measured / rate, roof.measured), (1e3 * plot.x.high, roof.measured)
        )
    ]
    if rise.measured:
        lines += _slope(plot, rate, max(roof.measured or roof.rate for roof in roofs.compute))
    return lines


def region(plot: Plot, roofs: Roofs) -> list[Item]:
    """Under the roofs, a tint where memory is what bounds."""
    rise, top = roofs.memory.rate, roofs.compute[0].rate
    slope = _slope(plot, rise, top)
    if not slope:
        return []
    (low, high), floor = slope[0], plot.box.y1
    return [Polygon((low, high, (high[0], floor), (low[0], floor)), "sky", 0.1)]


def slope_name(plot: Plot, roofs: Roofs, marks: Sequence[XY]) -> list[Label]:
    """Along the slope and over it, where the fewest marks are near; best at its lower end."""
    roof = roofs.memory
    slope = _slope(plot, roof.rate, roofs.compute[0].rate)
    if not slope:
        return []
    (ax, ay), (bx, by) = slope[0]
    angle, long = math.atan2(by - ay, bx - ax), math.dist((ax, ay), (bx, by))
    text = f"{roof.name} {roof.text} TB/s"
    half = text_width(text, SMALL) / 2
    first = half + max(10.0, 14 * abs(math.tan(angle)))  # clear of the axis
    options = []
    for along in (first, max(long / 2, first), max(long - half - 10, first)):
        x, y = ax + along * math.cos(angle), ay + along * math.sin(angle)
        at = (x + 6 * math.sin(angle), y - 6 * math.cos(angle))
        turn = round(math.degrees(angle), 1)
        options.append(Label(at, text, SMALL, anchor=Anchor.MIDDLE, turn=turn, halo=True))
    crowds = [sum(math.dist(mark, label.at) < half + 10 for mark in marks) for label in options]
    return [options[crowds.index(min(crowds))]]


def roof_names(plot: Plot, roofs: Roofs, marks: Sequence[XY]) -> list[tuple[Label, Box]]:
    """Over each flat roof on the picture: the most that fits where no mark is in the way."""
    named = []
    for roof in roofs.compute:
        left, y = plot.at(max(roofs.ridge(roof), plot.x.low), roof.rate)
        if plot.box.y0 - 1 <= y <= plot.box.y1:
            # Nothing is over the highest, so that its name may begin before it does.
            start = plot.box.x0 if roof == roofs.compute[0] else left
            options = list(_roof_options(roof, start, plot.box.x1, y))
            crowds = [sum(o[1].grown(6).holds(mark) for mark in marks) for o in options]
            named.append(options[crowds.index(min(crowds))])
    return named


def _roof_options(roof: Roof, left: float, right: float, y: float) -> Iterator[tuple[Label, Box]]:
    """Its name with its rates or with less, at either end."""
    brief = roof.name.replace(", dense", "")
    both, one = roof.text, number(roof.rate)
    texts = [f"{roof.name} {both} TFLOP/s", f"{brief} {both}", f"{brief} {one}"]
    for text in (*texts, brief):
        for anchor, x in ((Anchor.END, right - 4), (Anchor.START, left + 8)):
            box = text_box((x, y - 5), text, SMALL, anchor)
            if (box.x0 >= left and box.x1 <= right) or text == brief:
                yield Label((x, y - 5), text, SMALL, anchor=anchor, halo=True), box


def ridges(plot: Plot, roofs: Roofs) -> list[Item]:
    """Where each roof begins, down to the axis, with its place where there is room for it."""
    items: list[Item] = []
    free = plot.box.x0
    for roof in sorted(roofs.compute, key=lambda r: r.rate):
        ridge = roofs.ridge(roof)
        x, y = plot.at(ridge, roof.rate)
        if not plot.box.x0 < x < plot.box.x1:
            continue
        items += [Line(line, DROP) for line in [((x, max(y, plot.box.y0)), (x, plot.box.y1))]]
        text = f"ridge {number(ridge)}"
        if x >= free and x + 4 + text_width(text, SMALL) < plot.box.x1:
            items.append(Label((x + 4, plot.box.y1 - 6), text, SMALL, "muted", halo=True))
            free = x + 10 + text_width(text, SMALL)
    return items
