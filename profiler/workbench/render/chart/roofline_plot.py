"""The roofline over the level that inputs come from: roofs, a mark a version, and the names of the
references and of the steps to the best version.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from workbench.derive.roofline.ceilings import TENSOR
from workbench.derive.roofline.point import Point
from workbench.judge.rows import Ablation, Row
from workbench.render.chart.frame import (
    EDGE,
    SIGNS,
    WIDTH,
    Drawn,
    LegendEntry,
    axes,
    framed,
    key,
    kind_of,
    name_label,
    where,
)
from workbench.render.chart.scene import (
    XY,
    Anchor,
    Box,
    Item,
    Label,
    Plot,
    Polyline,
    Scene,
    Segment,
    Sign,
    Stroke,
    VariantItems,
    block,
    plot,
    spread,
    text_width,
)
from workbench.render.document.blocks import Marking
from workbench.render.numbers import number, percent

LEFT, HEIGHT = 46.0, 400.0
NAMES = 260.0  # the most that names take beside the plot
TOP, FOOT, APART = 26.0, 40.0, 20.0
SIZE, SMALL = 12.0, 11.0
NAMED = 12  # marks at most
ROW = 16.0  # between names
ACROSS = 90.0  # pixels between ticks, about
ROOF, MEASURED = Stroke("ink", 1.6), Stroke("ink", 0.9, (6, 3))
DROP, LEADER = Stroke("muted", 0.8, (2, 3)), Stroke("muted", 0.6)
PATH = Stroke("step", 1.5)
ALT = "Roofline over {level}: the work that the problem needs, over the time and the bytes moved."
CAPTION = (
    "Height is the FLOP that the problem needs over the time under ncu: it ranks the kernels. Work "
    "that a kernel does twice, or for nothing, does not count. The slope is what {level} can feed; "
    "the flat lines are what each kind of arithmetic can compute, at the clocks of one capture. A "
    "percentage is of the roof over the point."
)
NO_ARITHMETIC = "no floating-point arithmetic: the tables have the shares of bandwidth"
TERA = 1e12
WORDS = {
    Marking.KEPT: "step, kept",
    Marking.REJECTED: "step, rejected",
    Marking.INCONCLUSIVE: "step, inconclusive",
    Marking.REFERENCE: "reference",
}


@dataclass(frozen=True)
class Mark:
    """A variant at one level of memory: the FLOP that the problem needs per byte moved there, and
    per second (in TFLOP/s), with its share of the roof drawn over it.
    """

    row: Row
    at: XY
    level: str
    share: float | None

    @property
    def kind(self) -> Marking:
        return kind_of(self.row)

    @property
    def text(self) -> str:
        """Its name and its share."""
        return f"{self.row.variant} {percent(self.share)}" if self.share else self.row.variant

    @property
    def words(self) -> str:
        """For who does not see the picture."""
        share = f", {percent(self.share)} of the roof over it" if self.share else ""
        x, y = self.at
        return (
            f"{self.row.variant}: {number(y)} TFLOP/s at {number(x)} FLOP per "
            f"{self.level.upper()} byte{share}"
        )


def marks_at(ablation: Ablation, roofs: Roofs) -> list[Mark]:
    """In ladder order; without variants that moved nothing there."""
    flops = ablation.work.flops if ablation.work else 0.0
    marks: list[Mark] = []
    for row in ablation.everything:
        point, duration = row.roofline, row.figures.get("duration")
        if not point or not duration or not flops:
            continue
        for level in point.levels:
            moved = level.bytes_per_second * duration.value * 1e-6
            if level.name == roofs.memory.key and moved > 0:
                at = (flops / moved, flops / (duration.value * 1e-6) / TERA)
                marks.append(Mark(row, at, level.name, roofs.share(point, at)))
    return marks


ARITHMETIC = {"fp32": "FP32", "half": "Packed FP16", "fp64": "FP64"}


@dataclass(frozen=True)
class Roof:
    """TFLOP/s of a kind of arithmetic, or TB/s of a level of memory; ``measured`` on this GPU."""

    key: str
    name: str
    rate: float
    measured: float | None = None

    @property
    def text(self) -> str:
        """Its rate, with the measured one in brackets."""
        reached = f" ({number(self.measured)})" if self.measured else ""
        return f"{number(self.rate)}{reached}"


@dataclass(frozen=True)
class Roofs:
    """``compute`` from the highest down; ``memory`` is the level that inputs come from."""

    compute: tuple[Roof, ...]
    memory: Roof
    tensor_type: str

    @property
    def measured(self) -> bool:
        return any(roof.measured for roof in (*self.compute, self.memory))

    def ridge(self, roof: Roof) -> float:
        return roof.rate / self.memory.rate

    def share(self, point: Point, at: XY) -> float | None:
        """Of the roof drawn over it: its arithmetic's or the level's; None where none is drawn."""
        if point.arithmetic == TENSOR and point.tensor_type not in ("", self.tensor_type):
            return None
        flat = next((roof.rate for roof in self.compute if roof.key == point.arithmetic), None)
        if flat is None:
            return None
        return at[1] / min(flat, at[0] * self.memory.rate)


def roofs(ablation: Ablation) -> Roofs | None:
    """With packed FP16 and FP64 where some point is bound by them."""
    ceilings, reached = ablation.ceilings, ablation.measured
    if ceilings is None:
        return None

    def measured(key: str) -> float | None:
        value = reached.value(key) if reached else None
        return value / TERA if value else None

    rates = ceilings.rates
    points = [row.roofline for row in ablation.everything if row.roofline]
    bound = {"fp32", *(point.arithmetic for point in points)}
    compute = [
        Roof(key, ARITHMETIC[key], rates[key] / TERA, measured(key))
        for key in ("fp32", "half", "fp64")
        if key in rates and key in bound
    ]
    kind = next((point.tensor_type for point in points if point.tensor_type), "fp16")
    if tensor := rates.get(f"{TENSOR} {kind}"):
        name = f"Tensor, dense {kind.upper()}"
        compute.append(Roof(TENSOR, name, tensor / TERA, measured(f"{TENSOR} {kind}")))
    base = ablation.base
    bandwidth = rates.get(base)
    if not bandwidth:
        return None
    memory = Roof(base, base.upper(), bandwidth / TERA, measured(base))
    ordered = tuple(sorted(compute, key=lambda r: -r.rate))
    return Roofs(ordered, memory, kind)


def roofline(ablation: Ablation) -> Scene:
    known = roofs(ablation)
    shown = (*ablation.table_rows, *ablation.references)
    absent = [row for row in shown if not row.roofline]
    drawn: Drawn | str
    if known is None:
        drawn = "ceilings not collected"
    elif ablation.work is None or ablation.moves_only:
        drawn = NO_ARITHMETIC
    else:
        drawn = _draw(marks_at(ablation, known), known, [row.variant for row in ablation.path])
    return framed(
        drawn,
        absent,
        name="roofline",
        title="Roofline",
        subtitle=f"{where(ablation)}; required work over the time under ncu",
    )


def _named(marks: Sequence[Mark], path: Sequence[str]) -> list[Mark]:
    """The highest first: references, the ends of the path, and what is left of
    it from its last step on.
    """
    first = [mark for mark in marks if mark.kind == Marking.REFERENCE]
    order = [*path[-1:], *path[:1], *path[-2:0:-1]]
    steps = [m for name in order for m in marks if m.row.variant == name and m not in first]
    return sorted([*first, *steps][:NAMED], key=lambda mark: -mark.at[1])


def _draw(marks: Sequence[Mark], drawn: Roofs, path: Sequence[str]) -> tuple[list[Item], float]:
    named = _named(marks, path)
    widest = max((text_width(mark.text, SIZE, bold=True) for mark in named), default=0.0)
    right = WIDTH - EDGE - APART - min(NAMES, widest + 6)
    at = _plot(Box(LEFT, TOP, right, TOP + HEIGHT), marks, drawn)
    ticks = [(tick, f"{tick:g}") for tick in at.x.ticks(max(2, round(at.box.width / ACROSS)))]
    places = {mark.row.variant: at.at(*mark.at) for mark in marks}
    steps = [places[name] for name in path if name in places]
    items: list[Item] = [
        *axes(at, ticks, f"required FLOP per {drawn.memory.name} byte moved", "required TFLOP/s"),
        *_roofs(at, drawn),
        *(Polyline(pair, PATH) for pair in pairwise(steps)),
    ]
    for mark in marks:
        if mark not in named:
            own = _sign(mark, places[mark.row.variant], 0.6)
            items.append(VariantItems((own,), mark.row.variant, "mark"))
    box = at.box
    wanted = [places[mark.row.variant][1] for mark in named]
    heights = spread(wanted, ROW, box.y0 + ROW / 2, box.y1 - ROW / 2)
    for mark, y in zip(named, heights, strict=True):
        items.append(_choice(mark, places[mark.row.variant], y, box))
    legend, bottom = key(
        _entries(marks, drawn, path=len(steps) > 1), EDGE, box.y1 + FOOT + 4, WIDTH
    )
    return [*items, *legend], bottom


def _plot(box: Box, marks: Sequence[Mark], drawn: Roofs) -> Plot:
    xs = [drawn.ridge(roof) for roof in drawn.compute] + [mark.at[0] for mark in marks]
    ys = [*(roof.rate for roof in drawn.compute), *(mark.at[1] for mark in marks)]
    return plot(box, (min(xs) / 3, max(xs) * 3), (min(ys) / 2, max(ys) * 1.6))


def _sign(mark: Mark, at: XY, size: float = 1.0) -> Sign:
    look = SIGNS[mark.kind]
    return replace(look, at=at, size=size * look.size)


def _choice(mark: Mark, at: XY, y: float, box: Box) -> VariantItems:
    """The mark, and its name right of the plot with a line to it."""
    left = box.x1 + APART
    line = Polyline((at, (box.x1, y), (left - 3, y)), LEADER)
    own = mark.kind != Marking.REFERENCE
    room = WIDTH - EDGE - left
    name = name_label(mark.text, (left, y + 0.35 * SIZE), room, SIZE, own=own)
    areas = (block(at), Box(left - 3, y - ROW / 2, WIDTH - 2, y + ROW / 2))
    items = (line, name, _sign(mark, at))
    return VariantItems(items, mark.row.variant, mark.kind, areas, words=mark.words)


def _entries(marks: Sequence[Mark], drawn: Roofs, *, path: bool) -> list[LegendEntry]:
    kinds = {mark.kind for mark in marks}
    signs = [LegendEntry(word, SIGNS[kind]) for kind, word in WORDS.items() if kind in kinds]
    if path:
        signs.append(LegendEntry("the steps to the best version", PATH))
    if drawn.measured:
        signs.append(LegendEntry("measured on this GPU (in brackets)", MEASURED))
    return signs


def _roofs(plot: Plot, roofs: Roofs) -> list[Item]:
    """Every roof with its name, the ridges down to the axis, and what was measured, dashed."""
    box, rise = plot.box, roofs.memory.rate
    items: list[Item] = []
    for line in _slope(plot, rise, roofs.compute[0].rate):
        items += [Polyline(line, ROOF), _slope_name(line, roofs.memory)]
    for roof in roofs.compute:
        items += [Polyline(line, ROOF) for line in _flat(plot, roof.rate, rise)]
        x, y = plot.at(roofs.ridge(roof), roof.rate)
        items.append(Polyline(((x, y), (x, box.y1)), DROP))
        text = f"{roof.name} {roof.text} TFLOP/s, ridge {number(roofs.ridge(roof))}"
        at, anchor = (x + 8, y - 5), Anchor.START
        if roof == roofs.compute[0]:
            at, anchor = (box.x1 - 4, y - 5), Anchor.END
        items.append(Label(at, text, SMALL, anchor=anchor, halo=True))
    return [*items, *(Polyline(line, MEASURED) for line in measured_lines(plot, roofs))]


def _slope(plot: Plot, rate: float, top: float) -> list[Segment]:
    start, end = max(plot.x.low, plot.y.low / rate), min(top, plot.y.high) / rate
    return [(plot.at(start, start * rate), plot.at(end, end * rate))] if start < end else []


def _flat(plot: Plot, rate: float, rise: float) -> list[Segment]:
    start, end = max(plot.x.low, rate / rise), plot.x.high
    seen = start < end and plot.y.low <= rate <= plot.y.high
    return [(plot.at(start, rate), plot.at(end, rate))] if seen else []


def _slope_name(slope: Segment, roof: Roof) -> Label:
    """Over the middle of the slope, along it."""
    (ax, ay), (bx, by) = slope
    angle = math.atan2(by - ay, bx - ax)
    at = ((ax + bx) / 2 + 6 * math.sin(angle), (ay + by) / 2 - 6 * math.cos(angle))
    text, turn = f"{roof.name} {roof.text} TB/s", round(math.degrees(angle), 1)
    return Label(at, text, SMALL, anchor=Anchor.MIDDLE, turn=turn, halo=True)


def measured_lines(plot: Plot, roofs: Roofs) -> list[Segment]:
    """The measured slope ends at the highest flat line that there is."""
    rise = roofs.memory
    rate = rise.measured or rise.rate
    flat = [roof.measured for roof in roofs.compute if roof.measured]
    lines = [line for each in flat for line in _flat(plot, each, rate)]
    if rise.measured:
        lines += _slope(plot, rate, max(roof.measured or roof.rate for roof in roofs.compute))
    return lines
