"""What every chart stands in: title, subtitle, key, rows with names, and who is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from workbench.derive.roofline.ceilings import TENSOR
from workbench.derive.roofline.point import Point
from workbench.judge.rows import Ablation, Row
from workbench.render.chart.scene import (
    XY,
    Anchor,
    Bar,
    Box,
    Item,
    Label,
    Marker,
    Plot,
    Polyline,
    Scene,
    Sign,
    Stroke,
    fitted,
    text_width,
    wrapped,
)
from workbench.render.document.blocks import Marking
from workbench.render.document.phrases import kind, reason
from workbench.render.numbers import number, percent
from workbench.words import ABSENT

Drawn = tuple[list[Item], float]  # and where it ends


WIDTH = 920.0  # of every chart


def framed(
    drawn: Drawn | str, absent: Sequence[Row] = (), *, name: str, title: str, subtitle: str
) -> Scene:
    """What is ``drawn``, or in its place the words that say why nothing is; ``absent`` are named at
    the foot.
    """
    items, bottom = empty(drawn) if isinstance(drawn, str) else drawn
    foot, height = not_drawn(absent, bottom)
    return Scene(
        name=name, width=WIDTH, height=height, title=title, subtitle=subtitle, items=(*items, *foot)
    )


KEY_SIZE = 12.0
KEY_LINE = 20.0
GAP = 18.0
ROOM = 22.0  # of a sign


@dataclass(frozen=True)
class LegendEntry:
    """A sign (moved to its place), a fill or a stroke, and its word."""

    word: str
    look: Sign | str | Stroke


def key(
    entries: Sequence[LegendEntry], left: float, top: float, right: float
) -> tuple[list[Item], float]:
    """The items, and where the last line ends."""
    items: list[Item] = []
    x, y = left, top + KEY_LINE / 2
    for entry in entries:
        needs = ROOM + text_width(entry.word, KEY_SIZE)
        if x > left and x + needs > right:
            x, y = left, y + KEY_LINE
        items.append(_sign(entry.look, x, y))
        items.append(Label((x + ROOM, y + 0.35 * KEY_SIZE), entry.word, KEY_SIZE))
        x += needs + GAP
    return items, y + KEY_LINE / 2


def _sign(look: Sign | str | Stroke, x: float, y: float) -> Item:
    if isinstance(look, Sign):
        return replace(look, at=(x + 8, y))
    if isinstance(look, Stroke):
        return Polyline(((x, y), (x + 16, y)), look)
    return Bar(Box(x + 2, y - 6, x + 14, y + 6), look)


SMALL, NOTE, EDGE = 11.0, 15.0, 8.0
EMPTY = 120.0
NO_ARITHMETIC = "no floating-point arithmetic: the tables have the shares of bandwidth"


def where(ablation: Ablation) -> str:
    return f"{ablation.study}, {ablation.shape}, {ablation.gpu}"


def empty(words: str) -> tuple[list[Item], float]:
    """In place of a chart: what was not collected."""
    return [Label((WIDTH / 2, EMPTY / 2), words, 14, "muted", Anchor.MIDDLE)], EMPTY


def not_drawn(rows: Sequence[Row], top: float) -> tuple[list[Item], float]:
    """At the foot, the variants that are missing and why; and where the picture ends."""
    if not rows:
        return [], top + 6
    text = f"{ABSENT}: " + ", ".join(f"{row.variant} ({reason(row)})" for row in rows)
    lines = wrapped(text, WIDTH - 2 * EDGE, SMALL)
    items: list[Item] = [
        Label((EDGE, top + NOTE * (n + 1)), line, SMALL, "muted") for n, line in enumerate(lines)
    ]
    return items, top + NOTE * len(lines) + 8


BEFORE = 8.0  # between a name and its row


def row_left(names: Sequence[str], most: float, size: float) -> float:
    """Where rows begin that have their names before them; names take at most ``most``."""
    return EDGE + min(max(text_width(name, size, bold=True) for name in names), most) + BEFORE


def name_label(text: str, at: XY, room: float, size: float, *, own: bool = True) -> Label:
    """Of a step (``own``) or of what is only beside it."""
    text = fitted(text, room, size, bold=own)
    return Label(at, text, size, "ink" if own else "muted", bold=own)


TICK, UP = 11.0, 60.0  # the size of words at ticks; pixels between ticks, about
GRID, AXIS = Stroke("faint", 0.8), Stroke("muted", 0.8)


def axes(plot: Plot, ticks: Sequence[tuple[float, str]], x_title: str, y_title: str) -> list[Item]:
    """Grid, ticks with their words (those of x are given), and titles under and over the axes."""
    box = plot.box
    items: list[Item] = []
    for tick, word in ticks:
        x = plot.x.at(tick)
        items.append(Polyline(((x, box.y0), (x, box.y1)), GRID))
        if word:
            items.append(Label((x, box.y1 + 16), word, TICK, "muted", Anchor.MIDDLE))
    for tick in plot.y.ticks(max(2, round(box.height / UP))):
        y = plot.y.at(tick)
        items.append(Polyline(((box.x0, y), (box.x1, y)), GRID))
        items.append(Label((box.x0 - 6, y + 4), f"{tick:g}", TICK, "muted", Anchor.END))
    items.append(Polyline(((box.x0, box.y0), (box.x0, box.y1), (box.x1, box.y1)), AXIS))
    items.append(Label((box.middle[0], box.y1 + 34), x_title, TICK, "muted", Anchor.MIDDLE))
    items.append(Label((box.x0 - 6, box.y0 - 10), y_title, TICK, "muted"))
    return items


TERA = 1e12
NOWHERE = (0.0, 0.0)
SIGNS = {
    Marking.KEPT: Sign(NOWHERE, Marker.CIRCLE, "step"),
    Marking.REJECTED: Sign(NOWHERE, Marker.CIRCLE, "rejected", filled=False),
    Marking.INCONCLUSIVE: Sign(NOWHERE, Marker.SQUARE, "rejected", filled=False, size=11),
    Marking.REFERENCE: Sign(NOWHERE, Marker.DIAMOND, "reference", size=14),
}
WORDS = {
    Marking.KEPT: "step, kept",
    Marking.REJECTED: "step, rejected",
    Marking.INCONCLUSIVE: "step, inconclusive",
    Marking.REFERENCE: "reference",
}


def kind_of(row: Row) -> Marking:
    """As in a table, with the baseline among the kept, and what is not judged among the open."""
    as_drawn = {Marking.BASELINE: Marking.KEPT, Marking.PLAIN: Marking.INCONCLUSIVE}
    return as_drawn.get(kind(row), kind(row))


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
        duration = row.figures.get("duration")
        for level in row.roofline.levels if row.roofline and duration else ():
            assert row.roofline is not None
            assert duration is not None
            moved = level.bytes_per_second * duration.value * 1e-6
            if level.name != roofs.memory.key or not moved > 0 or not flops:
                continue
            at = (flops / moved, flops / (duration.value * 1e-6) / TERA)
            marks.append(Mark(row, at, level.name, roofs.share(row.roofline, at)))
    return marks


NAMES = {"fp32": "FP32", "half": "Packed FP16", "fp64": "FP64"}


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
        Roof(key, NAMES[key], rates[key] / TERA, measured(key))
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
