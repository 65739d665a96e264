"""Figures, stall shares and limits of occupancy, by hand-made numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from made_records import metrics
from workbench.derive.figures import figures, occupancy_limiters, stall_shares
from workbench.errors import UsageError
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


def test_stall_shares_are_of_all_samples() -> None:
    prefix = "smsp__pcsamp_warps_issue_stalled_"
    table = metrics({prefix + "wait": 30, prefix + "selected": 10}, {prefix + "wait": 60})
    assert stall_shares(table) == {"wait": pytest.approx(0.9), "selected": pytest.approx(0.1)}
    assert stall_shares(metrics({"x": 1.0})) == {}


def test_occupancy_limiters_that_tie_are_all_named() -> None:
    table = metrics(
        {
            "launch__occupancy_limit_registers": 3,
            "launch__occupancy_limit_warps": 3,
            "launch__occupancy_limit_blocks": 32,
        }
    )
    assert occupancy_limiters(table) == ["registers", "block size"]


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (("[shared_memory]", "[duration]"), "[duration]: another entry has this id"),
        (("scale = 1e-3", 'scale = 1e-3\nunit = "s"'), "[duration]: Cannot overwrite"),
        (('unit = "µs"', ""), "[duration]: Object missing required field `unit`"),
        (("better", "beter"), "[duration]: Object contains unknown field `beter`"),
        (('["gpu__time_duration.sum"]', "[]"), "[duration]: names needs at least one metric"),
        (
            ("launch__registers_per_thread", "gpu__time_duration.sum"),
            "gpu__time_duration.sum is already the metric of [duration]",
        ),
    ],
)
def test_a_broken_entry_of_the_metrics_is_named(
    edit: tuple[str, str], why: str, tmp_path: Path
) -> None:
    text = Path(catalog.__file__).with_name("metrics.toml").read_text("utf-8")
    head, entries = text.split("\n[", 1)
    entries = "\n[" + entries
    assert edit[0] in entries
    path = tmp_path / "metrics.toml"
    path.write_text(head + entries.replace(*edit, 1), "utf-8")
    with pytest.raises(UsageError) as error:
        catalog.read_catalog(path)
    assert f"{path}, entry [" in error.value.message
    assert why in error.value.message
