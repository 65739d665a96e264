"""A kernel beside the one that it replaces: microseconds under ncu by stall reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from typing import NamedTuple, TypeAlias

from workbench.derive.figures import ISSUING
from workbench.judge.comparison import Comparison
from workbench.judge.ladder import Ablation, Row
from workbench.render.chart import svg
from workbench.render.document.limits import stall_words
from workbench.render.document.phrases import compared
from workbench.render.numbers import factor, number

NAMES, NUMBER = 260.0, svg.SMALL  # the most that names take, and the size of numbers
BAR, GAP = 18.0, 7.0  # a bar, and over and under a pair
MOST = 10  # reasons that a chart tells apart; it sums the rest
OTHER, OTHER_FILL = "other", "grey"
# The colour of a reason in every chart and on every page.
COLOURS = svg.named(
    f"{ISSUING}=faint long_scoreboard=blue wait=orange barrier=green short_scoreboard=pink "
    "math_pipe_throttle=vermilion not_selected=sky mio_throttle=yellow dispatch_stall=olive "
    "no_instructions=purple drain=brown lg_throttle=teal imc_miss=rose warpgroup_arrive=lime "
    f"branch_resolving=lilac gmma=maroon membar=sand sleeping=forest {OTHER}={OTHER_FILL}"
)


class Bar(NamedTuple):
    """A kernel with its microseconds by stall reason, in all and in words."""

    name: str
    times: Mapping[str, float]
    total: float
    words: str


Pair: TypeAlias = tuple[Bar, Bar]  # the parent's first


def pair(sides: Comparison | None, names: tuple[str, str]) -> list[Pair]:
    """Return one, or none where there are no samples."""
    if sides is None or not (every := sides.stall_microseconds):
        return []
    first, last = (fsum(times) for times in zip(*((t.before, t.after) for t in every), strict=True))
    words = f"{number(last)} µs, {factor(first / last)}"
    before = Bar(names[0], {t.reason: t.before for t in every}, first, f"{number(first)} µs")
    return [(before, Bar(names[1], {t.reason: t.after for t in every}, last, words))]


def stall_time(canvas: svg.Canvas, ablation: Ablation) -> float:
    """Draw the steps to the best one."""
    shown: list[Pair] = []
    missing: list[Row] = []
    for row in ablation.path or ablation.rows:
        shown += (drawn := pair(row.against_parent, compared(row, ablation)))
        missing += [row] * bool(row.step and row.step.parent and not drawn)
    if not shown:
        return canvas.missing(missing, canvas.instead("stall samples not collected"))
    return canvas.missing(missing, draw(canvas, shown))


def draw(canvas: svg.Canvas, shown: Sequence[Pair]) -> float:
    """Draw two bars a pair, each pair on the scale of its parent; return where they end."""
    # By the longer bars: a stall that a step removed keeps its place.
    colours = fills(
        {name: max(old.times[name], new.times[name]) for name in old.times} for old, new in shown
    )
    entries = [(OTHER if name == OTHER else stall_words(name), colours[name]) for name in colours]
    y = canvas.legend(entries, 0) + 8
    left, room, above = svg.EDGE, 0.0, 16.0  # on a phone words stand above their bar
    if not canvas.narrow:
        left = svg.names_end([bar.name for pair in shown for bar in pair], NAMES)
        room = max(svg.text_width(new.words, NUMBER) for _, new in shown) + 10
        above = 0.0
    unit = (canvas.right - left - room) / max(1.0, *(new.total / old.total for old, new in shown))
    for pair in shown:
        if pair is not shown[0]:
            canvas.line(((svg.EDGE, y), (canvas.right, y)), svg.GRID)
        y += GAP
        for bar in pair:
            y, is_new = y + above, bar is pair[1]
            box = svg.Box(left, y, left + unit * bar.total / pair[0].total, y + BAR)
            stacked(canvas, bar.times, colours, box)
            base = y - 4 if above else box.middle[1] + 0.35 * svg.TEXT
            wide = canvas.right - 100 if above else left - 8
            canvas.name((svg.EDGE, base), bar.name, wide - svg.EDGE, strong=is_new)
            place = (canvas.right, base) if above else (box.x1 + 5, base)
            ink = "ink" if is_new else "muted"
            canvas.text(place, bar.words, NUMBER, ink, "end" if above else "start")
            y += BAR + 3
        y += GAP
    return y + 4


def fills(shares: Iterable[Mapping[str, float]]) -> dict[str, str]:
    """Return a colour by reason, as bars stack them: issuing first, ``other`` last."""
    rows = list(shares)
    every = dict.fromkeys(name for row in rows for name in row)
    weights = {name: fsum(row.get(name, 0.0) for row in rows) for name in every}
    stalls = [name for name in weights if name in COLOURS and name not in (ISSUING, OTHER)]
    reasons = sorted(stalls, key=lambda name: (-weights[name], name))[:MOST]
    rest = [OTHER] if weights.keys() - {ISSUING, *reasons} else []
    return {name: COLOURS[name] for name in (ISSUING, *reasons, *rest)}


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
