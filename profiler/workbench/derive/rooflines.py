"""The hierarchical roofline: where a variant stands under the ceilings, from the capture itself.

Formulas as in Nsight Compute's roofline sections. FP32 work is FADD + FMUL + 2 FFMA thread
instructions, and FP64 likewise; packed FP16 work is 2 HMUL + 4 HFMA (two lanes each; HADD is left
out, since unpacking a half is one too). Tensor work is counted by data type. Traffic is DRAM bytes,
bytes from L2 to the SMs (lts2xbar), and bytes that L1 returns for global and local loads.

Theoretical ceilings are at the clocks of the capture: twice the FFMA peak rate times the SM clock
for FP32, and FP64 likewise; four times the HFMA rate for packed FP16; the dense rate of its fastest
instruction for a tensor type; and for each level of memory its own peak rate times its clock.

Unlike in those sections, the SM clock is that of the GPCs, which L1 shares: ncu counts their cycles
in the pass that it times. ``sm__cycles_elapsed.avg.per_second`` divides the cycles of one replay
pass by the duration of another, which moved the roofs of microsecond kernels by up to 10 %. It is
taken where a report has nothing better. The clocks of DRAM and L2 are not known otherwise: theirs
are up to 1 % off in the shortest kernels.

Work W with peak P needs W/P seconds at the least, and so does the traffic of each level. A variant
with several kinds of work or several launches is bound by the sums of those: its roof is its FLOPs
over the longest of them. For one kind of work this is the usual min(peak, intensity x bandwidth).

A measured ceiling is never scaled: it is what a GPU of the model reached at the clock of that
moment (``evidence/ceilings.toml``), and a share of it says how much of that a kernel got.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from workbench.derive.figures import DURATION, added, longest, totals
from workbench.ncu.capture import ColumnTable
from workbench.ncu.catalog import (
    CLOCKS,
    COUNTERS,
    DRAM,
    GPC_CLOCK,
    L1,
    L1_BYTES,
    L2,
    L2_BYTES,
    LEVELS,
    OTHER_PASS,
    PEAK_RATE,
    PER_CYCLE,
    SMSP_CLOCK,
    TENSOR_OPS,
    VECTOR,
    TensorOp,
)

TENSOR = "tensor"
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
    """Take the peaks at the longest launch; None where its SM clock was not collected."""
    values = longest(metrics.by_launch)
    clock = sm_clock(values)
    if clock is None:
        return None
    rates = {level: bandwidth(values, level) for level in LEVELS}
    rates |= {kind: vector_peak(values, kind) for kind in VECTOR}
    rates |= {f"{TENSOR} {t}": tensor_peak(values, t) for t in {op.type for op in TENSOR_OPS}}
    return Peaks(clock, {name: rate for name, rate in rates.items() if rate})


def sm_clock(values: Values) -> float | None:
    """Return the SM clock in Hz; None where not collected."""
    return values.get(GPC_CLOCK, values.get(OTHER_PASS))


def vector_peak(values: Values, kind: str) -> float | None:
    """FLOP/s of a kind of ``VECTOR``; None where not collected."""
    *_, (op, weight) = VECTOR[kind].items()
    clock, name = sm_clock(values), PEAK_RATE.format(op)
    return weight * values[name] * clock if clock and name in values else None


def op_peak(values: Values, op: TensorOp) -> float | None:
    """FLOP/s of one tensor instruction; None where not collected."""
    clock = sm_clock(values)
    return values[op.peak] * clock if clock and op.peak in values else None


def tensor_peak(values: Values, kind: str) -> float | None:
    rates = [op_peak(values, op) for op in TENSOR_OPS if op.type == kind]
    return max((rate for rate in rates if rate), default=None)


def bandwidth(values: Values, level: str) -> float | None:
    """Peak bytes per second of a level, at its clock."""
    clock = values.get(CLOCKS[level]) if level in CLOCKS else sm_clock(values)
    rates = (worth * values.get(f"{name}.peak_sustained", 0.0) for name, worth in COUNTERS[level])
    return next((rate * clock for rate in rates if rate), None) if clock else None


def traffic(values: Values, level: str) -> float | None:
    if level == DRAM:
        names = ("dram__bytes_read.sum", "dram__bytes_write.sum")
        return added(values[n] for n in names) if set(names) <= values.keys() else None
    for name, worth in COUNTERS[level]:
        if f"{name}.per_second" in values:
            return worth * values[f"{name}.per_second"] * values[DURATION] * 1e-9
    return None


CYCLES = "gpc__cycles_elapsed.max"


def counted_flops(metrics: ColumnTable) -> Mapping[str, float] | None:
    """FLOPs by kind of arithmetic (``fp32``, ``fp64``, ``half``, ``tensor <type>``), of all
    launches; None where some launch has no counters for them.

    Additions, multiplications and FMAs (two FLOPs each) of threads, and operations of the tensor
    cores: see ``point``. Per-cycle counts are of one replay pass and cycles of another, so that of
    two ways to multiply them the larger is taken: it errs for the variant.
    """
    launches = list(metrics.by_launch.values())
    if not launches:
        return None
    by_launch = [flops for values in launches if (flops := _of(values)) is not None]
    if len(by_launch) < len(launches):
        return None
    return totals(item for flops in by_launch for item in flops.items())


def per_cycle(values: Values, kind: str) -> float | None:
    """FLOPs of threads, of a kind of ``VECTOR``; None where one of the counters is missing."""
    ops = VECTOR[kind]
    if not all(PER_CYCLE.format(op) in values for op in ops):
        return None
    return added(values[PER_CYCLE.format(op)] * weight for op, weight in ops.items())


def _of(values: Values) -> Mapping[str, float] | None:
    cycles = _cycles(values)
    per_cycle_flops = {kind: per_cycle(values, kind) for kind in VECTOR}
    vector = {kind: flops * cycles for kind, flops in per_cycle_flops.items() if flops is not None}
    tensor = totals((f"{TENSOR} {op.type}", values.get(op.work, 0.0)) for op in TENSOR_OPS)
    if not vector or not cycles or not any(op.work in values for op in TENSOR_OPS):
        return None
    return {kind: flops for kind, flops in {**vector, **tensor}.items() if flops}


def _cycles(values: Values) -> float:
    by_clock = values.get(SMSP_CLOCK, 0.0) * values.get(DURATION, 0.0) * 1e-9
    return max(by_clock, values.get(CYCLES, 0.0))


def moved(launches: Sequence[Values], level: str) -> tuple[float, float] | None:
    """Bytes of all launches through a level, and seconds at its peak bandwidth, nan if unknown;
    None where some launch has no counters of the level.
    """
    amounts = [traffic(values, level) for values in launches]
    collected = [amount for amount in amounts if amount is not None]
    if len(collected) < len(launches):
        return None
    rates = [bandwidth(values, level) or math.nan for values in launches]
    return added(collected), added(a / r for a, r in zip(collected, rates, strict=True))


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
    launches = list(metrics.by_launch.values())
    if not launches or not all(values.get(DURATION) for values in launches):
        return {}
    seconds = added(values[DURATION] for values in launches) * 1e-9
    by_level: dict[str, Used] = {}
    for level in LEVELS:
        through, at_peak = moved(launches, level) or (math.nan, math.nan)
        theory, share = at_peak / seconds, _share(through, ceilings.get(level), seconds)
        by_measured = share <= 1
        if by_measured or math.isfinite(theory):
            by_level[level] = Used(through, share if by_measured else theory, by_measured)
    return by_level


TENSOR_PIPE = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
ERROR_MARGIN = 1.05  # a share beyond it is an error in the data
BUSY_PIPE_PCT = 1.0  # less of the tensor pipe is not worth a word


@dataclass(frozen=True)
class LevelPoint:
    """A variant at one level of memory.

    ``flop_per_byte`` is FLOP per byte of that level (infinite where nothing went through it);
    ``share_of_bandwidth`` the bytes per second (``bytes_per_second``) over the level's peak;
    ``roof_flops_per_second`` the FLOP/s that this level and the arithmetic allow.
    ``share_of_measured`` is of the bandwidth that the GPU was measured to reach, nan where it was
    not.
    """

    name: str
    flop_per_byte: float
    share_of_bandwidth: float
    roof_flops_per_second: float
    share_of_measured: float = math.nan
    bytes_per_second: float = math.nan

    @property
    def above_roof(self) -> bool:
        """More than the level can do: an error in the data."""
        return self.share_of_bandwidth > ERROR_MARGIN


@dataclass(frozen=True)
class Point:
    """One variant: FLOP per byte of ``base`` against FLOP/s, and the ceiling that applies to it.

    ``base`` is the level that inputs come from: DRAM where the caches were flushed, L2 where they
    were kept.

    ``arithmetic`` is the kind of arithmetic that would take longest at its peak: ``fp32``,
    ``fp64``, ``half`` or ``tensor``, the last of ``tensor_type``. ``roof_flops_per_second`` is the
    roof over the point in the roofline over ``base``, and ``limit`` says what sets it: ``compute``
    or ``base``. ``share_of_arithmetic_peak`` is the achieved share of that arithmetic's peak.
    ``levels`` are the points of every level that was collected. ``lower_bound``: the tensor pipe
    was busy, but its operations were not collected, so that the FLOPs are a lower bound.
    ``sm_clock_hz`` is the capture's, in Hz; ``share_of_measured`` the achieved share of the
    measured ceiling of ``arithmetic``; both nan where not known.
    """

    flop_per_byte: float
    flops_per_second: float
    roof_flops_per_second: float
    arithmetic: str
    flops: float
    above_roof: bool
    limit: str
    share_of_arithmetic_peak: float = math.nan
    levels: tuple[LevelPoint, ...] = ()
    tensor_type: str = ""
    lower_bound: bool = False
    sm_clock_hz: float = math.nan
    share_of_measured: float = math.nan
    base: str = DRAM

    @property
    def memory(self) -> LevelPoint | None:
        """The level off the SMs that is nearest to its peak bandwidth; None where none is known."""
        off = [level for level in self.levels if level.name != L1]
        return max(off, key=lambda level: level.share_of_bandwidth, default=None)


def point(
    metrics: ColumnTable, measured: Mapping[str, float] | None = None, base: str = DRAM
) -> Point | None:
    """Place a variant; None where a counter is missing or nothing went through ``base``.

    Levels without counters in some launch are left out. ``measured`` ceilings are by id, in FLOP/s
    and bytes/s. A variant that only moves bytes has no place, but a share of every level's
    bandwidth.
    """
    launches = list(metrics.by_launch.values())
    if not all(_is_complete(values) for values in launches):
        return None
    durations = [values[DURATION] * 1e-9 for values in launches]
    seconds = added(durations)
    clocks = [sm_clock(values) or math.nan for values in launches]
    cycles = added(clock * part for clock, part in zip(clocks, durations, strict=True))
    every = {level: moved(launches, level) for level in LEVELS}
    traffic = {k: amount for k, amount in every.items() if amount and math.isfinite(amount[1])}
    if DRAM not in traffic or base not in traffic or not traffic[base][0] or not seconds:
        return None
    work = [part for values in launches for part in _work(values)]
    flops = totals((kind, done) for kind, done, _ in work)
    at_peak = totals((kind, done / peak) for kind, done, peak in work)
    total, ceilings = added(flops.values()), measured or {}
    kind = max(at_peak, key=lambda name: (at_peak[name], name), default="fp32")
    busy = at_peak.get(kind, 0.0)
    levels = {
        name: LevelPoint(
            name=name,
            flop_per_byte=total / through if through else math.inf,
            share_of_bandwidth=least / seconds,
            roof_flops_per_second=total / max(busy, least) if busy or least else math.nan,
            share_of_measured=_share(through, ceilings.get(name), seconds),
            bytes_per_second=through / seconds,
        )
        for name, (through, least) in traffic.items()
    }
    return Point(
        base=base,
        flop_per_byte=levels[base].flop_per_byte,
        flops_per_second=total / seconds,
        roof_flops_per_second=levels[base].roof_flops_per_second,
        arithmetic=TENSOR if kind.startswith(TENSOR) else kind,
        flops=total,
        above_roof=busy > ERROR_MARGIN * seconds or any(x.above_roof for x in levels.values()),
        limit="compute" if busy >= traffic[base][1] else base,
        share_of_arithmetic_peak=busy / seconds,
        levels=tuple(levels.values()),
        tensor_type=kind.removeprefix(f"{TENSOR} ") if TENSOR in kind else "",
        lower_bound=any(_is_undercounted(values) for values in launches),
        sm_clock_hz=cycles / seconds,
        share_of_measured=_share(flops.get(kind, 0.0), ceilings.get(kind), seconds),
    )


def _share(amount: float, rate: float | None, seconds: float) -> float:
    """Divide by what ``rate`` could have done in the time; nan where the rate was not measured."""
    return amount / rate / seconds if rate else math.nan


def _is_complete(values: Values) -> bool:
    """False where the time, FP32 work or its ceiling are missing."""
    return (
        DURATION in values
        and SMSP_CLOCK in values
        and per_cycle(values, "fp32") is not None
        and vector_peak(values, "fp32") is not None
    )


def _work(values: Values) -> Iterator[tuple[str, float, float]]:
    """Kind, FLOPs and peak FLOP/s of the arithmetic of a launch."""
    for kind in VECTOR:
        flops, peak = per_cycle(values, kind), vector_peak(values, kind)
        if flops and peak:
            yield kind, flops * values[SMSP_CLOCK] * (values[DURATION] * 1e-9), peak
    for op in TENSOR_OPS:
        work, peak = values.get(op.work, 0.0), tensor_peak(values, op.type)
        if work and peak and op_peak(values, op):
            yield f"{TENSOR} {op.type}", work, peak


def _is_undercounted(values: Values) -> bool:
    """Whether the tensor pipe was busy, and its operations were not collected."""
    collected = any(op.work in values for op in TENSOR_OPS)
    return not collected and values.get(TENSOR_PIPE, 0.0) > BUSY_PIPE_PCT
