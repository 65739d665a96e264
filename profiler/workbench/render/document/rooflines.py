"""The roofline as a table: every version's distance to the roofs at every level of memory, and the
ceilings that the GPU was measured to reach.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from workbench.derive.roofline.ceilings import DRAM, L1, L2
from workbench.derive.roofline.point import (
    LevelPoint,
    MeasuredCeiling,
    MeasuredCeilings,
    Point,
    other_clock,
)
from workbench.evidence.records import Ceiling
from workbench.judge.rows import Ablation, Row
from workbench.render.document.blocks import (
    Content,
    Field,
    Table,
    Text,
    code,
    field,
    figure_cell,
    joined,
    line,
    table,
    words,
)
from workbench.render.document.phrases import kind, names
from workbench.render.numbers import number, percent
from workbench.words import ABSENT, CLOCK_TOLERANCE, NONE

TERA = 1e12
LEVEL_NAMES = {DRAM: "DRAM", L2: "L2", L1: "L1"}
COMPUTE_ROOFS = {"half": "packed FP16", "fp32": "FP32", "fp64": "FP64"}
WRONG = " (above its roof: an error in the data)"
WRONG_CEILING = " (above theory: an error in the data)"


def compute_roof(point: Point) -> str:
    """The arithmetic whose peak bounds a point, by the data type that ran."""
    if point.arithmetic in COMPUTE_ROOFS:
        return COMPUTE_ROOFS[point.arithmetic]
    ran = point.tensor_type or "fp16"
    return f"{'' if 'sparse' in ran else 'dense '}{ran.upper()} tensor"


def of_point(make: Callable[[Point], Content]) -> Callable[[Row], Content]:
    return lambda row: make(row.roofline) if row.roofline else ABSENT


def roofline(ablation: Ablation) -> Table:
    """Rate, intensity and share of the peak at every level, and the distance to the nearest roof;
    the bytes per second in place of the intensity where there is no arithmetic.
    """
    fields: list[Field[Row]] = [field("version", "version", lambda row: row.variant)]
    if not ablation.moves_only:
        flops = of_levels(lambda p: figure_cell(p.flops_per_second / TERA) if p.flops else NONE)
        arithmetic = of_levels(lambda p: compute_roof(p) if p.flops else NONE)
        share = of_levels(lambda p: percent(p.share_of_arithmetic_peak) if p.flops else NONE)
        fields += [
            field("rate", "TFLOP/s", flops, right=True),
            field("arithmetic", "arithmetic", arithmetic),
            field("compute_share", "share of it", share, right=True),
        ]
    for level, name in LEVEL_NAMES.items():
        intensity = field(level, f"{name} FLOP/B", _at(level, _intensity), right=True)
        of_peak = _at(level, lambda found: percent(found.share_of_bandwidth))
        per_second = _at(level, lambda found: number(found.bytes_per_second / TERA))
        rate = field(level, name, per_second, unit="TB/s", right=True)
        fields += [
            rate if ablation.moves_only else intensity,
            field(f"{level}_share", f"share of {name}", of_peak, right=True),
        ]
    fields += [
        field("nearest", "nearest roof", of_levels(_nearest)),
        field("distance", "distance", of_levels(_distance), right=True),
    ]
    if ablation.measured is not None:
        away = of_levels(lambda p: _away(p.measured_of(p.nearest[0])))
        fields.append(field("measured_distance", "to the measured one", away, right=True))
    return table("roofline", fields, ablation.everything, key=lambda r: r.variant, kind=kind)


def of_levels(make: Callable[[Point], Content]) -> Callable[[Row], Content]:
    return of_point(lambda point: make(point) if point.levels else ABSENT)


def _at(level: str, make: Callable[[LevelPoint], str]) -> Callable[[Row], Content]:
    def cell(point: Point) -> str:
        return next((make(found) for found in point.levels if found.name == level), ABSENT)

    return of_point(cell)


def _intensity(level: LevelPoint) -> str:
    return number(level.flop_per_byte) if math.isfinite(level.flop_per_byte) else NONE


def _nearest(point: Point) -> str:
    return LEVEL_NAMES.get(point.nearest[0]) or compute_roof(point)


def _distance(point: Point) -> str:
    share = point.nearest[1]
    return (f"{number(1 / share)}x" if share else NONE) + WRONG * point.above_roof


def _away(share: float) -> str:
    """How many times a roof lies above a point."""
    return f"{number(1 / share)}x" if math.isfinite(share) and share else ABSENT


def notes(ablation: Ablation) -> tuple[Text, ...]:
    """What a reader must know of the levels and of the ceilings."""
    told = [
        line(
            "A share is of the level's peak bandwidth, or of the arithmetic's peak rate, at the "
            "capture's own clocks; the distance is how many times the nearest roof lies above the "
            "point. ",
            _ceilings(ablation),
        ),
        words(
            "L2 bytes are those sent to the SMs. L1 bytes are those that loads from global and "
            "local memory return; shared memory, cp.async and TMA do not pass there."
        ),
        *_clocks(ablation),
    ]
    low = [r.variant for r in ablation.everything if r.roofline and r.roofline.lower_bound]
    if low:
        told.append(
            line(names(low), f": tensor operations were {ABSENT}, so the FLOPs are a lower bound.")
        )
    return tuple(told)


def _ceilings(ablation: Ablation) -> Text:
    if ablation.measured is None:
        return words("Ceilings are theoretical: none of them was calibrated.")
    return line(
        "Ceilings are theoretical unless they are called measured: those are what benchmarks "
        f"reached on this GPU on {ablation.measured.date[:10]} (",
        code("workbench calibrate"),
        "), each at the SM clock of its own run, and are not scaled to a capture's.",
    )


def _clocks(ablation: Ablation) -> list[Text]:
    """Captures at another SM clock than the measured ceiling of their arithmetic."""
    apart = [
        line(code(row.variant), f" {clocks[0]:.0f} ({clocks[1]:.0f})")
        for row in ablation.everything
        if row.roofline and ablation.measured
        if (clocks := other_clock(row.roofline, ablation.measured))
    ]
    if not apart:
        return []
    return [
        line(
            f"SM clock in MHz of captures that ran over {100 * CLOCK_TOLERANCE:.0f} % off the "
            "clock of the measured ceiling of their arithmetic, which is in brackets: ",
            joined(apart),
            ". Their shares of that ceiling are off by as much.",
        )
    ]


# One ceiling of a calibration, by its id; None where it is missing, and then why.
_Ceiling: TypeAlias = tuple[str, MeasuredCeiling | None, str]


def ceiling_name(ceiling: str) -> str:
    known = {**LEVEL_NAMES, **COMPUTE_ROOFS}.get(ceiling)
    return known or f"dense {ceiling.removeprefix('tensor ').upper()} tensor"


def amount(value: float | None, unit: str) -> str:
    """FLOP/s or byte/s as TFLOP/s or TB/s."""
    if value is None:
        return ABSENT
    return f"{number(value / TERA)} {'TB/s' if unit == 'byte/s' else 'TFLOP/s'}"


def clock(ceiling: Ceiling) -> str:
    return ABSENT if ceiling.sm_clock_mhz is None else f"{ceiling.sm_clock_mhz:.0f}"


def _reached(roof: MeasuredCeiling | None) -> str:
    return amount(roof.measured.value, roof.measured.unit) if roof else ABSENT


def _of_roof(make: Callable[[MeasuredCeiling], Content]) -> Callable[[_Ceiling], Content]:
    return lambda ceiling: make(ceiling[1]) if ceiling[1] else NONE


CEILINGS: list[Field[_Ceiling]] = [
    field("ceiling", "ceiling", lambda c: ceiling_name(c[0])),
    field("measured", "measured", lambda c: _reached(c[1]), right=True),
    field(
        "theoretical",
        "theoretical at that clock",
        _of_roof(lambda roof: amount(roof.theoretical, roof.measured.unit)),
        right=True,
    ),
    field(
        "share",
        "share",
        _of_roof(
            lambda roof: percent(roof.share_of_theoretical) + WRONG_CEILING * roof.above_theory
        ),
        right=True,
    ),
    field("clock", "SM clock (MHz)", _of_roof(lambda roof: clock(roof.measured)), right=True),
    field("ran", "what was run", lambda c: c[1].measured.ran if c[1] else c[2], rank=1),
]


def ceilings(measured: MeasuredCeilings) -> Table:
    """What was not collected last, with the reason."""
    items: list[_Ceiling] = [(name, roof, "") for name, roof in measured.ceilings.items()]
    items += [(name, None, why) for name, why in measured.not_collected.items()]
    return table("ceilings", CEILINGS, items, key=lambda c: c[0])
