"""What stands behind a point, a bar or a ceiling: figures with the metrics they come from."""

from __future__ import annotations

from typing import Any

from workbench.derive.figures import DURATION, stall_label
from workbench.derive.roofline import DRAM_CLOCK, DRAM_PEAK, FP32_PEAK, HALF_PEAK, SM_CLOCK
from workbench.judge.ablation import Ablation, Row
from workbench.load.catalog import STALL_PREFIX
from workbench.load.evidence import CURRENT
from workbench.render.page_ladder import word
from workbench.render.page_roofline import kind
from workbench.render.sections import COMPUTE_ROOFS
from workbench.render.stall_chart import OTHER, parts
from workbench.render.tables import number, percent, ratio

OPS = "smsp__sass_thread_inst_executed_op_{fadd,fmul,ffma,hmul,hfma}_pred_on"
FLOP = f"{OPS}, sm__ops_path_tensor_src_*"
BYTES = "dram__bytes_read.sum + dram__bytes_write.sum"
BESIDE_A_POINT = ("duration", "achieved_occupancy", "dram_bandwidth", "issue_active")

Fact = list[str]  # what, its value with unit, the metric or file behind it


def facts(row: Row, drawn: list[str]) -> dict[str, Any]:
    """One variant, for the script: ``point`` and ``stalls`` are rows of what, value and source."""
    return {
        "name": row.variant, "kind": kind(row), "word": word(row),
        "step": row.step is not None and row.step.parent is not None,
        "line": _line(row), "point": point_facts(row), "stalls": stall_facts(row, drawn),
    }  # fmt: skip


def _line(row: Row) -> list[str]:
    """The few figures that follow a chosen variant about."""
    if row.status != CURRENT:
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
    key = "dram" if point.limit == "dram" else point.ceiling
    by = COMPUTE_ROOFS.get(key, "DRAM")
    rate, bound = (number(x / 1e12) for x in (point.flops_per_second, point.bound))
    found = [
        ["Performance", f"{rate} TFLOP/s", f"({FLOP}) / {DURATION}"],
        ["Arithmetic intensity", f"{number(point.intensity)} FLOP/B", f"({FLOP}) / ({BYTES})"],
        ["Roof over it", f"{bound} TFLOP/s, {by}", roof_source(key)],
        ["Share of roof", percent(point.share), "performance / roof"],
    ]
    for name in BESIDE_A_POINT:
        figure = row.figures.get(name)
        if figure is not None:
            unit = f" {figure.unit}".replace(" %", " % ").rstrip()
            found.append([figure.label, f"{number(figure.value)}{unit}", figure.metric])
    return found


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
    return {
        "dram": f"{DRAM_PEAK} * {DRAM_CLOCK}",
        "fp32": f"2 * {FP32_PEAK} * {SM_CLOCK}",
        "half": f"4 * {HALF_PEAK} * {SM_CLOCK}",
        "tensor": f"sm__ops_path_tensor_op_*_sparsity_off.sum.peak_sustained * {SM_CLOCK}",
    }[key]


def roof_facts(ablation: Ablation) -> dict[str, dict[str, str]]:
    """Ceilings by the names the roofline gives them: label, value and source."""
    roof = ablation.ceilings
    if roof is None:
        return {}
    found = {"dram": {"label": "DRAM bandwidth", "value": f"{number(roof.dram / 1e12)} TB/s",
                      "source": roof_source("dram")}}  # fmt: skip
    named = (("FP32", "fp32", roof.fp32), ("Packed FP16", "half", roof.half),
             ("Tensor, dense FP16", "tensor", roof.tensor))  # fmt: skip
    for label, key, rate in named:
        if rate is not None:
            found[label] = {"label": label, "value": f"{number(rate / 1e12)} TFLOP/s",
                            "source": roof_source(key)}  # fmt: skip
    return found
