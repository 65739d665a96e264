"""``metrics.toml``: which ncu metrics feed which figure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec import structs

from workbench.errors import UsageError, nearest


class FigureSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to compute one figure from ncu metrics; see the head of ``metrics.toml``."""

    id: str
    label: str
    names: tuple[str, ...]
    unit: str
    aggregate: str = "sum"
    per: tuple[str, ...] = ()
    scale: float = 1.0
    better: str = ""
    noise: str = "counter"
    part: tuple[str, ...] = ()
    restates: str = ""
    floor: float = 0.0


METRICS = Path(__file__).with_name("metrics.toml")


@lru_cache
def catalog() -> Mapping[str, FigureSpec]:
    """Return the figures by id."""
    return read_catalog(METRICS)


def read_catalog(path: Path) -> dict[str, FigureSpec]:
    """Raises UsageError with the entry that stands twice, lacks a field, or has one too many."""
    text = path.read_text(encoding="utf-8")
    try:
        entries = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        twice = re.search(r"Cannot declare \('(\w+)',\) twice", str(error))
        why = f"the figure '{twice[1]}' stands twice" if twice else str(error)
        raise UsageError(f"{path}: {why}", hint="give each figure one table") from None
    kinds: dict[str, dict[str, object]] = {"": {}, **entries.pop("kind")}
    figures: dict[str, FigureSpec] = {}
    defined: dict[tuple[object, ...], str] = {}
    for name, entry in entries.items():
        kind = entry.pop("kind", "")
        if kind not in kinds:
            raise UsageError(f"{path}: '{name}' is of the kind '{kind}'", hint=nearest(kind, kinds))
        try:
            figure = msgspec.convert({"id": name, **kinds[kind], **entry}, FigureSpec)
        except msgspec.ValidationError as error:
            hint = "see the head of the file for the fields"
            raise UsageError(f"{path}: '{name}': {error}", hint=hint) from None
        first = defined.setdefault(structs.astuple(figure)[2:], name)  # all but id and label
        if first != name:
            raise UsageError(f"{path}: '{name}' is '{first}' again", hint="leave one of them out")
        figures[name] = figure
    return figures


STALL_PREFIX = "smsp__pcsamp_warps_issue_stalled_"
STALL_REASONS = (
    "barrier",
    "branch_resolving",
    "dispatch_stall",
    "drain",
    "gmma",
    "imc_miss",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "membar",
    "mio_throttle",
    "misc",
    "no_instructions",
    "not_selected",
    "selected",
    "short_scoreboard",
    "sleeping",
    "tex_throttle",
    "wait",
    "warpgroup_arrive",
)
# 32-byte sectors of all global accesses, atomics and asynchronous copies among them.
GLOBAL_SECTORS = "memory_l2_theoretical_sectors_global"
LIMIT_PREFIX = "launch__occupancy_limit_"
LIMITERS = {
    "registers": "registers",
    "shared_mem": "shared memory",
    "warps": "block size",
    "blocks": "blocks per SM",
    "barriers": "barriers",
}


@dataclass(frozen=True)
class TensorOp:
    """One counter of tensor operations: ``sm__ops_path_tensor_<name>.sum``, in operations.

    ``type`` is the data type that ran, ``path`` the instruction that ran it.
    """

    type: str
    path: str
    name: str

    @property
    def work(self) -> str:
        return f"sm__ops_path_tensor_{self.name}.sum"

    @property
    def peak(self) -> str:
        return f"{self.work}.peak_sustained"


# Split by instruction and sparsity wherever the chip has such a counter: the roll-ups by type alone
# (src_fp16 and the like) have the peak of 2:4 sparsity, twice the dense one.
_HOPPER = (
    ("fp16", "wgmma", "op_hgmma_src_fp16"),
    ("fp16", "mma.sync", "op_hmma_src_fp16_dst_fp32"),
    ("fp16", "mma.sync", "op_hmma_src_fp16_dst_fp16"),
    ("bf16", "wgmma", "op_hgmma_src_bf16_dst_fp32"),
    ("bf16", "mma.sync", "op_hmma_src_bf16_dst_fp32"),
    ("tf32", "wgmma", "op_hgmma_src_tf32_dst_fp32"),
    ("tf32", "mma.sync", "op_hmma_src_tf32_dst_fp32"),
    ("int8", "wgmma", "op_igmma_src_int8"),
    ("int8", "mma.sync", "op_imma_src_int8"),
    ("fp8", "wgmma", "src_fp8"),
)
_AMPERE = (
    ("fp16", "mma.sync", "src_fp16_dst_fp32"),
    ("fp16", "mma.sync", "src_fp16_dst_fp16"),
    ("bf16", "mma.sync", "src_bf16_dst_fp32"),
    ("tf32", "mma.sync", "src_tf32_dst_fp32"),
    ("int8", "mma.sync", "src_int8"),
)
TENSOR_OPS = (
    *(TensorOp(t, p, f"{name}_sparsity_off") for t, p, name in (*_HOPPER, *_AMPERE)),
    *(TensorOp(f"{t} sparse", p, f"{name}_sparsity_on") for t, p, name in (*_HOPPER, *_AMPERE)),
    TensorOp("fp64", "mma.sync", "src_fp64"),
)
# Bytes of each level as in the hierarchical roofline sections of ncu. L1 is what loads from global,
# local and distributed shared memory return; a block's own shared memory is not in it.
L2_BYTES = "derived__lts__lts2xbar_bytes.sum"
L1_BYTES = "derived__l1tex__lsu_writeback_bytes_mem_lgds.sum"
# Kind of arithmetic to its thread instructions with the FLOPs of each; a packed half instruction
# works on two lanes. The last is the one whose peak rate is known.
VECTOR = {
    "fp32": {"fadd": 1, "fmul": 1, "ffma": 2},
    "fp64": {"dadd": 1, "dmul": 1, "dfma": 2},
    "half": {"hmul": 2, "hfma": 4},
}
PEAK_RATE = "sm__sass_thread_inst_executed_op_{}_pred_on.sum.peak_sustained"
PER_CYCLE = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
GPC_CLOCK = "gpc__cycles_elapsed.avg.per_second"
OTHER_PASS = "sm__cycles_elapsed.avg.per_second"
DRAM, L2, L1 = LEVELS = ("dram", "l2", "l1")
# Level to the clock of its own, and to the counters that may have its bytes with the worth of one.
CLOCKS = {DRAM: "dram__cycles_elapsed.avg.per_second", L2: "lts__cycles_elapsed.avg.per_second"}
COUNTERS = {
    DRAM: (("dram__bytes.sum", 1),),
    L2: ((L2_BYTES, 1), ("lts__lts2xbar_cycles_active.sum", 32)),
    L1: (
        (L1_BYTES, 1),
        ("l1tex__lsu_writeback_active_mem_lgds.sum", 128),
        ("l1tex__lsu_writeback_active_mem_lg.sum", 128),
    ),
}
SMSP_CLOCK = "smsp__cycles_elapsed.avg.per_second"


def _of_level(level: str) -> list[str]:
    ends = ("peak_sustained",) if level == DRAM else ("peak_sustained", "per_second")
    names = [f"{name}.{end}" for name, _ in COUNTERS[level] for end in ends]
    return [*names, CLOCKS[level]] if level in CLOCKS else names


ROOFLINE_METRICS = (  # in the order that recorded tables have
    *(name for level in LEVELS for name in _of_level(level)),
    *(OTHER_PASS, SMSP_CLOCK),
    *(PEAK_RATE.format([*ops][-1]) for ops in VECTOR.values()),
    *(PER_CYCLE.format(op) for ops in VECTOR.values() for op in ops),
    *(name for op in TENSOR_OPS for name in (op.work, op.peak)),
)

# In the order in which derive/factors.py names them.
DURATION_METRICS = (
    "device__attribute_multiprocessor_count",
    "device__attribute_num_schedulers_per_multiprocessor",
    "smsp__inst_executed.sum",
    "smsp__issue_active.avg.per_cycle_active",
    "smsp__cycles_active.avg",
    "gpc__cycles_elapsed.avg",
    "gpc__cycles_elapsed.avg.per_second",
    "smsp__cycles_active.max",
)


def needed_metrics() -> list[str]:
    """Every metric some figure may want, without duplicates."""
    names = [n for spec in catalog().values() for n in (*spec.names, *spec.per)]
    names += [f"{LIMIT_PREFIX}{kind}" for kind in LIMITERS]
    return list(dict.fromkeys([*names, GLOBAL_SECTORS, *DURATION_METRICS, *ROOFLINE_METRICS]))


BANDWIDTH = "dram_bandwidth"

SAMPLES = "stall_samples"

TIME = "time"  # of the timing session, not of a capture

COMPUTED = {
    TIME: ("Time", "µs"),
    BANDWIDTH: ("DRAM bandwidth", "GB/s"),
    SAMPLES: ("Warp state samples", "sample"),
}

STALL = "stall."  # before a reason, in the id of its figure


def known_figures() -> list[str]:
    """Every id that a prediction can name."""
    return [TIME, BANDWIDTH, *catalog(), *(f"{STALL}{reason}" for reason in STALL_REASONS)]


def figure_label(name: str) -> tuple[str, str]:
    """Label and unit of a figure's id; a stall reason's is made of its name."""
    if name in COMPUTED:
        return COMPUTED[name]
    if name.startswith(STALL):
        return f"Stall: {name.removeprefix(STALL).replace('_', ' ')}", "% of samples"
    spec = catalog().get(name)
    return (spec.label, spec.unit) if spec else (name, "")
