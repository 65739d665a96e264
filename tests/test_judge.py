"""Speedups, gates, verdicts, predictions, bottlenecks, roofline: by hand-made numbers."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from workbench.derive.figures import Figure, figures, occupancy_limiters, stall_shares
from workbench.derive.roofline.ceilings import ceilings
from workbench.derive.roofline.point import point
from workbench.derive.speedup import Ratio, Samples, paired_ratio, samples_of, time_of
from workbench.judge.bottlenecks import attainable, bottlenecks, is_binding, plain
from workbench.judge.gates import (
    Gate,
    compiler_gate,
    correct_gate,
    faster_gate,
    judge_prediction,
    verdict,
)
from workbench.ncu.capture import LINE_COLUMNS, METRIC_COLUMNS, RULE_COLUMNS
from workbench.study.config import Gates
from workbench.study.model import Prediction

LIMITS = Gates()
PASSED = [Gate("correct", True, ""), Gate("compiler", True, "")]


def timings(**times: list[float]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"variant": name, "mode": "warm", "round": i, "microseconds": t}
            for name, values in times.items()
            for i, t in enumerate(values)
        ]
    )


def metrics(*launches: dict[str, float]) -> pd.DataFrame:
    rows = [
        (i, f"k{i}", name, value, "")
        for i, found in enumerate(launches)
        for name, value in found.items()
    ]
    return pd.DataFrame(rows, columns=METRIC_COLUMNS)


def test_drift_that_hits_both_cancels_in_the_paired_ratio() -> None:
    drift = np.linspace(1, 3, 50)
    samples = samples_of(timings(a=list(20 * drift), b=list(10 * drift)))
    found = paired_ratio(samples["a", "warm"], samples["b", "warm"], resamples=200)
    assert found is not None
    assert (found.ratio, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))


def test_the_interval_is_deterministic_and_holds_the_median() -> None:
    noise = np.random.default_rng(1).normal(0, 1, 100)
    samples = samples_of(timings(a=list(20 + noise), b=[10.0] * 100))
    pair = samples["a", "warm"], samples["b", "warm"]
    first, second = (paired_ratio(*pair, resamples=500) for _ in range(2))
    assert first == second
    assert first is not None
    assert first.low < first.ratio < first.high


def test_rounds_that_hold_one_of_a_pair_do_not_count() -> None:
    early, late = samples_of(timings(a=[20.0, 20.0])), samples_of(timings(b=[10.0] * 4))
    found = paired_ratio(early["a", "warm"], late["b", "warm"], resamples=50)
    assert found == Ratio(2.0, 2.0, 2.0)
    never = Samples("warm", np.array([7]), np.array([10.0]))
    assert paired_ratio(early["a", "warm"], never, resamples=50) is None


def test_a_time_is_median_and_percentiles() -> None:
    found = time_of(samples_of(timings(a=[float(i) for i in range(101)]))["a", "warm"])
    assert (found.median, found.low, found.high, found.samples) == (50, 2.5, 97.5, 101)


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


WGMMA = "sm__ops_path_tensor_op_hgmma_src_fp16_sparsity_off"
ROOF = {
    "dram__bytes.sum.peak_sustained": 1000.0,
    "dram__cycles_elapsed.avg.per_second": 2e9,
    "sm__cycles_elapsed.avg.per_second": 1e9,
    "smsp__cycles_elapsed.avg.per_second": 1e9,
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": 10000.0,
    "sm__ops_path_tensor_op_hgmma_src_fp16_sparsity_off.sum.peak_sustained": 500000.0,
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum.per_cycle_elapsed": 100.0,
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum.per_cycle_elapsed": 100.0,
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed": 400.0,
    "gpu__time_duration.sum": 1000.0,
    "dram__bytes_read.sum": 500.0,
    "dram__bytes_write.sum": 500.0,
}


def test_a_roofline_point_by_hand() -> None:
    roof = ceilings(metrics(ROOF))
    assert roof is not None
    assert (roof.dram, roof.fp32, roof.tensor) == (2e12, 2e13, 5e14)
    found = point(metrics(ROOF))
    assert found is not None
    # (100 + 100 + 2 * 400) per cycle * 1e9 cycles/s * 1 µs = 1e6 FLOP over 1000 bytes
    assert found.flops == pytest.approx(1e6)
    assert found.intensity == pytest.approx(1000)
    assert found.flops_per_second == pytest.approx(1e12)
    assert (found.ceiling, found.limit, found.above_roof) == ("fp32", "compute", False)
    assert found.share == pytest.approx(0.05)


def test_a_point_above_its_roof_is_an_error_in_the_data() -> None:
    name = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed"
    found = point(metrics({**ROOF, name: 20000.0}))
    assert found is not None
    assert found.above_roof


def test_tensor_work_stands_under_the_dense_tensor_ceiling() -> None:
    found = point(metrics({**ROOF, f"{WGMMA}.sum": 9e7}))
    assert found is not None
    assert (found.ceiling, found.tensor_type, found.path) == ("tensor", "fp16", "wgmma")
    # 9e7 operations at 5e14/s are 180 ns of the 1000; FP32 work goes on beside them, on other units
    assert found.compute_share == pytest.approx(0.18)
    assert found.bound == pytest.approx(9.1e7 / 180e-9)


def test_the_unit_that_would_be_busy_longest_sets_the_roof_not_the_one_with_most_flops() -> None:
    found = point(metrics({**ROOF, f"{WGMMA}.sum": 9e6}))
    assert found is not None
    assert found.ceiling == "fp32"
    assert found.compute_share == pytest.approx(0.05)


def test_the_rollup_that_allows_sparsity_is_not_counted_again() -> None:
    rollup = {"sm__ops_path_tensor_src_fp16.sum": 9e6}
    found = point(metrics({**ROOF, f"{WGMMA}.sum": 9e6, **rollup}))
    assert found is not None
    assert found.flops == pytest.approx(1e7)


def test_mma_sync_stands_under_its_own_ceiling_too() -> None:
    name = "sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off.sum"
    found = point(metrics({**ROOF, name: 9e7, f"{name}.peak_sustained": 250000.0}))
    assert found is not None
    assert (found.tensor_type, found.path) == ("fp16", "mma.sync")
    assert found.compute_share == pytest.approx(0.18)  # of what wgmma can do
    assert found.path_share == pytest.approx(0.36)


def test_the_ceiling_is_of_the_type_that_ran() -> None:
    bf16 = "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum"
    sparse = f"{WGMMA.replace('_off', '_on')}.sum"
    for name, peak, kind in ((bf16, 4e5, "bf16"), (sparse, 1e6, "fp16 sparse")):
        table = metrics({**ROOF, name: 9e7, f"{name}.peak_sustained": peak})
        found, roof = point(table), ceilings(table, kind)
        assert found is not None
        assert roof is not None
        assert (found.tensor_type, roof.tensor) == (kind, peak * 1e9)
        assert found.compute_share == pytest.approx(9e7 / (peak * 1e9) / 1e-6)


def test_mixed_arithmetic_below_every_peak_is_not_above_its_roof() -> None:
    fp32 = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed"
    peak = {f"{WGMMA}.sum.peak_sustained": 20000.0}
    table = {**ROOF, **peak, fp32: 9000.0, f"{WGMMA}.sum": 1.92e7, "dram__bytes_read.sum": 1.0}
    found = point(metrics(table))
    assert found is not None
    # (2 * 9000 + 200) / 20000 of FP32 and 19200 / 20000 of tensor at once: more than either can do
    assert found.flops_per_second == pytest.approx(1.82e13 + 1.92e13)
    assert (found.ceiling, found.above_roof) == ("tensor", False)
    assert found.compute_share == pytest.approx(0.96)


LEVELS = {
    "lts__cycles_elapsed.avg.per_second": 1e9,
    "l1tex__cycles_elapsed.avg.per_second": 1e9,
    "derived__lts__lts2xbar_bytes.sum.peak_sustained": 4000.0,
    "derived__lts__lts2xbar_bytes.sum.per_second": 1e12,
    "derived__l1tex__lsu_writeback_bytes_mem_lgds.sum.peak_sustained": 10000.0,
    "derived__l1tex__lsu_writeback_bytes_mem_lgds.sum.per_second": 4e12,
}


def test_every_level_has_its_intensity_and_its_share() -> None:
    found = point(metrics({**ROOF, **LEVELS}))
    assert found is not None
    by_name = {level.level: level for level in found.levels}
    assert list(by_name) == ["dram", "l2", "l1"]
    assert [by_name[n].intensity for n in by_name] == pytest.approx([1000, 1, 0.25])
    assert [by_name[n].bandwidth_share for n in by_name] == pytest.approx([5e-4, 0.25, 0.4])
    assert [by_name[n].bound for n in by_name] == pytest.approx([2e13, 4e12, 2.5e12])
    name, share = found.nearest
    assert name == "l1"
    assert share == pytest.approx(0.4)
    assert not found.above_roof


def test_older_names_give_the_same_levels() -> None:
    old = {
        "lts__lts2xbar_cycles_active.sum.peak_sustained": 125.0,
        "lts__lts2xbar_cycles_active.sum.per_second": 1e12 / 32,
        "l1tex__lsu_writeback_active_mem_lg.sum.peak_sustained": 10000.0 / 128,
        "l1tex__lsu_writeback_active_mem_lg.sum.per_second": 4e12 / 128,
    }
    clocks = {k: v for k, v in LEVELS.items() if "cycles_elapsed" in k}
    older, newer = point(metrics({**ROOF, **clocks, **old})), point(metrics({**ROOF, **LEVELS}))
    assert older is not None
    assert newer is not None
    for was, now in zip(older.levels, newer.levels, strict=True):
        assert was.bandwidth_share == pytest.approx(now.bandwidth_share)


def test_a_level_that_one_launch_lacks_is_not_collected() -> None:
    found = point(metrics({**ROOF, **LEVELS}, ROOF))
    assert found is not None
    assert [level.level for level in found.levels] == ["dram"]


def test_traffic_above_a_levels_peak_is_an_error_in_the_data() -> None:
    name = "derived__lts__lts2xbar_bytes.sum.per_second"
    found = point(metrics({**ROOF, **LEVELS, name: 5e12}))
    assert found is not None
    assert found.above_roof
    assert [level.above_roof for level in found.levels] == [False, True, False]


def test_launches_at_different_clocks_combine_by_the_time_at_their_own_peaks() -> None:
    slow = {**ROOF, "sm__cycles_elapsed.avg.per_second": 0.5e9}
    found = point(metrics(ROOF, slow))
    assert found is not None
    assert found.compute_share == pytest.approx((0.05 + 0.10) / 2)


def test_tensor_work_that_was_not_collected_makes_a_lower_bound() -> None:
    busy = {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": 30.0}
    unknown = {k: v for k, v in ROOF.items() if "ops_path" not in k}
    found = point(metrics({**unknown, **busy}))
    known = point(metrics({**ROOF, **busy, f"{WGMMA}.sum": 0.0}))
    assert found is not None
    assert known is not None
    assert found.undercounted
    assert not known.undercounted


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(1.5, 1.6, "kept"), (1.03, 1.04, "kept"), (1.0, 1.05, "inconclusive"), (0.9, 1.0, "rejected")],
)
def test_the_interval_decides(low: float, high: float, expected: str) -> None:
    over = Ratio((low + high) / 2, low, high)
    assert verdict([*PASSED, faster_gate(over, LIMITS)], over, LIMITS) == expected


def test_a_failed_gate_rejects_and_a_missing_one_leaves_it_open() -> None:
    over = Ratio(2.0, 1.9, 2.1)
    faster = faster_gate(over, LIMITS)
    wrong = Gate("correct", False, "")
    assert verdict([wrong, PASSED[1], faster], over, LIMITS) == "rejected"
    assert verdict([PASSED[0], Gate("compiler", None, ""), faster], over, LIMITS) == "inconclusive"
    assert verdict([*PASSED, faster_gate(None, LIMITS)], None, LIMITS) == "inconclusive"


def kernel(spill: int = 0) -> dict[str, int]:
    return {"spill_store_bytes": spill, "spill_load_bytes": 0}


def test_warnings_and_spills_fail_the_compiler_gate() -> None:
    clean = {"kernels": [kernel()], "warnings": [], "error": ""}
    assert compiler_gate(clean, LIMITS).passed is True
    assert compiler_gate({**clean, "warnings": ["w"]}, LIMITS).why == "w"
    assert compiler_gate({**clean, "warnings": ["w"]}, Gates(allow_warnings=True)).passed is True
    assert compiler_gate({**clean, "kernels": [kernel(8)]}, LIMITS).passed is False
    assert compiler_gate({**clean, "error": "no\nmore"}, LIMITS).why == "no"
    assert compiler_gate(None, LIMITS).passed is None


def test_one_wrong_shape_fails_the_correctness_gate() -> None:
    good = {"status": "correct", "why": "", "max_abs": 1e-3}
    bad = {"status": "wrong", "why": "off by one", "max_abs": 1.0}
    assert correct_gate({"s": good}, "s").passed is True
    assert correct_gate({"s": good, "t": bad}, "s").why == "wrong at t: off by one"
    assert correct_gate({}, "s").passed is None


def seen(value: float) -> Figure:
    return Figure("x", "X", value, "u", "m")


def test_predictions_are_confirmed_refuted_or_not_measurable() -> None:
    factor = Prediction("x", (0.4, 0.6), None)
    bounds = Prediction("x", None, (10, 20))
    judged = [
        judge_prediction(factor, seen(100), seen(50), "X", "u"),
        judge_prediction(factor, seen(100), seen(70), "X", "u"),
        judge_prediction(factor, None, seen(50), "X", "u"),
        judge_prediction(bounds, None, seen(20), "X", "u"),
        judge_prediction(bounds, seen(15), None, "X", "u"),
    ]
    assert [j.result for j in judged] == [
        "confirmed",
        "refuted",
        "not measurable",
        "confirmed",
        "not measurable",
    ]


def rule(name: str, title: str, estimate: float, scope: str = "global") -> tuple[object, ...]:
    return (0, "k", name, "S", title, "message", scope, estimate, [("metric", 1.0)])


def share(reason: str, value: float) -> tuple[str, Figure]:
    return f"stall.{reason}", Figure(reason, reason, value, "%", "m")


def test_rules_are_ranked_by_what_their_stalls_allow() -> None:
    found = dict([share("long_scoreboard", 60.0), share("drain", 2.0), share("selected", 20.0)])
    found["achieved_occupancy"], found["theoretical_occupancy"] = seen(6), seen(18)
    rules = pd.DataFrame(
        [
            rule("TheoreticalOccupancy", "", 81),
            rule("MemoryCacheAccessPattern", "L1TEX Global Store Access Pattern", 70),
            rule("CPIStall", "Long Scoreboard Stalls", 55),
            rule("HighPipeUtilization", "Low Utilization", 95, "local"),
        ],
        columns=RULE_COLUMNS,
    )
    lines = pd.DataFrame(
        [
            (0, "k", "/workbench/kernels/s/a.cu", n, "long_scoreboard", v)
            for n, v in ((3, 10.0), (7, 30.0))
        ],
        columns=LINE_COLUMNS,
    )
    order = bottlenecks(rules, lines, found, top=4)
    assert [b.rule for b in order] == [
        "CPIStall",
        "MemoryCacheAccessPattern",
        "HighPipeUtilization",
        "TheoreticalOccupancy",
    ]
    assert order[0].hot_line is not None
    assert (order[0].hot_line.line, order[0].hot_line.share) == (7, 0.75)
    assert order[0].value == 60.0
    assert attainable("MemoryCacheAccessPattern", "Global Store", 70, found) == 2.0
    assert not is_binding("TheoreticalOccupancy", found)


def test_without_rules_the_stalls_stand_in() -> None:
    found = dict([share("wait", 40.0), share("selected", 60.0)])
    lines = pd.DataFrame([(0, "k", "a.cu", 1, "wait", 4.0)], columns=LINE_COLUMNS)
    (only,) = bottlenecks(pd.DataFrame(columns=RULE_COLUMNS), lines, found)
    assert only.title == "Wait stalls"
    assert math.isnan(only.estimated_speedup_pct)


def test_ncus_markup_is_rendered_as_text() -> None:
    link = "@url:Guide:https://docs.nvidia.com/x#y@"
    text = f"See the {link} and @section:LaunchStats:Launch Statistics@."
    assert "@" not in plain(text)
    assert "Guide" in plain(text)
