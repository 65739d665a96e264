"""One value per figure and variant, from the metrics of its launches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.ncu.catalog import LIMIT_PREFIX, LIMITERS, STALL_PREFIX, FigureSpec, catalog

if TYPE_CHECKING:
    import pandas as pd

DURATION = "gpu__time_duration.sum"
ISSUING = "selected"


@dataclass(frozen=True)
class Figure:
    """A value in its unit, and the ncu metric it was computed from."""

    id: str
    label: str
    value: float
    unit: str
    metric: str
    better: str = ""


def by_launch(metrics: pd.DataFrame) -> Mapping[int, Mapping[str, float]]:
    """Launch number to metric name to value."""
    found: dict[int, dict[str, float]] = {}
    for launch, name, value in zip(
        metrics["launch"], metrics["metric"], metrics["value"], strict=True
    ):
        found.setdefault(int(launch), {})[str(name)] = float(value)
    return found


def _pick(names: tuple[str, ...], launches: Mapping[int, Mapping[str, float]]) -> str | None:
    return next((n for n in names if all(n in values for values in launches.values())), None)


def figure(spec: FigureSpec, launches: Mapping[int, Mapping[str, float]]) -> Figure | None:
    """None where some launch lacks the metric: "not collected", never zero.

    Counts and bytes are summed, durations summed, percentages weighted by duration, and ratios
    taken of sums.
    """
    name = _pick(spec.names, launches)
    if name is None or not launches:
        return None
    values = [launch[name] for launch in launches.values()]
    metric = name
    if spec.aggregate == "sum":
        value = sum(values)
    elif spec.aggregate == "max":
        value = max(values)
    elif spec.aggregate == "weighted":
        weights = [launch.get(DURATION, 0.0) for launch in launches.values()]
        if not sum(weights):
            return None
        value = sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)
    else:
        per = _pick(spec.per, launches)
        below = sum(launch[per] for launch in launches.values()) if per else 0.0
        if not below:
            return None
        value, metric = sum(values) / below, f"{name} / {per}"
    if not math.isfinite(value):
        return None
    return Figure(spec.id, spec.label, value * spec.scale, spec.unit, metric, spec.better)


def figures(metrics: pd.DataFrame) -> dict[str, Figure]:
    """Every figure of the catalogue that the capture can give, and two that combine others."""
    launches = by_launch(metrics)
    found = {key: figure(spec, launches) for key, spec in catalog().items()}
    result = {key: value for key, value in found.items() if value is not None}
    if {"duration", "dram_read", "dram_write"} <= result.keys():
        moved = result["dram_read"].value + result["dram_write"].value
        names = f"({result['dram_read'].metric} + {result['dram_write'].metric})"
        bandwidth = moved / result["duration"].value * 1e3
        result["dram_bandwidth"] = Figure(
            "dram_bandwidth", "DRAM bandwidth", bandwidth, "GB/s", f"{names} / {DURATION}", "higher"
        )
    for reason, share in stall_shares(metrics).items():
        key = f"stall.{reason}"
        label, metric = f"Stall: {stall_label(reason)}", f"{STALL_PREFIX}{reason}"
        better = "" if reason == ISSUING else "lower"
        result[key] = Figure(key, label, 100 * share, "% of samples", metric, better)
    return result


def stall_label(reason: str) -> str:
    return "none (issuing)" if reason == ISSUING else reason.replace("_", " ")


def stall_shares(metrics: pd.DataFrame) -> dict[str, float]:
    """Warp state samples by reason as shares of all samples, largest first; empty if none.

    ``selected`` is a warp that issued: no stall, but part of the whole.
    """
    stalls = metrics[metrics["metric"].str.startswith(STALL_PREFIX)]
    sums = stalls.groupby("metric")["value"].sum()
    total = float(sums.sum())
    if not total:
        return {}
    shares = {str(k).removeprefix(STALL_PREFIX): float(v) / total for k, v in sums.items() if v > 0}
    return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


def occupancy_limiters(metrics: pd.DataFrame) -> list[str]:
    """What allows the fewest blocks per SM, in the longest launch; several where they tie."""
    launches = by_launch(metrics)
    if not launches:
        return []
    longest = max(launches.values(), key=lambda values: values.get(DURATION, 0.0))
    limits = {k: longest[LIMIT_PREFIX + k] for k in LIMITERS if LIMIT_PREFIX + k in longest}
    if not limits:
        return []
    least = min(limits.values())
    return [LIMITERS[kind] for kind, limit in limits.items() if limit == least]
