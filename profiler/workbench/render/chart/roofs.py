"""The roofs that a roofline draws, and what share of the one over it a point reaches.

They are those of one capture, so that there is one of each. A point of another capture has its own,
at its own clock, in the tables; a share on a chart is of what the chart shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workbench.derive.roofline.ceilings import DRAM, LEVELS, TENSOR
from workbench.derive.roofline.point import LevelPoint, Point
from workbench.judge.rows import Ablation
from workbench.render.numbers import number

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
    """``compute`` from the highest down; ``memory`` by level, without those not collected. ``base``
    is the level that inputs come from.
    """

    compute: tuple[Roof, ...]
    memory: Mapping[str, Roof]
    tensor_type: str
    base: str = DRAM

    @property
    def measured(self) -> bool:
        return any(roof.measured for roof in (*self.compute, *self.memory.values()))

    def ridge(self, level: str, roof: Roof) -> float:
        return roof.rate / self.memory[level].rate

    def share(self, point: Point, at: LevelPoint) -> float | None:
        """Of the roof drawn over it: its arithmetic's or the level's; None where none is drawn."""
        if point.ceiling == TENSOR and point.tensor_type not in ("", self.tensor_type):
            return None
        flat = next((roof.rate for roof in self.compute if roof.key == point.ceiling), None)
        if flat is None or at.level not in self.memory:
            return None
        over = min(flat, at.intensity * self.memory[at.level].rate)
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
    memory = {
        level: Roof(level, level.upper(), bandwidth / TERA, measured(level))
        for level in LEVELS
        if (bandwidth := ceilings.bandwidth(level))
    }
    if ablation.base not in memory:
        return None
    ordered = tuple(sorted(compute, key=lambda r: -r.rate))
    return Roofs(ordered, memory, ceilings.tensor_type, ablation.base)
