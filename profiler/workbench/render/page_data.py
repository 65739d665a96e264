"""What stands behind a point, a bar or a ceiling: figures with the metrics they come from."""

from __future__ import annotations

import math
from typing import Any

from workbench.derive.figures import DURATION, stall_label
from workbench.derive.roofline.ceilings import CLOCKS, COUNTERS, DRAM, L1, L2, SM_CLOCK, VECTOR
from workbench.derive.roofline.point import Point
from workbench.judge.rows import Ablation, Row
from workbench.ncu.catalog import FP32_OPS, FP64_OPS, HALF_OPS, L1_BYTES, L2_BYTES, STALL_PREFIX
from workbench.render import ceiling_table
from workbench.render.ceilings import roofs
from workbench.render.page_roofline import kind
from workbench.render.roofline_table import LEVEL_NAMES, compute_roof
from workbench.render.stall_chart import OTHER, parts
from workbench.render.tables import has_figures, number, percent, ratio, verdict
from workbench.words import ABSENT

OPS = ",".join((*FP32_OPS, *FP64_OPS, *HALF_OPS))
FLOP = f"smsp__sass_thread_inst_executed_op_{{{OPS}}}_pred_on, sm__ops_path_tensor_*"
BYTES = {
    DRAM: "dram__bytes_read.sum + dram__bytes_write.sum",
    L2: L2_BYTES,
    L1: L1_BYTES,
}
BESIDE_A_POINT = ("duration", "achieved_occupancy", "dram_bandwidth", "issue_active")

Fact = list[str]  # what, its value with unit, the metric or file behind it


def facts(row: Row, drawn: list[str]) -> dict[str, Any]:
    """One variant, for the script: ``point`` and ``stalls`` are rows of what, value and source."""
    return {
        "name": row.variant,
        "label": row.label,
        "kind": kind(row),
        "word": verdict(row),
        "step": row.step is not None and row.step.parent is not None,
        "line": _line(row),
        "point": point_facts(row),
        "stalls": stall_facts(row, drawn),
    }


def _line(row: Row) -> list[str]:
    """The few figures that follow a chosen variant about."""
    if not has_figures(row):
        return []
    found = [f"{number(row.warm.median)} µs"] if row.warm else []
    if row.over_baseline:
        found.append(f"{ratio(row.over_baseline)} over the baseline")
    if row.over_parent and row.step and row.step.parent:
        found.append(f"{ratio(row.over_parent)} over {row.step.parent}")
    return found


def point_facts(row: Row) -> list[Fact]:
    point = row.point
    if point is None:
        return []
    rate = number(point.flops_per_second / 1e12)
    least = ", a lower bound: tensor operations not collected" if point.undercounted else ""
    found = [["Performance", f"{rate} TFLOP/s{least}", f"({FLOP}) / {DURATION}"]]
    found += [
        [
            f"{LEVEL_NAMES[level.level]} intensity",
            f"{_intensity(level.intensity)}, {percent(level.bandwidth_share)} of its bandwidth",
            f"FLOP / ({BYTES[level.level]})",
        ]
        for level in point.levels
    ]
    if math.isfinite(point.compute_share):
        found.append(
            [
                compute_roof(point),
                f"{percent(point.compute_share)} of its peak",
                roof_source(point.ceiling),
            ]
        )
    found.append(["Nearest roof", _nearest(point), ""])
    for name in BESIDE_A_POINT:
        figure = row.figures.get(name)
        if figure is not None:
            unit = f" {figure.unit}".replace(" %", " % ").rstrip()
            found.append([figure.label, f"{number(figure.value)}{unit}", figure.metric])
    return found


def _intensity(value: float) -> str:
    return f"{number(value)} FLOP/B" if math.isfinite(value) else "no traffic"


def _nearest(point: Point) -> str:
    name, share = point.nearest
    return f"{LEVEL_NAMES.get(name) or compute_roof(point)}, {percent(share)} of it"


def stall_facts(row: Row, drawn: list[str]) -> dict[str, list[Fact]]:
    """Part of the bar to the reasons in it; ``other`` lists those it sums up."""
    found: dict[str, list[Fact]] = {}
    for key, share in parts(row, drawn) if row.stalls else []:
        inside = [key] if key != OTHER else [name for name in row.stalls if name not in drawn]
        if share > 0:
            found[key] = [
                [stall_label(name), f"{percent(row.stalls[name])} of samples", STALL_PREFIX + name]
                for name in inside
            ]
    return found


def roof_source(key: str) -> str:
    """The metrics behind a ceiling: a level of memory or a kind of arithmetic."""
    if key in CLOCKS:
        names = " or ".join(
            f"{f'{worth} * ' if worth != 1 else ''}{name}.peak_sustained"
            for name, worth in COUNTERS[key]
        )
        return f"({names}) * {CLOCKS[key]}"
    if key in VECTOR:
        _, name, weight = VECTOR[key]
        return f"{weight} * {name} * {SM_CLOCK}"
    return f"sm__ops_path_tensor_op_*_sparsity_off.sum.peak_sustained * {SM_CLOCK}"


def roof_facts(ablation: Ablation) -> dict[str, dict[str, str]]:
    """Ceilings by the names the rooflines give them: label, value and source."""
    ceilings = ablation.ceilings
    if ceilings is None:
        return {}
    found = {}
    for level, name in LEVEL_NAMES.items():
        bandwidth = ceilings.bandwidth(level)
        value = f"{number(bandwidth / 1e12)} TB/s" if bandwidth is not None else ABSENT
        value += ceiling_table.beside(ablation.measured, level)
        found[level] = {"label": f"{name} bandwidth", "value": value, "source": roof_source(level)}
    kinds = {"FP32": "fp32", "Packed FP16": "half"}
    for label, rate in roofs(ceilings, packed=True).compute:
        key = kinds.get(label, f"tensor {ceilings.tensor_type}")
        value = f"{number(rate)} TFLOP/s{ceiling_table.beside(ablation.measured, key)}"
        found[label] = {
            "label": label,
            "value": value,
            "source": roof_source(kinds.get(label, "tensor")),
        }
    return found
