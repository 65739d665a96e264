"""Where the time went: every step beside its parent, microseconds under ncu by stall reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.derive.figures import ISSUING
from workbench.derive.stalls import StallTime
from workbench.judge.comparison import Comparison
from workbench.judge.rows import Ablation
from workbench.render.canvas import FONT_SIZE, LIGHT, POINTS, Entry, key, note_absent, text_width
from workbench.render.stall_chart import OTHER, fills, on
from workbench.render.tables import factor, number, reason
from workbench.render.why import reason_label
from workbench.words import Status

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 9.0
BAR, GAP, HEAD, FOOT = 0.27, 0.24, 1.28, 0.3  # inches
EDGE = 0.015
SHOWN = 0.06  # of the axis; smaller parts have no room for their number


@dataclass(frozen=True)
class Bar:
    """One variant of a pair; ``scale`` is the parent's duration, which the axis is in."""

    name: str
    times: Mapping[str, float]
    scale: float
    note: str = ""

    @property
    def total(self) -> float:
        return sum(self.times.values())


def pairs(ablation: Ablation) -> list[Comparison]:
    """The comparisons with samples on both sides: the steps, and the whole ladder last."""
    steps = [row.against_parent for row in ablation.rows]
    whole = ablation.whole
    many = sum(step is not None for step in steps) > 1
    return [c for c in (*steps, whole if many else None) if c and c.stall_times]


def _bars(found: Comparison) -> tuple[Bar, Bar]:
    before = {t.reason: t.before for t in found.stall_times}
    after = {t.reason: t.after for t in found.stall_times}
    scale = sum(before.values())
    note = f", {factor(scale / sum(after.values()))}"
    return Bar(found.before, before, scale), Bar(found.after, after, scale, note)


def draw(ablation: Ablation) -> Figure:
    """Drawn for a light page; ``canvas.swap`` makes the dark one."""
    from matplotlib.figure import Figure

    found = pairs(ablation)
    height = HEAD + FOOT + max(len(found), 2) * (2 * BAR + GAP)
    figure = Figure(figsize=(WIDTH, height))
    where = f"{ablation.study}, {ablation.shape}, {ablation.gpu}"
    figure.text(
        EDGE,
        1 - 0.27 / height,
        "Where did the time go, step by step?",
        color=LIGHT.ink,
        fontsize=FONT_SIZE + 2.5,
        fontweight="bold",
    )
    figure.text(
        EDGE,
        1 - 0.49 / height,
        f"{where}; µs under ncu, each pair on the scale of its parent",
        color=LIGHT.muted,
    )
    note_absent(figure, _absent(ablation), EDGE, 0.12 / height)
    if not found:
        figure.text(
            0.5,
            0.35,
            "stall samples not collected",
            color=LIGHT.muted,
            ha="center",
            fontsize=FONT_SIZE + 2,
        )
        return figure
    bars = [bar for pair in found for bar in _bars(pair)]
    left = EDGE + (max(text_width(bar.name) for bar in bars) * 1.1 + 10) / (POINTS * WIDTH)
    axes = figure.add_axes((left, FOOT / height, 0.985 - left, 1 - (HEAD + FOOT) / height))
    places = _places(len(found))
    room = max(text_width(_total(bar)) for bar in bars) + 10
    _axes(axes, bars, places, room / ((0.985 - left) * POINTS * WIDTH))
    colours = fills(_weights([time for pair in found for time in pair.stall_times]))
    for bar, at in zip(bars, places, strict=True):
        _bar(axes, bar, at, colours)
    entries = [
        Entry(
            OTHER if name == OTHER else reason_label(name),
            {"marker": "s", "markersize": 8, "color": fill, "markeredgewidth": 0},
        )
        for name, fill in colours.items()
    ]
    key(figure, entries, EDGE * WIDTH * POINTS, POINTS * (height - 0.76))
    return figure


def _absent(ablation: Ablation) -> list[str]:
    """The steps that cannot be compared with their parents, and why."""
    return [
        f"{row.variant} ({reason(row)})"
        for row in ablation.rows
        if not (row.against_parent and row.against_parent.stall_times)
        and (row.status != Status.CURRENT or (row.step and row.step.parent))
    ]


def _places(count: int) -> list[float]:
    """Middles of the bars, in bar heights from the top; pairs stand together."""
    step = 2 + GAP / BAR
    return [pair * step + bar for pair in range(count) for bar in (0.5, 1.5)]


def _weights(times: list[StallTime]) -> dict[str, float]:
    """Reason to the sum of what it takes of the longer bar of each pair."""
    found: dict[str, float] = {}
    for time in times:
        found[time.reason] = found.get(time.reason, 0.0) + max(time.before, time.after)
    return found


def _total(bar: Bar) -> str:
    return f"{number(bar.total)} µs{bar.note}"


def _axes(axes: Axes, bars: list[Bar], places: list[float], room: float) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    longest = max(bar.total / bar.scale for bar in bars)
    bottom = places[-1] + 0.5 + GAP / BAR / 2
    axes.set(xlim=(0, longest / (1 - room)), ylim=(bottom, places[0] - 0.5 - GAP / BAR / 2))
    axes.patch.set_visible(False)
    axes.xaxis.set_major_locator(NullLocator())
    axes.yaxis.set_major_locator(FixedLocator(places))
    axes.yaxis.set_major_formatter(FixedFormatter([bar.name for bar in bars]))
    axes.tick_params(axis="y", length=0)
    for i, label in enumerate(axes.get_yticklabels()):
        label.set_color(LIGHT.ink if i % 2 else LIGHT.muted)
        label.set_fontweight("bold" if i % 2 else "normal")
    for spine in axes.spines.values():
        spine.set_visible(False)
    for above, below in zip(places[1::2], places[2::2], strict=False):
        middle = (above + below) / 2
        axes.plot(axes.get_xlim(), [middle, middle], color=LIGHT.faint, linewidth=0.6)


def _bar(axes: Axes, bar: Bar, at: float, fills: Mapping[str, str]) -> None:
    from matplotlib.patches import Rectangle

    shown = {name: bar.times.get(name, 0.0) for name in fills if name != OTHER}
    if OTHER in fills:
        shown[OTHER] = max(0.0, bar.total - sum(shown.values()))
    start, span = 0.0, axes.get_xlim()[1]
    for name, microseconds in shown.items():
        wide = microseconds / bar.scale
        if wide <= 0:
            continue
        axes.add_artist(
            Rectangle(
                (start, at - 0.46),
                wide,
                0.92,
                facecolor=fills[name],
                edgecolor=LIGHT.paper,
                linewidth=0.8,
            )
        )
        if wide >= SHOWN * span:
            colour = LIGHT.ink if name == ISSUING else on(fills[name])
            axes.text(
                start + wide / 2,
                at,
                number(microseconds),
                ha="center",
                va="center_baseline",
                color=colour,
                fontsize=FONT_SIZE - 1.5,
            )
        start += wide
    axes.text(
        start + 0.006 * span,
        at,
        _total(bar),
        ha="left",
        va="center_baseline",
        color=LIGHT.ink if bar.note else LIGHT.muted,
        fontsize=FONT_SIZE - 0.5,
    )
