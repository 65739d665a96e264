"""Times and paired speedups with their intervals, from interleaved rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

SEED = 20090526  # any fixed number: the same samples must always give the same interval
CONFIDENCE = 95.0


@dataclass(frozen=True)
class Time:
    """Microseconds per call: median, and the 2.5th and 97.5th percentiles of the samples."""

    median: float
    low: float
    high: float
    mode: str
    samples: int


@dataclass(frozen=True)
class Ratio:
    """Median of paired ratios with its 95 % bootstrap interval; above 1 is faster."""

    ratio: float
    low: float
    high: float


def time_of(timings: pd.DataFrame, variant: str, mode: str) -> Time | None:
    rows = timings[(timings["variant"] == variant) & (timings["mode"] == mode)]
    if rows.empty:
        return None
    values = rows["microseconds"]
    low, high = values.quantile(0.025), values.quantile(0.975)
    return Time(float(values.median()), float(low), float(high), mode, len(values))


def paired_ratio(
    timings: pd.DataFrame, over: str, variant: str, mode: str, resamples: int
) -> Ratio | None:
    """How many times faster ``variant`` is than ``over``.

    Each round gives one ratio of times measured moments apart, so that drift cancels; the
    interval is the percentile bootstrap of their median (Efron 1979), with a fixed seed.
    """
    import numpy as np

    rows = timings[timings["mode"] == mode]
    wide = rows.pivot(index="round", columns="variant", values="microseconds")
    if over not in wide or variant not in wide:
        return None
    ratios = (wide[over] / wide[variant]).dropna().to_numpy()
    if not len(ratios):
        return None
    draws = np.random.default_rng(SEED).integers(0, len(ratios), (resamples, len(ratios)))
    medians = np.median(ratios[draws], axis=1)
    margin = (100 - CONFIDENCE) / 2
    low, high = np.percentile(medians, [margin, 100 - margin])
    return Ratio(float(np.median(ratios)), float(low), float(high))
