"""How a variant is marked and named on a roofline, and the roofs that it draws.

Roofs are those of one capture, so that there is one of each. A point of another capture has its
own, at its own clock, in the tables; a share on a chart is of what the chart shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from workbench.derive.roofline.ceilings import TENSOR
from workbench.derive.roofline.point import ERROR_MARGIN, LevelPoint, Point
from workbench.judge.rows import Ablation, Row
from workbench.render.chart.frame import Entry
from workbench.render.chart.placing import LINE, NEAR, Space, block, clusters, fitted, spread
from workbench.render.chart.scene import (
    XY,
    Anchor,
    Box,
    Group,
    Item,
    Label,
    Line,
    Polygon,
    Shape,
    Sign,
    Stroke,
)
from workbench.render.document.blocks import Kind
from workbench.render.numbers import number, percent
from workbench.words import Verdict

NOWHERE = (0.0, 0.0)
SIGNS = {
    Kind.KEPT: Sign(NOWHERE, Shape.CIRCLE, "step"),
    Kind.REJECTED: Sign(NOWHERE, Shape.CIRCLE, "rejected", filled=False),
    Kind.INCONCLUSIVE: Sign(NOWHERE, Shape.SQUARE, "rejected", filled=False, size=11),
    Kind.REFERENCE: Sign(NOWHERE, Shape.DIAMOND, "reference", size=14),
}
WORDS = {
    Kind.KEPT: "step, kept",
    Kind.REJECTED: "step, rejected",
    Kind.INCONCLUSIVE: "step, inconclusive",
    Kind.REFERENCE: "reference",
}
TO_CHILD = Sign(NOWHERE, Shape.RIGHT, "step", size=8)
WRONG = Sign(NOWHERE, Shape.CROSS, "rejected", size=16)
MEASURED = Stroke("ink", 0.9, (6, 3))
KEPT_PATH, OTHER_PATH = Stroke("step", 1.5), Stroke("rejected", 1.2, (4, 3))
HEAD, GAP = 8.0, 8.0  # of an arrow: its head, and what it keeps from the marks
SHORTEST = 6.0


def kind_of(row: Row) -> Kind:
    """Its verdict, with the baseline among the kept."""
    if row.is_reference:
        return Kind.REFERENCE
    if row.verdict in (Verdict.KEPT, Verdict.BASELINE):
        return Kind.KEPT
    return Kind.REJECTED if row.verdict == Verdict.REJECTED else Kind.INCONCLUSIVE


@dataclass(frozen=True)
class Mark:
    """A variant at one level of memory: FLOP/byte, TFLOP/s, and its share of the roof drawn."""

    row: Row
    point: Point
    level: LevelPoint
    share: float | None

    @property
    def at(self) -> XY:
        return self.level.intensity, self.point.flops_per_second / TERA

    @property
    def kind(self) -> Kind:
        return kind_of(self.row)

    @property
    def wrong(self) -> bool:
        return self.level.above_roof or self.point.compute_share > ERROR_MARGIN

    @property
    def text(self) -> str:
        """Its name and what must be seen with it."""
        if self.wrong:
            return f"{self.row.variant} (error in the data)"
        return f"{self.row.variant} {percent(self.share)}" if self.share else self.row.variant

    @property
    def words(self) -> str:
        """For who does not see the picture."""
        share = f", {percent(self.share)} of the roof over it" if self.share else ""
        wrong = "; above its roof, an error in the data" if self.wrong else ""
        x, y = self.at
        return (
            f"{self.row.variant}: {number(y)} TFLOP/s at {number(x)} FLOP per "
            f"{self.level.level.upper()} byte{share}{wrong}"
        )


def marks_at(ablation: Ablation, roofs: Roofs) -> list[Mark]:
    """In ladder order; none for a variant that moved nothing through the level, or did nothing else
    than that.
    """
    return [
        Mark(row, row.point, at, roofs.share(row.point, at))
        for row in ablation.everything
        if row.point and row.point.flops
        for at in row.point.levels
        if at.level == roofs.memory.key and math.isfinite(at.intensity)
    ]


def sign(mark: Mark, at: XY, size: float = 1.0) -> list[Item]:
    looks = [SIGNS[mark.kind], *([WRONG] if mark.wrong else [])]
    return [replace(look, at=at, size=size * look.size) for look in looks]


def choices(marks: Sequence[Mark], places: Sequence[XY]) -> list[Group]:
    """Every mark as something to choose; those that cover each other as one."""
    return [
        _choice([marks[i] for i in members], [places[i] for i in members])
        for members in clusters(places, NEAR)
    ]


def _choice(marks: Sequence[Mark], places: Sequence[XY]) -> Group:
    items = tuple(item for mark, at in zip(marks, places, strict=True) for item in sign(mark, at))
    areas = tuple(block(at, NEAR) for at in places)
    names = tuple(mark.row.variant for mark in marks)
    if len(marks) == 1:
        return Group(items, names, marks[0].kind, areas, NEAR, marks[0].words)
    words = (
        f"{len(marks)} versions that cover each other: {', '.join(m.row.variant for m in marks)}"
    )
    return Group(items, names, "cluster", areas, NEAR, words)


def arrows(marks: Sequence[Mark], places: Sequence[XY], box: Box) -> list[Group]:
    """From each parent to its child, dashed where the child was not kept; only in the box."""
    at = {mark.row.variant: place for mark, place in zip(marks, places, strict=True)}
    paths = []
    for mark in marks:
        parent = at.get(mark.row.step.parent or "") if mark.row.step else None
        if parent is not None:
            items = arrow(parent, at[mark.row.variant], mark.kind == Kind.KEPT, box)
            if items:
                paths.append(Group(items, (mark.row.variant,), "path"))
    return paths


def arrow(start: XY, end: XY, kept: bool, box: Box) -> tuple[Item, ...]:
    """Ends short of both marks; nothing where they nearly cover each other."""
    length = math.dist(start, end)
    if length < 2 * GAP + SHORTEST:
        return ()
    ux, uy = (end[0] - start[0]) / length, (end[1] - start[1]) / length
    tip = (end[0] - GAP * ux, end[1] - GAP * uy)
    line = box.clipped(((start[0] + GAP * ux, start[1] + GAP * uy), (tip[0] - ux, tip[1] - uy)))
    if line is None:
        return ()
    stroke = KEPT_PATH if kept else OTHER_PATH
    items: list[Item] = [Line(line, stroke)]
    if box.holds(tip):
        back = (tip[0] - HEAD * ux, tip[1] - HEAD * uy)
        wings = [(back[0] + s * 3.6 * uy, back[1] - s * 3.6 * ux) for s in (1, -1)]
        items.append(Polygon((tip, *wings), stroke.colour))
    return tuple(items)


def entries(marks: Sequence[Mark], *, measured: bool) -> list[Entry]:
    """The key of a roofline."""
    kinds = {mark.kind for mark in marks}
    signs = [Entry(word, SIGNS[kind]) for kind, word in WORDS.items() if kind in kinds]
    if any(mark.row.step and mark.row.step.parent for mark in marks):
        signs.append(Entry("from parent to child", TO_CHILD))
    if any(mark.wrong for mark in marks):
        signs.append(Entry("above its roof: an error in the data", WRONG))
    if measured:
        signs.append(Entry("measured on this card (in brackets)", MEASURED))
    return signs


LEADER = Stroke("muted", 0.6)
APART = 20.0  # of a column from the plot
BASE = 0.35  # of the size, from the middle of a line down to where its letters stand


def label(mark: Mark, at: XY, size: float, text: str = "", anchor: Anchor = Anchor.START) -> Label:
    """Steps stand out from references. ``text`` where it is not all of the mark's words."""
    own = mark.kind != Kind.REFERENCE
    colour = "ink" if own else "muted"
    return Label(at, text or mark.text, size, colour, anchor, bold=own, halo=True)


def beside(marks: Sequence[Mark], places: Sequence[XY], space: Space, size: float) -> list[Item]:
    """Where there is room; names of marks that cover each other stand under one another."""
    items: list[Item] = []
    for members in clusters(places):
        own = [places[i] for i in members]
        spot = space.put(own, [marks[i].text for i in members], size)
        if spot is None:
            continue
        for n, i in enumerate(members):
            at = (spot.at[0], spot.at[1] + n * LINE * size)
            leader = [Line(spot.leader, LEADER)] if spot.leader and n == 0 else []
            text = label(marks[i], at, size, anchor=spot.anchor)
            items.append(Group((*leader, text), (marks[i].row.variant,), "name"))
    return items


def column(
    named: Sequence[tuple[Mark, str, XY]], box: Box, right: float, size: float, row: float
) -> list[Item]:
    """Right of a plot, by the heights of the marks, each with a line to its own.

    ``named`` are marks with their words and places; ``row`` is from line to line.
    """
    order = sorted(named, key=lambda entry: (entry[2][1], entry[2][0]))
    wanted = [place[1] for _, _, place in order]
    left = box.x1 + APART
    items: list[Item] = []
    for (mark, words, place), y in zip(
        order, spread(wanted, row, box.y0 + row / 2, box.y1 - row / 2), strict=True
    ):
        text = fitted(words, right - left, size, bold=True)
        line = Line((place, (box.x1, y), (left - 3, y)), LEADER)
        name = label(mark, (left, y + BASE * size), size, text)
        items.append(Group((line, name), (mark.row.variant,), "name"))
    return items


TERA = 1e12
NAMES = {"fp32": "FP32", "half": "Packed FP16", "fp64": "FP64"}


@dataclass(frozen=True)
class Roof:
    """TFLOP/s of a kind of arithmetic, or TB/s of a level of memory; ``measured`` on this card."""

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

    def share(self, point: Point, at: LevelPoint) -> float | None:
        """Of the roof drawn over it: its arithmetic's or the level's; None where none is drawn."""
        if point.ceiling == TENSOR and point.tensor_type not in ("", self.tensor_type):
            return None
        flat = next((roof.rate for roof in self.compute if roof.key == point.ceiling), None)
        if flat is None:
            return None
        over = min(flat, at.intensity * self.memory.rate)
        return point.flops_per_second / TERA / over


def roofs(ablation: Ablation) -> Roofs | None:
    """With packed FP16 and FP64 where some point is bound by them."""
    ceilings, reached = ablation.ceilings, ablation.measured
    if ceilings is None:
        return None

    def measured(key: str) -> float | None:
        value = reached.value(key) if reached else None
        return value / TERA if value else None

    bound = {row.point.ceiling for row in ablation.everything if row.point}
    known = {"fp32": ceilings.fp32, "half": ceilings.half, "fp64": ceilings.fp64}
    compute = [
        Roof(key, NAMES[key], rate / TERA, measured(key))
        for key, rate in known.items()
        if rate is not None and (key == "fp32" or key in bound)
    ]
    if ceilings.tensor is not None:
        kind = ceilings.tensor_type
        name, rate = f"Tensor, dense {kind.upper()}", ceilings.tensor / TERA
        compute.append(Roof(TENSOR, name, rate, measured(f"{TENSOR} {kind}")))
    base = ablation.base
    bandwidth = ceilings.bandwidth(base)
    if not bandwidth:
        return None
    memory = Roof(base, base.upper(), bandwidth / TERA, measured(base))
    ordered = tuple(sorted(compute, key=lambda r: -r.rate))
    return Roofs(ordered, memory, ceilings.tensor_type)
