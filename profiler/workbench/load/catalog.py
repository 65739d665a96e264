"""``metrics.toml``: which ncu metrics feed which figure."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class FigureSpec:
    """How to compute one figure from ncu metrics; see the head of ``metrics.toml``."""

    id: str
    label: str
    names: tuple[str, ...]
    unit: str
    aggregate: str
    meaning: str
    per: tuple[str, ...] = ()
    scale: float = 1.0
    better: str = ""
    noise: str = "counter"
    part: tuple[str, ...] = ()


@lru_cache
def catalog() -> Mapping[str, FigureSpec]:
    path = Path(__file__).with_name("metrics.toml")
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    found: dict[str, FigureSpec] = {}
    for key, spec in data.items():
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in spec.items()
        }
        found[key] = FigureSpec(key, **values)
    return found


STALL_PREFIX = "smsp__pcsamp_warps_issue_stalled_"
LIMIT_PREFIX = "launch__occupancy_limit_"
LIMITERS = {
    "registers": "registers",
    "shared_mem": "shared memory",
    "warps": "block size",
    "blocks": "blocks per SM",
    "barriers": "barriers",
}
TENSOR_TYPES = ("fp16", "bf16_dst_fp32", "tf32_dst_fp32", "fp8_sparsity_off", "fp64", "int8")
FP32_OPS = {"fadd": 1, "fmul": 1, "ffma": 2}
HALF_OPS = {"hmul": 2, "hfma": 4}

ROOFLINE_METRICS = (
    "dram__bytes.sum.peak_sustained",
    "dram__cycles_elapsed.avg.per_second",
    "sm__cycles_elapsed.avg.per_second",
    "smsp__cycles_elapsed.avg.per_second",
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained",
    "sm__sass_thread_inst_executed_op_hfma_pred_on.sum.peak_sustained",
    "sm__ops_path_tensor_op_hgmma_src_fp16_sparsity_off.sum.peak_sustained",
    "sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off.sum.peak_sustained",
    *(
        f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum.per_cycle_elapsed"
        for op in (*FP32_OPS, *HALF_OPS)
    ),
    *(f"sm__ops_path_tensor_src_{kind}.sum" for kind in TENSOR_TYPES),
)


# In the order in which derive/anatomy.py names them.
ANATOMY_METRICS = (
    "device__attribute_multiprocessor_count",
    "device__attribute_num_schedulers_per_multiprocessor",
    "smsp__inst_executed.sum",
    "smsp__issue_active.avg.per_cycle_active",
    "smsp__cycles_active.avg",
    "gpc__cycles_elapsed.avg",
    "gpc__cycles_elapsed.avg.per_second",
)


def needed_metrics() -> list[str]:
    """Every metric some figure may want, without duplicates."""
    names = [n for spec in catalog().values() for n in (*spec.names, *spec.per)]
    names += [f"{LIMIT_PREFIX}{kind}" for kind in LIMITERS]
    return list(dict.fromkeys([*names, *ANATOMY_METRICS, *ROOFLINE_METRICS]))
