"""Whatever a capture lacks or has zero of: every figure is a number or not collected."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from made_records import metrics
from property_cases import examples
from workbench.derive.factors import budget, duration_parts, largest_changes, speedup_factors
from workbench.derive.figures import (
    DURATION,
    figures,
    occupancy_limiters,
    stall_shares,
    stall_times,
)
from workbench.derive.matching import groups
from workbench.derive.rooflines import counted_flops, peaks, point, used
from workbench.judge.advice_rules import advise, subject
from workbench.judge.bottlenecks import bottlenecks, parts
from workbench.ncu.capture import LINE_COLUMNS, RULE_COLUMNS, ColumnTable
from workbench.ncu.catalog import LEVELS, STALL_PREFIX, STALL_REASONS, needed_metrics
from workbench.ncu.report_file import Launch
from workbench.render.document import launches
from workbench.render.markdown import blocks

NAMES = sorted({*needed_metrics(), *(STALL_PREFIX + reason for reason in STALL_REASONS)})
GAP = None

launch = st.builds(
    lambda usual, changes: {
        name: value
        for name, value in {**dict.fromkeys(NAMES, usual), **changes}.items()
        if value is not GAP
    },
    st.sampled_from([0.0, 1.0, 1e9]),
    st.dictionaries(
        st.sampled_from(NAMES), st.sampled_from([GAP, 0.0, 1e-3, 7.0, 1e12]), max_size=120
    ),
)
captures = st.lists(launch, min_size=1, max_size=4)


def capture_of(every: list[dict[str, float]]) -> Any:
    table = metrics(*every)
    rows = [(i, f"k{i}", "a.cu", 3, "wait", 5.0) for i in range(len(every))]
    return SimpleNamespace(
        metrics=table,
        lines=ColumnTable(rows, LINE_COLUMNS),
        global_sectors=None,
        has_opcode=lambda opcode: False,
        calls={},
        rules=ColumnTable([], RULE_COLUMNS),
        kernels=tuple(f"k{i}" for i in range(len(every))),
    )


def numbers(found: object) -> Iterator[float]:
    """All of them, however deep."""
    if isinstance(found, float | int):
        yield float(found)
    elif is_dataclass(found):
        for each in fields(found):
            yield from numbers(getattr(found, each.name))
    elif isinstance(found, dict):
        for value in found.values():
            yield from numbers(value)
    elif isinstance(found, tuple | list):
        for value in found:
            yield from numbers(value)


@settings(max_examples=examples(60, many=4000))
@given(captures, captures)
def test_a_figure_is_a_number_or_not_collected(
    one: list[dict[str, float]], other: list[dict[str, float]]
) -> None:
    sides = []
    for every in (one, other):
        capture = capture_of(every)
        table = capture.metrics
        known, shares, work = figures(table), stall_shares(table), duration_parts(table)
        assert all(map(math.isfinite, numbers(known)))
        for found in (shares, stall_times(table), counted_flops(table), parts(table), peaks(table)):
            assert all(map(math.isfinite, numbers(found)))
        assert all(share >= 0 for share in shares.values())
        occupancy_limiters(table)
        budget(work, shares) if work else None
        used(table, {"dram": 1e12})
        advise(subject(capture, known))
        for base in LEVELS:
            at = point(table, {"dram": 1e12, "fp32": 1e13}, base)
            if at is not None:
                assert all(level.share_of_bandwidth >= 0 for level in at.levels)
                assert at.memory
        told = bottlenecks(capture.rules, capture.lines, known, parts(table))
        sides.append((known, work, told))
    (was, before, _), (now, after, _) = sides
    factors = speedup_factors(before, after) if before and after else None
    if factors is not None:
        assert all(map(math.isfinite, numbers(factors)))
        assert math.isfinite(factors.residual)
    assert not any(map(math.isnan, numbers(largest_changes(was, now, factors))))


def test_a_launch_without_a_duration_costs_no_other_its_share_or_occupancy() -> None:
    one, other = (Launch(i, f"k{i}", f"k{i}", "kernel", None, None, 4.0, None, "") for i in (0, 1))
    lost = Launch(2, "k2", "k2", "kernel", None, None, None, None, "")
    found = groups([one, other, lost])
    told = blocks([launches.group_table(found), *launches.untimed(found)])
    assert told.count("50 %") == 2
    assert "duration not collected of launch 2" in told
    occupancy = "sm__warps_active.avg.pct_of_peak_sustained_active"
    assert figures(metrics({occupancy: 40.0}))["achieved_occupancy"].value == 40.0
    apart = figures(metrics({occupancy: 40.0, DURATION: 1.0}, {occupancy: 50.0}))
    assert "achieved_occupancy" not in apart


FILL = {
    "gpu__time_duration.sum": 1000.0,
    "smsp__cycles_elapsed.avg.per_second": 1e9,
    "sm__cycles_elapsed.avg.per_second": 1e9,
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": 1e4,
    **{
        f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum.per_cycle_elapsed": 0.0
        for op in ("fadd", "fmul", "ffma")
    },
    "dram__bytes_read.sum": 0.0,
    "dram__bytes_write.sum": 500.0,
    "dram__bytes.sum.peak_sustained": 1000.0,
    "dram__cycles_elapsed.avg.per_second": 2e9,
    "derived__l1tex__lsu_writeback_bytes_mem_lgds.sum.peak_sustained": 1e4,
    "derived__l1tex__lsu_writeback_bytes_mem_lgds.sum.per_second": 0.0,
}


def test_a_fill_has_its_place_under_the_levels_that_it_uses() -> None:
    """Neither FLOPs nor bytes that L1 returns."""
    found = point(metrics(FILL))
    assert found is not None
    assert found.memory is not None
    assert found.memory.name == "dram"
    assert found.memory.share_of_bandwidth == pytest.approx(0.25e-3)
