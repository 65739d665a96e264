"""Made-up captures of one launch: the metrics and samples of a kernel with one limit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path

from workbench.derive.factors import (
    ACTIVE,
    BUSIEST,
    CLOCK,
    ELAPSED,
    INSTRUCTIONS,
    ISSUE_RATE,
    SCHEDULERS_PER_SM,
    SMS,
)
from workbench.derive.figures import DURATION
from workbench.derive.source_diff import SECTORS
from workbench.ncu.capture import Capture, KeptTables
from workbench.ncu.catalog import L1_BYTES, L2_BYTES, STALL_PREFIX
from workbench.words import VIRTUAL_ROOT

SMS_OF_CARD, GHZ, SAMPLES = 132, 2.0, 10_000
DRAM_RATE, L2_RATE, L1_RATE = 4e12, 8e12, 32e12
FILE = f"{VIRTUAL_ROOT}/made/kernel.cu"
HOT = 7  # the line with all samples of the first stall reason
HOPPER = "sm__ops_path_tensor_op_hgmma_src_fp16_sparsity_off.sum"
AMPERE = "sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off.sum"


@dataclass(frozen=True)
class Kernel:
    """What its launch did, by shares: ``issue`` slots while active, ``busiest`` and ``balance`` of
    the SMs, the bandwidth of each level, the pipes. ``stalls`` are shares of the samples that could
    not go, ``excess`` is the part of its sectors beyond the ideal. The rest is as ncu
    counts it.
    """

    stalls: Mapping[str, float]
    issue: float = 0.3
    busiest: float = 0.99
    balance: float = 0.98
    dram: float = 0.05
    l2: float = 0.05
    l1: float = 0.05
    tensor: float = 0.0
    fma: float = 0.1
    xu: float = 0.05
    lsu: float = 0.1
    microseconds: float = 100.0
    blocks: int = 132 * 20
    waves: float = 20.0
    warps: float = 8.0
    occupancy: tuple[float, float] = (50.0, 50.0)
    shared_kb: float = 32.0
    requests: float = 1e6
    sectors: float = 16.0
    excess: float = 0.0
    stores: float = 0.0  # sectors, 32 a request
    conflicts: float = 0.0
    path: str = ""
    hopper: bool = True


def metrics(kernel: Kernel) -> dict[str, float]:
    """By name, as a report has them."""
    seconds = kernel.microseconds * 1e-6
    cycles = seconds * GHZ * 1e9
    active = cycles * kernel.busiest * kernel.balance
    found = {
        SMS: SMS_OF_CARD,
        SCHEDULERS_PER_SM: 4,
        INSTRUCTIONS: kernel.issue * active * SMS_OF_CARD * 4,
        ISSUE_RATE: kernel.issue,
        ACTIVE: active,
        BUSIEST: cycles * kernel.busiest,
        ELAPSED: cycles,
        CLOCK: GHZ * 1e9,
        DURATION: seconds * 1e9,
        "gpc__cycles_elapsed.max": cycles,
        "dram__bytes.sum.peak_sustained": DRAM_RATE / (GHZ * 1e9),
        "dram__cycles_elapsed.avg.per_second": GHZ * 1e9,
        "dram__bytes_read.sum": kernel.dram * DRAM_RATE * seconds,
        "dram__bytes_write.sum": 0.0,
        f"{L2_BYTES}.peak_sustained": L2_RATE / (GHZ * 1e9),
        "lts__cycles_elapsed.avg.per_second": GHZ * 1e9,
        f"{L2_BYTES}.per_second": kernel.l2 * L2_RATE,
        f"{L1_BYTES}.peak_sustained": L1_RATE / (GHZ * 1e9),
        f"{L1_BYTES}.per_second": kernel.l1 * L1_RATE,
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": 100 * kernel.tensor,
        "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed": 100 * kernel.fma,
        "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed": 100 * kernel.xu,
        "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_elapsed": 100 * kernel.lsu,
        "launch__grid_size": kernel.blocks,
        "launch__waves_per_multiprocessor": kernel.waves,
        "launch__shared_mem_per_block": kernel.shared_kb * 1e3,
        "launch__occupancy_limit_registers": 4,
        "launch__occupancy_limit_warps": 8,
        "smsp__warps_active.avg.per_cycle_active": kernel.warps,
        "sm__warps_active.avg.pct_of_peak_sustained_active": kernel.occupancy[0],
        "sm__maximum_warps_per_active_cycle_pct": kernel.occupancy[1],
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": kernel.requests,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": kernel.requests * kernel.sectors,
        "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": kernel.stores / 32,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": kernel.stores,
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": kernel.conflicts,
        **{f"{STALL_PREFIX}{name}": n for name, n in samples(kernel).items()},
    }
    if kernel.hopper:
        found[f"{HOPPER}.peak_sustained"] = 4096.0 * SMS_OF_CARD
    if kernel.path:
        found[HOPPER if kernel.path == "wgmma" else AMPERE] = 1e9
    return found


def samples(kernel: Kernel) -> dict[str, float]:
    """Stall reason to its samples, issuing warps among them."""
    issuing = SAMPLES * kernel.issue
    waiting = {name: (SAMPLES - issuing) * part for name, part in kernel.stalls.items()}
    return {"selected": issuing, **waiting}


def capture(kernel: Kernel, without: Collection[str] = (), launches: int = 1) -> Capture:
    """``without`` are metrics that it lacks, by the start of their names."""
    known = {
        name: value
        for name, value in metrics(kernel).items()
        if not any(name.startswith(start) for start in without)
    }
    sampled = {} if STALL_PREFIX in without else samples(kernel)
    lines = [(FILE, HOT + at, reason, value) for at, (reason, value) in enumerate(_waits(sampled))]
    if kernel.excess:
        sectors = kernel.requests * kernel.sectors + kernel.stores
        lines.append((FILE, HOT, SECTORS, kernel.excess * sectors))
    values = [(name, value, "") for name, value in known.items()]
    made = KeptTables("made", values, lines, [], frozenset(("samples", "instructions", SECTORS)))
    return Capture(Path("made.ncu-rep"), tuple(copy(made) for _ in range(launches)))


def _waits(sampled: Mapping[str, float]) -> list[tuple[str, float]]:
    return [(reason, value) for reason, value in sampled.items() if reason != "selected"]
