"""Times and paired speedups with their intervals, from interleaved rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

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


@dataclass(frozen=True, eq=False)
class Samples:
    """The timed samples of one variant in one regime: microseconds, and the round of each."""

    mode: str
    rounds: NDArray[np.int64]
    microseconds: NDArray[np.float64]


def samples_of(timings: pd.DataFrame) -> Mapping[tuple[str, str], Samples]:
    """Variant and regime to their samples, in the order in which they were taken."""
    import numpy as np

    groups: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
    columns = (timings[name] for name in ("variant", "mode", "round", "microseconds"))
    for variant, mode, number, microseconds in zip(*columns, strict=True):
        rounds, values = groups.setdefault((str(variant), str(mode)), ([], []))
        rounds.append(number)
        values.append(microseconds)
    return {
        key: Samples(key[1], np.array(rounds, dtype=np.int64), np.array(values, dtype=np.float64))
        for key, (rounds, values) in groups.items()
    }


def time_of(samples: Samples) -> Time:
    import numpy as np

    values = samples.microseconds
    low, high = np.percentile(values, [2.5, 97.5])
    return Time(
        median=float(np.median(values)),
        low=float(low),
        high=float(high),
        mode=samples.mode,
        samples=len(values),
    )


@lru_cache(maxsize=8)
def _median_ranks(count: int, resamples: int) -> Any:
    """The ranks, from 0, of the two middle ones of each resample of ``count`` values.

    They do not depend on the values, so that many ratios share one bootstrap.
    """
    import numpy as np

    draws = np.random.default_rng(SEED).integers(0, count, (resamples, count), dtype=np.int32)
    middle = [(count - 1) // 2, count // 2]
    return np.partition(draws, middle, axis=1)[:, middle]


def paired_ratio(before: Samples, after: Samples, resamples: int) -> Ratio | None:
    """How many times faster ``after`` is than ``before``; None where no round has both.

    Each round gives one ratio of times measured moments apart, so that drift cancels; the
    interval is the percentile bootstrap of their median (Efron 1979), with a fixed seed.
    """
    import numpy as np

    ratios = np.sort(_ratios(before, after))
    if not len(ratios):
        return None
    medians = ratios[_median_ranks(len(ratios), resamples)].mean(axis=1)
    margin = (100 - CONFIDENCE) / 2
    low, high = np.percentile(medians, [margin, 100 - margin])
    return Ratio(ratio=float(np.median(ratios)), low=float(low), high=float(high))


def _ratios(before: Samples, after: Samples) -> NDArray[np.float64]:
    """Of the rounds that have both."""
    import numpy as np

    _, one, other = np.intersect1d(before.rounds, after.rounds, return_indices=True)
    ratios = before.microseconds[one] / after.microseconds[other]
    return np.asarray(ratios[~np.isnan(ratios)], dtype=np.float64)
