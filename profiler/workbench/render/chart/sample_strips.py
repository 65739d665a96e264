"""The instances behind every time: a strip for each regime, a dot an instance, by session."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeAlias

from workbench.derive.intervals import time_interval
from workbench.judge.rows import Ablation, Row
from workbench.render.chart.frame import framed
from workbench.render.chart.key import Entry, key
from workbench.render.chart.lettering import text_width
from workbench.render.chart.marks import NOWHERE, kind_of
from workbench.render.chart.notes import where
from workbench.render.chart.rows import BEFORE, EDGE, name, row_left, tops
from workbench.render.chart.scale import evenly
from workbench.render.chart.scene import (
    XY,
    Anchor,
    Box,
    Dots,
    Group,
    Item,
    Label,
    Line,
    Polygon,
    Scene,
    Shape,
    Sign,
    Stroke,
    Width,
)
from workbench.render.numbers import number
from workbench.words import ABSENT, Regime

# Variant to regime to the microseconds of every instance, by session.
Timings: TypeAlias = Mapping[str, Mapping[str, Sequence[Sequence[float]]]]

NUMBER, GAP, SPACE = 11.0, 26.0, 8.0
TAIL = 0.004  # of all instances, at either end, that may lie beyond an axis
APART = 2.0  # dots of room between sessions
COLOURS = {Regime.CHAINED: "chained", Regime.BACK_TO_BACK: "green", Regime.COLD: "cold"}
OTHERS = ("pink", "orange")
DOT, HAZE = 2.4, 0.75
FAR = 1.5  # times the end of an axis, from where on it is named
GRID, OWN, MEAN = Stroke("faint", 0.8), Stroke("ink", 1.2), Stroke("ink", 0.9)
ALT = "Every instance of every version as a deviation from the version's own time, by session."
CAPTION = (
    "A dot is one instance, the median of its rounds; the dots of a session stand together, the "
    "first session at the top of its row, a short line through each at its mean. The bar behind "
    "the dots is the 95 % interval over sessions; a triangle stands for instances beyond the axis."
)


@dataclass(frozen=True)
class Layout:
    """``above``: names stand over their strips, else before them."""

    width: float
    names: float
    time: float  # the room of a time beside its strip
    size: float
    row: float
    strip: float
    above: bool


LAYOUTS = {
    Width.WIDE: Layout(920, 240, 62, 12, 26, 21, above=False),
    Width.NARROW: Layout(360, 0, 0, 11.5, 42, 22, above=True),
}


@dataclass(frozen=True)
class Strip:
    """One regime: the time in microseconds, and percent off it of its instances by session.

    ``interval`` is the 95 % interval over sessions, in percent off too; None is not collected.
    """

    time: float
    sessions: tuple[tuple[float, ...], ...]
    interval: tuple[float, float] | None

    @property
    def off(self) -> list[float]:
        return [off for session in self.sessions for off in session]


@dataclass(frozen=True)
class Axis:
    """Percent off the own time, for all versions of a regime."""

    regime: str
    colour: str
    low: float
    high: float
    left: float
    right: float

    def shows(self, off: float) -> bool:
        return self.low <= off <= self.high

    def at(self, off: float) -> float:
        return self.left + (self.right - self.left) * (off - self.low) / (self.high - self.low)


def quantile(ordered: Sequence[float], share: float) -> float:
    """By linear interpolation, as numpy's percentile."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def strips_of(regimes: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, Strip]:
    """By regime, without those that have no instances."""
    return {
        regime: _strip_of([session for session in sessions if len(session)])
        for regime, sessions in regimes.items()
        if any(len(session) for session in sessions)
    }


def _strip_of(sessions: Sequence[Sequence[float]]) -> Strip:
    """The time as it stands in the tables; their middle where an instance took no time at all."""
    every = sorted(value for session in sessions for value in session)
    if every[0] <= 0:
        return _off(quantile(every, 0.5), None, sessions)
    known = time_interval(sessions)
    ends = None if known.low is None or known.high is None else (known.low, known.high)
    return _off(known.value, ends, sessions)


def _off(
    time: float, ends: tuple[float, float] | None, sessions: Sequence[Sequence[float]]
) -> Strip:
    def off(value: float) -> float:
        return 100 * (value / time - 1) if time else 0.0

    return Strip(
        time=time,
        sessions=tuple(tuple(map(off, session)) for session in sessions),
        interval=None if ends is None else (off(ends[0]), off(ends[1])),
    )


def samples(ablation: Ablation, timings: Timings, width: Width = Width.WIDE) -> Scene:
    """``timings`` are the instances behind the table's times."""
    layout = LAYOUTS[width]
    strips = {row.variant: strips_of(timings.get(row.variant, {})) for row in ablation.everything}
    rows = [row for row in ablation.everything if strips[row.variant]]
    drawn = _draw(rows, strips, layout) if rows else "timing not collected"
    absent = [row for row in ablation.everything if row not in rows]
    return framed(
        drawn,
        width,
        layout.width,
        absent,
        name="samples",
        title="How steady are the times?",
        subtitle=f"{where(ablation)}; every instance, in percent off the version's own time",
        alt=ALT,
        caption=CAPTION,
    )


def _draw(
    rows: Sequence[Row], strips: Mapping[str, Mapping[str, Strip]], layout: Layout
) -> tuple[list[Item], float]:
    axes = _axes(rows, strips, layout)
    dot = Sign(NOWHERE, Shape.CIRCLE, "ink", size=6)
    entries = [Entry(axis.regime, replace(dot, colour=axis.colour)) for axis in axes]
    entries += [Entry("time", OWN), Entry("95 % interval", "faint")]
    items, top = key(entries, EDGE, 0, layout.width)
    top += 8
    places, bottom = tops(rows, top, layout.row, SPACE)
    for axis in axes:
        items += _ground(axis, top, bottom, layout.width)
    for row, y in zip(rows, places, strict=True):
        box = Box(2, y, layout.width - 2, y + layout.row)
        items.append(_row(row, strips[row.variant], axes, box, layout))
    return items, bottom + 38


def _axes(
    rows: Sequence[Row], strips: Mapping[str, Mapping[str, Strip]], layout: Layout
) -> list[Axis]:
    """One a regime, side by side; the few instances that lie far out do not decide on its range."""
    every = dict.fromkeys(regime for row in rows for regime in strips[row.variant])
    regimes = [*(r for r in COLOURS if r in every), *(r for r in every if r not in COLOURS)]
    free = iter(OTHERS)
    left = EDGE + 8
    if not layout.above:
        left = row_left([row.label for row in rows], layout.names, layout.size) + 4
    each = (layout.width - EDGE - left - GAP * (len(regimes) - 1)) / len(regimes)
    axes = []
    for n, regime in enumerate(regimes):
        off = sorted(o for row in rows if (s := strips[row.variant].get(regime)) for o in s.off)
        low, high = quantile(off, TAIL), quantile(off, 1 - TAIL)
        margin = max(0.08 * (high - low), 0.05)
        start = left + n * (each + GAP)
        axes.append(
            Axis(
                regime=regime,
                colour=COLOURS[Regime(regime)] if regime in COLOURS else next(free, "grey"),
                low=min(low, 0.0) - margin,
                high=max(high, 0.0) + margin,
                left=start,
                right=start + each - layout.time,
            )
        )
    return axes


def _ground(axis: Axis, top: float, bottom: float, width: float) -> list[Item]:
    items: list[Item] = []
    for tick in evenly(axis.low, axis.high, max(4, round((axis.right - axis.left) / 45))):
        x = axis.at(tick)
        items.append(Line(((x, top), (x, bottom)), GRID))
        text = f"{tick:+g} %" if tick else "0"
        side = Anchor.END if x + text_width(text, NUMBER) / 2 > width else Anchor.MIDDLE
        items.append(Label((x, bottom + 15), text, NUMBER, "muted", side))
    title = f"{axis.regime}: off its time"
    middle = (axis.left + axis.right) / 2
    items.append(Label((middle, bottom + 31), title, NUMBER, "muted", Anchor.MIDDLE))
    return items


def _row(
    row: Row, strips: Mapping[str, Strip], axes: Sequence[Axis], box: Box, layout: Layout
) -> Group:
    mine = {axis.regime: strips[axis.regime] for axis in axes if axis.regime in strips}
    foot = box.y1 - (2 if layout.above else (layout.row - layout.strip) / 2)
    band = (foot - layout.strip, foot)
    spoken = "; ".join(f"{regime} {_spoken(strip)}" for regime, strip in mine.items())
    return Group(
        items=(
            *_names(row, mine, axes[0].left, band, layout),
            *(
                item
                for axis in axes
                if axis.regime in mine
                for item in _strip(mine[axis.regime], axis, band, words=not layout.above)
            ),
        ),
        variants=(row.variant,),
        kind=kind_of(row),
        areas=(box,),
        words=f"{row.label}: {spoken}",
    )


def _names(
    row: Row,
    mine: Mapping[str, Strip],
    left: float,
    band: tuple[float, float],
    layout: Layout,
) -> list[Item]:
    """The name before the strips; over them, with their times, where it stands there."""
    own = not row.is_reference
    if not layout.above:
        at = (EDGE, (band[0] + band[1]) / 2 + 0.35 * layout.size)
        return [name(row.label, at, left - 4 - BEFORE - EDGE, layout.size, own=own)]
    times = ", ".join(number(strip.time) for strip in mine.values()) + " µs"
    room = layout.width - 2 * EDGE - text_width(times, NUMBER) - 10
    y = band[0] - 5
    return [
        name(row.label, (EDGE, y), room, layout.size, own=own),
        Label((layout.width - EDGE, y), times, NUMBER, "muted", Anchor.END),
    ]


def _spoken(strip: Strip) -> str:
    told = f"{number(strip.time)} µs, {len(strip.off)} instances in {len(strip.sessions)} sessions"
    if strip.interval is None:
        return f"{told}, interval {ABSENT}"
    low, high = strip.interval
    return f"{told}, the 95 % interval from {low:+.2f} to {high:+.2f} %"


def _strip(strip: Strip, axis: Axis, band: tuple[float, float], *, words: bool) -> list[Item]:
    """The interval as a bar, the dots over it by session, and what lies beyond the axis."""
    top, foot = band
    dots: list[XY] = []
    means: list[Item] = []
    gaps = APART * (len(strip.sessions) - 1)
    step = (foot - top - 2) / max(len(strip.off) - 1 + gaps, 1)
    y = top + 1
    for session in strip.sessions:
        inside = [(axis.at(o), y + n * step) for n, o in enumerate(session) if axis.shows(o)]
        dots += inside
        mean = fmean(session)
        if axis.shows(mean) and len(session) > 1 and len(strip.sessions) > 1:
            x, end = axis.at(mean), y + (len(session) - 1) * step
            means.append(Line(((x, y - 1), (x, end + 1)), MEAN))
        y += (len(session) + APART) * step
    middle = axis.at(0.0)
    items: list[Item] = []
    if strip.interval is not None:
        low, high = (min(max(end, axis.low), axis.high) for end in strip.interval)
        bar = Box(axis.at(low), top + 2, axis.at(high), foot - 2)
        items.append(Polygon(_corners(bar), "faint", 0.5))
    items += [
        Dots(tuple(dots), axis.colour, DOT, HAZE),
        *means,
        Line(((middle, top), (middle, foot)), OWN),
    ]
    y = (top + foot) / 2
    items += _beyond([off for off in strip.off if off < axis.low], axis.low, axis.left, y)
    items += _beyond([off for off in strip.off if off > axis.high], axis.high, axis.right, y)
    if words:
        at = (axis.right + 56, (top + foot) / 2 + 4)
        items.append(Label(at, f"{number(strip.time)} µs", NUMBER, "ink", Anchor.END))
    return items


def _corners(box: Box) -> tuple[XY, ...]:
    return (box.x0, box.y0), (box.x1, box.y0), (box.x1, box.y1), (box.x0, box.y1)


def _beyond(off: Sequence[float], end: float, x: float, y: float) -> list[Item]:
    """That instances lie beyond an end of the axis; how far, where it is much."""
    if not off:
        return []
    far = max(off, key=abs)
    right = far > 0
    items: list[Item] = [Sign((x, y), Shape.RIGHT if right else Shape.LEFT, "ink", size=6)]
    if far / end > FAR:
        at, anchor = (x - 6 if right else x + 6, y + 4), Anchor.END if right else Anchor.START
        items.append(Label(at, f"{far:+.0f} %", NUMBER, "ink", anchor, halo=True))
    return items
