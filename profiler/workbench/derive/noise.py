"""How far a figure moves between two captures of the same kernel, assumed by the kind of figure.

The sizes are those of two captures of one and the same cuDNN kernel on an H200, rounded up:
executed instructions differed by up to 1 % (its warps poll barriers), durations by
0.6 %, issue rates and resident warps by 4 to 6 %, hit rates by up to 4 points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from workbench.derive.figures import Figure
from workbench.ncu.catalog import catalog

FROM_NOTHING = 1e3  # a change from or to zero has no factor; it counts as one of this size


@dataclass(frozen=True)
class Size:
    """Standard deviation: relative, and for percentages at least this many points."""

    relative: float
    points: float = 0.0


ASSUMED: Mapping[str, Size] = MappingProxyType(
    {
        "launch": Size(0.001),
        "counter": Size(0.01),
        "time": Size(0.01),
        "rate": Size(0.04, 0.5),
        "cache": Size(0.05, 3.0),
        "pace": Size(0.05, 0.5),
    }
)


def kind(figure: str) -> str:
    """Which of ``ASSUMED`` a figure is of; what the catalogue does not know is a pace."""
    spec = catalog().get(figure)
    return spec.noise if spec else "pace"


def is_share(figure: Figure) -> bool:
    """Whether a figure is a percentage, whose moves count in points."""
    return figure.unit.startswith("%")


def surprise(before: Figure, after: Figure) -> float:
    """The move in standard deviations of a difference between two captures.

    Percentages by their difference in points, all else by the logarithm of the factor.
    """
    values = _beyond_floor(before.id, before.value, after.value)
    if values[0] == values[1]:
        return 0.0
    size = ASSUMED[kind(before.id)]
    if is_share(before):
        spread = math.hypot(*(max(size.relative * abs(v), size.points) for v in values))
        return abs(after.value - before.value) / spread if spread else math.inf
    return abs(log_factor(*values)) / (math.sqrt(2) * size.relative)


def _beyond_floor(figure: str, *values: float) -> list[float]:
    """Amounts as they count; see ``floor`` in metrics.toml."""
    spec = catalog().get(figure)
    return [max(value, spec.floor) for value in values] if spec else list(values)


def log_factor(before: float, after: float) -> float:
    """Logarithm of after over before; ``FROM_NOTHING`` where one of them is zero or below."""
    if before == after:
        return 0.0
    if before <= 0 or after <= 0:
        return math.copysign(math.log(FROM_NOTHING), after - before)
    return math.log(after / before)
