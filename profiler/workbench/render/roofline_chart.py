"""The roofline: ceilings, regions, one point per variant and the path of the ladder."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.derive.roofline import Ceilings, Point
from workbench.judge.ablation import Ablation, Row
from workbench.judge.verdict import BASELINE, INCONCLUSIVE, KEPT, REJECTED
from workbench.render.canvas import FONT_SIZE, Palette, palette, text_width
from workbench.render.labels import Anchor, Box, Segment, place
from workbench.render.tables import number, reason

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 9.0, 5.9
LEFT, BOTTOM, RIGHT, TOP = 0.085, 0.19, 0.985, 0.9
TERA = 1e12
SMALL = FONT_SIZE - 1.5
LINE = 1.35 * FONT_SIZE


@dataclass(frozen=True)
class Frame:
    """The limits of the axes (FLOP/byte, TFLOP/s), and where they lie on the page in points."""

    x0: float
    x1: float
    y0: float
    y1: float

    def page(self, x: float, y: float) -> tuple[float, float]:
        across = math.log(x / self.x0) / math.log(self.x1 / self.x0)
        up = math.log(y / self.y0) / math.log(self.y1 / self.y0)
        return (
            72 * WIDTH * (LEFT + (RIGHT - LEFT) * across),
            72 * HEIGHT * (BOTTOM + (TOP - BOTTOM) * up),
        )

    @property
    def bounds(self) -> Box:
        (x0, y0), (x1, y1) = self.page(self.x0, self.y0), self.page(self.x1, self.y1)
        return Box(x0 + 3, y0 + 3, x1 - 3, y1 - 3)


@dataclass(frozen=True)
class Roofs:
    """The ceilings in the chart's units; ``compute`` is (label, TFLOP/s), highest first."""

    dram: float
    compute: tuple[tuple[str, float], ...]

    @property
    def top(self) -> float:
        return self.compute[0][1]

    def ridge(self, compute: float) -> float:
        return compute / self.dram


def roofs(ceilings: Ceilings) -> Roofs:
    compute = [("FP32", ceilings.fp32 / TERA)]
    if ceilings.tensor is not None:
        compute.append(("Tensor, dense FP16", ceilings.tensor / TERA))
    compute.sort(key=lambda item: -item[1])
    return Roofs(ceilings.dram / TERA, tuple(compute))


def frame(roof: Roofs, points: list[Point]) -> Frame:
    ridges = [roof.ridge(value) for _, value in roof.compute]
    xs = ridges + [p.intensity for p in points]
    ys = [min(value for _, value in roof.compute) / 4]
    ys += [p.flops_per_second / TERA for p in points]
    return Frame(min(xs) / 6, max(xs) * 5, min(ys) / 3, max(roof.top, *ys) * 2.6)


def draw(ablation: Ablation, dark: bool) -> Figure:
    from matplotlib.figure import Figure

    colours = palette(dark)
    figure = Figure(figsize=(WIDTH, HEIGHT))
    axes = figure.add_axes((LEFT, BOTTOM, RIGHT - LEFT, TOP - BOTTOM))
    where = f"{ablation.study}, {ablation.shape}, {ablation.gpu}"
    figure.text(LEFT, 0.955, "Roofline: how close is each variant to what the hardware allows?",
                color=colours.ink, fontsize=FONT_SIZE + 2.5, fontweight="bold")  # fmt: skip
    figure.text(LEFT, 0.919, f"{where}; from the ncu captures", color=colours.muted)
    _notes(figure, ablation, colours)
    if ablation.ceilings is None:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "ceilings not collected", color=colours.muted, ha="center",
                  transform=axes.transAxes, fontsize=FONT_SIZE + 2)  # fmt: skip
        return figure
    shown = [row for row in ablation.everything if row.point]
    roof = roofs(ablation.ceilings)
    view = frame(roof, [row.point for row in shown if row.point])
    _axes(axes, view, colours)
    taken, lines = _roofs(axes, view, roof, colours)
    lines += _path(axes, view, ablation, colours)
    _points(axes, view, shown, taken, lines, colours)
    _legend(figure, shown, colours)
    return figure


def _axes(axes: Axes, view: Frame, colours: Palette) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter

    axes.set(xscale="log", yscale="log", xlim=(view.x0, view.x1), ylim=(view.y0, view.y1))
    axes.patch.set_visible(False)
    for axis, low, high in ((axes.xaxis, view.x0, view.x1), (axes.yaxis, view.y0, view.y1)):
        decades = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
        axis.set_major_locator(FixedLocator([10.0**d for d in decades]))
        axis.set_major_formatter(FixedFormatter([f"{10.0**d:g}" for d in decades]))
        axis.set_minor_formatter(NullFormatter())
        axis.label.set_color(colours.ink)
    axes.set_xlabel("Arithmetic intensity (FLOP per DRAM byte)")
    axes.set_ylabel("Performance (TFLOP/s)")
    axes.grid(True, which="major", color=colours.faint, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=colours.muted)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(colours.muted)


def _roofs(
    axes: Axes, view: Frame, roof: Roofs, colours: Palette
) -> tuple[list[Box], list[Segment]]:
    """Draw ceilings, ridges and regions; give what labels must keep clear of."""
    taken: list[Box] = []
    lines: list[Segment] = []
    low, high = min(v for _, v in roof.compute), roof.top
    _regions(axes, view, roof, colours)
    slope_from = max(view.x0, view.y0 / roof.dram)
    ends = [(slope_from, slope_from * roof.dram), (roof.ridge(high), high)]
    axes.plot(*zip(*ends, strict=True), color=colours.ink, linewidth=1.5)
    lines.append((view.page(*ends[0]), view.page(*ends[1])))
    for name, value in roof.compute:
        ridge = roof.ridge(value)
        axes.plot([ridge, view.x1], [value, value], color=colours.ink, linewidth=1.5)
        lines.append((view.page(ridge, value), view.page(view.x1, value)))
        axes.plot([ridge, ridge], [view.y0, value], color=colours.muted, linewidth=0.8,
                  linestyle=(0, (2, 3)))  # fmt: skip
        right, above = view.page(view.x1, value)
        text = f"{name}: {number(value)} TFLOP/s"
        _say(axes, text, (right - 4, above + 4), "right", colours.ink, taken)
        x, y = view.page(ridge, value)
        note = f"ridge {number(ridge)} FLOP/B"
        _say(axes, note, (x + 6, y - LINE + 1), "left", colours.muted, taken, SMALL)
    middle = math.sqrt(slope_from * roof.ridge(low))
    (ax, ay), (bx, by) = lines[0]
    angle = math.degrees(math.atan2(by - ay, bx - ax))
    x, y = view.page(middle, middle * roof.dram)
    axes.annotate(f"DRAM: {number(roof.dram)} TB/s", (x, y), xycoords="figure points",
                  xytext=(-5 * math.sin(math.radians(angle)), 5 * math.cos(math.radians(angle))),
                  textcoords="offset points", rotation=angle, rotation_mode="anchor",
                  ha="center", va="bottom", color=colours.ink)  # fmt: skip
    return taken, lines


def _say(
    axes: Axes, text: str, at: tuple[float, float], side: str, colour: str,
    taken: list[Box], size: float = FONT_SIZE,
) -> None:  # fmt: skip
    """Text with its lower corner at a place on the page, which is then taken."""
    axes.annotate(text, at, xycoords="figure points", ha=side, va="bottom", color=colour,
                  fontsize=size)  # fmt: skip
    width = text_width(text, size)
    left = at[0] - width if side == "right" else at[0]
    taken.append(Box(left, at[1], left + width, at[1] + 1.3 * size))


def _regions(axes: Axes, view: Frame, roof: Roofs, colours: Palette) -> None:
    """Left of a ceiling's ridge memory is the limit, right of it that ceiling is."""
    low, high = min(v for _, v in roof.compute), roof.top
    first, last = roof.ridge(low), roof.ridge(high)
    bands = [(view.x0, first, "memory-bound", colours.memory, 0.13)]
    if first < last:
        text = "memory-bound on tensor cores,\ncompute-bound on FP32"
        bands.append((first, last, text, colours.memory, 0.06))
    bands.append((last, view.x1, "compute-bound", colours.compute, 0.09))
    for x0, x1, text, colour, alpha in bands:
        tops = [min(roof.dram * x, high) for x in (x0, x1)]
        axes.fill_between([x0, x1], view.y0, tops, color=colour, alpha=alpha, linewidth=0)
        x, y = view.page(math.sqrt(x0 * x1), view.y0)
        axes.annotate(text, (x, y + 5), xycoords="figure points", ha="center", va="bottom",
                      color=colours.muted, fontsize=SMALL, fontstyle="italic")  # fmt: skip


def _at(point: Point) -> tuple[float, float]:
    return point.intensity, point.flops_per_second / TERA


def _path(axes: Axes, view: Frame, ablation: Ablation, colours: Palette) -> list[Segment]:
    """An arrow from each parent to its child, dashed where the child was not kept."""
    points = {row.variant: row.point for row in ablation.rows if row.point}
    lines: list[Segment] = []
    for row in ablation.rows:
        parent = points.get(row.step.parent or "") if row.step else None
        if row.point is None or parent is None:
            continue
        kept = row.verdict == KEPT
        axes.annotate("", _at(row.point), xytext=_at(parent), zorder=3, arrowprops={
            "arrowstyle": "-|>", "color": colours.step if kept else colours.rejected,
            "linewidth": 1.4 if kept else 1.1, "linestyle": "-" if kept else (0, (4, 3)),
            "shrinkA": 5, "shrinkB": 5, "mutation_scale": 10})  # fmt: skip
        lines.append((view.page(*_at(parent)), view.page(*_at(row.point))))
    return lines


@dataclass(frozen=True)
class Look:
    """How a kind of point is drawn, and its word in the legend."""

    word: str
    marker: str
    edge: str
    filled: bool


def _look(row: Row, colours: Palette) -> Look:
    if row.is_reference:
        return Look("reference", "D", colours.reference, True)
    if row.verdict in (KEPT, BASELINE):
        return Look("step, kept", "o", colours.step, True)
    if row.verdict == REJECTED:
        return Look("step, rejected", "o", colours.rejected, False)
    return Look("step, inconclusive", "s", colours.rejected, False)


def _label(row: Row) -> str:
    word = f" ({row.verdict})" if row.verdict in (REJECTED, INCONCLUSIVE) else ""
    wrong = " above its roof: error in the data" if row.point and row.point.above_roof else ""
    return f"{row.variant}{word}{wrong}"


def _points(
    axes: Axes, view: Frame, shown: list[Row], taken: list[Box], lines: list[Segment],
    colours: Palette,
) -> None:  # fmt: skip
    ordered = sorted(
        shown, key=lambda row: (row.is_reference, -_at(row.point)[1] if row.point else 0)
    )
    anchors = []
    for row in ordered:
        assert row.point is not None
        look = _look(row, colours)
        axes.plot(*_at(row.point), marker=look.marker, markersize=7 if look.marker == "o" else 6,
                  markerfacecolor=look.edge if look.filled else colours.paper,
                  markeredgecolor=look.edge, markeredgewidth=1.6, zorder=4)  # fmt: skip
        if row.point.above_roof:
            axes.plot(*_at(row.point), marker="x", markersize=15, markeredgewidth=2.2,
                      color=colours.rejected, zorder=5)  # fmt: skip
        anchors.append(Anchor(view.page(*_at(row.point)), text_width(_label(row)), LINE))
    for row, spot in zip(ordered, place(anchors, taken, lines, view.bounds), strict=True):
        if spot.leader:
            (x, y), end = spot.leader
            axes.annotate("", end, xytext=(x, y), xycoords="figure points", textcoords="figure points",
                          arrowprops={"arrowstyle": "-", "color": colours.muted, "linewidth": 0.7,
                                      "shrinkA": 4, "shrinkB": 0})  # fmt: skip
        colour = colours.muted if row.is_reference else colours.ink
        axes.annotate(_label(row), spot.centre, xycoords="figure points", ha="center", va="center",
                      color=colour, zorder=6,
                      fontweight="normal" if row.is_reference else "bold")  # fmt: skip


def _legend(figure: Figure, shown: list[Row], colours: Palette) -> None:
    from matplotlib.lines import Line2D

    looks = dict.fromkeys(_look(row, colours) for row in shown)
    handles = [
        Line2D([], [], linestyle="", marker=look.marker, markersize=6.5, markeredgewidth=1.6,
               markerfacecolor=look.edge if look.filled else colours.paper,
               markeredgecolor=look.edge, label=look.word)
        for look in looks
    ]  # fmt: skip
    if not handles:
        return
    handles.append(Line2D([], [], color=colours.step, linewidth=1.4, label="parent to child"))
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(LEFT - 0.01, 0.045),
                  ncols=len(handles), frameon=False, labelcolor=colours.ink, handletextpad=0.4,
                  columnspacing=1.6, borderpad=0)  # fmt: skip


def _notes(figure: Figure, ablation: Ablation, colours: Palette) -> None:
    absent = [
        f"{row.variant} ({reason(row)})" for row in ablation.everything if not row.point
    ]
    if absent:
        text = textwrap.shorten("not collected: " + ", ".join(absent), 130, placeholder=" ...")
        figure.text(LEFT, 0.015, text, color=colours.muted, fontsize=SMALL)
