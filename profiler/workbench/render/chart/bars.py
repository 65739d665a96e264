"""Stacked bars of stall reasons: colours that stay from chart to chart, and parts with numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import fsum

from workbench.derive.figures import ISSUING
from workbench.derive.stalls import UNSAMPLED
from workbench.render.chart.key import Entry
from workbench.render.chart.lettering import text_width
from workbench.render.chart.palette import ink_on
from workbench.render.chart.scene import Anchor, Bar, Box, Item, Label
from workbench.render.document.stalls import stall_words

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


def stacked(
    values: Sequence[tuple[str, float]],
    fill: Mapping[str, str],
    bar: Box,
    words: Callable[[float], str],
    size: float,
) -> list[Item]:
    """The values side by side over the width of the bar, each with its words where they fit."""
    total = fsum(value for _, value in values)
    items: list[Item] = []
    start = 0.0
    for name, value in values:
        if value <= 0:
            continue
        x0, x1 = (bar.x0 + bar.width * at / total for at in (start, start + value))
        start += value
        items.append(Bar(Box(x0, bar.y0, max(x1 - SEAM, x0 + 0.5), bar.y1), fill[name], name))
        text = words(value)
        if text_width(text, size) + 2 * MARGIN <= x1 - x0 - SEAM:
            at = ((x0 + x1 - SEAM) / 2, bar.middle[1] + 0.35 * size)
            items.append(Label(at, text, size, ink_on(fill[name]), Anchor.MIDDLE))
    return items


def entries(fill: Mapping[str, str]) -> list[Entry]:
    return [Entry(OTHER if name == OTHER else stall_words(name), fill[name]) for name in fill]
