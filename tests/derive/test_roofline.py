"""Ceilings and points of the hierarchical roofline, and the memory levels of captures."""

from __future__ import annotations

import pytest

import pages
from answers import not_none
from made_ladder import ablation, with_row
from made_records import metrics
from workbench.derive.figures import Figure, figures
from workbench.derive.rooflines import peaks, point
from workbench.ncu.capture import find_metric, load_capture
from workbench.ncu.catalog import catalog
from workbench.render import markdown
from workbench.render.chart import charts
from workbench.render.chart.charts import NO_ARITHMETIC, chart
from workbench.render.doc import plain
from workbench.render.document import launches
from workbench.render.document.ladder_report import summary
from workbench.study.values import Work
from workspaces import CAUSAL, FLUSHED, SHOWN, YOUNGER, recorded_capture, recorded_range

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


def test_a_point_above_its_roof_is_an_error_in_the_data() -> None:
    name = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed"
    found = not_none(point(metrics({**ROOF, name: 20000.0})))
    assert found.above_roof


HMMA = "sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off"


@pytest.mark.parametrize(
    ("work", "arithmetic", "share"),
    [
        # 9e7 operations at 5e14/s are 180 ns of the 1000
        ({f"{WGMMA}.sum": 9e7}, "tensor", 0.18),
        # the unit that would be busy longest sets the roof, not the one with most operations
        ({f"{WGMMA}.sum": 9e6}, "fp32", 0.05),
        # mma.sync stands under the ceiling of wgmma
        ({f"{HMMA}.sum": 9e7, f"{HMMA}.sum.peak_sustained": 250000.0}, "tensor", 0.18),
    ],
)
def test_tensor_work_stands_under_the_dense_tensor_ceiling(
    work: dict[str, float], arithmetic: str, share: float
) -> None:
    found = not_none(point(metrics({**ROOF, **work})))
    assert found.arithmetic == arithmetic
    assert found.share_of_arithmetic_peak == pytest.approx(share)
    if arithmetic == "tensor":  # FP32 work goes on beside it, on other units
        assert found.tensor_type == "fp16"
        assert found.roof_flops_per_second == pytest.approx(9.1e7 / 180e-9)


def test_the_ceiling_is_of_the_type_that_ran() -> None:
    bf16 = "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum"
    sparse = f"{WGMMA.replace('_off', '_on')}.sum"
    for name, peak, kind in ((bf16, 4e5, "bf16"), (sparse, 1e6, "fp16 sparse")):
        table = metrics({**ROOF, name: 9e7, f"{name}.peak_sustained": peak})
        found, roof = point(table), peaks(table)
        assert found is not None
        assert (found.tensor_type, not_none(roof).rates[f"tensor {kind}"]) == (kind, peak * 1e9)
        assert found.share_of_arithmetic_peak == pytest.approx(9e7 / (peak * 1e9) / 1e-6)


def test_mixed_arithmetic_below_every_peak_is_not_above_its_roof() -> None:
    fp32 = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed"
    peak = {f"{WGMMA}.sum.peak_sustained": 20000.0}
    table = {**ROOF, **peak, fp32: 9000.0, f"{WGMMA}.sum": 1.92e7, "dram__bytes_read.sum": 1.0}
    found = not_none(point(metrics(table)))
    # (2 * 9000 + 200) / 20000 of FP32 and 19200 / 20000 of tensor at once: more than either can do
    assert found.flops_per_second == pytest.approx(1.82e13 + 1.92e13)
    assert (found.arithmetic, found.limit, found.above_roof) == ("tensor", "compute", False)
    assert found.share_of_arithmetic_peak == pytest.approx(0.96)


LEVELS = {
    "lts__cycles_elapsed.avg.per_second": 1e9,
    "l1tex__cycles_elapsed.avg.per_second": 1e9,
    "derived__lts__lts2xbar_bytes.sum.peak_sustained": 4000.0,
    "derived__lts__lts2xbar_bytes.sum.per_second": 1e12,
    "derived__l1tex__lsu_writeback_bytes_mem_lgds.sum.peak_sustained": 10000.0,
    "derived__l1tex__lsu_writeback_bytes_mem_lgds.sum.per_second": 4e12,
}


def test_what_only_moves_bytes_has_shares_of_bandwidth_and_no_place_in_a_roofline() -> None:
    idle = {name: 0.0 for name in ROOF if "per_cycle_elapsed" in name}
    found = not_none(point(metrics({**ROOF, **LEVELS, **idle}), {"l2": 1e9}))
    assert (found.flops, found.limit, found.share_of_arithmetic_peak, found.above_roof) == (
        0,
        "dram",
        0,
        False,
    )
    assert [level.share_of_bandwidth for level in found.levels] == pytest.approx([5e-4, 0.25, 0.4])
    all_idle = ablation(1, work=Work(flops=0, bytes=1e6, dtype="float32"))
    for row in all_idle.everything:
        all_idle = with_row(all_idle, row.variant, roofline=found)
    assert NO_ARITHMETIC in pages.texts(chart("roofline", all_idle))
    text = markdown.document(summary(all_idle))
    assert "The problem needs no floating-point arithmetic: the limit is the bandwidth." in text
    assert "roofline-light.svg" not in text
    assert "| variant | memory % of peak (GB/s) |" in text
    some = chart("roofline", with_row(ablation(1), "fix1", roofline=found))
    assert NO_ARITHMETIC not in pages.texts(some)


def test_older_names_give_the_same_levels() -> None:
    old = {
        "lts__lts2xbar_cycles_active.sum.peak_sustained": 125.0,
        "lts__lts2xbar_cycles_active.sum.per_second": 1e12 / 32,
        "l1tex__lsu_writeback_active_mem_lg.sum.peak_sustained": 10000.0 / 128,
        "l1tex__lsu_writeback_active_mem_lg.sum.per_second": 4e12 / 128,
    }
    clocks = {k: v for k, v in LEVELS.items() if "cycles_elapsed" in k}
    older, newer = point(metrics({**ROOF, **clocks, **old})), point(metrics({**ROOF, **LEVELS}))
    assert newer is not None
    for was, now in zip(not_none(older).levels, newer.levels, strict=True):
        assert was.share_of_bandwidth == pytest.approx(now.share_of_bandwidth)


def test_a_level_that_one_launch_lacks_is_not_collected() -> None:
    found = not_none(point(metrics({**ROOF, **LEVELS}, ROOF)))
    assert [level.name for level in found.levels] == ["dram"]


def test_traffic_above_a_levels_peak_is_an_error_in_the_data() -> None:
    name = "derived__lts__lts2xbar_bytes.sum.per_second"
    found = not_none(point(metrics({**ROOF, **LEVELS, name: 5e12})))
    assert found.above_roof
    assert [level.above_roof for level in found.levels] == [False, True, False]


def test_launches_at_different_clocks_combine_by_the_time_at_their_own_peaks() -> None:
    slow = {**ROOF, "sm__cycles_elapsed.avg.per_second": 0.5e9}
    found = not_none(point(metrics(ROOF, slow)))
    assert found.share_of_arithmetic_peak == pytest.approx((0.05 + 0.10) / 2)


def test_tensor_work_that_was_not_collected_makes_a_lower_bound() -> None:
    busy = {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": 30.0}
    unknown = {k: v for k, v in ROOF.items() if "ops_path" not in k}
    found = point(metrics({**unknown, **busy}))
    known = point(metrics({**ROOF, **busy, f"{WGMMA}.sum": 0.0}))
    assert not_none(found).lower_bound
    assert not not_none(known).lower_bound


# ---- memory
def figures_of(shape: str, variant: str) -> dict[str, Figure]:
    return figures(recorded_capture(shape, variant).metrics)


@pytest.mark.parametrize(
    ("shape", "variant"),
    [
        *((SHOWN, variant) for variant in ("baseline", "fix2", "fix4", "fix7", "sdpa_flash")),
        *((CAUSAL, variant) for variant in ("fix9", "fix10", "sdpa")),
    ],
)
def test_levels_agree_with_each_other(shape: str, variant: str) -> None:
    found = figures_of(shape, variant)
    value = {key: figure.value for key, figure in found.items()}
    drawn = {level[4] for level in charts.LEVELS}
    drawn |= {key for arrow in charts.ARROWS for key in arrow[4]}
    assert all(YOUNGER.issuperset(catalog()[key].names) for key in drawn - value.keys())
    for requests, ratio, through in (
        ("global_load_requests", "sectors_per_request", "global_read"),
        ("global_store_requests", "sectors_per_store", "global_write"),
    ):
        if ratio in value:
            assert value[through] == pytest.approx(32 * value[requests] * value[ratio])
        else:
            assert value[requests] == value[through] == 0
    assert value["bulk_read"] <= value["l2_to_l1"] * 1.001
    assert value["local_read"] == value["local_write"] == 0 or not variant.startswith("fix")
    assert 0 <= value["l1_hit"] <= 100


@pytest.mark.parametrize("variant", ["baseline", "fix1", "fix4", "fix7", "sdpa"])
def test_l1_gets_no_less_than_l2_is_asked_for(variant: str) -> None:
    """Several SMs that ask for one sector at once may be answered with one read of it."""
    rows = find_metric(*recorded_range(FLUSHED, variant), "lts__t_sectors_srcunit_tex_op_read.sum")
    asked = sum(32e-6 * float(row.value or 0) for row in rows)
    got = figures(load_capture(*recorded_range(FLUSHED, variant)).metrics)["l2_to_l1"].value
    assert 0 < asked <= 1.05 * got


def test_a_diff_tells_what_was_not_collected_from_what_stayed_at_zero() -> None:
    zero = Figure("local_loads", "Local loads", 0.0, "inst", "m")
    shown = launches.figure_pairs(("a", "b"), {"local_loads": zero}, {})
    rows = {
        plain(row.cells["figure"].text): [plain(row.cells[k].text) for k in ("before", "after")]
        for row in shown.rows
    }
    assert rows["Local loads (inst)"] == ["0", "not collected"]
    assert rows["DRAM read (MB)"] == ["not collected", "not collected"]
