"""Figures, stall shares and limits of occupancy, by hand-made numbers."""

from __future__ import annotations

import pytest

from made_records import metrics
from workbench.derive.figures import figures, occupancy_limiters
from workbench.ncu import catalog


def test_launches_are_summed_weighted_or_divided_by_kind() -> None:
    found = figures(
        metrics(
            {
                "gpu__time_duration.sum": 1000,
                "smsp__inst_executed.sum": 1e6,
                "sm__warps_active.avg.pct_of_peak_sustained_active": 10,
                "launch__registers_per_thread": 32,
                "sm__cycles_active.avg": 50,
                "gpc__cycles_elapsed.max": 100,
            },
            {
                "gpu__time_duration.sum": 3000,
                "smsp__inst_executed.sum": 2e6,
                "sm__warps_active.avg.pct_of_peak_sustained_active": 50,
                "launch__registers_per_thread": 64,
                "sm__cycles_active.avg": 300,
                "gpc__cycles_elapsed.max": 300,
            },
        )
    )
    assert found["duration"].value == pytest.approx(4.0)
    assert found["warp_instructions"].value == pytest.approx(3.0)
    assert found["achieved_occupancy"].value == pytest.approx(40.0)
    assert found["registers"].value == 64
    assert found["sm_active"].value == pytest.approx(100 * 350 / 400)
    assert "dram_pct" not in found


def test_a_metric_that_one_launch_lacks_is_not_collected() -> None:
    both = {"gpu__time_duration.sum": 1000.0}
    found = figures(metrics({**both, "dram__bytes_read.sum": 5.0}, both))
    assert "dram_read" not in found


def test_occupancy_limiters_that_tie_are_all_named() -> None:
    table = metrics(
        {
            "launch__occupancy_limit_registers": 3,
            "launch__occupancy_limit_warps": 3,
            "launch__occupancy_limit_blocks": 32,
        }
    )
    assert occupancy_limiters(table) == ["registers", "block size"]


def test_a_metric_feeds_one_figure() -> None:
    specs = catalog.catalog().values()
    first = [(spec.names[0], spec.per) for spec in specs]
    assert len(set(first)) == len(first)
    assert all(len(set(spec.names)) == len(spec.names) for spec in specs)
