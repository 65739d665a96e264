"""The roofline as tables: the roof over each version, and its distance at every level of memory."""

from __future__ import annotations

import math

from workbench.derive.roofline.ceilings import DRAM, L1, L2, TENSOR
from workbench.derive.roofline.measured import other_clock
from workbench.derive.roofline.point import LevelPoint, Point
from workbench.judge.rows import Ablation
from workbench.render import ceiling_table
from workbench.render.old_markdown import code, literal
from workbench.render.tables import markdown_table, number, percent, reason
from workbench.words import ABSENT, CLOCK_TOLERANCE, NONE

COMPUTE_ROOFS = {"half": "packed FP16", "fp32": "FP32", "fp64": "FP64"}
LEVEL_NAMES = {DRAM: "DRAM", L2: "L2", L1: "L1"}


def compute_roof(point: Point) -> str:
    """The arithmetic whose peak bounds a point, by the data type that ran."""
    if point.ceiling in COMPUTE_ROOFS:
        return COMPUTE_ROOFS[point.ceiling]
    kind = point.tensor_type or "fp16"
    return f"{'' if 'sparse' in kind else 'dense '}{kind.upper()} tensor"


ROOF_HEADER = (
    "version",
    "FLOP per DRAM byte",
    "TFLOP/s",
    "roof over it (TFLOP/s)",
    "set by",
    "share of roof",
)
LEVELS_HEADER = (
    "version",
    "arithmetic",
    "share",
    "DRAM FLOP/B",
    "share",
    "L2 FLOP/B",
    "share",
    "L1 FLOP/B",
    "share",
    "nearest roof",
    "distance",
)
# Where the card was calibrated; of the roofs that the columns before them name.
MEASURED_HEADER = ("measured roof (TFLOP/s)", "share of measured")
MEASURED_LEVELS_HEADER = ("to the measured one",)
WRONG = " (above its roof: an error in the data)"


def roof_header(ablation: Ablation) -> tuple[str, ...]:
    return ROOF_HEADER + MEASURED_HEADER * (ablation.measured is not None)


def roof_align(ablation: Ablation) -> str:
    return "lrrrlr" + "rr" * (ablation.measured is not None)


def levels_header(ablation: Ablation) -> tuple[str, ...]:
    return LEVELS_HEADER + MEASURED_LEVELS_HEADER * (ablation.measured is not None)


def levels_align(ablation: Ablation) -> str:
    return "llrrrrrrrlr" + "r" * (ablation.measured is not None)


def _measured_roof(point: Point) -> list[str]:
    share = point.measured_share
    if not math.isfinite(share) or not share:
        return [ABSENT, ABSENT]
    return [number(point.flops_per_second / share / 1e12), percent(share)]


def roof_rows(ablation: Ablation) -> list[list[str]]:
    """Plain text under ``roof_header``."""
    more = len(MEASURED_HEADER) if ablation.measured else 0
    rows = []
    for row in ablation.everything:
        point = row.point
        if point is None or ablation.ceilings is None:
            rows.append([row.label, *[ABSENT] * 3, reason(row), *[ABSENT] * (1 + more)])
            continue
        by = "DRAM" if point.limit == "dram" else compute_roof(point)
        share = percent(point.share) + WRONG * point.above_roof
        rows.append(
            [
                row.label,
                number(point.intensity),
                number(point.flops_per_second / 1e12),
                number(point.bound / 1e12),
                by,
                share,
                *(_measured_roof(point) if more else ()),
            ]
        )
    return rows


def roofline(ablation: Ablation) -> str:
    rows = [[*cells[:4], literal(cells[4]), *cells[5:]] for cells in roof_rows(ablation)]
    return markdown_table(list(roof_header(ablation)), rows, roof_align(ablation))


def level_rows(ablation: Ablation) -> list[list[str]]:
    """Intensity and share of the peak at every level, and the distance to the nearest roof.

    Plain text under ``levels_header``.
    """
    more = len(MEASURED_LEVELS_HEADER) if ablation.measured else 0
    rows = []
    for row in ablation.everything:
        point = row.point
        if point is None or not point.levels:
            rows.append([row.label, *[ABSENT] * (10 + more)])
            continue
        by_name = {level.level: level for level in point.levels}
        cells = [cell for name in LEVEL_NAMES for cell in _level(by_name.get(name))]
        name, share = point.nearest
        roof = LEVEL_NAMES.get(name) or compute_roof(point)
        away = (f"{number(1 / share)}x" if share else NONE) + WRONG * point.above_roof
        rows.append(
            [
                row.label,
                compute_roof(point),
                percent(point.compute_share),
                *cells,
                roof,
                away,
                *[_away(point.measured_of(name))] * more,
            ]
        )
    return rows


def _away(share: float) -> str:
    """How many times a roof lies above a point."""
    return f"{number(1 / share)}x" if math.isfinite(share) and share else ABSENT


def levels(ablation: Ablation) -> str:
    header = list(levels_header(ablation))
    return markdown_table(header, level_rows(ablation), levels_align(ablation))


def _level(found: LevelPoint | None) -> list[str]:
    if found is None:
        return [ABSENT, ABSENT]
    intensity = number(found.intensity) if math.isfinite(found.intensity) else NONE
    return [intensity, percent(found.bandwidth_share)]


def measured(ablation: Ablation) -> str:
    """The ceilings that the card was measured to reach; empty where it was not calibrated."""
    return ceiling_table.table(ablation.measured) if ablation.measured else ""


def notes(ablation: Ablation) -> list[str]:
    """What a reader must know of the levels, and of tensor instructions slower than the card."""
    said = [
        "A share is of the level's peak bandwidth, or of the arithmetic's peak rate, at the "
        "capture's own clocks; the distance is how many times the nearest roof lies above the "
        f"point. {_ceilings(ablation)}",
        "L2 bytes are those sent to the SMs. L1 bytes are those that loads from global and local "
        "memory return; shared memory, cp.async and TMA do not pass there.",
    ]
    said += _clocks(ablation)
    said += _mma_sync(ablation)
    low = [r for r in ablation.everything if r.point and r.point.undercounted]
    if low:
        said.append(
            f"{', '.join(code(r.variant) for r in low)}: tensor operations were {ABSENT}, so the "
            "FLOPs are a lower bound."
        )
    return said


def _ceilings(ablation: Ablation) -> str:
    if ablation.measured is None:
        return "Ceilings are theoretical: none of them was calibrated."
    return (
        "Ceilings are theoretical unless they are called measured: those are what benchmarks "
        f"reached on this GPU on {ablation.measured.date[:10]} (`workbench calibrate`), each at "
        "the SM clock of its own run, and are not scaled to a capture's."
    )


def _clocks(ablation: Ablation) -> list[str]:
    """Captures at another SM clock than the measured ceiling of their arithmetic."""
    apart = [
        f"{code(row.variant)} {clocks[0]:.0f} ({clocks[1]:.0f})"
        for row in ablation.everything
        if row.point and ablation.measured
        if (clocks := other_clock(row.point, ablation.measured))
    ]
    if not apart:
        return []
    return [
        f"SM clock in MHz of captures that ran over {100 * CLOCK_TOLERANCE:.0f} % off the clock "
        f"of the measured ceiling of their arithmetic, which is in brackets: {', '.join(apart)}. "
        "Their shares of that ceiling are off by as much."
    ]


def _mma_sync(ablation: Ablation) -> list[str]:
    """Variants whose tensor instruction cannot reach the card's dense rate."""
    slower = [
        (row.variant, point)
        for row in ablation.everything
        if (point := row.point) and point.ceiling == TENSOR and point.path == "mma.sync"
        if point.path_share > 1.01 * point.compute_share
    ]
    if not slower:
        return []
    most = slower[0][1].compute_share / slower[0][1].path_share
    names = ", ".join(code(name) for name, _ in slower)
    shares = ", ".join(percent(point.path_share) for _, point in slower)
    return [
        f"{names}: `mma.sync` reaches at most {percent(most)} of this GPU's dense tensor rate, "
        f"which only `wgmma` does; of what `mma.sync` can do they reach {shares}."
    ]
