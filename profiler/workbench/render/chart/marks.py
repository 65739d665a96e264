"""How a variant is marked on a chart, and the points and roofs of a roofline.

Roofs are those of one capture, so that there is one of each. A point of another capture has its
own, at its own clock, in the tables; a share on a chart is of what the chart shows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from workbench.derive.roofline.ceilings import TENSOR
from workbench.derive.roofline.point import ERROR_MARGIN, LevelPoint, Point
from workbench.judge.rows import Ablation, Row
from workbench.render.chart.scene import XY, Marker, Sign
from workbench.render.document.blocks import Marking
from workbench.render.numbers import number, percent
from workbench.words import Verdict

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
WRONG = Sign(NOWHERE, Marker.CROSS, "rejected", size=16)


def kind_of(row: Row) -> Marking:
    """Its verdict, with the baseline among the kept."""
    if row.is_reference:
        return Marking.REFERENCE
    if row.verdict in (Verdict.KEPT, Verdict.BASELINE):
        return Marking.KEPT
    return Marking.REJECTED if row.verdict == Verdict.REJECTED else Marking.INCONCLUSIVE


@dataclass(frozen=True)
class Mark:
    """A variant at one level of memory: FLOP/byte, TFLOP/s, and its share of the roof drawn."""

    row: Row
    point: Point
    level: LevelPoint
    share: float | None

    @property
    def at(self) -> XY:
        return self.level.flop_per_byte, self.point.flops_per_second / TERA

    @property
    def kind(self) -> Marking:
        return kind_of(self.row)

    @property
    def wrong(self) -> bool:
        return self.level.above_roof or self.point.share_of_arithmetic_peak > ERROR_MARGIN

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
            f"{self.level.name.upper()} byte{share}{wrong}"
        )


def marks_at(ablation: Ablation, roofs: Roofs) -> list[Mark]:
    """In ladder order; without variants that computed nothing or moved nothing there."""
    return [
        Mark(row, row.roofline, at, roofs.share(row.roofline, at))
        for row in ablation.everything
        if row.roofline and row.roofline.flops
        for at in row.roofline.levels
        if at.name == roofs.memory.key and math.isfinite(at.flop_per_byte)
    ]


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
        if point.arithmetic == TENSOR and point.tensor_type not in ("", self.tensor_type):
            return None
        flat = next((roof.rate for roof in self.compute if roof.key == point.arithmetic), None)
        if flat is None:
            return None
        over = min(flat, at.flop_per_byte * self.memory.rate)
        return point.flops_per_second / TERA / over


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
