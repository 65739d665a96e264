"""The hierarchical roofline: ceilings and points, both from the capture itself.

Formulas as in Nsight Compute's roofline sections. FP32 work is FADD + FMUL + 2 FFMA thread
instructions, its peak twice the FFMA peak rate times the SM clock, and FP64 likewise; packed FP16
work is 2 HMUL + 4 HFMA (two lanes each; HADD is left out, since unpacking a half is one too), its
peak four times the HFMA rate. Tensor work is counted by data type; a type's ceiling is the dense
rate of its fastest instruction. Traffic is DRAM bytes, bytes from L2 to the SMs (lts2xbar), and
bytes that L1 returns for global and local loads, each against its own peak rate times its clock.
These ceilings are theoretical, at the clocks of the capture. Where the card was calibrated, a point
also has its shares of the measured ones, unscaled; see ``measured``.

Work W with peak P needs W/P seconds at the least, and so does the traffic of each level. A variant
with several kinds of work or several launches is bound by the sums of those: its roof is its FLOPs
over the longest of them. For one kind of work this is the usual min(peak, intensity x bandwidth).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.derive.figures import DURATION, by_launch
from workbench.ncu.catalog import (
    FP32_OPS,
    FP64_OPS,
    HALF_OPS,
    L1_BYTES,
    L2_BYTES,
    TENSOR_OPS,
    TensorOp,
)

if TYPE_CHECKING:
    import pandas as pd

VECTOR = {
    "fp32": (FP32_OPS, "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained", 2),
    "fp64": (FP64_OPS, "sm__sass_thread_inst_executed_op_dfma_pred_on.sum.peak_sustained", 2),
    "half": (HALF_OPS, "sm__sass_thread_inst_executed_op_hfma_pred_on.sum.peak_sustained", 4),
}
TENSOR = "tensor"
SM_CLOCK = "sm__cycles_elapsed.avg.per_second"
SMSP_CLOCK = "smsp__cycles_elapsed.avg.per_second"
TENSOR_PIPE = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
ERROR_MARGIN = 1.05
DRAM, L2, L1 = LEVELS = ("dram", "l2", "l1")


@dataclass(frozen=True)
class Ceilings:
    """FLOP/s and bytes/s the card can do at the capture's clocks; None is not collected.

    ``half`` is packed FP16 arithmetic outside the tensor cores; ``tensor`` the dense tensor rate
    for ``tensor_type``.
    """

    dram: float
    fp32: float
    tensor: float | None
    half: float | None = None
    fp64: float | None = None
    l2: float | None = None
    l1: float | None = None
    tensor_type: str = "fp16"

    def bandwidth(self, level: str) -> float | None:
        return {DRAM: self.dram, L2: self.l2, L1: self.l1}[level]


@dataclass(frozen=True)
class LevelPoint:
    """A variant at one level of memory.

    ``intensity`` is FLOP per byte of that level (infinite where nothing went through it);
    ``bandwidth_share`` the bytes per second over the level's peak; ``bound`` the FLOP/s that this
    level and the arithmetic allow. ``measured_share`` is of the bandwidth that the card was
    measured to reach, nan where it was not.
    """

    level: str
    intensity: float
    bandwidth_share: float
    bound: float
    measured_share: float = math.nan

    @property
    def above_roof(self) -> bool:
        return self.bandwidth_share > ERROR_MARGIN


@dataclass(frozen=True)
class Point:
    """One variant: FLOP per DRAM byte against FLOP/s, and the ceiling that applies to it.

    ``ceiling`` is the kind of arithmetic that would take longest at its peak: ``fp32``, ``fp64``,
    ``half`` or ``tensor``, the last of ``tensor_type``. ``bound`` is the roof over the point in
    the DRAM roofline, and ``limit`` says what sets it: ``compute`` or ``dram``. ``compute_share``
    is the achieved share of that arithmetic's peak. ``levels`` are the points of every level that
    was collected. ``path`` is the tensor instruction that did most of the tensor work, and
    ``path_share`` the achieved share of what it can do at most. ``undercounted``: the tensor pipe
    was busy, but its operations were not collected, so that the FLOPs are a lower bound.
    ``sm_clock`` is the capture's, in Hz; ``measured_compute`` the achieved share of the measured
    ceiling of ``ceiling``; both nan where not known.
    """

    intensity: float
    flops_per_second: float
    bound: float
    ceiling: str
    flops: float
    above_roof: bool
    limit: str
    compute_share: float = math.nan
    levels: tuple[LevelPoint, ...] = ()
    tensor_type: str = ""
    path: str = ""
    path_share: float = math.nan
    undercounted: bool = False
    sm_clock: float = math.nan
    measured_compute: float = math.nan

    @property
    def share(self) -> float:
        return self.flops_per_second / self.bound

    @property
    def measured_share(self) -> float:
        """Of what was measured of the roof over it: compute or DRAM, as ``limit`` says."""
        return self.measured_of("compute" if self.limit == "compute" else DRAM)

    def measured_of(self, roof: str) -> float:
        """The share of a measured ceiling: a level's, or of ``compute``; nan where not known."""
        if roof == "compute":
            return self.measured_compute
        return next((x.measured_share for x in self.levels if x.level == roof), math.nan)

    @property
    def nearest(self) -> tuple[str, float]:
        """The roof it comes nearest to over all levels, and the share of it: level or compute."""
        found = [("compute", self.compute_share)] if math.isfinite(self.compute_share) else []
        found += [(level.level, level.bandwidth_share) for level in self.levels]
        return max(found, key=lambda item: item[1], default=(self.limit, self.share))


def ceilings(metrics: pd.DataFrame, tensor_type: str = "fp16") -> Ceilings | None:
    """Of the longest launch; None where the capture has not the metrics for it."""
    launches = by_launch(metrics)
    if not launches:
        return None
    values = max(launches.values(), key=lambda v: v.get(DURATION, 0.0))
    fp32, dram = _vector_peak(values, "fp32"), _bandwidth(values, DRAM)
    if fp32 is None or dram is None:
        return None
    return Ceilings(
        dram,
        fp32,
        _tensor_peak(values, tensor_type),
        _vector_peak(values, "half"),
        _vector_peak(values, "fp64"),
        _bandwidth(values, L2),
        _bandwidth(values, L1),
        tensor_type,
    )


@dataclass(frozen=True)
class Peaks:
    """Theoretical rates at the clocks of a capture, by the ids of the measured ceilings.

    FLOP/s or bytes/s; ``sm_clock`` in Hz.
    """

    sm_clock: float
    rates: Mapping[str, float]


def peaks(metrics: pd.DataFrame) -> Peaks | None:
    """Of the longest launch; None where its SM clock was not collected."""
    values = max(by_launch(metrics).values(), key=lambda v: v.get(DURATION, 0.0), default={})
    if SM_CLOCK not in values:
        return None
    found = {level: _bandwidth(values, level) for level in LEVELS}
    found |= {kind: _vector_peak(values, kind) for kind in VECTOR}
    found |= {f"{TENSOR} {t}": _tensor_peak(values, t) for t in {op.type for op in TENSOR_OPS}}
    return Peaks(values[SM_CLOCK], {name: rate for name, rate in found.items() if rate})


@dataclass
class _Sums:
    """Work and traffic of a variant's launches, and the least seconds that each would take."""

    flops: dict[str, float]
    seconds_at_peak: dict[str, float]
    bytes: dict[str, float]
    seconds_at_bandwidth: dict[str, float]
    paths: dict[str, float]
    seconds_on_path: float = 0.0
    seconds: float = 0.0
    cycles: float = 0.0
    undercounted: bool = False


def point(metrics: pd.DataFrame, measured: Mapping[str, float] | None = None) -> Point | None:
    """Where a variant stands; None where a counter is missing or nothing went through DRAM.

    L2 and L1 are left out of ``levels`` where some launch lacks their counters. ``measured`` has
    the ceilings that the card was measured to reach, by id, in FLOP/s and bytes/s.
    """
    known = measured or {}
    sums = _Sums({}, {}, {}, {}, {})
    launches = by_launch(metrics)
    for values in launches.values():
        if not _add(sums, values):
            return None
    flops = sum(sums.flops.values())
    moved = sums.bytes.get(DRAM, 0.0)
    if not moved or not flops or not sums.seconds:
        return None
    kind = max(sums.flops, key=lambda k: (sums.seconds_at_peak[k], k))
    busy = sums.seconds_at_peak[kind]
    levels = tuple(
        _level(level, sums, flops, busy, known.get(level))
        for level in LEVELS
        if level in sums.bytes and all(_traffic(v, level) is not None for v in launches.values())
    )
    path = max(sums.paths, key=lambda p: (sums.paths[p], p), default="")
    above = busy > ERROR_MARGIN * sums.seconds or any(level.above_roof for level in levels)
    return Point(
        flops / moved,
        flops / sums.seconds,
        levels[0].bound,
        TENSOR if kind.startswith(TENSOR) else kind,
        flops,
        above,
        "compute" if busy >= sums.seconds_at_bandwidth[DRAM] else DRAM,
        busy / sums.seconds,
        levels,
        kind.removeprefix(f"{TENSOR} ") if TENSOR in kind else "",
        path,
        sums.seconds_on_path / sums.seconds if path else math.nan,
        sums.undercounted,
        sums.cycles / sums.seconds,
        sums.flops[kind] / known[kind] / sums.seconds if kind in known else math.nan,
    )


def _level(
    level: str, sums: _Sums, flops: float, busy: float, measured: float | None
) -> LevelPoint:
    moved, least = sums.bytes[level], sums.seconds_at_bandwidth[level]
    return LevelPoint(
        level,
        flops / moved if moved else math.inf,
        least / sums.seconds,
        flops / max(busy, least),
        moved / measured / sums.seconds if measured else math.nan,
    )


def _add(sums: _Sums, values: Mapping[str, float]) -> bool:
    """Add one launch; False where FP32 work, DRAM traffic or their ceilings are missing."""
    if DURATION not in values or SMSP_CLOCK not in values:
        return False
    seconds = values[DURATION] * 1e-9
    sums.seconds += seconds
    sums.cycles += values.get(SM_CLOCK, math.nan) * seconds
    for kind, (ops, *_) in VECTOR.items():
        per_cycle, peak = _per_cycle(values, ops), _vector_peak(values, kind)
        if kind == "fp32" and (per_cycle is None or peak is None):
            return False
        if per_cycle and peak:
            _put(sums, kind, per_cycle * values[SMSP_CLOCK] * seconds, peak)
    for op in TENSOR_OPS:
        work, own = values.get(op.work, 0.0), _op_peak(values, op)
        peak = _tensor_peak(values, op.type)
        if work and own and peak:
            _put(sums, f"{TENSOR} {op.type}", work, peak)
            sums.paths[op.path] = sums.paths.get(op.path, 0.0) + work
            sums.seconds_on_path += work / own
    if not any(op.work in values for op in TENSOR_OPS) and values.get(TENSOR_PIPE, 0.0) > 1:
        sums.undercounted = True
    for level in LEVELS:
        moved, bandwidth = _traffic(values, level), _bandwidth(values, level)
        if moved is None or not bandwidth:
            if level == DRAM:
                return False
            continue
        sums.bytes[level] = sums.bytes.get(level, 0.0) + moved
        least = sums.seconds_at_bandwidth.get(level, 0.0)
        sums.seconds_at_bandwidth[level] = least + moved / bandwidth
    return True


def _put(sums: _Sums, kind: str, work: float, peak: float) -> None:
    sums.flops[kind] = sums.flops.get(kind, 0.0) + work
    sums.seconds_at_peak[kind] = sums.seconds_at_peak.get(kind, 0.0) + work / peak


def _per_cycle(values: Mapping[str, float], ops: Mapping[str, int]) -> float | None:
    """Weighted thread instructions per cycle; None where one of the counters is missing."""
    name = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
    if not all(name.format(op) in values for op in ops):
        return None
    return sum(values[name.format(op)] * weight for op, weight in ops.items())


def _vector_peak(values: Mapping[str, float], kind: str) -> float | None:
    _, name, weight = VECTOR[kind]
    found = {name, SM_CLOCK} <= values.keys()
    return weight * values[name] * values[SM_CLOCK] if found else None


def _op_peak(values: Mapping[str, float], op: TensorOp) -> float | None:
    found = {op.peak, SM_CLOCK} <= values.keys()
    return values[op.peak] * values[SM_CLOCK] if found else None


def _tensor_peak(values: Mapping[str, float], kind: str) -> float | None:
    """The fastest instruction's dense rate for a data type."""
    peaks = [_op_peak(values, op) for op in TENSOR_OPS if op.type == kind]
    return max((peak for peak in peaks if peak), default=None)


# Level to its clock, and to the counters that may have its bytes, with what one count is worth.
CLOCKS = {
    DRAM: "dram__cycles_elapsed.avg.per_second",
    L2: "lts__cycles_elapsed.avg.per_second",
    L1: "l1tex__cycles_elapsed.avg.per_second",
}
COUNTERS = {
    DRAM: (("dram__bytes.sum", 1),),
    L2: ((L2_BYTES, 1), ("lts__lts2xbar_cycles_active.sum", 32)),
    L1: (
        (L1_BYTES, 1),
        ("l1tex__lsu_writeback_active_mem_lgds.sum", 128),
        ("l1tex__lsu_writeback_active_mem_lg.sum", 128),
    ),
}


def _bandwidth(values: Mapping[str, float], level: str) -> float | None:
    """Peak bytes per second of a level, at its clock."""
    for name, worth in COUNTERS[level]:
        if {f"{name}.peak_sustained", CLOCKS[level]} <= values.keys():
            return worth * values[f"{name}.peak_sustained"] * values[CLOCKS[level]]
    return None


def _traffic(values: Mapping[str, float], level: str) -> float | None:
    """Bytes that a launch moved through a level."""
    if level == DRAM:
        names = ("dram__bytes_read.sum", "dram__bytes_write.sum")
        return sum(values[n] for n in names) if set(names) <= values.keys() else None
    for name, worth in COUNTERS[level]:
        if f"{name}.per_second" in values:
            return worth * values[f"{name}.per_second"] * values[DURATION] * 1e-9
    return None
