"""Variants and references over a range of shapes that differ in one parameter. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from workbench.derive.roofline.ceilings import DRAM
from workbench.judge.findings import Finding
from workbench.judge.sessions import warnings_of
from workbench.judge.times import (
    LEAST_INTENSITY,
    AcrossShapes,
    AtShape,
    ShapeTimes,
    at_shape,
    main_timing,
)
from workbench.load import ShapeEvidence
from workbench.words import Parameter, grouped

FEWEST = 2  # sizes that make a range
# The measured ceiling that a type's arithmetic is held against.
ARITHMETIC = {"float16": "tensor fp16", "bfloat16": "tensor bf16", "float32": "fp32",
              "float64": "fp64"}  # fmt: skip


@dataclass(frozen=True)
class OverSizes:
    """``sizes`` are the values of ``parameter`` by shape, rising; ``others`` are the parameters
    that all shapes share. ``references`` are among the ``variants``. ``ceilings`` are the measured
    ones that bound the study, in FLOP/s and byte/s; none where the GPU was not calibrated.
    """

    study: str
    gpu: str
    parameter: str
    sizes: Mapping[str, float]
    others: Mapping[str, Parameter]
    variants: tuple[AcrossShapes, ...]
    references: tuple[str, ...]
    in_flops: bool
    ceilings: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[Finding, ...] = ()

    @property
    def timed(self) -> tuple[AcrossShapes, ...]:
        """Those that were timed at any of the sizes."""
        return tuple(line for line in self.variants if line.shapes)

    @property
    def versions(self) -> tuple[AcrossShapes, ...]:
        """All but the references."""
        return tuple(line for line in self.variants if line.variant not in self.references)

    def fastest_at(self, shape: str) -> tuple[AcrossShapes, AtShape] | None:
        """Among the versions; None where none was timed."""
        known = [(line, point) for line in self.versions if (point := line.at(shape))]
        return min(known, key=lambda pair: pair[1].microseconds.value, default=None)

    def share(self, point: AtShape) -> tuple[float, str] | None:
        """Of its time, what the work would take at the ceiling that takes longest, and which."""
        flops, moved = point.flops_per_second, point.bytes_per_second
        shares = (((moved if n == DRAM else flops) / r, n) for n, r in self.ceilings.items())
        return max(shares, default=None)


def ranges(shapes: Mapping[str, Mapping[str, Parameter]]) -> Iterator[tuple[str, list[str]]]:
    """Of shapes by name, with their parameters: the parameters in which some of them differ and in
    nothing else, with those shapes by the value. A shape may stand in several ranges; one whose
    shapes all stand in longer ones is none, nor are two shapes of which one does.
    """
    groups = grouped(
        ((name, json.dumps({**parameters, name: None}, sort_keys=True)), shape)
        for shape, parameters in shapes.items()
        for name, value in parameters.items()
        if type(value) in (int, float)
    )
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
    work = shapes[-1].work
    in_flops = work is not None and work.flops >= LEAST_INTENSITY * work.bytes
    names = [*variants, *references]
    times = {shape.shape: ShapeTimes(shape, main_timing(shape, names)) for shape in shapes}
    bounds = (ARITHMETIC.get(work.dtype, ""), DRAM) if work else ()

    def across(name: str) -> AcrossShapes:
        beside = variants[0] if variants and name in references else ""
        found = (at_shape(each, references, name, beside) for each in times.values())
        return AcrossShapes(name, tuple(filter(None, found)))

    by_size = {
        f"{parameter}={size_words(float(shape.parameters[parameter]))}": times[shape.shape].table
        for shape in shapes
    }
    return OverSizes(
        study=study,
        gpu=gpu,
        parameter=parameter,
        sizes={shape.shape: float(shape.parameters[parameter]) for shape in shapes},
        others={k: v for k, v in shapes[0].parameters.items() if k != parameter},
        variants=tuple(map(across, names)),
        references=tuple(references),
        in_flops=in_flops,
        ceilings={name: known for name in bounds if (known := (ceilings or {}).get(name))},
        warnings=tuple(warnings_of(by_size, primary)),
    )


def size_words(value: float) -> str:
    """``512``: as it was given, whole where it is whole."""
    return f"{value:g}" if abs(value) < 1e6 else f"{value:.0f}"
