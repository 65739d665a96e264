"""Theoretical ceilings of the hierarchical roofline, from a capture itself, at its clocks.

Formulas as in Nsight Compute's roofline sections. The FP32 peak is twice the FFMA peak rate times
the SM clock, and FP64 likewise; that of packed FP16 is four times the HFMA rate. A tensor type's
ceiling is the dense rate of its fastest instruction. DRAM, L2 (lts2xbar) and L1 (bytes returned for
global and local loads) have each their own peak rate times their clock.

Unlike in those sections, the SM clock is that of the GPCs, which L1 shares: ncu counts their cycles
in the pass that it times. ``sm__cycles_elapsed.avg.per_second`` divides the cycles of one replay
pass by the duration of another, which moved the roofs of microsecond kernels by up to 10 %. It is
taken where a report has nothing better. The clocks of DRAM and L2 are not known otherwise: theirs
are up to 1 % off in the shortest kernels.

How many operations a capture counted, and what it used of each bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.derive.figures import DURATION, added, by_launch, longest, totals
from workbench.ncu.capture import ColumnTable
from workbench.ncu.catalog import (
    FP32_OPS,
    FP64_OPS,
    HALF_OPS,
    L1_BYTES,
    L2_BYTES,
    TENSOR_OPS,
    TensorOp,
)

# Kind of arithmetic to its instructions with their FLOPs, the counter of its peak rate, and the
# FLOPs of one instruction at that rate.
VECTOR = {
    "fp32": (FP32_OPS, "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained", 2),
    "fp64": (FP64_OPS, "sm__sass_thread_inst_executed_op_dfma_pred_on.sum.peak_sustained", 2),
    "half": (HALF_OPS, "sm__sass_thread_inst_executed_op_hfma_pred_on.sum.peak_sustained", 4),
}
TENSOR = "tensor"
GPC_CLOCK = "gpc__cycles_elapsed.avg.per_second"
OTHER_PASS = "sm__cycles_elapsed.avg.per_second"
DRAM, L2, L1 = LEVELS = ("dram", "l2", "l1")
# Level to the clock of its own, and to the counters that may have its bytes with the worth of one.
CLOCKS = {
    DRAM: "dram__cycles_elapsed.avg.per_second",
    L2: "lts__cycles_elapsed.avg.per_second",
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
METRICS = {DRAM: "dram__bytes_read.sum + dram__bytes_write.sum", L2: L2_BYTES, L1: L1_BYTES}
Values = Mapping[str, float]  # the metrics of one launch by name


@dataclass(frozen=True)
class Peaks:
    """Theoretical FLOP/s or bytes/s at the clocks of a capture (``sm_clock`` in Hz), by the ids of
    the measured ceilings. ``half`` is packed FP16 outside the tensor cores, whose rates are dense.
    """

    sm_clock: float
    rates: Mapping[str, float]


def peaks(metrics: ColumnTable) -> Peaks | None:
    """Of the longest launch; None where its SM clock was not collected."""
    values = longest(by_launch(metrics))
    clock = sm_clock(values)
    if clock is None:
        return None
    rates = {level: bandwidth(values, level) for level in LEVELS}
    rates |= {kind: vector_peak(values, kind) for kind in VECTOR}
    rates |= {f"{TENSOR} {t}": tensor_peak(values, t) for t in {op.type for op in TENSOR_OPS}}
    return Peaks(clock, {name: rate for name, rate in rates.items() if rate})


def sm_clock(values: Values) -> float | None:
    """In Hz; None where not collected."""
    return values.get(GPC_CLOCK, values.get(OTHER_PASS))


def vector_peak(values: Values, kind: str) -> float | None:
    """FLOP/s of a kind of ``VECTOR``; None where not collected."""
    _, name, weight = VECTOR[kind]
    clock = sm_clock(values)
    return weight * values[name] * clock if clock and name in values else None


def op_peak(values: Values, op: TensorOp) -> float | None:
    """FLOP/s of one tensor instruction; None where not collected."""
    clock = sm_clock(values)
    return values[op.peak] * clock if clock and op.peak in values else None


def tensor_peak(values: Values, kind: str) -> float | None:
    """The fastest instruction's dense rate for a data type."""
    rates = [op_peak(values, op) for op in TENSOR_OPS if op.type == kind]
    return max((rate for rate in rates if rate), default=None)


def bandwidth(values: Values, level: str) -> float | None:
    """Peak bytes per second of a level, at its clock."""
    clock = values.get(CLOCKS[level]) if level in CLOCKS else sm_clock(values)
    rates = (worth * values.get(f"{name}.peak_sustained", 0.0) for name, worth in COUNTERS[level])
    return next((rate * clock for rate in rates if rate), None) if clock else None


def traffic(values: Values, level: str) -> float | None:
    """Bytes that a launch moved through a level."""
    if level == DRAM:
        names = ("dram__bytes_read.sum", "dram__bytes_write.sum")
        return added(values[n] for n in names) if set(names) <= values.keys() else None
    for name, worth in COUNTERS[level]:
        if f"{name}.per_second" in values:
            return worth * values[f"{name}.per_second"] * values[DURATION] * 1e-9
    return None


PER_CYCLE = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
SMSP_CLOCK = "smsp__cycles_elapsed.avg.per_second"
CYCLES = "gpc__cycles_elapsed.max"


def counted_flops(metrics: ColumnTable) -> Mapping[str, float] | None:
    """FLOPs by kind of arithmetic (``fp32``, ``fp64``, ``half``, ``tensor <type>``), of all
    launches; None where some launch has no counters for them.

    Additions, multiplications and FMAs (two FLOPs each) of threads, and operations of the tensor
    cores: see ``point``. Per-cycle counts are of one replay pass and cycles of another, so that of
    two ways to multiply them the larger is taken: it errs for the variant.
    """
    launches = list(by_launch(metrics).values())
    if not launches:
        return None
    own = [found for values in launches if (found := _of(values)) is not None]
    if len(own) < len(launches):
        return None
    return totals(item for found in own for item in found.items())


def per_cycle(values: Values, kind: str) -> float | None:
    """FLOPs of threads, of a kind of ``VECTOR``; None where one of the counters is missing."""
    ops, *_ = VECTOR[kind]
    if not all(PER_CYCLE.format(op) in values for op in ops):
        return None
    return added(values[PER_CYCLE.format(op)] * weight for op, weight in ops.items())


def _of(values: Values) -> Mapping[str, float] | None:
    cycles = _cycles(values)
    known = {kind: per_cycle(values, kind) for kind in VECTOR}
    vector = {kind: flops * cycles for kind, flops in known.items() if flops is not None}
    tensor = totals((f"{TENSOR} {op.type}", values.get(op.work, 0.0)) for op in TENSOR_OPS)
    if not vector or not cycles or not any(op.work in values for op in TENSOR_OPS):
        return None
    return {kind: flops for kind, flops in {**vector, **tensor}.items() if flops}


def _cycles(values: Values) -> float:
    by_clock = values.get(SMSP_CLOCK, 0.0) * values.get(DURATION, 0.0) * 1e-9
    return max(by_clock, values.get(CYCLES, 0.0))


@dataclass(frozen=True)
class Moved:
    """Bytes of all launches through a level; ``seconds`` at its peak bandwidth, nan if unknown."""

    bytes: float
    seconds: float


def moved(launches: Sequence[Values], level: str) -> Moved | None:
    """None where some launch has no counters of the level."""
    amounts = [traffic(values, level) for values in launches]
    known = [amount for amount in amounts if amount is not None]
    if len(known) < len(launches):
        return None
    rates = [bandwidth(values, level) or math.nan for values in launches]
    return Moved(added(known), added(a / r for a, r in zip(known, rates, strict=True)))


@dataclass(frozen=True)
class Used:
    """One level of memory: its bytes over all launches, and the ``share`` of the duration that they
    need at its bandwidth: the one the GPU was ``measured`` to reach, else the theoretical one.
    """

    bytes: float
    share: float
    measured: bool


def used(metrics: ColumnTable, ceilings: Mapping[str, float]) -> dict[str, Used]:
    """Level to what was used of it; none that some launch lacks. ``ceilings`` are measured, by id,
    in bytes/s; a share above one of them, as at a higher clock, is of the theoretical one instead.
    """
    launches = list(by_launch(metrics).values())
    if not launches or not all(values.get(DURATION) for values in launches):
        return {}
    seconds = added(values[DURATION] for values in launches) * 1e-9
    found: dict[str, Used] = {}
    for level in LEVELS:
        one = moved(launches, level)
        if one is None:
            continue
        theory, ceiling = one.seconds / seconds, ceilings.get(level)
        share = one.bytes / ceiling / seconds if ceiling else math.nan
        by_measured = math.isfinite(share) and share <= 1
        if by_measured or math.isfinite(theory):
            found[level] = Used(one.bytes, share if by_measured else theory, by_measured)
    return found
