"""Time and rate over the size, a line a variant, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from workbench.judge.sizes import AtSize, OverSizes, SizeLine, size_words
from workbench.render.chart.frame import EDGE, LegendEntry, axes, key
from workbench.render.chart.scene import (
    Box,
    Item,
    Marker,
    Plot,
    Polyline,
    Scene,
    Sign,
    Stroke,
    plot,
)
from workbench.render.document.phrases import shape_words
from workbench.render.document.size_tables import ALT, CAPTION, NAME, rate, rate_unit

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
    """Two, beside each other."""
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
