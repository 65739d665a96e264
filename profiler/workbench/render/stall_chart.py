"""What the warps of each variant were doing: one stacked bar each, shares of all samples."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from workbench.derive.figures import ISSUING, stall_label
from workbench.judge.ablation import Ablation, Row
from workbench.judge.verdict import INCONCLUSIVE, REJECTED
from workbench.render.canvas import FONT_SIZE, Palette, palette, text_width
from workbench.render.tables import reason

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 9.0
BAR, HEAD, FOOT = 0.34, 0.78, 1.3  # inches
# Okabe and Ito, those that stand out on white and on black; issuing and the rest are greys.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
OTHER = "other"
SHOWN = 0.06  # smaller parts have no room for their number


def top_reasons(rows: list[Row], count: int = len(COLOURS)) -> list[str]:
    """The stall reasons that matter most over all rows, largest first."""
    totals: dict[str, float] = {}
    for row in rows:
        for name, share in row.stalls.items():
            if name != ISSUING:
                totals[name] = totals.get(name, 0.0) + share
    return sorted(totals, key=lambda name: (-totals[name], name))[:count]


def parts(row: Row, reasons: list[str]) -> list[tuple[str, float]]:
    """Issuing first, then the named reasons in one order for all rows, then the rest."""
    named = [(name, row.stalls.get(name, 0.0)) for name in [ISSUING, *reasons]]
    rest = max(0.0, sum(row.stalls.values()) - sum(share for _, share in named))
    return [*named, (OTHER, rest)]


def draw(ablation: Ablation, dark: bool) -> Figure:
    from matplotlib.figure import Figure

    colours = palette(dark)
    rows = [row for row in ablation.everything if row.stalls]
    gap = 0.6 if any(r.is_reference for r in rows) and not all(r.is_reference for r in rows) else 0.0
    height = HEAD + FOOT + BAR * max(len(rows) + gap, 2)
    left = max([60.0, *(text_width(_name(row)) + 14 for row in rows)]) / (72 * WIDTH)
    figure = Figure(figsize=(WIDTH, height))
    where = f"{ablation.study}, {ablation.shape}, {ablation.gpu}"
    figure.text(0.015, 1 - 0.27 / height, "Where do the warps spend their time?", color=colours.ink,
                fontsize=FONT_SIZE + 2.5, fontweight="bold")  # fmt: skip
    figure.text(0.015, 1 - 0.48 / height, f"Share of warp samples by state; {where}",
                color=colours.muted)  # fmt: skip
    _note(figure, ablation, height, colours)
    if not rows:
        figure.text(0.5, 0.5, "stall samples not collected", color=colours.muted, ha="center",
                    fontsize=FONT_SIZE + 2)  # fmt: skip
        return figure
    axes = figure.add_axes((left, FOOT / height, 0.98 - left, 1 - (HEAD + FOOT) / height))
    places = [i + (gap if row.is_reference else 0.0) for i, row in enumerate(rows)]
    _axes(axes, rows, places, colours)
    reasons = top_reasons(rows)
    fills = {ISSUING: colours.faint, **dict(zip(reasons, COLOURS, strict=False)), OTHER: colours.muted}
    _bars(axes, rows, places, reasons, fills, colours)
    _legend(figure, height, fills, colours)
    return figure


def _name(row: Row) -> str:
    return f"{row.variant} ({row.verdict})" if row.verdict in (REJECTED, INCONCLUSIVE) else row.variant


def _axes(axes: Axes, rows: list[Row], places: list[float], colours: Palette) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator

    axes.set(xlim=(0, 1), ylim=(places[-1] + 0.55, places[0] - 0.55))
    axes.patch.set_visible(False)
    ticks = [0.0, 0.25, 0.5, 0.75, 1.0]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{100 * tick:.0f} %" for tick in ticks]))
    axes.yaxis.set_major_locator(FixedLocator(places))
    axes.yaxis.set_major_formatter(FixedFormatter([_name(row) for row in rows]))
    axes.tick_params(axis="x", colors=colours.muted)
    axes.tick_params(axis="y", length=0, labelcolor=colours.ink)
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_color(colours.muted if row.is_reference else colours.ink)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _bars(
    axes: Axes, rows: list[Row], places: list[float], reasons: list[str],
    fills: dict[str, str], colours: Palette,
) -> None:  # fmt: skip
    for row, place in zip(rows, places, strict=True):
        start, total = 0.0, sum(row.stalls.values())
        for name, share in parts(row, reasons):
            wide = share / total
            if wide <= 0:
                continue
            axes.barh(place, wide, left=start, height=0.74, color=fills[name],
                      edgecolor=colours.paper, linewidth=0.8)  # fmt: skip
            if wide >= SHOWN:
                axes.text(start + wide / 2, place, f"{100 * wide:.0f} %", ha="center",
                          va="center_baseline", color=on(fills[name]), fontsize=FONT_SIZE - 1)  # fmt: skip
            start += wide


def on(colour: str) -> str:
    """Black or white, whichever reads better on ``colour`` (WCAG relative luminance)."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (light + 0.05) / 0.05 >= 1.05 / (light + 0.05) else "#ffffff"


def _legend(figure: Figure, height: float, fills: dict[str, str], colours: Palette) -> None:
    from matplotlib.patches import Patch

    labels = {name: OTHER if name == OTHER else stall_label(name) for name in fills}
    handles = [Patch(facecolor=fill, label=labels[name]) for name, fill in fills.items()]
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0.005, (FOOT - 0.32) / height),
                  ncols=5, frameon=False, labelcolor=colours.ink, handlelength=1.1,
                  handleheight=1.0, columnspacing=1.6, handletextpad=0.5, borderpad=0)  # fmt: skip


def _note(figure: Figure, ablation: Ablation, height: float, colours: Palette) -> None:
    absent = [f"{row.variant} ({reason(row)})" for row in ablation.everything if not row.stalls]
    if absent:
        text = textwrap.shorten("not collected: " + ", ".join(absent), 130, placeholder=" ...")
        figure.text(0.015, 0.13 / height, text, color=colours.muted, fontsize=FONT_SIZE - 1.5)
