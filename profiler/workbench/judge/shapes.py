"""One variant at all shapes of its study, beside the primary reference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.derive.speedup import Ratio, Time
from workbench.derive.sums import added
from workbench.words import Regime

if TYPE_CHECKING:
    from workbench.judge.view import View, Views
    from workbench.words import Parameter


@dataclass(frozen=True)
class AtShape:
    """Warm times at one shape, and how much faster the variant is than the reference.

    ``flops_per_second`` is the study's work over the time, whatever the kernel computes besides.
    """

    shape: str
    parameters: Mapping[str, Parameter]
    time: Time
    reference: Time | None
    over_reference: Ratio | None
    flops_per_second: float


@dataclass(frozen=True)
class AcrossShapes:
    """``geometric_mean`` and ``worst`` are of the ratios over the reference; None without any."""

    variant: str
    results: tuple[AtShape, ...]

    @property
    def ratios(self) -> list[float]:
        """Over the reference, where it was timed beside the variant."""
        return [r.over_reference.ratio for r in self.results if r.over_reference]

    @property
    def geometric_mean(self) -> float | None:
        """None without any ratio."""
        return geometric_mean(self.ratios)

    @property
    def worst(self) -> AtShape | None:
        """Where the variant does least well against the reference."""
        compared = [r for r in self.results if r.over_reference]
        return min(
            compared, key=lambda r: r.over_reference.ratio if r.over_reference else 0, default=None
        )


def geometric_mean(ratios: Iterable[float]) -> float | None:
    """None without any ratio."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(added(logs) / len(logs)) if logs else None


def across_shapes(views: Views, variant: str) -> AcrossShapes:
    """The variant at every shape of the snapshot where it was timed as it is now."""
    every = (views.at(shape) for shape in views.snapshot.shapes)
    results = (_at_shape(view, variant) for view in every if variant in view.evidence.variants)
    return AcrossShapes(variant, tuple(result for result in results if result is not None))


def _at_shape(view: View, variant: str) -> AtShape | None:
    time, flops = view.times.time(variant, Regime.WARM), view.evidence.flops
    if time is None or flops is None:
        return None
    reference = view.ladder.primary_reference
    return AtShape(
        shape=view.shape,
        parameters=view.evidence.parameters,
        time=time,
        reference=view.times.time(reference, Regime.WARM) if reference else None,
        over_reference=view.times.ratio(reference, variant),
        flops_per_second=flops / (time.median * 1e-6),
    )
