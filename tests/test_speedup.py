"""Times and paired ratios with their intervals, by hand-made numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from workbench.derive.speedup import Ratio, TimedSamples, paired_ratio, samples_of, time_of


def timed(**times: list[float]) -> Mapping[tuple[str, str], TimedSamples]:
    """Warm microseconds of each variant, round by round."""
    rows = [(name, i, t) for name, values in times.items() for i, t in enumerate(values)]
    names, rounds, microseconds = zip(*rows, strict=True)
    return samples_of(
        variants=names, modes=["warm"] * len(rows), rounds=rounds, microseconds=microseconds
    )


def test_drift_that_hits_both_cancels_in_the_paired_ratio() -> None:
    drift = np.linspace(1, 3, 50)
    samples = timed(a=list(20 * drift), b=list(10 * drift))
    found = paired_ratio(samples["a", "warm"], samples["b", "warm"], resamples=200)
    assert found is not None
    assert (found.ratio, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))


def test_the_interval_is_deterministic_and_holds_the_median() -> None:
    noise = np.random.default_rng(1).normal(0, 1, 100)
    samples = timed(a=list(20 + noise), b=[10.0] * 100)
    pair = samples["a", "warm"], samples["b", "warm"]
    first, second = (paired_ratio(*pair, resamples=500) for _ in range(2))
    assert first == second
    assert first is not None
    assert first.low < first.ratio < first.high


def test_rounds_that_hold_one_of_a_pair_do_not_count() -> None:
    early, late = timed(a=[20.0, 20.0]), timed(b=[10.0] * 4)
    found = paired_ratio(early["a", "warm"], late["b", "warm"], resamples=50)
    assert found == Ratio(2.0, 2.0, 2.0)
    never = TimedSamples("warm", np.array([7]), np.array([10.0]))
    assert paired_ratio(early["a", "warm"], never, resamples=50) is None


def test_a_time_is_median_and_percentiles() -> None:
    found = time_of(timed(a=[float(i) for i in range(101)])["a", "warm"])
    assert (found.median, found.low, found.high, found.samples) == (50, 2.5, 97.5, 101)
