"""The hierarchical roofline: where a variant stands under the ceilings, from the capture itself.

Formulas as in Nsight Compute's roofline sections. FP32 work is FADD + FMUL + 2 FFMA thread
instructions, and FP64 likewise; packed FP16 work is 2 HMUL + 4 HFMA (two lanes each; HADD is left
out, since unpacking a half is one too). Tensor work is counted by data type. Traffic is DRAM bytes,
bytes from L2 to the SMs, and bytes that L1 returns. The ceilings are theoretical, at the clocks of
the capture; see ``ceilings``. Where the GPU was calibrated, a point also has its shares of the
measured ones, unscaled; see ``measured``.

Work W with peak P needs W/P seconds at the least, and so does the traffic of each level. A variant
with several kinds of work or several launches is bound by the sums of those: its roof is its FLOPs
over the longest of them. For one kind of work this is the usual min(peak, intensity x bandwidth).

Measured ceilings beside the theoretical ones of a capture.

A measured ceiling is never scaled: it is what this GPU reached at the clock of that moment, and a
share of it says how much of that a kernel got. It is held against theory at the same clock, though:
the rates of arithmetic and of L1 are proportional to the SM clock, so the capture's peak is taken
at the SM clock of the benchmark. L2 and DRAM have clocks of their own, which hardly move: their
peaks are the capture's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from workbench.derive.figures import DURATION, added, by_launch, totals
from workbench.derive.roofline.ceilings import (
    DRAM,
    L1,
    L2,
    LEVELS,
    SMSP_CLOCK,
    TENSOR,
    VECTOR,
    Peaks,
    Values,
    moved,
    op_peak,
    per_cycle,
    sm_clock,
    tensor_peak,
    vector_peak,
)
from workbench.evidence.records import Ceiling, CeilingsFile
from workbench.ncu.capture import ColumnTable
from workbench.ncu.catalog import TENSOR_OPS
from workbench.words import shown

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
    """Where a variant stands; None where a counter is missing or nothing went through ``base``.
    Levels without counters in some launch are left out. ``measured`` ceilings are by id, in FLOP/s
    and bytes/s. One that only moves bytes has no place, but a share of every level's bandwidth.
    """
    launches = list(by_launch(metrics).values())
    if not all(_is_complete(values) for values in launches):
        return None
    own = [values[DURATION] * 1e-9 for values in launches]
    seconds = added(own)
    clocks = [sm_clock(values) or math.nan for values in launches]
    cycles = added(clock * each for clock, each in zip(clocks, own, strict=True))
    every = {level: moved(launches, level) for level in LEVELS}
    traffic = {k: found for k, found in every.items() if found and math.isfinite(found.seconds)}
    if DRAM not in traffic or base not in traffic or not traffic[base].bytes or not seconds:
        return None
    work = [each for values in launches for each in _work(values)]
    flops = totals((kind, done) for kind, done, _ in work)
    at_peak = totals((kind, done / peak) for kind, done, peak in work)
    total, known = added(flops.values()), measured or {}
    kind = max(at_peak, key=lambda name: (at_peak[name], name), default="fp32")
    busy = at_peak.get(kind, 0.0)
    least = {name: max(busy, one.seconds) for name, one in traffic.items()}
    levels = {
        name: LevelPoint(
            name=name,
            flop_per_byte=total / one.bytes if one.bytes else math.inf,
            share_of_bandwidth=one.seconds / seconds,
            roof_flops_per_second=total / least[name] if least[name] else math.nan,
            share_of_measured=_share(one.bytes, known.get(name), seconds),
            bytes_per_second=one.bytes / seconds,
        )
        for name, one in traffic.items()
    }
    return Point(
        base=base,
        flop_per_byte=total / traffic[base].bytes,
        flops_per_second=total / seconds,
        roof_flops_per_second=levels[base].roof_flops_per_second,
        arithmetic=TENSOR if kind.startswith(TENSOR) else kind,
        flops=total,
        above_roof=busy > ERROR_MARGIN * seconds or any(x.above_roof for x in levels.values()),
        limit="compute" if busy >= traffic[base].seconds else base,
        share_of_arithmetic_peak=busy / seconds,
        levels=tuple(levels.values()),
        tensor_type=kind.removeprefix(f"{TENSOR} ") if TENSOR in kind else "",
        lower_bound=any(_is_undercounted(values) for values in launches),
        sm_clock_hz=cycles / seconds,
        share_of_measured=_share(flops.get(kind, 0.0), known.get(kind), seconds),
    )


def _share(amount: float, rate: float | None, seconds: float) -> float:
    """Of what ``rate`` could have done in the time; nan where it was not measured."""
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


OWN_CLOCK = (DRAM, L2)


@dataclass(frozen=True)
class MeasuredCeiling:
    """A measured ceiling; ``theoretical`` in its unit, at its clock, None where not known."""

    id: str
    measured: Ceiling
    theoretical: float | None

    @property
    @shown
    def share_of_theoretical(self) -> float:
        """Of the theoretical one; nan where that is not known."""
        return self.measured.value / self.theoretical if self.theoretical else math.nan

    @property
    @shown
    def above_theory(self) -> bool:
        """More than the hardware can do: an error in the data."""
        return self.share_of_theoretical > ERROR_MARGIN


@dataclass(frozen=True)
class MeasuredCeilings:
    """All measured ceilings of a GPU by id; ``not_collected`` says why others are missing."""

    gpu: str
    date: str
    ceilings: Mapping[str, MeasuredCeiling]
    not_collected: Mapping[str, str]

    def value(self, name: str) -> float | None:
        """FLOP/s or bytes/s; None where not measured."""
        roof = self.ceilings.get(name)
        return roof.measured.value if roof else None

    @property
    def wrong(self) -> list[MeasuredCeiling]:
        """Those above what the hardware can do."""
        return [roof for roof in self.ceilings.values() if roof.above_theory]


def measured_ceilings(calibration: CeilingsFile, peaks: Peaks | None) -> MeasuredCeilings:
    """``peaks`` are of a capture on the same GPU, None where there is none."""
    return MeasuredCeilings(
        gpu=calibration.provenance.gpu or "",
        date=calibration.provenance.date,
        ceilings={
            name: MeasuredCeiling(name, found, _theoretical(name, found, peaks) if peaks else None)
            for name, found in calibration.ceilings.items()
        },
        not_collected=calibration.not_collected,
    )


def _theoretical(name: str, measured: Ceiling, peaks: Peaks) -> float | None:
    rate = peaks.rates.get(name)
    if rate is None or name in OWN_CLOCK:
        return rate
    if measured.sm_clock_mhz is None:
        return None
    return rate * measured.sm_clock_mhz * 1e6 / peaks.sm_clock
