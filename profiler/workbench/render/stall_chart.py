"""What the warps of each variant were doing: one stacked bar each, shares of all samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from workbench.derive.figures import ISSUING, stall_label
from workbench.derive.stalls import UNSAMPLED
from workbench.judge.rows import Ablation, Row
from workbench.render.canvas import FONT_SIZE, LIGHT, POINTS, Entry, key, note_absent, text_width
from workbench.render.tables import reason
from workbench.words import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 9.0
BAR, HEAD, FOOT = 0.34, 1.2, 0.62  # inches
EDGE = 0.015
# Okabe and Ito, told apart by colour-blind readers on white and on black. A common reason keeps its
# colour from report to report; any other takes one that is free.
COLOURS = {
    "long_scoreboard": "#0072b2",
    "wait": "#e69f00",
    "barrier": "#009e73",
    "short_scoreboard": "#cc79a7",
    "math_pipe_throttle": "#d55e00",
    "not_selected": "#56b4e9",
    "mio_throttle": "#f0e442",
}
ISSUING_FILL, OTHER_FILL = LIGHT.faint, "#8b8b8b"
OTHER = "other"
SHOWN = 0.055  # smaller parts have no room for their number


def weights(rows: Iterable[Row]) -> dict[str, float]:
    """Reason to the sum of its shares over all rows."""
    found: dict[str, float] = {}
    for row in rows:
        for name, share in row.stalls.items():
            found[name] = found.get(name, 0.0) + share
    return found


def parts(row: Row, names: list[str]) -> list[tuple[str, float]]:
    """The row's shares in the order of ``names``, in which ``other`` stands for all the rest."""
    known = [(name, row.stalls.get(name, 0.0)) for name in names if name != OTHER]
    rest = sum(row.stalls.values()) - sum(share for _, share in known)
    return [*known, (OTHER, max(0.0, rest))] if OTHER in names else known


def draw(ablation: Ablation) -> Figure:
    """Drawn for a light page; ``canvas.swap`` makes the dark one."""
    from matplotlib.figure import Figure

    rows = [row for row in ablation.everything if row.stalls]
    gap = 0.5 if len({row.is_reference for row in rows}) == 2 else 0.0
    height = HEAD + FOOT + BAR * max(len(rows) + gap, 2)
    figure = Figure(figsize=(WIDTH, height))
    where = f"{ablation.study}, {ablation.shape}, {ablation.gpu}"
    figure.text(
        EDGE,
        1 - 0.27 / height,
        "Where do the warps spend their time?",
        color=LIGHT.ink,
        fontsize=FONT_SIZE + 2.5,
        fontweight="bold",
    )
    figure.text(
        EDGE, 1 - 0.49 / height, f"{where}; shares of all warp state samples", color=LIGHT.muted
    )
    absent = [f"{row.variant} ({reason(row)})" for row in ablation.everything if not row.stalls]
    note_absent(figure, absent, EDGE, 0.12 / height)
    if not rows:
        figure.text(
            0.5,
            0.35,
            "stall samples not collected",
            color=LIGHT.muted,
            ha="center",
            fontsize=FONT_SIZE + 2,
        )
        return figure
    left = EDGE + (max(text_width(_name(row)) for row in rows) + 8) / (POINTS * WIDTH)
    axes = figure.add_axes((left, FOOT / height, 0.965 - left, 1 - (HEAD + FOOT) / height))
    places = [i + (gap if row.is_reference else 0.0) for i, row in enumerate(rows)]
    _axes(axes, rows, places)
    colours = fills(weights(rows))
    for row, at in zip(rows, places, strict=True):
        _bar(axes, row, at, colours)
    words = {name: OTHER if name == OTHER else stall_label(name) for name in colours}
    entries = [
        Entry(words[name], {"marker": "s", "markersize": 8, "color": fill, "markeredgewidth": 0})
        for name, fill in colours.items()
    ]
    key(figure, entries, EDGE * WIDTH * POINTS, POINTS * (height - 0.76))
    return figure


def _name(row: Row) -> str:
    word = f" ({row.verdict})" if row.verdict in (Verdict.REJECTED, Verdict.INCONCLUSIVE) else ""
    return f"{row.label}{word}"


def fills(weights: Mapping[str, float]) -> dict[str, str]:
    """Colour by reason, in the order in which bars stack them: issuing first, ``other`` last."""
    stalls = {name: weight for name, weight in weights.items() if name not in (ISSUING, UNSAMPLED)}
    reasons = sorted(stalls, key=lambda name: (-stalls[name], name))[: len(COLOURS)]
    free = [fill for name, fill in COLOURS.items() if name not in reasons]
    found = {ISSUING: ISSUING_FILL}
    for name in reasons:
        found[name] = COLOURS[name] if name in COLOURS else free.pop(0)
    return {**found, OTHER: OTHER_FILL} if weights.keys() - found.keys() else found


def _axes(axes: Axes, rows: list[Row], places: list[float]) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator

    axes.set(xlim=(0, 1), ylim=(places[-1] + 0.5, places[0] - 0.5))
    axes.patch.set_visible(False)
    ticks = [0.0, 0.25, 0.5, 0.75, 1.0]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{100 * tick:.0f} %" for tick in ticks]))
    axes.yaxis.set_major_locator(FixedLocator(places))
    axes.yaxis.set_major_formatter(FixedFormatter([_name(row) for row in rows]))
    axes.tick_params(axis="x", colors=LIGHT.muted)
    axes.tick_params(axis="y", length=0)
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_color(LIGHT.muted if row.is_reference else LIGHT.ink)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _bar(axes: Axes, row: Row, at: float, fills: Mapping[str, str]) -> None:
    """One bar, as plain rectangles: ``barh`` costs four times as much."""
    from matplotlib.patches import Rectangle

    start, total = 0.0, sum(row.stalls.values())
    for name, share in parts(row, list(fills)):
        wide = share / total
        if wide <= 0:
            continue
        axes.add_artist(
            Rectangle(
                (start, at - 0.37),
                wide,
                0.74,
                facecolor=fills[name],
                edgecolor=LIGHT.paper,
                linewidth=0.8,
            )
        )
        if wide >= SHOWN:
            colour = LIGHT.ink if name == ISSUING else on(fills[name])
            axes.text(
                start + wide / 2,
                at,
                f"{100 * wide:.0f} %",
                ha="center",
                va="center_baseline",
                color=colour,
                fontsize=FONT_SIZE - 1,
            )
        start += wide


def on(colour: str) -> str:
    """Black or white, whichever reads better on ``colour`` (WCAG relative luminance)."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (light + 0.05) / 0.05 >= 1.05 / (light + 0.05) else "#ffffff"
