"""What a launch counted at each of its instructions: stall samples, executions, excess traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from workbench.ncu.catalog import STALL_PREFIX
from workbench.ncu.line_table import LineTable
from workbench.ncu.places import Places
from workbench.ncu.reader import metric_names

INSTRUCTIONS = "instructions"
LINE_COUNTERS = {
    INSTRUCTIONS: "inst_executed",
    "excess_global_sectors": "derived__memory_l2_theoretical_sectors_global_excessive",
    "excess_shared_wavefronts": "derived__memory_l1_wavefronts_shared_excessive",
}


@dataclass(frozen=True)
class Counted:
    """Counter to address and value, without the zeros; ``places`` says where each belongs."""

    by_pc: Mapping[str, Sequence[tuple[int, float]]]
    places: Places


def counted(action: Any, tables: Sequence[LineTable] = ()) -> Counted:
    """The counters of ``LINE_COUNTERS`` and the stall reasons that a launch has by instruction."""
    metrics = {
        counter: metric
        for counter, name in {**stall_metrics(action), **LINE_COUNTERS}.items()
        if (metric := action.metric_by_name(name)) is not None
        and metric.has_correlation_ids()
        and metric.value()
    }
    by_pc = {counter: _by_pc(metric) for counter, metric in metrics.items()}
    return Counted(by_pc, Places(action, _addresses(action, by_pc), tables))


def stall_metrics(action: Any) -> dict[str, str]:
    """Stall reason to the metric that counts its samples."""
    return _stall_metrics(metric_names(action))


@lru_cache(maxsize=16)  # launches of one report hold the same metrics, over a thousand
def _stall_metrics(names: tuple[str, ...]) -> dict[str, str]:
    return {
        name.removeprefix(STALL_PREFIX): name
        for name in names
        if name.startswith(STALL_PREFIX) and not name.endswith("_not_issued")
    }


def _by_pc(metric: Any) -> list[tuple[int, float]]:
    """Address and value, without the zeros: most instructions have none."""
    ids = metric.correlation_ids()
    values = enumerate(map(metric.as_double, range(metric.num_instances())))
    return [(ids.as_uint64(i), value) for i, value in values if value]


def _addresses(action: Any, by_pc: Mapping[str, Sequence[tuple[int, float]]]) -> set[int]:
    """Of all instructions where their executions were counted, else of those with a count."""
    metric = action.metric_by_name(LINE_COUNTERS[INSTRUCTIONS])
    if metric is None or not metric.has_correlation_ids():
        return {pc for found in by_pc.values() for pc, _ in found}
    ids = metric.correlation_ids()
    return {ids.as_uint64(i) for i in range(metric.num_instances())}
