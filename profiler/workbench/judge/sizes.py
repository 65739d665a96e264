"""Variants and references over a range of shapes that differ in one parameter. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.derive.roofline.ceilings import DRAM
from workbench.derive.speedup import Ratio, Time, smaller
from workbench.judge.findings import Finding
from workbench.judge.known_evidence import ShapeTimes, main_timing
from workbench.judge.regimes import geometric_mean
from workbench.judge.sessions import warnings_of
from workbench.words import Regime, shown

if TYPE_CHECKING:
    from workbench.judge.known_evidence import ShapeEvidence
    from workbench.study.model import Work
    from workbench.words import Parameter

FEWEST = 2  # sizes that make a range
# FLOP a byte under which a rate is in GB/s: no data-centre GPU since Volta does so few
# FLOP of its plain fp32 units in the time of a DRAM byte (V100: 15.7 TFLOP/s over 0.9 TB/s is 17).
LOW_INTENSITY = 10.0
# The measured ceiling that a type's arithmetic is held against.
ARITHMETIC = {"float16": "tensor fp16", "bfloat16": "tensor bf16", "float32": "fp32",
              "float64": "fp64"}  # fmt: skip


@dataclass(frozen=True)
class AtSize:
    """One variant at one size: its chained time, and the study's work over it, in FLOP/s or byte/s
    as ``OverSizes.in_flops`` says. ``over_fastest`` is over the fastest reference timed
    beside it, ``alone`` with no other kernel at the power limit. ``share_of_measured`` is what the
    work would take of the time at a measured ceiling, ``ceiling`` which: DRAM or the arithmetic,
    whichever takes longer; None where the GPU was not calibrated.
    """

    shape: str
    size: float
    microseconds: Time
    rate: float
    fastest_reference: str = ""
    over_fastest: Ratio | None = None
    alone: Ratio | None = None
    share_of_measured: float | None = None
    ceiling: str = ""

    @property
    def claimed(self) -> Ratio | None:
        """Over the fastest reference, in turn or alone: the smaller."""
        return smaller(self.over_fastest, self.alone)


@dataclass(frozen=True)
class SizeLine:
    """A variant at the sizes where it was timed, in their order."""

    variant: str
    is_reference: bool
    points: tuple[AtSize, ...]

    def at(self, shape: str) -> AtSize | None:
        return next((point for point in self.points if point.shape == shape), None)

    @property
    def ratios(self) -> Mapping[str, float]:
        """What is claimed over the fastest reference, by shape."""
        return {p.shape: p.claimed.ratio for p in self.points if p.claimed}

    @property
    @shown
    def mean_over_fastest(self) -> float | None:
        """The geometric mean of its ratios; None without any."""
        return geometric_mean(self.ratios.values())

    @property
    def worst(self) -> AtSize | None:
        """Where its ratio is smallest."""
        known = self.ratios
        return min((p for p in self.points if p.shape in known),
                   key=lambda point: known[point.shape], default=None)  # fmt: skip


@dataclass(frozen=True)
class OverSizes:
    """``sizes`` are the values of ``parameter`` by shape, rising; ``others`` are the parameters
    that all shapes share.
    """

    study: str
    gpu: str
    parameter: str
    sizes: Mapping[str, float]
    others: Mapping[str, Parameter]
    variants: tuple[SizeLine, ...]
    in_flops: bool
    warnings: tuple[Finding, ...] = ()

    @property
    def timed(self) -> tuple[SizeLine, ...]:
        """Those that were timed at any of the sizes."""
        return tuple(line for line in self.variants if line.points)

    def fastest_at(self, shape: str, *, references: bool) -> tuple[SizeLine, AtSize] | None:
        """Among the references, or among the others; None where none was timed."""
        known = [
            (line, point)
            for line in self.variants
            if line.is_reference == references and (point := line.at(shape))
        ]
        return min(known, key=lambda pair: pair[1].microseconds.value, default=None)


def ranges(shapes: Mapping[str, Mapping[str, Parameter]]) -> Iterator[tuple[str, list[str]]]:
    """Of shapes by name, with their parameters: the parameters in which some of them differ and in
    nothing else, with those shapes by the value. A shape may stand in several ranges; one whose
    shapes all stand in longer ones is none, nor are two shapes of which one does.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for shape, parameters in shapes.items():
        for name, value in parameters.items():
            if type(value) in (int, float):
                others = {k: v for k, v in parameters.items() if k != name}
                key = json.dumps(others, sort_keys=True)
                groups.setdefault((name, key), []).append(shape)
    longest: dict[str, int] = {}
    for found in groups.values():
        for shape in found:
            longest[shape] = max(len(found), longest.get(shape, 0))
    for (name, _), found in groups.items():
        own = [longest[shape] == len(found) for shape in found]
        if len(found) >= FEWEST and (any(own) if len(found) > FEWEST else all(own)):
            yield name, sorted(found, key=lambda shape: float(shapes[shape][name]))


def over_sizes(
    shapes: Sequence[ShapeEvidence],
    parameter: str,
    variants: Sequence[str],
    references: Sequence[str],
    *,
    study: str,
    gpu: str,
    primary: str = "",
    ceilings: Mapping[str, float] | None = None,
) -> OverSizes:
    """``shapes`` differ in ``parameter`` alone, and rise in it; ``primary`` is the reference that
    was timed alone as well. ``ceilings`` are the measured ones of the GPU, by id. Times of
    references are those beside the first of the ``variants``, where it was timed with them.
    """
    first = shapes[0]
    work = shapes[-1].work
    in_flops = work is not None and work.flops >= LOW_INTENSITY * work.bytes
    names = [*variants, *references]
    times = {shape.shape: ShapeTimes(shape, main_timing(shape, names)) for shape in shapes}

    def points(name: str) -> Iterator[AtSize]:
        beside = variants[0] if variants and name in references else ""
        others = [reference for reference in references if reference != name]
        for shape in shapes:
            here, known = times[shape.shape], shape.variants.get(name)
            time = here.beside(beside, name) or here.time(name)
            if time is None or shape.work is None or not (known and known.correct):
                continue
            fastest, over = here.least(others, name)
            seconds = time.value * 1e-6
            share, of = _share(shape.work, seconds, ceilings or {})
            yield AtSize(
                shape=shape.shape,
                size=float(shape.parameters[parameter]),
                microseconds=time,
                rate=(shape.work.flops if in_flops else shape.work.bytes) / seconds,
                fastest_reference=fastest,
                over_fastest=over,
                alone=here.least(others, name, Regime.ALONE)[1],
                share_of_measured=share,
                ceiling=of,
            )

    by_size = {
        f"{parameter}={size_words(float(shape.parameters[parameter]))}": times[shape.shape].table
        for shape in shapes
    }
    return OverSizes(
        study=study,
        gpu=gpu,
        parameter=parameter,
        sizes={shape.shape: float(shape.parameters[parameter]) for shape in shapes},
        others={k: v for k, v in first.parameters.items() if k != parameter},
        variants=tuple(SizeLine(name, name in references, tuple(points(name))) for name in names),
        in_flops=in_flops,
        warnings=tuple(warnings_of(by_size, primary)),
    )


def size_words(value: float) -> str:
    """``512``: as it was given, whole where it is whole."""
    return f"{value:g}" if abs(value) < 1e6 else f"{value:.0f}"


def _share(work: Work, seconds: float, ceilings: Mapping[str, float]) -> tuple[float | None, str]:
    amounts = {ARITHMETIC.get(work.dtype, ""): work.flops, DRAM: work.bytes}
    least = {
        name: amount / rate / seconds
        for name, amount in amounts.items()
        if (rate := ceilings.get(name))
    }
    of = max(least, key=lambda name: least[name], default="")
    return (least[of], of) if of else (None, "")
