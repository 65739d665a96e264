"""Times and paired speedups with their intervals, from interleaved rounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

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
    import numpy as np

    values = _samples(timings, variant, mode).to_numpy()
    if not len(values):
        return None
    low, high = np.percentile(values, [2.5, 97.5])
    return Time(float(np.median(values)), float(low), float(high), mode, len(values))


def _samples(timings: pd.DataFrame, variant: str, mode: str) -> pd.Series[float]:
    """Microseconds by round."""
    import pandas as pd

    mine = ((timings["variant"] == variant) & (timings["mode"] == mode)).to_numpy()
    values, rounds = (timings[name].to_numpy()[mine] for name in ("microseconds", "round"))
    return pd.Series(values, index=rounds)


@lru_cache(maxsize=8)
def _median_ranks(count: int, resamples: int) -> Any:
    """The ranks, from 0, of the two middle ones of each resample of ``count`` values.

    They do not depend on the values, so that many ratios share one bootstrap.
    """
    import numpy as np

    draws = np.random.default_rng(SEED).integers(0, count, (resamples, count), dtype=np.int32)
    middle = [(count - 1) // 2, count // 2]
    return np.partition(draws, middle, axis=1)[:, middle]


def paired_ratio(
    timings: pd.DataFrame, over: str, variant: str, mode: str, resamples: int
) -> Ratio | None:
    """How many times faster ``variant`` is than ``over``.

    Each round gives one ratio of times measured moments apart, so that drift cancels; the
    interval is the percentile bootstrap of their median (Efron 1979), with a fixed seed.
    """
    import numpy as np

    before, after = (_samples(timings, name, mode) for name in (over, variant))
    ratios = np.sort((before / after).dropna().to_numpy())
    if not len(ratios):
        return None
    medians = ratios[_median_ranks(len(ratios), resamples)].mean(axis=1)
    margin = (100 - CONFIDENCE) / 2
    low, high = np.percentile(medians, [margin, 100 - margin])
    return Ratio(float(np.median(ratios)), float(low), float(high))
