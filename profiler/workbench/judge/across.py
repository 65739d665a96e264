"""The outcome of a ladder over all shapes of a study, and over all recordings of one. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from workbench.derive.figures import added
from workbench.derive.speedup import Ratio, Time, smaller
from workbench.judge.times import ShapeTimes
from workbench.study.model import Ladder, Step
from workbench.words import Parameter, Regime, shown

LEAST_INTENSITY = 4.0  # FLOP a byte: with fewer, no GPU since Turing is bound by arithmetic


@dataclass(frozen=True)
class AtShape:
    """Chained times at one shape, and how much faster the variant is than ``fastest``, the fastest
    reference timed there: those of the timing that has both.

    ``flops_per_second`` and ``bytes_per_second`` are the study's work over the time, whatever the
    kernel computes and moves besides.
    ``accuracy`` the error there as a multiple of the primary reference's. ``not_timed`` are
    references that were not timed beside the variant: the fastest one might be among them.
    ``alone`` is the ratio over the fastest with no other kernel, at the power limit. ``references``
    are the times of all beside it.
    """

    shape: str
    parameters: Mapping[str, Parameter] = field(repr=False)
    microseconds: Time
    fastest: str
    reference_microseconds: Time | None
    speedup_over_fastest: Ratio | None
    flops_per_second: float = field(repr=False)
    bytes_per_second: float = field(repr=False)
    accuracy: float | None
    not_timed: tuple[str, ...] = ()
    alone: Ratio | None = None
    references: Mapping[str, Time] = field(default_factory=dict, repr=False)

    @property
    def claimed(self) -> Ratio | None:
        """Over the fastest reference, in turn or alone: the smaller."""
        return smaller(self.speedup_over_fastest, self.alone)

    @property
    @shown
    def tflops(self) -> float:
        return self.flops_per_second / 1e12

    @property
    @shown
    def terabytes_per_second(self) -> float:
        return self.bytes_per_second / 1e12

    @property
    def is_traffic(self) -> bool:
        """Whether it has so little arithmetic a byte that the bytes are what counts."""
        return self.flops_per_second < LEAST_INTENSITY * self.bytes_per_second


@dataclass(frozen=True)
class AcrossShapes:
    """``geometric_mean`` is of the claimed ratios over the fastest reference at each shape; None
    without any.
    """

    variant: str
    shapes: tuple[AtShape, ...]

    @property
    def ratios(self) -> list[float]:
        """Over the fastest reference, where one was timed beside the variant."""
        return [r.claimed.ratio for r in self.shapes if r.claimed]

    @property
    @shown
    def geometric_mean(self) -> float | None:
        return geometric_mean(self.ratios)

    @property
    def untimed(self) -> Mapping[str, tuple[str, ...]]:
        """Reference to the shapes at which it was not timed, where it was at another."""
        shapes_by_reference: dict[str, tuple[str, ...]] = {}
        for name in dict.fromkeys(name for r in self.shapes for name in r.not_timed):
            shapes = tuple(r.shape for r in self.shapes if name in r.not_timed)
            if len(shapes) < len(self.shapes):
                shapes_by_reference[name] = shapes
        return shapes_by_reference


def geometric_mean(ratios: Iterable[float]) -> float | None:
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(added(logs) / len(logs)) if logs else None


def across_shapes(
    every: Collection[ShapeTimes], ladder: Ladder, outcomes: Sequence[Step]
) -> AcrossShapes | None:
    """The last of a ladder's ``outcomes`` at every shape where its present sources were timed; None
    without any. One that was timed at fewer shapes than one before it, as a new one is at first,
    does not stand in for that.
    """
    references = [reference.name for reference in ladder.references]
    results: list[AcrossShapes] = []
    for step in outcomes:
        shapes = (at_shape(times, references, step.variant) for times in every)
        results.append(AcrossShapes(step.variant, tuple(filter(None, shapes))))
    return max(reversed(results), key=lambda result: len(result.shapes), default=None)


def at_shape(times: ShapeTimes, references: Iterable[str], variant: str) -> AtShape | None:
    """None where its present sources were not timed there, or are not correct."""
    evidence = times.evidence
    time, work, recorded = times.time(variant), evidence.work, evidence.variants.get(variant)
    if time is None or work is None or recorded is None or not recorded.correct:
        return None
    others = [name for name in references if name != variant]
    fastest, over = times.least(others, variant)
    check = recorded.checks.get(evidence.shape)
    error = check.times_reference if check else None
    time = times.time(variant, beside=fastest) or time
    seconds = time.value * 1e-6
    return AtShape(
        shape=evidence.shape,
        parameters=evidence.parameters,
        microseconds=time,
        fastest=fastest,
        reference_microseconds=times.time(fastest, beside=variant) if fastest else None,
        speedup_over_fastest=over,
        flops_per_second=work.flops / seconds,
        bytes_per_second=work.bytes / seconds,
        accuracy=None if error is None else float(error),
        not_timed=tuple(r for r in others if times.ratio(r, variant) is None),
        alone=times.least(others, variant, Regime.ALONE)[1],
        references={r: time for r in others if (time := times.time(r, beside=variant))},
    )
