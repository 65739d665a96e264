"""Times and paired speedups with their intervals, from interleaved rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
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
class TimedSamples:
    """The timed samples of one variant in one regime: microseconds, and the round of each."""

    mode: str
    rounds: NDArray[np.int64]
    microseconds: NDArray[np.float64]


def samples_of(
    *,
    variants: Sequence[str],
    modes: Sequence[str],
    rounds: Sequence[int],
    microseconds: Sequence[float],
) -> Mapping[tuple[str, str], TimedSamples]:
    """Variant and regime to their samples, from the columns of a timing session."""
    import numpy as np

    groups: dict[tuple[str, str], list[int]] = {}
    for row, key in enumerate(zip(variants, modes, strict=True)):
        groups.setdefault(key, []).append(row)
    every_round = np.asarray(rounds, dtype=np.int64)
    every_time = np.asarray(microseconds, dtype=np.float64)
    return {
        key: TimedSamples(mode=key[1], rounds=every_round[rows], microseconds=every_time[rows])
        for key, rows in groups.items()
    }


def time_of(samples: TimedSamples) -> Time:
    """Median and spread of some samples."""
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


def paired_ratio(before: TimedSamples, after: TimedSamples, resamples: int) -> Ratio | None:
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


def _ratios(before: TimedSamples, after: TimedSamples) -> NDArray[np.float64]:
    """Of the rounds that have both."""
    import numpy as np

    _, one, other = np.intersect1d(before.rounds, after.rounds, return_indices=True)
    ratios = before.microseconds[one] / after.microseconds[other]
    return np.asarray(ratios[~np.isnan(ratios)], dtype=np.float64)
