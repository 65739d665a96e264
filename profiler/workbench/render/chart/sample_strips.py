"""The samples behind every time: a strip for each regime, a dot a round, the first at the top."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from workbench.judge.rows import Ablation, Row
from workbench.render.chart.key import Entry, key
from workbench.render.chart.lettering import text_width
from workbench.render.chart.marks import NOWHERE, kind_of
from workbench.render.chart.notes import empty, not_drawn, where
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
from workbench.words import Regime

# Variant to regime to microseconds, in the order of the rounds.
Timings: TypeAlias = Mapping[str, Mapping[str, Sequence[float]]]

NUMBER, GAP, SPACE = 11.0, 26.0, 8.0
TAIL = 0.004  # of all samples, at either end, that may lie beyond an axis
MIDDLE = (0.025, 0.975)  # as the range of a time is everywhere
COLOURS = {Regime.WARM: "warm", Regime.COLD: "cold"}
OTHERS = ("green", "pink", "orange")
DOT, HAZE = 2.4, 0.75
FAR = 1.5  # times the end of an axis, from where on it is named
GRID, MEDIAN = Stroke("faint", 0.8), Stroke("ink", 1.2)
ALT = "Every timed sample of every version as a deviation from the version's own median."
CAPTION = (
    "A dot is one round, the first at the top of its row: what drifts leans, what jumps shows two "
    "columns. The bar behind the dots is their middle 95 %; a triangle stands for samples beyond "
    "the axis."
)


@dataclass(frozen=True)
class Layout:
    """``above``: names stand over their strips, else before them."""

    width: float
    names: float
    median: float  # the room of a median beside its strip
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
    """One regime's samples: their median in microseconds, and percent off it by round."""

    median: float
    off: tuple[float, ...]

    @property
    def middle(self) -> tuple[float, float]:
        ordered = sorted(self.off)
        return quantile(ordered, MIDDLE[0]), quantile(ordered, MIDDLE[1])


@dataclass(frozen=True)
class Axis:
    """Percent off the median, for all versions of a regime."""

    regime: str
    colour: str
    low: float
    high: float
    left: float
    right: float

    def at(self, off: float) -> float:
        return self.left + (self.right - self.left) * (off - self.low) / (self.high - self.low)


def quantile(ordered: Sequence[float], share: float) -> float:
    """By linear interpolation, as numpy's percentile."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def strips_of(regimes: Mapping[str, Sequence[float]]) -> dict[str, Strip]:
    """By regime, without those that have no samples."""
    strips = {}
    for regime, microseconds in regimes.items():
        if len(microseconds):
            median = quantile(sorted(microseconds), 0.5)
            off = tuple(100 * (value / median - 1) for value in microseconds)
            strips[regime] = Strip(median, off)
    return strips


def samples(ablation: Ablation, timings: Timings, width: Width = Width.WIDE) -> Scene:
    """``timings`` are those of the sessions behind the table's times."""
    layout = LAYOUTS[width]
    strips = {row.variant: strips_of(timings.get(row.variant, {})) for row in ablation.everything}
    rows = [row for row in ablation.everything if strips[row.variant]]
    if rows:
        items, height = _draw(rows, strips, layout)
    else:
        items, height = empty("samples not collected", layout.width)
    absent = [row for row in ablation.everything if row not in rows]
    foot, height = not_drawn(absent, layout.width, height)
    return Scene(
        name="samples",
        size=width,
        width=layout.width,
        height=height,
        title="How steady are the times?",
        subtitle=f"{where(ablation)}; every sample, in percent off the version's own median",
        alt=ALT,
        caption=CAPTION,
        items=(*items, *foot),
    )


def _draw(
    rows: Sequence[Row], strips: Mapping[str, Mapping[str, Strip]], layout: Layout
) -> tuple[list[Item], float]:
    axes = _axes(rows, strips, layout)
    dot = Sign(NOWHERE, Shape.CIRCLE, "ink", size=6)
    entries = [Entry(axis.regime, replace(dot, colour=axis.colour)) for axis in axes]
    entries += [Entry("median", MEDIAN), Entry("middle 95 %", "faint")]
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
    """One a regime, side by side; the few samples that lie far out do not decide on its range."""
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
                right=start + each - layout.median,
            )
        )
    return axes


def _ground(axis: Axis, top: float, bottom: float, width: float) -> list[Item]:
    items: list[Item] = []
    for tick in evenly(axis.low, axis.high, max(2, round((axis.right - axis.left) / 45))):
        x = axis.at(tick)
        items.append(Line(((x, top), (x, bottom)), GRID))
        text = f"{tick:+g} %" if tick else "0"
        side = Anchor.END if x + text_width(text, NUMBER) / 2 > width else Anchor.MIDDLE
        items.append(Label((x, bottom + 15), text, NUMBER, "muted", side))
    title = f"{axis.regime}: off the median"
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
    """The name before the strips; over them, with their medians, where it stands there."""
    own = not row.is_reference
    if not layout.above:
        at = (EDGE, (band[0] + band[1]) / 2 + 0.35 * layout.size)
        return [name(row.label, at, left - 4 - BEFORE - EDGE, layout.size, own=own)]
    medians = ", ".join(f"{number(strip.median)} µs {regime}" for regime, strip in mine.items())
    room = layout.width - 2 * EDGE - text_width(medians, NUMBER) - 10
    y = band[0] - 5
    return [
        name(row.label, (EDGE, y), room, layout.size, own=own),
        Label((layout.width - EDGE, y), medians, NUMBER, "muted", Anchor.END),
    ]


def _spoken(strip: Strip) -> str:
    low, high = strip.middle
    return (
        f"median {number(strip.median)} µs of {len(strip.off)} samples, "
        f"the middle 95 % from {low:+.1f} to {high:+.1f} %"
    )


def _strip(strip: Strip, axis: Axis, band: tuple[float, float], *, words: bool) -> list[Item]:
    """The middle of the samples as a bar, the dots over it, and what lies beyond the axis."""
    top, foot = band
    low, high = (min(max(end, axis.low), axis.high) for end in strip.middle)
    step = (foot - top - 2) / max(len(strip.off) - 1, 1)
    dots: list[XY] = [
        (axis.at(off), top + 1 + n * step)
        for n, off in enumerate(strip.off)
        if axis.low <= off <= axis.high
    ]
    middle = axis.at(0.0)
    items: list[Item] = [
        Polygon(_corners(Box(axis.at(low), top + 2, axis.at(high), foot - 2)), "faint", 0.5),
        Dots(tuple(dots), axis.colour, DOT, HAZE),
        Line(((middle, top), (middle, foot)), MEDIAN),
    ]
    y = (top + foot) / 2
    items += _beyond([off for off in strip.off if off < axis.low], axis.low, axis.left, y)
    items += _beyond([off for off in strip.off if off > axis.high], axis.high, axis.right, y)
    if words:
        at = (axis.right + 56, (top + foot) / 2 + 4)
        items.append(Label(at, f"{number(strip.median)} µs", NUMBER, "ink", Anchor.END))
    return items


def _corners(box: Box) -> tuple[XY, ...]:
    return (box.x0, box.y0), (box.x1, box.y0), (box.x1, box.y1), (box.x0, box.y1)


def _beyond(off: Sequence[float], end: float, x: float, y: float) -> list[Item]:
    """That samples lie beyond an end of the axis; how far, where it is much."""
    if not off:
        return []
    far = max(off, key=abs)
    right = far > 0
    items: list[Item] = [Sign((x, y), Shape.RIGHT if right else Shape.LEFT, "ink", size=6)]
    if far / end > FAR:
        at, anchor = (x - 6 if right else x + 6, y + 4), Anchor.END if right else Anchor.START
        items.append(Label(at, f"{far:+.0f} %", NUMBER, "ink", anchor, halo=True))
    return items
