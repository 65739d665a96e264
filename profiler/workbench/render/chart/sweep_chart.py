"""A sweep as a picture: a map of two parameters, or a line of points for any other number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.judge.sweep import Combination, Sweep
from workbench.render.chart.key import Entry, key
from workbench.render.chart.lettering import fitted, text_width
from workbench.render.chart.scale import evenly
from workbench.render.chart.scene import (
    Anchor,
    Box,
    Item,
    Label,
    Line,
    Outline,
    Polygon,
    Scene,
    Shape,
    Sign,
    Stroke,
    Width,
)
from workbench.render.numbers import number
from workbench.words import Parameter

ALT = "Time of every combination of parameters."
MAP = "Microseconds of a call, chained: the darker the faster. Framed: the best, and the default."
POINTS = "Microseconds of a call, chained, with 95 % intervals. What was not timed has a cross."
SIZE, SMALL, EDGE = 12.0, 11.0, 8.0
ROW, CELL = 22.0, 34.0
MOST_ROWS = 40
STRONGEST, FAINTEST = 0.5, 0.04  # of the tint; text must stay legible on it
BEST, DEFAULT = Stroke("rejected", 2.4), Stroke("ink", 1.6, (4, 3))
GRID = Stroke("faint", 0.8)


@dataclass(frozen=True)
class Layout:
    width: float
    names: float  # what they take at the left, at most


LAYOUTS = {Width.WIDE: Layout(760, 240), Width.NARROW: Layout(360, 130)}


def sweep_chart(sweep: Sweep, width: Width = Width.WIDE) -> Scene:
    """Of a sweep of which something was timed."""
    several = [name for name, values in sweep.axes.items() if len(values) > 1]
    is_map = len(several) == 2
    layout = LAYOUTS[width]
    draw = _map if is_map else _points
    items, height = draw(sweep, several, layout)
    return Scene(
        name="sweep",
        size=width,
        width=layout.width,
        height=height,
        title=f"How much do the parameters of {sweep.base} matter?",
        subtitle=f"{sweep.study}, {sweep.shape}, {sweep.gpu}",
        alt=ALT,
        caption=MAP if is_map else POINTS,
        items=tuple(items),
    )


def _text(value: Parameter) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _map(sweep: Sweep, several: Sequence[str], layout: Layout) -> tuple[list[Item], float]:
    """The parameter with more values goes down, the other across."""
    down, across = sorted(several, key=lambda name: -len(sweep.axes[name]))
    rows, columns = sweep.axes[down], sweep.axes[across]
    left = EDGE + max(text_width(f"{down}={_text(v)}", SIZE) for v in rows) + 8
    wide = min(110.0, (layout.width - EDGE - left) / len(columns))
    top = 30.0
    at = {(c.values[down], c.values[across]): c for c in sweep.combinations}
    times = [c.time.value for c in sweep.timed if c.time]
    items: list[Item] = []
    for i, value in enumerate(columns):
        middle = left + wide * (i + 0.5)
        word = fitted(f"{across}={_text(value)}", wide - 4, SIZE)
        items.append(Label((middle, top - 8), word, SIZE, "muted", Anchor.MIDDLE))
    frames: list[Item] = []
    for j, row in enumerate(rows):
        y = top + CELL * j
        word = f"{down}={_text(row)}"
        items.append(Label((left - 8, y + CELL / 2 + 4), word, SIZE, "muted", Anchor.END))
        for i, column in enumerate(columns):
            box = Box(left + wide * i + 1, y + 1, left + wide * (i + 1) - 1, y + CELL - 1)
            found = at.get((row, column))
            items += _cell(found, box, min(times), max(times))
            frames += _frames(sweep, found, box)
    bottom = top + CELL * len(rows) + 10
    legend, bottom = key(_entries(), EDGE, bottom, layout.width - EDGE)
    return [*items, *frames, *legend], bottom + 4


def _cell(found: Combination | None, box: Box, low: float, high: float) -> list[Item]:
    middle = (box.middle[0], box.middle[1] + 4)
    if found is None or found.time is None:
        word = fitted(found.fate if found else "", box.width - 4, SMALL)
        return [Outline(box, GRID), Label(middle, word, SMALL, "muted", Anchor.MIDDLE)]
    share = (high - found.time.value) / (high - low) if high > low else 1.0
    tint = FAINTEST + share * (STRONGEST - FAINTEST)
    corners = ((box.x0, box.y0), (box.x1, box.y0), (box.x1, box.y1), (box.x0, box.y1))
    time = Label(middle, number(found.time.value), SIZE, anchor=Anchor.MIDDLE)
    return [Polygon(corners, "step", tint), time]


def _frames(sweep: Sweep, found: Combination | None, box: Box) -> list[Item]:
    if found is None:
        return []
    frames: list[Item] = [Outline(box, BEST)] if found is sweep.best else []
    return [*frames, Outline(box.grown(-3), DEFAULT)] if found.is_default else frames


def _entries() -> list[Entry]:
    return [Entry("best", BEST), Entry("default", DEFAULT)]


def _points(sweep: Sweep, several: Sequence[str], layout: Layout) -> tuple[list[Item], float]:
    """One parameter in the order of its values; several by time."""
    shown = list(sweep.combinations)
    if len(several) == 1:
        order = list(sweep.axes[several[0]])
        place = {value: at for at, value in enumerate(order)}
        shown.sort(key=lambda c: place.get(c.values[several[0]], -1))
    left_out = len(shown) - MOST_ROWS
    shown = shown[:MOST_ROWS]
    names = {c.variant: _named(c, several) for c in shown}
    room = min(layout.names, max(text_width(name, SIZE) for name in names.values()) + 4)
    box = Box(EDGE + room + 12, 8, layout.width - EDGE - 12, 8 + ROW * len(shown))
    low, high = _range(sweep)
    items: list[Item] = []

    def across(value: float) -> float:
        return box.x0 + (value - low) / (high - low) * box.width

    for tick in evenly(low, high, max(2, round(box.width / 90))):
        x = across(tick)
        items.append(Line(((x, box.y0), (x, box.y1)), GRID))
        items.append(Label((x, box.y1 + 16), f"{tick:g}", SMALL, "muted", Anchor.MIDDLE))
    title = (box.middle[0], box.y1 + 34)
    items.append(Label(title, "µs a call, chained", SMALL, "muted", Anchor.MIDDLE))
    for i, one in enumerate(shown):
        y = box.y0 + ROW * (i + 0.5)
        name = fitted(names[one.variant], room, SIZE)
        items.append(Label((box.x0 - 12, y + 4), name, SIZE, anchor=Anchor.END))
        if one.time is None:
            items.append(Sign((box.x0 + 8, y), Shape.CROSS, "muted", size=9))
            items.append(Label((box.x0 + 18, y + 4), one.fate, SMALL, "muted"))
            continue
        if one.time.low is not None and one.time.high is not None:
            ends = ((across(one.time.low), y), (across(one.time.high), y))
            items.append(Line(ends, Stroke("step", 2)))
        items.append(_sign(sweep, one, (across(one.time.value), y)))
    bottom = box.y1 + 44
    if left_out > 0:
        items.append(Label((EDGE, bottom + 8), f"{left_out} slower ones are in the table", SMALL))
        bottom += 16
    entries = [
        Entry("best", Sign((0, 0), Shape.DIAMOND, "rejected")),
        Entry("default", Sign((0, 0), Shape.SQUARE, "ink", size=10)),
        Entry("other", Sign((0, 0), Shape.CIRCLE, "step", size=9)),
    ]
    legend, bottom = key(entries, EDGE, bottom, layout.width - EDGE)
    return [*items, *legend], bottom + 4


def _named(one: Combination, several: Sequence[str]) -> str:
    return ", ".join(f"{name}={_text(one.values[name])}" for name in several) or one.variant


def _range(sweep: Sweep) -> tuple[float, float]:
    """Of times with their intervals, and a little more on both sides."""
    times = [c.time for c in sweep.timed if c.time]
    low = min(t.low if t.low is not None else t.value for t in times)
    high = max(t.high if t.high is not None else t.value for t in times)
    room = (high - low) * 0.06 or 0.05 * high
    return low - room, high + room


def _sign(sweep: Sweep, one: Combination, at: tuple[float, float]) -> Sign:
    if one is sweep.best:
        return Sign(at, Shape.DIAMOND, "rejected")
    if one.is_default:
        return Sign(at, Shape.SQUARE, "ink", size=10)
    return Sign(at, Shape.CIRCLE, "step", size=9)
