"""Charts of times: time and rate over the size, and time by step. Intervals are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from workbench.derive.speedup import Time
from workbench.judge.rows import Ablation, Row
from workbench.judge.sizes import AtSize, OverSizes, SizeLine, size_words
from workbench.render.chart.frame import (
    BEFORE,
    EDGE,
    SIGNS,
    WORDS,
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
    plot,
    text_width,
)
from workbench.render.document.phrases import shape_words, verdict
from workbench.render.document.timings import ALT, CAPTION, NAME, rate, rate_unit
from workbench.render.numbers import number
from workbench.words import Verdict

TOP, FOOT = 34.0, 44.0
# Versions first, then references: both kinds keep apart by their dashes as well.
COLOURS = ("blue", "vermilion", "green", "pink", "orange", "sky", "grey")
DASH = (6.0, 4.0)
THIN = Stroke("faint", 1.2)
ENDS = 3.0  # half of the bar at either end of an interval
WIDTH, LEFT, HEIGHT = 920.0, 52.0, 320.0


@dataclass(frozen=True)
class Panel:
    title: str
    low: Callable[[AtSize], float]
    value: Callable[[AtSize], float]
    high: Callable[[AtSize], float]


def size_lines(over: OverSizes, name: str = NAME) -> Scene:
    """Of a range in which something was timed."""
    named, others = shown(over)
    strokes = {
        line.variant: Stroke(COLOURS[place % len(COLOURS)], 2.0, DASH if line.is_reference else ())
        for place, line in enumerate(named)
    }
    items: list[Item] = []
    boxes = _boxes()
    for box, panel in zip(boxes, _panels(over), strict=True):
        at = _plot(box, over, panel)
        items += axes(at, _ticks(at, over), over.parameter, panel.title)
        for line in others:
            items += _line(line, at, panel, THIN, marks=False)
        for line in named[::-1]:
            items += _line(line, at, panel, strokes[line.variant], marks=True)
    entries = [LegendEntry(line.variant, strokes[line.variant]) for line in named]
    if others:
        entries.append(LegendEntry(f"{len(others)} others", THIN))
    legend, bottom = key(entries, EDGE, boxes[-1].y1 + FOOT, WIDTH - EDGE)
    shared = shape_words(over.others)
    return Scene(
        name=name,
        width=WIDTH,
        height=bottom + 4,
        title=f"How does it go with {over.parameter}?",
        subtitle=f"{over.study}{f', {shared}' if shared else ''}, {over.gpu}",
        alt=ALT,
        caption=CAPTION,
        items=(*items, *legend),
    )


def shown(over: OverSizes) -> tuple[list[SizeLine], list[SizeLine]]:
    """Those drawn with a name: the fastest of either kind at any size, then the last versions and
    the references, as many as there are colours; and all others.
    """
    best = [
        found[0].variant
        for references in (False, True)
        for shape in over.sizes
        if (found := over.fastest_at(shape, references=references))
    ]
    rest = [line.variant for line in over.timed[::-1]]
    wanted = list(dict.fromkeys([*best, *rest]))[: len(COLOURS)]
    named = [line for line in over.timed if line.variant in wanted]
    return named, [line for line in over.timed if line.variant not in wanted]


def _boxes() -> list[Box]:
    wide = (WIDTH - 2 * LEFT - 2 * EDGE) / 2
    lefts = (LEFT, 2 * LEFT + EDGE + wide)
    return [Box(left, TOP, left + wide, TOP + HEIGHT) for left in lefts]


def _panels(over: OverSizes) -> tuple[Panel, Panel]:
    def scaled(point: AtSize, time: float) -> float:
        return rate(over, point.rate * point.microseconds.value / time)

    return (
        Panel(
            "µs a call, chained",
            lambda p: p.microseconds.low or p.microseconds.value,
            lambda p: p.microseconds.value,
            lambda p: p.microseconds.high or p.microseconds.value,
        ),
        Panel(
            rate_unit(over),
            lambda p: scaled(p, p.microseconds.high or p.microseconds.value),
            lambda p: scaled(p, p.microseconds.value),
            lambda p: scaled(p, p.microseconds.low or p.microseconds.value),
        ),
    )


def _plot(box: Box, over: OverSizes, panel: Panel) -> Plot:
    points = [point for line in over.timed for point in line.points]
    lows, highs = [panel.low(p) for p in points], [panel.high(p) for p in points]
    sizes = list(over.sizes.values())
    return plot(box, (min(sizes) / 1.15, max(sizes) * 1.15), (min(lows) / 1.3, max(highs) * 1.3))


def _ticks(at: Plot, over: OverSizes) -> list[tuple[float, str]]:
    """One a size, since there is nothing between them; without words where there is no room."""
    ticks: list[tuple[float, str]] = []
    free = -1.0
    for size in over.sizes.values():
        x, word = at.x.at(size), size_words(size)
        half = 4 * len(word)
        ticks.append((size, word if x - half > free else ""))
        free = x + half if ticks[-1][1] else free
    return ticks


def _line(line: SizeLine, at: Plot, panel: Panel, stroke: Stroke, *, marks: bool) -> Sequence[Item]:
    places = [at.at(p.size, panel.value(p)) for p in line.points]
    items: list[Item] = [Polyline(pair, stroke) for pair in pairwise(places)]
    if not marks:
        return items
    for point, (x, y) in zip(line.points, places, strict=True):
        low, high = at.y.at(panel.low(point)), at.y.at(panel.high(point))
        if low - high > 2 * ENDS:  # an interval that is higher than its mark
            bar = Stroke(stroke.colour, 1.2)
            items.append(Polyline(((x, low), (x, high)), bar))
            items += [Polyline(((x - ENDS, end), (x + ENDS, end)), bar) for end in (low, high)]
        shape = Marker.SQUARE if line.is_reference else Marker.CIRCLE
        items.append(Sign((x, y), shape, stroke.colour, size=7))
    return items


NAMES, SIZE, NUMBER = 260.0, 12.0, 10.5
ROW, GAP = 20.0, 10.0  # the gap parts the steps from the references
TICKS = 8
GRID, FASTEST = Stroke("faint", 0.8), Stroke("reference", 1.2, (5, 3))
STEPS_ALT = "Time of every version by step, chained, on a logarithmic axis."
STEPS_CAPTION = (
    "Microseconds that a call adds between its neighbours in a CUDA graph, with the 95 % interval "
    "where it is wider than the mark. The dashed line is the fastest reference."
)
Timed = tuple[Row, Time]


def step_times(ablation: Ablation) -> Scene:
    timed = [(row, row.time) for row in ablation.everything if row.time and row.time.value > 0]
    absent = [row for row in ablation.everything if not (row.time and row.time.value > 0)]
    return framed(
        _draw(timed) if timed else "timing not collected",
        WIDTH,
        absent,
        name="times",
        title="How fast is each step?",
        subtitle=f"{where(ablation)}; µs a call, chained, logarithmic",
    )


def _draw(timed: Sequence[Timed]) -> tuple[list[Item], float]:
    kinds = {kind_of(row) for row, _ in timed}
    signs = [LegendEntry(words, SIGNS[kind]) for kind, words in WORDS.items() if kind in kinds]
    items, top = key(signs, EDGE, 0, WIDTH)
    top += 8
    lows, highs = zip(*(_ends(time) for _, time in timed), strict=True)
    left = row_left([row.variant for row, _ in timed], NAMES, SIZE)
    room = max(text_width(_value(time), NUMBER) for _, time in timed) + 14
    scale = Log(min(lows) / 1.1, max(highs) * 1.1, left, WIDTH - EDGE - room)
    rows: list[Item] = []
    y = top
    for n, (row, time) in enumerate(timed):
        y += GAP if n and row.is_reference and not timed[n - 1][0].is_reference else 0
        rows.append(_row(row, time, scale, y))
        y += ROW
    for tick in scale.ticks(TICKS):
        x = scale.at(tick)
        items.append(Polyline(((x, top), (x, y)), GRID))
        items.append(Label((x, y + 16), f"{tick:g} µs", NUMBER, "muted", Anchor.MIDDLE))
    if references := [time.value for row, time in timed if row.is_reference]:
        x = scale.at(min(references))
        items.append(Polyline(((x, top), (x, y)), FASTEST))
    return [*items, *rows], y + 24


def _row(row: Row, time: Time, scale: Log, top: float) -> VariantItems:
    middle = top + ROW / 2
    kind, x = kind_of(row), scale.at(time.value)
    sign = replace(SIGNS[kind], at=(x, middle), size=10)
    base = middle + 0.35 * SIZE
    room = scale.start - BEFORE - EDGE
    items: list[Item] = [
        name_label(row.variant, (EDGE, base), room, SIZE, own=not row.is_reference)
    ]
    low, high = map(scale.at, _ends(time))
    if high - low > sign.size:
        items.append(Polyline(((low, middle), (high, middle)), Stroke(sign.colour, 1.4)))
    value = Label((max(high, x + sign.size / 2) + 5, base), _value(time), NUMBER, halo=True)
    area = Box(2, top, WIDTH - 2, top + ROW)
    told = "" if row.verdict in (None, Verdict.BASELINE) else f", {verdict(row)}"
    words = f"{row.variant}: {_value(time)}{told}"
    return VariantItems((*items, sign, value), (row.variant,), kind, (area,), words=words)


def _ends(time: Time) -> tuple[float, float]:
    return time.low or time.value, time.high or time.value


def _value(time: Time) -> str:
    return f"{number(time.value)} µs"
