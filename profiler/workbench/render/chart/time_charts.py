"""Time by step, and speed over the size with its intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from workbench.derive.speedup import Ratio, Time
from workbench.judge.rows import Ablation, Row
from workbench.judge.sizes import OverSizes, size_words
from workbench.judge.times import AcrossShapes
from workbench.render.chart.frame import (
    BEFORE,
    EDGE,
    GRID,
    SIGNS,
    WIDTH,
    Drawn,
    LegendEntry,
    axes,
    framed,
    key,
    kind_of,
    name_label,
    row_left,
    where,
)
from workbench.render.chart.scene import (
    XY,
    Anchor,
    Box,
    Item,
    Label,
    Log,
    Marker,
    Plot,
    Polyline,
    Scene,
    Sign,
    Stroke,
    VariantItems,
    cut,
    plot,
    text_width,
)
from workbench.render.document.phrases import shape_words, short_change, verdict
from workbench.render.document.timings import ALT, CAPTION, NAME
from workbench.render.numbers import microseconds
from workbench.words import Verdict

TOP, FOOT = 34.0, 44.0
COLOURS = ("blue", "vermilion", "green", "pink", "orange", "sky", "grey")
ENDS = 3.0  # half of the bar at either end of an interval
LEFT, HEIGHT = 52.0, 320.0


def size_lines(over: OverSizes, name: str = NAME) -> Scene:
    """The versions of one range over the fastest reference."""
    shared = shape_words(over.others)
    lines = _most_telling(over)
    return framed(
        _lines(lines, over) if lines else "no version was timed beside a reference",
        name=name,
        title=f"Ratio to the fastest reference over {over.parameter}",
        subtitle=f"{over.study}{f', {shared}' if shared else ''}, {over.gpu}",
        alt=ALT,
        caption=CAPTION,
    )


def _most_telling(over: OverSizes) -> list[AcrossShapes]:
    """Of those that were timed beside a reference the fastest at any size, then the last ones, as
    many as there are colours.
    """
    lines = [line for line in over.versions if line.ratios]
    fastest = (over.fastest_at(shape) for shape in over.sizes)
    best = [found[0].variant for found in fastest if found]
    wanted = dict.fromkeys([*best, *(line.variant for line in lines[::-1])])
    kept = [name for name in wanted if any(line.variant == name for line in lines)]
    return [line for line in lines if line.variant in kept[: len(COLOURS)]]


def _lines(lines: Sequence[AcrossShapes], over: OverSizes) -> Drawn:
    drawn = {line.variant: _points(line, over) for line in lines}
    ratios = [ratio for points in drawn.values() for _, ratio in points]
    low = min(1.0, *(ratio.low or ratio.ratio for ratio in ratios))
    high = max(1.0, *(ratio.high or ratio.ratio for ratio in ratios))
    sizes = sorted({size for points in drawn.values() for size, _ in points})
    box = Box(LEFT, TOP, WIDTH - EDGE, TOP + HEIGHT)
    at = plot(box, (sizes[0] / 1.15, sizes[-1] * 1.15), (low / 1.06, high * 1.06))
    title = "speed ÷ that of the fastest reference"
    items: list[Item] = [*axes(at, _ticks(at, sizes), over.parameter, title)]
    level = at.y.at(1.0)
    items.append(Polyline(((box.x0, level), (box.x1, level)), REFERENCE))
    entries = []
    for colour, (variant, points) in zip(COLOURS, drawn.items(), strict=False):
        items += _line(points, at, Stroke(colour, 2.0))
        entries.append(LegendEntry(variant, Stroke(colour, 2.0)))
    entries.append(LegendEntry("fastest reference", REFERENCE))
    legend, bottom = key(entries, EDGE, box.y1 + FOOT, WIDTH - EDGE)
    return [*items, *legend], bottom


def _ticks(at: Plot, sizes: Sequence[float]) -> list[tuple[float, str]]:
    """One a size, since there is nothing between them; without words where there is no room."""
    ticks: list[tuple[float, str]] = []
    free = -1.0
    for size in sizes:
        x, word = at.x.at(size), size_words(size)
        half = 4 * len(word)
        ticks.append((size, word if x - half > free else ""))
        free = x + half if ticks[-1][1] else free
    return ticks


def _points(line: AcrossShapes, over: OverSizes) -> list[tuple[float, Ratio]]:
    found = ((over.sizes[p.shape], p.speedup_over_fastest) for p in line.shapes)
    return [(size, ratio) for size, ratio in found if ratio]


def _line(points: Sequence[tuple[float, Ratio]], at: Plot, stroke: Stroke) -> Sequence[Item]:
    places = [at.at(size, over.ratio) for size, over in points]
    items: list[Item] = [Polyline(pair, stroke) for pair in pairwise(places)]
    for (_, over), (x, y) in zip(points, places, strict=True):
        low, high = at.y.at(over.low or over.ratio), at.y.at(over.high or over.ratio)
        if low - high > 2 * ENDS:  # an interval that is higher than its mark
            bar = Stroke(stroke.colour, 1.2)
            items.append(Polyline(((x, low), (x, high)), bar))
            items += [Polyline(((x - ENDS, end), (x + ENDS, end)), bar) for end in (low, high)]
        items.append(Sign((x, y), Marker.CIRCLE, stroke.colour, size=7))
    return items


NAMES, CHANGES, SIZE, NUMBER = 180.0, 290.0, 12.0, 11.0
ROW, LINE = 24.0, 15.0  # of a step, and of the name of a reference
TICKS = 6
PATH, REFERENCE = Stroke("step", 1.5), Stroke("reference", 1.2, (5, 3))
STEPS_ALT = "Time per call of each step from the baseline to the fastest, on a logarithmic axis."
STEPS_CAPTION = (
    "Each step changes the one above it. Dashed lines are references. An open mark is a step that "
    "was not kept at this shape. Times are per call inside a CUDA graph, between a kernel that "
    "writes the inputs and one that reads the output (chained)."
)
Timed = tuple[Row, Time]


def step_times(ablation: Ablation) -> Scene:
    steps = ablation.path or ablation.rows
    timed = [(row, row.time) for row in steps if row.time and row.time.value > 0]
    references = [(r, r.time) for r in ablation.references if r.time and r.time.value > 0]
    return framed(
        _draw(timed, sorted(references, key=lambda each: each[1].value))
        if timed
        else "timing not collected",
        [row for row in steps if not (row.time and row.time.value > 0)],
        name="times",
        title="Time by step",
        subtitle=f"{where(ablation)}; µs per call, logarithmic",
    )


def _draw(steps: Sequence[Timed], references: Sequence[Timed]) -> tuple[list[Item], float]:
    """Names, key changes and marks of the steps from the top down; over them the references, the
    fastest highest, so that no line crosses a name.
    """
    lows, highs = zip(*(_ends(time) for _, time in (*steps, *references)), strict=True)
    named = row_left([row.variant for row, _ in steps], NAMES, SIZE)
    changes = [short_change(row) for row, _ in steps]
    values = named + min(CHANGES, 1 + max(text_width(text, NUMBER) for text in changes)) + BEFORE
    values += max(text_width(microseconds(time.value), SIZE, bold=True) for _, time in steps)
    scale = Log(min(lows) / 1.2, max(highs) * 1.15, values + BEFORE, WIDTH - EDGE)
    top = LINE * len(references) + 6
    bottom = top + ROW * len(steps)
    items: list[Item] = []
    for tick in scale.ticks(TICKS):
        x = scale.at(tick)
        items.append(Polyline(((x, top), (x, bottom)), GRID))
        items.append(Label((x, bottom + 16), f"{tick:,g} µs", NUMBER, "muted", Anchor.MIDDLE))
    for place, (row, time) in enumerate(references):
        items.append(_reference(row, time, scale.at(time.value), LINE * place, bottom))
    places = [(scale.at(t.value), top + ROW * (n + 0.5)) for n, (_, t) in enumerate(steps)]
    items += [Polyline(pair, PATH) for pair in pairwise(places)]
    for (row, time), change, at in zip(steps, changes, places, strict=True):
        items.append(_step(row, time, at, scale, named, change))
    return items, bottom + 24


def _reference(row: Row, time: Time, x: float, top: float, bottom: float) -> VariantItems:
    name = f"{row.variant} {microseconds(time.value)}"
    wide = text_width(name, NUMBER)
    fits = x + 5 + wide <= WIDTH - EDGE
    at, anchor = (x + 5, Anchor.START) if fits else (x - 5, Anchor.END)
    items = (
        Polyline(((x, top + 2), (x, bottom)), REFERENCE),
        Label((at, top + NUMBER), name, NUMBER, "reference", anchor, halo=True),
    )
    area = Box(at if fits else at - wide, top, at + wide if fits else at, top + LINE)
    return VariantItems(items, row.variant, kind_of(row), (area,), words=name)


def _step(row: Row, time: Time, at: XY, scale: Log, named: float, change: str) -> VariantItems:
    _, middle = at
    kind = kind_of(row)
    sign = replace(SIGNS[kind], at=at, size=10)
    base, end = middle + 0.35 * SIZE, scale.start - BEFORE
    value = Label((end, base), microseconds(time.value), SIZE, anchor=Anchor.END, bold=True)
    room = end - text_width(value.text, SIZE, bold=True) - BEFORE - named
    items: list[Item] = [
        name_label(row.variant, (EDGE, base), named - BEFORE - EDGE, SIZE),
        Label((named, base), cut(change, room, NUMBER), NUMBER, "muted"),
        value,
    ]
    low, high = map(scale.at, _ends(time))
    if high - low > sign.size:
        items.append(Polyline(((low, middle), (high, middle)), Stroke(sign.colour, 1.4)))
    area = Box(2, middle - ROW / 2, WIDTH - 2, middle + ROW / 2)
    text = "" if row.verdict in (None, Verdict.BASELINE) else f", {verdict(row)}"
    words = f"{row.variant}: {value.text}{text}"
    return VariantItems((*items, sign), row.variant, kind, (area,), words=words)


def _ends(time: Time) -> tuple[float, float]:
    return time.low or time.value, time.high or time.value
