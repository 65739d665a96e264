"""The ground of the roofline: axes, ceilings with their values, ridges and regions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from workbench.derive.roofline.ceilings import Ceilings
from workbench.render.canvas import FONT_SIZE, LIGHT, POINTS, text_width
from workbench.render.labels import XY, Box, Segment
from workbench.render.tables import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 9.0, 6.5
LEFT, BOTTOM, RIGHT, TOP = 0.085, 0.19, 0.985, 0.907
TERA = 1e12
NOTHING: Mapping[str, Any] = MappingProxyType({})
SMALL = FONT_SIZE - 1.5
MEMORY, COMPUTE = "#56b4e9", "#e69f00"


@dataclass(frozen=True)
class Area:
    """Where axes lie: fractions of a page of so many inches."""

    left: float = LEFT
    bottom: float = BOTTOM
    right: float = RIGHT
    top: float = TOP
    width: float = WIDTH
    height: float = HEIGHT


@dataclass(frozen=True)
class Frame:
    """The limits of the axes (FLOP/byte, TFLOP/s), and where they lie on the page in points."""

    x0: float
    x1: float
    y0: float
    y1: float
    area: Area = Area()

    def page(self, x: float, y: float) -> XY:
        across = math.log(x / self.x0) / math.log(self.x1 / self.x0)
        up = math.log(y / self.y0) / math.log(self.y1 / self.y0)
        area = self.area
        return (
            POINTS * area.width * (area.left + (area.right - area.left) * across),
            POINTS * area.height * (area.bottom + (area.top - area.bottom) * up),
        )

    @property
    def bounds(self) -> Box:
        (x0, y0), (x1, y1) = self.page(self.x0, self.y0), self.page(self.x1, self.y1)
        return Box(x0 + 3, y0 + 3, x1 - 3, y1 - 3)


@dataclass(frozen=True)
class Roofs:
    """A level's bandwidth in TB/s, and the compute ceilings as (label, TFLOP/s), highest first."""

    bandwidth: float
    compute: tuple[tuple[str, float], ...]

    @property
    def high(self) -> float:
        return self.compute[0][1]

    @property
    def low(self) -> float:
        return self.compute[-1][1]

    def ridge(self, compute: float) -> float:
        return compute / self.bandwidth


def roofs(ceilings: Ceilings, *, packed: bool = False) -> Roofs:
    """Over DRAM; ``packed`` adds the ceiling of FP16 pairs, for charts with a point it bounds."""
    compute = [("FP32", ceilings.fp32 / TERA)]
    if packed and ceilings.half is not None:
        compute.append(("Packed FP16", ceilings.half / TERA))
    if ceilings.tensor is not None:
        kind = ceilings.tensor_type.upper()
        compute.append((f"Tensor, dense {kind}", ceilings.tensor / TERA))
    return Roofs(ceilings.dram / TERA, tuple(sorted(compute, key=lambda item: -item[1])))


def frame(roof: Roofs, points: Sequence[XY]) -> Frame:
    """All ridges and points with room for their labels."""
    xs = [roof.ridge(roof.low), roof.ridge(roof.high), *(x for x, _ in points)]
    ys = [roof.low / 4, roof.high, *(y for _, y in points)]
    return Frame(min(xs) / 4.5, max(xs) * 4, min(ys) / 3, max(ys) * 2.2)


def draw_axes(
    axes: Axes,
    view: Frame,
    x_label: str = "Arithmetic intensity (FLOP per DRAM byte)",
    y_label: str = "Performance (TFLOP/s)",
) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    axes.set(xscale="log", yscale="log", xlim=(view.x0, view.x1), ylim=(view.y0, view.y1))
    axes.patch.set_visible(False)
    for axis, low, high in ((axes.xaxis, view.x0, view.x1), (axes.yaxis, view.y0, view.y1)):
        decades = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
        axis.set_major_locator(FixedLocator([10.0**d for d in decades]))
        axis.set_major_formatter(FixedFormatter([f"{10.0**d:g}" for d in decades]))
        axis.set_minor_locator(NullLocator())
        axis.label.set_color(LIGHT.ink)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(True, which="major", color=LIGHT.faint, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=LIGHT.muted)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(LIGHT.muted)
    # One artist an axis: a Tick object for every ninth of a decade would double the drawing time.
    xs, ys = _between(view.x0, view.x1), _between(view.y0, view.y1)
    small: dict[str, Any] = {
        "linestyle": "",
        "color": LIGHT.muted,
        "markersize": 3,
        "markeredgewidth": 0.5,
    }
    axes.plot(xs, [view.y0] * len(xs), marker=3, clip_on=False, **small)
    axes.plot([view.x0] * len(ys), ys, marker=0, clip_on=False, **small)


def _between(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    ticks = (digit * 10.0**decade for decade in decades for digit in range(2, 10))
    return [tick for tick in ticks if low <= tick <= high]


def draw_roofs(
    axes: Axes,
    view: Frame,
    roof: Roofs,
    said: Mapping[str, str] = NOTHING,
    below: Mapping[str, float] = NOTHING,
) -> tuple[list[Box], list[Segment]]:
    """Draw them; give what the points' labels must keep clear of.

    ``said`` has what stands in place of the value of a compute roof, by its name, or of ``DRAM``;
    ``below`` is where another line runs below a compute roof, which its ridge's label keeps out of.
    """
    taken: list[Box] = []
    _regions(axes, view, roof, taken)
    start = max(view.x0, view.y0 / roof.bandwidth)
    low_end, top_end = (start, start * roof.bandwidth), (roof.ridge(roof.high), roof.high)
    axes.plot(*zip(low_end, top_end, strict=True), color=LIGHT.ink, linewidth=1.6)
    (ax, ay), (bx, by) = view.page(*low_end), view.page(*top_end)
    lines = [((ax, ay), (bx, by))]
    for name, value in roof.compute:
        ridge = roof.ridge(value)
        axes.plot([ridge, view.x1], [value, value], color=LIGHT.ink, linewidth=1.6)
        axes.plot(
            [ridge, ridge],
            [view.y0, value],
            color=LIGHT.muted,
            linewidth=0.8,
            linestyle=(0, (2, 3)),
        )
        (x, y), right = view.page(ridge, value), view.page(view.x1, value)[0]
        lines += [((x, y), (right, y)), ((x, y), view.page(ridge, view.y0))]
        text = f"{name}: {said.get(name) or f'{number(value)} TFLOP/s'}"
        # The lower ceiling's label keeps to the left, out of the way of the points over it.
        place, side = (
            ((right - 4, y + 4), "right") if value == roof.high else ((x + 42, y + 4), "left")
        )
        _say(axes, text, place, side, LIGHT.ink, FONT_SIZE, taken)
        text = f"ridge: {number(ridge)} FLOP/B"
        other = view.page(ridge, below.get(name, value))[1]
        under = other if y - other < 1.3 * FONT_SIZE else y
        _say(axes, text, (x + 5, under - 1.3 * FONT_SIZE), "left", LIGHT.muted, SMALL, taken)
    angle = math.atan2(by - ay, bx - ax)
    # What is said more needs more room: it goes to the middle of the whole slope.
    middle = math.sqrt(start * roof.ridge(roof.high if said else roof.low))
    axes.annotate(
        f"DRAM: {said.get('DRAM') or f'{number(roof.bandwidth)} TB/s'}",
        view.page(middle, middle * roof.bandwidth),
        xycoords="figure points",
        textcoords="offset points",
        xytext=(-5 * math.sin(angle), 5 * math.cos(angle)),
        rotation=math.degrees(angle),
        rotation_mode="anchor",
        ha="center",
        va="bottom",
        color=LIGHT.ink,
    )
    return taken, lines


def _say(
    axes: Axes, text: str, at: XY, side: str, colour: str, size: float, taken: list[Box]
) -> None:
    """Text with its lower corner at a place on the page, which is then taken."""
    axes.annotate(
        text, at, xycoords="figure points", ha=side, va="bottom", color=colour, fontsize=size
    )
    width = text_width(text, size)
    left = at[0] - width if side == "right" else at[0]
    taken.append(Box(left, at[1], left + width, at[1] + 1.3 * size))


def _regions(axes: Axes, view: Frame, roof: Roofs, taken: list[Box]) -> None:
    """Left of a ceiling's ridge memory is the limit, right of it that ceiling is."""
    first, last = roof.ridge(roof.low), roof.ridge(roof.high)
    bands = [(view.x0, first, "memory-bound", MEMORY, 0.16)]
    if first < last:
        text = f"compute-bound on {roof.compute[-1][0]},\nmemory-bound on the tensor cores"
        bands.append((first, last, text, MEMORY, 0.07))
    bands.append((last, view.x1, "compute-bound", COMPUTE, 0.1))
    for x0, x1, text, colour, alpha in bands:
        tops = [min(roof.bandwidth * x, roof.high) for x in (x0, x1)]
        axes.fill_between([x0, x1], view.y0, tops, color=colour, alpha=alpha, linewidth=0)
        x, y = view.page(math.sqrt(x0 * x1), view.y0)
        lines = text.split("\n")
        for i, line in enumerate(reversed(lines)):
            axes.annotate(
                line,
                (x, y + 5 + 1.25 * SMALL * i),
                xycoords="figure points",
                ha="center",
                va="bottom",
                color=LIGHT.muted,
                fontsize=SMALL,
                fontstyle="italic",
            )
        half = max(text_width(line, SMALL) for line in lines) / 2
        taken.append(Box(x - half, y, x + half, y + 6 + 1.25 * SMALL * len(lines)))
