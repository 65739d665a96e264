"""Measured ceilings as thin dashed lines under the theoretical ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.judge.rows import Ablation
from workbench.render.canvas import LIGHT, Entry
from workbench.render.ceilings import TERA, Frame, Roofs
from workbench.render.labels import XY, Segment
from workbench.render.tables import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DASHED: dict[str, Any] = {"color": LIGHT.ink, "linewidth": 0.9, "linestyle": (0, (6, 3))}
SIGN = {"marker": "_", "markersize": 9, "markeredgewidth": 1.0, "color": LIGHT.ink}
KEY = Entry("measured ceiling (dashed)", SIGN)


@dataclass(frozen=True)
class MeasuredLines:
    """What one level's chart draws: its bandwidth in TB/s, TFLOP/s by the label of the roof."""

    bandwidth: float | None = None
    compute: Mapping[str, float] = field(default_factory=dict)

    def lines(self, view: Frame, roof: Roofs) -> list[tuple[XY, XY]]:
        """From end to end in the chart's units; a slope ends at the highest flat line there is."""
        rise = self.bandwidth or roof.bandwidth
        found = [
            ((max(value / rise, view.x0), value), (view.x1, value))
            for value in self.compute.values()
        ]
        if self.bandwidth:
            start = max(view.x0, view.y0 / rise)
            top = max(self.compute.get(name, value) for name, value in roof.compute)
            found.append(((start, start * rise), (top / rise, top)))
        return found

    def rate(self, name: str, theoretical: float) -> str:
        """What the label of a compute roof says of it; where it is long, the axis has the unit."""
        value = self.compute.get(name)
        if value is None:
            return f"{number(theoretical)} TFLOP/s"
        return f"{number(theoretical)}, measured {number(value)}"

    def slope(self, theoretical: float) -> str:
        reached = f", measured {number(self.bandwidth)}" if self.bandwidth else ""
        return f"{number(theoretical)}{reached} TB/s"


def measured_lines(ablation: Ablation, level: str, roof: Roofs) -> MeasuredLines:
    """Nothing where the card was not calibrated."""
    reached, ceilings = ablation.measured, ablation.ceilings
    if reached is None or ceilings is None:
        return MeasuredLines()
    ids = {"FP32": "fp32", "Packed FP16": "half"}
    compute = {
        name: value / TERA
        for name, _ in roof.compute
        if (value := reached.value(ids.get(name, f"tensor {ceilings.tensor_type}")))
    }
    bandwidth = reached.value(level)
    return MeasuredLines(bandwidth / TERA if bandwidth else None, compute)


def draw_measured(axes: Axes, view: Frame, lines: list[tuple[XY, XY]]) -> list[Segment]:
    """Give what the points' labels must keep clear of."""
    for line in lines:
        axes.plot(*zip(*line, strict=True), **DASHED)
    return [(view.page(*a), view.page(*b)) for a, b in lines]
