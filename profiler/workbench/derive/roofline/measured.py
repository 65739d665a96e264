"""Measured ceilings beside the theoretical ones of a capture.

A measured ceiling is never scaled: it is what this card reached at the clock of that moment, and a
share of it says how much of that a kernel got. It is held against theory at the same clock, though:
the rates of arithmetic and of L1 are proportional to the SM clock, so the capture's peak is taken
at the SM clock of the benchmark. L2 and DRAM have clocks of their own, which hardly move: their
peaks are the capture's. Where the SM clock of a capture differs from that of a ceiling by more than
``CLOCK_TOLERANCE``, whoever shows a share has to say so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from workbench.derive.roofline.ceilings import DRAM, L2, TENSOR, Peaks
from workbench.derive.roofline.point import ERROR_MARGIN, Point
from workbench.evidence.records import Ceiling, CeilingsFile
from workbench.words import CLOCK_TOLERANCE

OWN_CLOCK = (DRAM, L2)


@dataclass(frozen=True)
class MeasuredCeiling:
    """A measured ceiling; ``theoretical`` in its unit, at its clock, None where not known."""

    id: str
    measured: Ceiling
    theoretical: float | None

    @property
    def share(self) -> float:
        """Of the theoretical one; nan where that is not known."""
        return self.measured.value / self.theoretical if self.theoretical else math.nan

    @property
    def above_theory(self) -> bool:
        """More than the hardware can do: an error in the data."""
        return self.share > ERROR_MARGIN


@dataclass(frozen=True)
class MeasuredCeilings:
    """All measured ceilings of a GPU by id; ``absent`` says why others are missing."""

    gpu: str
    date: str
    by_id: Mapping[str, MeasuredCeiling]
    absent: Mapping[str, str]

    def value(self, name: str) -> float | None:
        """FLOP/s or bytes/s; None where not measured."""
        roof = self.by_id.get(name)
        return roof.measured.value if roof else None

    @property
    def wrong(self) -> list[MeasuredCeiling]:
        """Those above what the hardware can do."""
        return [roof for roof in self.by_id.values() if roof.above_theory]


def measured_ceilings(calibration: CeilingsFile, peaks: Peaks | None) -> MeasuredCeilings:
    """``peaks`` are of a capture on the same GPU, None where there is none."""
    return MeasuredCeilings(
        gpu=calibration.provenance.gpu or "",
        date=calibration.provenance.date,
        by_id={
            name: MeasuredCeiling(name, found, _theoretical(name, found, peaks) if peaks else None)
            for name, found in calibration.ceilings.items()
        },
        absent=calibration.not_collected,
    )


def _theoretical(name: str, measured: Ceiling, peaks: Peaks) -> float | None:
    rate = peaks.rates.get(name)
    if rate is None or name in OWN_CLOCK:
        return rate
    if measured.sm_clock_mhz is None:
        return None
    return rate * measured.sm_clock_mhz * 1e6 / peaks.sm_clock


def compute_id(point: Point) -> str:
    """The ceiling of the arithmetic that would take a point longest."""
    kind = point.tensor_type or "fp16"
    return f"{TENSOR} {kind}" if point.ceiling == TENSOR else point.ceiling


def other_clock(point: Point, measured: MeasuredCeilings) -> tuple[float, float] | None:
    """SM clocks in MHz of a point's capture and of the ceiling of its arithmetic, where apart."""
    roof = measured.by_id.get(compute_id(point))
    own, ceiling = point.sm_clock * 1e-6, roof.measured.sm_clock_mhz if roof else None
    if ceiling is None or not math.isfinite(own) or abs(own / ceiling - 1) <= CLOCK_TOLERANCE:
        return None
    return own, ceiling
