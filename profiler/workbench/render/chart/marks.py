"""How a variant is marked on every chart, and the marks of a roofline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from workbench.derive.roofline.point import ERROR_MARGIN, LevelPoint, Point
from workbench.judge.rows import Ablation, Row
from workbench.render.chart.key import Entry
from workbench.render.chart.placing import NEAR, block, clusters
from workbench.render.chart.roofs import TERA, Roofs
from workbench.render.chart.scene import (
    XY,
    Box,
    Group,
    Item,
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


def marks_at(ablation: Ablation, level: str, roofs: Roofs) -> list[Mark]:
    """In ladder order; none for a variant that moved nothing through the level, or did nothing else
    than that.
    """
    return [
        Mark(row, row.point, at, roofs.share(row.point, at))
        for row in ablation.everything
        if row.point and row.point.flops
        for at in row.point.levels
        if at.level == level and math.isfinite(at.intensity)
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
