"""Each step beside its parent: microseconds under ncu by stall reason.

Colours of stall reasons stay from chart to chart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from workbench.derive.figures import ISSUING, UNSAMPLED
from workbench.judge.comparison import Comparison
from workbench.judge.rows import Ablation, Row
from workbench.render.chart.frame import (
    BEFORE,
    EDGE,
    GRID,
    WIDTH,
    LegendEntry,
    framed,
    key,
    kind_of,
    name_label,
    row_left,
    where,
)
from workbench.render.chart.scene import (
    Anchor,
    Bar,
    Box,
    Item,
    Label,
    Polyline,
    Scene,
    VariantItems,
    ink_on,
    text_width,
)
from workbench.render.document.limits import stall_words
from workbench.render.document.step import step_chart
from workbench.render.numbers import factor, number

NUMBER, GAP = 10.5, 14.0
NAMES, SIZE, BAR = 260.0, 12.0, 18.0
ALT = "Time under ncu by stall reason, each step beside its parent."
CAPTION = (
    "Each pair is on the scale of its parent: compare lengths within a pair only. A colour is its "
    "share of the warp state samples times the duration under ncu. Without that stall, less than "
    "its length would be saved."
)
ABSENT_SAMPLES = "stall samples not collected"


@dataclass(frozen=True)
class Pair:
    """A step beside its parent, both sampled."""

    comparison: Comparison
    row: Row

    @property
    def before(self) -> dict[str, float]:
        return {time.reason: time.before for time in self.comparison.stall_microseconds}

    @property
    def after(self) -> dict[str, float]:
        return {time.reason: time.after for time in self.comparison.stall_microseconds}

    @property
    def longer(self) -> dict[str, float]:
        """The longer bar of each reason, so that what a step took away keeps its colour."""
        after = self.after
        return {reason: max(time, after[reason]) for reason, time in self.before.items()}

    @property
    def totals(self) -> tuple[float, float]:
        return fsum(self.before.values()), fsum(self.after.values())

    @property
    def words(self) -> str:
        before, after = self.totals
        return (
            f"{self.comparison.before} {number(before)} µs, {self.comparison.after} "
            f"{number(after)} µs, {factor(before / after)}"
        )


def pairs(rows: Iterable[Row]) -> list[Pair]:
    against = [(row, row.against_parent) for row in rows]
    return [Pair(found, row) for row, found in against if found and found.stall_microseconds]


def stall_time(ablation: Ablation) -> Scene:
    """The steps to the best one."""
    steps = ablation.path or ablation.rows
    shown = pairs(steps)
    known = {pair.row.variant for pair in shown}
    absent = [r for r in steps if r.step and r.step.parent and r.variant not in known]
    return framed(
        _draw(shown, fills(pair.longer for pair in shown)) if shown else ABSENT_SAMPLES,
        absent,
        name="stall-time",
        title="Stall time of each step beside its parent",
        subtitle=f"{where(ablation)}; µs under ncu, each pair on the scale of its parent",
    )


def step_stalls(ablation: Ablation) -> list[Scene]:
    """A chart a step, in the same colours."""
    every = pairs(ablation.rows)
    colours = fills(pair.longer for pair in every)
    return [
        framed(
            _draw([pair], colours),
            name=step_chart(pair.row.variant),
            title="Stall time beside the parent's",
            subtitle=f"{where(ablation)}; µs under ncu",
            alt=f"Stall time under ncu: {pair.words}",
        )
        for pair in every
    ]


def _draw(shown: Sequence[Pair], colours: Mapping[str, str]) -> tuple[list[Item], float]:
    items, top = key(entries(colours), EDGE, 0, WIDTH)
    names = [n for p in shown for n in (p.comparison.before, p.comparison.after)]
    left = row_left(names, NAMES, SIZE)
    most = max(max(p.totals) / p.totals[0] for p in shown)
    room = max(text_width(_total(p), NUMBER) for p in shown) + 10
    unit = (WIDTH - EDGE - left - room) / most
    y = top + 8
    for n, pair in enumerate(shown):
        if n:
            items.append(Polyline(((EDGE, y), (WIDTH - EDGE, y)), GRID))
        group, y = _pair(pair, colours, left, unit, y + GAP / 2)
        items.append(group)
        y += GAP / 2
    return items, y + 4


def _total(pair: Pair) -> str:
    before, after = pair.totals
    return f"{number(after)} µs, {factor(before / after)}"


def _pair(
    pair: Pair, colours: Mapping[str, str], left: float, unit: float, top: float
) -> tuple[VariantItems, float]:
    """Both bars; ``unit`` is the length of the parent's. Returns where they end."""
    before, after = pair.totals
    sides = (
        (pair.comparison.before, pair.before, before, f"{number(before)} µs"),
        (pair.comparison.after, pair.after, after, _total(pair)),
    )
    items: list[Item] = []
    y = top
    for n, (side, times, total, text) in enumerate(sides):
        bar = Box(left, y, left + unit * total / before, y + BAR)
        items += stacked(parts(times, colours), colours, bar)
        items += _words(side, text, bar, strong=n == 1)
        y += BAR + 3
    area = Box(2, top - 3, WIDTH - 2, y)
    variant, kind = pair.row.variant, kind_of(pair.row)
    return VariantItems(tuple(items), variant, kind, (area,), words=pair.words), y


def _words(text: str, total: str, bar: Box, *, strong: bool) -> list[Item]:
    """The name of a bar, and its total."""
    y = bar.middle[1] + 0.35 * SIZE
    label = name_label(text, (EDGE, y), bar.x0 - BEFORE - EDGE, SIZE, own=strong)
    return [label, Label((bar.x1 + 5, y), total, NUMBER, label.colour)]


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
SEAM = 1.0  # between parts
MARGIN = 3.0  # of a number in its part


def fills(shares: Iterable[Mapping[str, float]]) -> dict[str, str]:
    """Colour by reason, in the order in which bars stack them: issuing first, ``other`` last."""
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
    """What of a row each name stands for, in their order; ``other`` stands for all the rest."""
    own = [(name, row.get(name, 0.0)) for name in names if name != OTHER]
    rest = fsum(row.values()) - fsum(value for _, value in own)
    return [*own, (OTHER, max(0.0, rest))] if OTHER in names else own


def stacked(values: Sequence[tuple[str, float]], fill: Mapping[str, str], bar: Box) -> list[Item]:
    """The values side by side over the width of the bar, each in figures where they fit."""
    total = fsum(value for _, value in values)
    items: list[Item] = []
    start = 0.0
    for name, value in values:
        if value <= 0:
            continue
        x0, x1 = (bar.x0 + bar.width * at / total for at in (start, start + value))
        start += value
        items.append(Bar(Box(x0, bar.y0, max(x1 - SEAM, x0 + 0.5), bar.y1), fill[name], name))
        text = number(value)
        if text_width(text, NUMBER) + 2 * MARGIN <= x1 - x0 - SEAM:
            at = ((x0 + x1 - SEAM) / 2, bar.middle[1] + 0.35 * NUMBER)
            items.append(Label(at, text, NUMBER, ink_on(fill[name]), Anchor.MIDDLE))
    return items


def entries(fill: Mapping[str, str]) -> list[LegendEntry]:
    return [LegendEntry(OTHER if name == OTHER else stall_words(name), fill[name]) for name in fill]
