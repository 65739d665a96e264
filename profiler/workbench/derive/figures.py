"""One value per figure and variant, from the metrics of its launches.

Where the time went: the duration under ncu, shared out by what the warps were doing.

Microseconds of a reason = its share of a launch's warp state samples times that launch's duration,
summed over the launches. It apportions elapsed time; it does not promise that removing a reason
would save all of it, since other warps may have been running meanwhile.

A share p of n samples has the standard error sqrt(p (1 - p) / n). It takes samples for independent,
which is the least error there can be.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, TypeVar

from workbench.ncu.catalog import (
    BANDWIDTH,
    LIMIT_PREFIX,
    LIMITERS,
    SAMPLES,
    STALL,
    STALL_PREFIX,
    FigureSpec,
    catalog,
    figure_label,
)

if TYPE_CHECKING:  # `list` looks at no capture
    from workbench.ncu.capture import ColumnTable

K = TypeVar("K")


def added(values: Iterable[float]) -> float:
    """One after the other, each sum rounded, as the recorded figures were."""
    return reduce(add, values, 0)


def summed(values: Iterable[float | None]) -> float | None:
    """The sum of what was collected; None where nothing was."""
    numbers = [value for value in values if value is not None]
    return added(numbers) if numbers else None


def totals(parts: Iterable[tuple[K, float]]) -> dict[K, float]:
    """The sum of each key's values, in the order in which the keys first come."""
    sums: dict[K, float] = {}
    for key, value in parts:
        sums[key] = sums.get(key, 0.0) + value
    return sums


DURATION = "gpu__time_duration.sum"
ISSUING = "selected"
MetricsByLaunch = Mapping[int, Mapping[str, float]]


@dataclass(frozen=True)
class Figure:
    """A value in its unit, and the ncu metric it was computed from."""

    id: str
    label: str
    value: float
    unit: str
    metric: str
    better: str = ""


def longest(launches: MetricsByLaunch) -> Mapping[str, float]:
    """The metrics of the longest launch; empty where there is none."""
    return max(launches.values(), key=lambda values: values.get(DURATION, 0.0), default={})


def figures(metrics: ColumnTable) -> dict[str, Figure]:
    """Every figure of the catalogue that the capture can give, and some that combine others."""
    launches = metrics.by_launch
    stalls = {}
    for reason, share in stall_shares(metrics).items():
        name, label = f"{STALL}{reason}", f"Stall: {stall_label(reason)}"
        metric, better = f"{STALL_PREFIX}{reason}", "" if reason == ISSUING else "lower"
        stalls[name] = Figure(name, label, 100 * share, "% of samples", metric, better)
    samples = added(added(stall_samples(values).values()) for values in launches.values())
    every = {key: figure(spec, launches) for key, spec in catalog().items()}
    collected = {key: value for key, value in every.items() if value is not None}
    read, write, duration = map(collected.get, ("dram_read", "dram_write", "duration"))
    if read and write and duration and duration.value:
        value = (read.value + write.value) / duration.value * 1e3
        metric = f"({read.metric} + {write.metric}) / {DURATION}"
        collected[BANDWIDTH] = _computed(BANDWIDTH, value, metric, "higher")
    if samples:
        collected[SAMPLES] = _computed(SAMPLES, samples, f"{STALL_PREFIX}*")
    return collected | stalls


def _computed(name: str, value: float, metric: str, better: str = "") -> Figure:
    label, unit = figure_label(name)
    return Figure(name, label, value, unit, metric, better)


def figure(spec: FigureSpec, launches: MetricsByLaunch) -> Figure | None:
    """None where some launch lacks the metric: "not collected", never zero. Counts, bytes and
    durations are summed, percentages weighted by duration, ratios taken of sums.
    """
    name = _collected(spec.names, launches)
    if name is None:
        return None
    value, metric = _aggregate(spec, name, launches)
    if value is None or not math.isfinite(value):
        return None
    return Figure(spec.id, spec.label, value * spec.scale, spec.unit, metric, spec.better)


def _collected(names: tuple[str, ...], launches: MetricsByLaunch) -> str | None:
    """The first name that every launch has."""
    every = launches.values()
    return next((n for n in names if every and all(n in values for values in every)), None)


def _aggregate(spec: FigureSpec, name: str, launches: MetricsByLaunch) -> tuple[float | None, str]:
    """The value over all launches, and the metrics that it is made of."""
    values = [launch[name] for launch in launches.values()]
    if spec.aggregate == "sum":
        return added(values), name
    if spec.aggregate == "max":
        return max(values), name
    if spec.aggregate == "weighted":
        return _mean_by_duration(values, launches), name
    per = _collected(spec.per, launches)
    divisor = added(launch[per] for launch in launches.values()) if per else 0.0
    return (added(values) / divisor if divisor else None), f"{name} / {per}"


def _mean_by_duration(values: list[float], launches: MetricsByLaunch) -> float | None:
    weights = [launch.get(DURATION, 0.0) for launch in launches.values()]
    if not all(weights):  # a duration is missing or zero: only equal values need no weights
        return values[0] if len(set(values)) == 1 else None
    return added(v * w for v, w in zip(values, weights, strict=True)) / added(weights)


def stall_label(reason: str) -> str:
    return "none (issuing)" if reason == ISSUING else reason.replace("_", " ")


def stall_shares(metrics: ColumnTable) -> dict[str, float]:
    """Reason to its share of all warp state samples, largest first; empty if none. ``selected`` is
    a warp that issued: no stall, but part of the whole.
    """
    launches = metrics.by_launch.values()
    sums = totals(item for values in launches for item in stall_samples(values).items())
    total = added(sums.values())
    shares = {reason: samples / total for reason, samples in sums.items() if samples > 0}
    return _largest_first(shares)


def stall_samples(values: Mapping[str, float]) -> dict[str, float]:
    """Stall reason to the samples of one launch; reasons without any are left out."""
    return {
        name.removeprefix(STALL_PREFIX): samples
        for name, samples in values.items()
        if name.startswith(STALL_PREFIX) and samples
    }


def _largest_first(parts: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(parts.items(), key=lambda item: (-item[1], item[0])))


def occupancy_limiters(metrics: ColumnTable) -> list[str]:
    """Name the limits that allow the fewest blocks per SM in the longest launch."""
    values = longest(metrics.by_launch)
    limits = {k: values[LIMIT_PREFIX + k] for k in LIMITERS if LIMIT_PREFIX + k in values}
    least = min(limits.values(), default=0.0)
    return [LIMITERS[kind] for kind, limit in limits.items() if limit == least]


UNSAMPLED = "not_sampled"  # the duration of launches too short for a single sample


@dataclass(frozen=True)
class StallTime:
    """Microseconds of one reason before and after; ``selected`` is warps that issued."""

    reason: str
    before: float
    after: float

    @property
    def change(self) -> float:
        return self.after - self.before


def stall_times(metrics: ColumnTable) -> dict[str, float]:
    """Reason to microseconds, largest first; they sum to the duration. Empty if no samples."""
    launches = metrics.by_launch.values()
    if not all(DURATION in values for values in launches):
        return {}
    times = totals(
        (reason, share * values[DURATION] * 1e-3)
        for values in launches
        for reason, share in _sampled(values).items()
    )
    if not times.keys() - {UNSAMPLED}:
        return {}
    return _largest_first(times)


def _sampled(values: Mapping[str, float]) -> dict[str, float]:
    samples = stall_samples(values)
    total = added(samples.values())
    return {r: count / total for r, count in samples.items()} if total else {UNSAMPLED: 1.0}


def compare_times(before: Mapping[str, float], after: Mapping[str, float]) -> list[StallTime]:
    """Every reason of either side, the largest change first; empty where one side has none."""
    if not before or not after:
        return []
    times = [StallTime(r, before.get(r, 0.0), after.get(r, 0.0)) for r in {**before, **after}]
    return sorted(times, key=lambda time: (-abs(time.change), time.reason))


@dataclass(frozen=True)
class TopStall:
    """The most sampled reason; ``share`` from 0 to 1, ``error`` its standard error, if known."""

    reason: str
    share: float
    error: float | None


def standard_error(share: float, samples: float | None) -> float | None:
    """Estimate the error of a share (0 to 1) of so many samples; None if those are unknown."""
    return math.sqrt(max(0.0, share * (1 - share)) / samples) if samples else None


def top_stall(shares: Mapping[str, float], samples: float | None) -> TopStall | None:
    """None where nothing stalled; issuing is no stall. ``shares`` are of all ``samples``."""
    stalls = {name: share for name, share in shares.items() if name != ISSUING and share > 0}
    if not stalls:
        return None
    reason = min(stalls, key=lambda name: (-stalls[name], name))
    return TopStall(reason, stalls[reason], standard_error(stalls[reason], samples))
