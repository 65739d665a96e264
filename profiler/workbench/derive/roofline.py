"""The DRAM roofline: ceilings and points, both from the capture itself.

Formulas as in Nsight Compute's SpeedOfLight_RooflineChart section: FP32 work is
FADD + FMUL + 2 FFMA thread instructions, its peak twice the FFMA peak rate times the SM clock;
packed FP16 work is 2 HMUL + 4 HFMA (two lanes each; HADD is left out, since unpacking a half is
one too), its peak four times the HFMA rate; traffic is DRAM bytes, its peak
dram__bytes.sum.peak_sustained times the DRAM clock. The tensor ceiling is the dense FP16 wgmma
rate: the roll-up counters allow sparsity and are twice as high.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.derive.figures import DURATION, by_launch
from workbench.load.catalog import FP32_OPS, HALF_OPS, TENSOR_TYPES

if TYPE_CHECKING:
    import pandas as pd

FP32_PEAK = "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained"
HALF_PEAK = "sm__sass_thread_inst_executed_op_hfma_pred_on.sum.peak_sustained"
TENSOR_PEAKS = (
    "sm__ops_path_tensor_op_hgmma_src_fp16_sparsity_off.sum.peak_sustained",
    "sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off.sum.peak_sustained",
)
DRAM_PEAK = "dram__bytes.sum.peak_sustained"
DRAM_CLOCK = "dram__cycles_elapsed.avg.per_second"
SM_CLOCK = "sm__cycles_elapsed.avg.per_second"
SMSP_CLOCK = "smsp__cycles_elapsed.avg.per_second"
ERROR_MARGIN = 1.05


@dataclass(frozen=True)
class Ceilings:
    """FLOP/s and bytes/s the card can do at the capture's clocks; None is not collected.

    ``half`` is packed FP16 arithmetic outside the tensor cores.
    """

    dram: float
    fp32: float
    tensor: float | None
    half: float | None = None


@dataclass(frozen=True)
class Point:
    """One variant: FLOP per DRAM byte against FLOP/s, and the ceiling that applies to it.

    ``ceiling`` is the kind of arithmetic that did most of the work: ``fp32``, ``half`` or
    ``tensor``. ``bound`` is the least of its ceiling and the memory roof at this intensity, and
    ``limit`` says which of the two: ``compute`` or ``dram``.
    """

    intensity: float
    flops_per_second: float
    bound: float
    ceiling: str
    flops: float
    above_roof: bool
    limit: str

    @property
    def share(self) -> float:
        return self.flops_per_second / self.bound


def ceilings(metrics: pd.DataFrame) -> Ceilings | None:
    """Of the longest launch; None where the capture has not the metrics for it."""
    launches = by_launch(metrics)
    if not launches:
        return None
    values = max(launches.values(), key=lambda v: v.get(DURATION, 0.0))
    if not {FP32_PEAK, DRAM_PEAK, DRAM_CLOCK, SM_CLOCK} <= values.keys():
        return None
    tensor = next((values[n] for n in TENSOR_PEAKS if n in values), None)
    return Ceilings(
        dram=values[DRAM_PEAK] * values[DRAM_CLOCK],
        fp32=2 * values[FP32_PEAK] * values[SM_CLOCK],
        tensor=tensor * values[SM_CLOCK] if tensor is not None else None,
        half=4 * values[HALF_PEAK] * values[SM_CLOCK] if HALF_PEAK in values else None,
    )


def point(metrics: pd.DataFrame) -> Point | None:
    """Where a variant stands; None where a counter is missing or nothing went through DRAM."""
    roof = ceilings(metrics)
    if roof is None:
        return None
    work = {"fp32": 0.0, "half": 0.0, "tensor": 0.0}
    moved = seconds = 0.0
    for values in by_launch(metrics).values():
        reads = values.get("dram__bytes_read.sum")
        writes = values.get("dram__bytes_write.sum")
        fp32 = _per_cycle(values, FP32_OPS)
        if reads is None or writes is None or fp32 is None:
            return None
        if DURATION not in values or SMSP_CLOCK not in values:
            return None
        duration = values[DURATION] * 1e-9
        work["fp32"] += fp32 * values[SMSP_CLOCK] * duration
        work["half"] += (_per_cycle(values, HALF_OPS) or 0.0) * values[SMSP_CLOCK] * duration
        work["tensor"] += sum(
            values.get(f"sm__ops_path_tensor_src_{kind}.sum", 0.0) for kind in TENSOR_TYPES
        )
        moved += reads + writes
        seconds += duration
    flops = sum(work.values())
    if not moved or not flops or not seconds:
        return None
    tops = {"fp32": roof.fp32, "half": roof.half, "tensor": roof.tensor}
    ceiling = max(work, key=lambda kind: (work[kind], kind))
    compute = tops[ceiling]
    if compute is None:
        return None
    rate, intensity = flops / seconds, flops / moved
    bound = min(compute, intensity * roof.dram)
    above = rate > ERROR_MARGIN * bound
    limit = "compute" if bound == compute else "dram"
    return Point(intensity, rate, bound, ceiling, flops, above, limit)


def _per_cycle(values: Mapping[str, float], ops: Mapping[str, int]) -> float | None:
    """Weighted thread instructions per cycle; None where one of the counters is missing."""
    name = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
    if not all(name.format(op) in values for op in ops):
        return None
    return sum(values[name.format(op)] * weight for op, weight in ops.items())
