"""The DRAM roofline: ceilings and points, both from the capture itself.

Formulas as in Nsight Compute's SpeedOfLight_RooflineChart section: FP32 work is
FADD + FMUL + 2 FFMA thread instructions, its peak twice the FFMA peak rate times the SM clock;
traffic is DRAM bytes, its peak dram__bytes.sum.peak_sustained times the DRAM clock. The tensor
ceiling is the dense FP16 wgmma rate: the roll-up counters allow sparsity and are twice as high.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.derive.figures import DURATION, by_launch
from workbench.load.catalog import FP32_OPS, TENSOR_TYPES

if TYPE_CHECKING:
    import pandas as pd

FP32_PEAK = "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained"
TENSOR_PEAKS = (
    "sm__ops_path_tensor_op_hgmma_src_fp16_sparsity_off.sum.peak_sustained",
    "sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off.sum.peak_sustained",
)
DRAM_PEAK = "dram__bytes.sum.peak_sustained"
DRAM_CLOCK = "dram__cycles_elapsed.avg.per_second"
SM_CLOCK = "sm__cycles_elapsed.avg.per_second"
SMSP_CLOCK = "smsp__cycles_elapsed.avg.per_second"
# Below this share of all operations the tensor cores are noise, such as a shuffle's side effect.
TENSOR_SHARE = 0.01
ERROR_MARGIN = 1.05


@dataclass(frozen=True)
class Ceilings:
    """FLOP/s and bytes/s the card can do at the capture's clocks; None is not collected."""

    dram: float
    fp32: float
    tensor: float | None


@dataclass(frozen=True)
class Point:
    """One variant: FLOP per DRAM byte against FLOP/s, and the ceiling that applies to it.

    ``bound`` is the least of the memory roof at this intensity and the compute ceiling.
    """

    intensity: float
    flops_per_second: float
    bound: float
    ceiling: str
    flops: float
    above_roof: bool

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
    )


def point(metrics: pd.DataFrame) -> Point | None:
    """Where a variant stands; None where a counter is missing or nothing went through DRAM."""
    roof = ceilings(metrics)
    if roof is None:
        return None
    fp32 = tensor = moved = seconds = 0.0
    for values in by_launch(metrics).values():
        ops = {f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum.per_cycle_elapsed": weight
               for op, weight in FP32_OPS.items()}  # fmt: skip
        reads = values.get("dram__bytes_read.sum")
        writes = values.get("dram__bytes_write.sum")
        if reads is None or writes is None or not {*ops, DURATION, SMSP_CLOCK} <= values.keys():
            return None
        duration = values[DURATION] * 1e-9
        fp32 += sum(values[n] * w for n, w in ops.items()) * values[SMSP_CLOCK] * duration
        tensor += sum(values.get(f"sm__ops_path_tensor_src_{t}.sum", 0.0) for t in TENSOR_TYPES)
        moved += reads + writes
        seconds += duration
    flops = fp32 + tensor
    if not moved or not flops or not seconds:
        return None
    on_tensor = tensor > TENSOR_SHARE * flops and roof.tensor is not None
    compute = roof.tensor if on_tensor and roof.tensor is not None else roof.fp32
    rate, intensity = flops / seconds, flops / moved
    bound = min(compute, intensity * roof.dram)
    return Point(intensity, rate, bound, "tensor" if on_tensor else "fp32", flops,
                 rate > ERROR_MARGIN * bound)  # fmt: skip
