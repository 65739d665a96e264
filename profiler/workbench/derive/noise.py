"""How far a figure moves between two captures of the same kernel.

From repeated captures of one variant where the evidence holds them, else assumed by the kind of
figure. The assumed sizes are those of two captures of one and the same cuDNN kernel on an H200,
rounded up: executed instructions differed by up to 1 % (its warps poll barriers), durations by
0.6 %, issue rates and resident warps by 4 to 6 %, hit rates by up to 4 points.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from workbench.derive.figures import Figure
from workbench.derive.sums import added
from workbench.ncu.catalog import catalog

FROM_NOTHING = 1e3  # a change from or to zero has no factor; it counts as one of this size
FLOOR = 0.25  # of the assumed size: two captures that agree by chance prove no lower noise


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


@dataclass(frozen=True)
class Noise:
    """Sizes by figure id from repeats, over ``captures`` in all; others are assumed by kind."""

    measured: Mapping[str, Size]
    captures: int = 0

    def size(self, figure: str) -> Size:
        """Of a figure by its id: measured, but never far below what is assumed of its kind."""
        assumed = ASSUMED[kind(figure)]
        measured = self.measured.get(figure)
        if measured is None:
            return assumed
        return Size(
            relative=max(measured.relative, FLOOR * assumed.relative),
            points=max(measured.points, FLOOR * assumed.points),
        )

    def surprise(self, before: Figure, after: Figure) -> float:
        """The move in standard deviations of a difference between two captures.

        Percentages by their difference in points, all else by the logarithm of the factor.
        """
        values = _beyond_floor(before.id, before.value, after.value)
        if values[0] == values[1]:
            return 0.0
        size = self.size(before.id)
        if is_share(before):
            spread = math.hypot(*(max(size.relative * abs(v), size.points) for v in values))
            return abs(after.value - before.value) / spread if spread else math.inf
        return abs(log_factor(*values)) / (math.sqrt(2) * size.relative)


def _beyond_floor(figure: str, *values: float) -> list[float]:
    """Amounts as they count; see ``floor`` in metrics.toml."""
    spec = catalog().get(figure)
    return [max(value, spec.floor) for value in values] if spec else list(values)


ASSUMED_NOISE = Noise(MappingProxyType({}))


def log_factor(before: float, after: float) -> float:
    """Logarithm of after over before; ``FROM_NOTHING`` where one of them is zero or below."""
    if before == after:
        return 0.0
    if before <= 0 or after <= 0:
        return math.copysign(math.log(FROM_NOTHING), after - before)
    return math.log(after / before)


def noise_of(repeats: Iterable[Sequence[Mapping[str, Figure]]]) -> Noise:
    """Pooled over variants; each item is the figures of two or more captures of one of them."""
    groups = [group for group in repeats if len(group) > 1]
    values: dict[str, list[list[float]]] = {}
    for group in groups:
        for key in set.intersection(*(set(capture) for capture in group)):
            values.setdefault(key, []).append([capture[key].value for capture in group])
    measured = {key: _pooled(known) for key, known in values.items()}
    return Noise(MappingProxyType(measured), sum(len(group) for group in groups))


def _pooled(groups: Sequence[Sequence[float]]) -> Size:
    """The variances of groups, relative to their means and plain, weighted by their freedom."""
    freedom = sum(len(values) - 1 for values in groups)
    relative = plain = 0.0
    for values in groups:
        mean = added(values) / len(values)
        squares = added((value - mean) ** 2 for value in values)
        relative, plain = relative + (squares / mean**2 if mean else 0.0), plain + squares
    return Size(relative=math.sqrt(relative / freedom), points=math.sqrt(plain / freedom))
