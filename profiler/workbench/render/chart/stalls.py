"""Each step beside its parent: microseconds under ncu by stall reason.

Colours of stall reasons stay from chart to chart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from typing import NamedTuple

from workbench.derive.figures import ISSUING, UNSAMPLED
from workbench.judge.ladder import Ablation, Row
from workbench.render.chart import svg
from workbench.render.document.limits import stall_words
from workbench.render.numbers import factor, number

NAMES, NUMBER = 260.0, svg.SMALL  # the most that names take, and the size of numbers
BAR, GAP = 18.0, 7.0  # a bar, and over and under a pair
# A common reason keeps its colour from report to report; any other takes one that is free.
COLOURS = {
    "long_scoreboard": "blue",
    "wait": "orange",
    "barrier": "green",
    "short_scoreboard": "pink",
    "math_pipe_throttle": "vermilion",
    "not_selected": "sky",
    "mio_throttle": "yellow",
}
ISSUING_FILL, OTHER_FILL = "faint", "grey"
OTHER = "other"


class Pair(NamedTuple):
    """A step beside its parent: names and microseconds by stall reason, the parent's first."""

    variant: str
    names: tuple[str, str]
    times: tuple[dict[str, float], dict[str, float]]

    @property
    def totals(self) -> tuple[float, float]:
        before, after = self.times
        return fsum(before.values()), fsum(after.values())

    @property
    def words(self) -> tuple[str, str]:
        before, after = self.totals
        return f"{number(before)} µs", f"{number(after)} µs, {factor(before / after)}"


def pairs(rows: Iterable[Row]) -> list[Pair]:
    shown = []
    for row in rows:
        sides = row.against_parent
        if sides and (every := sides.stall_microseconds):
            times = {t.reason: t.before for t in every}, {t.reason: t.after for t in every}
            shown.append(Pair(row.variant, (sides.before, sides.after), times))
    return shown


def stall_time(canvas: svg.Canvas, ablation: Ablation) -> float:
    """Draw the steps to the best one."""
    steps = ablation.path or ablation.rows
    shown = pairs(steps)
    sampled = {pair.variant for pair in shown}
    missing = [r for r in steps if r.step and r.step.parent and r.variant not in sampled]
    if not shown:
        return canvas.missing(missing, canvas.instead("stall samples not collected"))
    return canvas.missing(missing, draw(canvas, shown, pair_fills(shown)))


def draw(canvas: svg.Canvas, shown: Sequence[Pair], colours: Mapping[str, str]) -> float:
    """Draw two bars a pair, each pair on the scale of its parent; return where they end."""
    entries = [(OTHER if name == OTHER else stall_words(name), colours[name]) for name in colours]
    y = canvas.legend(entries, 0) + 8
    left = svg.names_end([name for pair in shown for name in pair.names], NAMES)
    most = max(max(pair.totals) / pair.totals[0] for pair in shown)
    room = max(svg.text_width(pair.words[1], NUMBER) for pair in shown) + 10
    unit = (svg.WIDTH - svg.EDGE - left - room) / most
    for pair in shown:
        if pair is not shown[0]:
            canvas.line(((svg.EDGE, y), (svg.WIDTH - svg.EDGE, y)), svg.GRID)
        y += GAP
        for side in (0, 1):
            bar = svg.Box(left, y, left + unit * pair.totals[side] / pair.totals[0], y + BAR)
            stacked(canvas, pair.times[side], colours, bar)
            base = bar.middle[1] + 0.35 * svg.TEXT
            at = (svg.EDGE, base)
            canvas.name(at, pair.names[side], left - 8 - svg.EDGE, strong=bool(side))
            canvas.text((bar.x1 + 5, base), pair.words[side], NUMBER, ("muted", "ink")[side])
            y += BAR + 3
        y += GAP
    return y + 4


def pair_fills(shown: Iterable[Pair]) -> dict[str, str]:
    """Return colours by the longer bars: a stall that a step removed keeps its colour."""
    return fills(
        {name: max(t[name] for t in pair.times) for name in pair.times[0]} for pair in shown
    )


def fills(shares: Iterable[Mapping[str, float]]) -> dict[str, str]:
    """Return a colour by reason, as bars stack them: issuing first, ``other`` last."""
    rows = list(shares)
    every = dict.fromkeys(name for row in rows for name in row)
    weights = {name: fsum(row.get(name, 0.0) for row in rows) for name in every}
    stalls = [name for name in weights if name not in (ISSUING, UNSAMPLED)]
    reasons = sorted(stalls, key=lambda name: (-weights[name], name))[: len(COLOURS)]
    free = [fill for name, fill in COLOURS.items() if name not in reasons]
    colours = {ISSUING: ISSUING_FILL}
    for name in reasons:
        colours[name] = COLOURS[name] if name in COLOURS else free.pop(0)
    return {**colours, OTHER: OTHER_FILL} if weights.keys() - colours.keys() else colours


def parts(row: Mapping[str, float], names: Iterable[str]) -> list[tuple[str, float]]:
    """Return the value of each name, in their order; ``other`` stands for all the rest."""
    named = [(name, row.get(name, 0.0)) for name in names if name != OTHER]
    rest = fsum(row.values()) - fsum(value for _, value in named)
    return [*named, (OTHER, max(0.0, rest))] if OTHER in names else named


def stacked(
    canvas: svg.Canvas, times: Mapping[str, float], fill: Mapping[str, str], bar: svg.Box
) -> None:
    """Draw times side by side over the width of the bar, each in figures where they fit."""
    unit, end = (bar.x1 - bar.x0) / fsum(times.values()), bar.x0
    for name, value in parts(times, fill):
        if value <= 0:
            continue
        start, end = end, end + unit * value
        seam, text = end - 1, number(value)
        canvas.bar(svg.Box(start, bar.y0, max(seam, start + 0.5), bar.y1), fill[name])
        if svg.text_width(text, NUMBER) + 6 <= seam - start:
            middle = ((start + seam) / 2, bar.middle[1] + 0.35 * NUMBER)
            canvas.text(middle, text, NUMBER, svg.ink_on(fill[name]), "middle")
