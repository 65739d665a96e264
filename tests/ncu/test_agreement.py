"""Agreement with Nsight Compute: recorded figures against the capture's raw values.

Most of it is read from the reports with ``ncu_report`` alone, past the product's catalogue, and
every formula is written out again: the roofline's from the metrics of ncu's own sections.

``tests/recorded/ncu-raw.csv`` is what ncu itself prints of ``ncu-raw.ncu-repz`` beside it, made by
``ncu --import tests/recorded/ncu-raw.ncu-repz --page raw --csv --print-units base``, without the
columns that name a machine or process, and cut to any columns that hold at least those of
``ncu_csv.NEEDED``. That report is of the ladder as it was recorded before, with the caches flushed
before every replay pass (``--cache-control all``): the recorded ones keep them, and next to nothing
comes from DRAM there.
"""

from __future__ import annotations

import json
import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ncu_csv
from answers import Capsys, Patch, text_of
from workbench.derive.factors import duration_parts, speedup_factors, surprise
from workbench.derive.figures import figures, stall_times
from workbench.derive.rooflines import Point, peaks, point
from workbench.judge.comparison import compare
from workbench.ncu.capture import Capture, load_capture
from workbench.ncu.catalog import catalog
from workbench.ncu.reader import actions
from workbench.render.doc import factor
from workspaces import (
    CAPTURES,
    CAUSAL,
    FIXTURE,
    FLUSHED,
    RAW,
    SHOWN,
    output_of,
    recorded_capture,
    recorded_index,
    recorded_range,
)

RECORDED = RAW.with_suffix(".csv")
STEPS = [
    (FLUSHED, "baseline", "fix1"),
    (FLUSHED, "fix2", "fix3"),
    (FLUSHED, "fix4", "fix5"),
    (FLUSHED, "fix14", "fix15"),
    (CAUSAL, "fix9", "fix10"),
]


def base(shape: str, variant: str) -> str:
    """Where the inputs of a capture come from."""
    if shape == FLUSHED:
        return "dram"
    flags = recorded_index(shape, variant)["ncu_flags"]
    return {"all": "dram", "none": "l2"}[flags[flags.index("--cache-control") + 1]]


@cache
def capture(shape: str, variant: str) -> Capture:
    return load_capture(*recorded_range(shape, variant))


def stands(shape: str, variant: str) -> Point:
    """Its point in the roofline over the level that its inputs come from."""
    found = point(capture(shape, variant).metrics, base=base(shape, variant))
    assert found is not None
    assert found.base == base(shape, variant)
    return found


@cache
def opened(path: Path) -> list[tuple[Any, list[str]]]:
    """Every launch of a report as ncu_report has it, with its NVTX ranges. Decoded twice it would
    take twenty megabytes more.
    """
    found = []
    for action in actions(path, None):
        state = action.nvtx_state()
        names = [n for d in state.domains() for n in state.domain_by_id(d).push_pop_ranges()]
        found.append((action, names))
    return found


def raw(shape: str, variant: str) -> list[Any]:
    report, wanted = recorded_range(shape, variant)
    launches = [action for action, names in opened(report) if wanted in names]
    assert launches
    return launches


def value(action: Any, name: str) -> float:
    metric = action.metric_by_name(name)
    assert metric is not None, name
    assert metric.has_value(), name
    return float(metric.value())


def section(action: Any, identifier: str) -> set[str]:
    found = next(s for s in action.sections() if s.identifier() == identifier)
    return {metric.name() for metric in found.body_metrics()}


def duration(actions: list[Any]) -> float:
    return sum(value(a, "gpu__time_duration.sum") for a in actions) * 1e-9


def test_figures_are_what_ncu_prints_of_the_recorded_report() -> None:
    found = ncu_csv.read(RECORDED)
    assert len(found) == len(actions(RAW, None)) == 28
    assert ncu_csv.disagreements(found, RAW) == []


def test_shares_of_launches_are_of_the_durations_that_ncu_prints(capsys: Capsys) -> None:
    times = [launch.values["gpu__time_duration.sum"].value for launch in ncu_csv.read(RECORDED)]
    rows = re.findall(r"^\| ([\d, ]+) \| .* ([\d.]+) % \|$", text_of(capsys, "show", RAW), re.M)
    assert len(rows) == 12
    for launches, share in rows:
        part = sum(times[int(number)] for number in launches.split(", "))
        assert float(share) == pytest.approx(100 * part / sum(times), abs=0.51)


def test_a_value_that_ncu_did_not_print_is_found() -> None:
    name = "gpu__time_duration.sum"
    launches = ncu_csv.read(RECORDED)[:1]
    true = launches[0].values[name]
    launches[0].values[name] = ncu_csv.Printed(true.value * 1.1 + 2 * true.step, true.step)
    assert f"{name} is" in ncu_csv.disagreements(launches, RAW)[0]
    del launches[0].values[name]
    assert ncu_csv.disagreements(launches, RAW)[0].endswith(f"lacks {name}")
    assert ncu_csv.disagreements([], RAW) == ["no launch"]


@pytest.mark.parametrize(("shape", "before", "after"), STEPS)
def test_every_recorded_step_multiplies_out(shape: str, before: str, after: str) -> None:
    sides = [duration_parts(capture(shape, name).metrics) for name in (before, after)]
    assert sides[0] is not None
    assert sides[1] is not None
    found = speedup_factors(sides[0], sides[1])
    measured = duration(raw(shape, before)) / duration(raw(shape, after))
    assert found.ratio == pytest.approx(measured)
    product = math.prod(part.gain for part in found.factors)
    assert product == pytest.approx(measured, rel=0.02)
    assert product * found.residual == pytest.approx(measured)


@pytest.mark.parametrize(("shape", "variant"), CAPTURES)
def test_the_factors_are_ncus_own_counters(shape: str, variant: str) -> None:
    found = duration_parts(capture(shape, variant).metrics)
    assert found is not None
    actions = raw(shape, variant)
    schedulers = 4 * value(actions[0], "launch__sm_count")
    executed = sum(value(a, "smsp__inst_executed.sum") for a in actions)
    assert found.instructions == pytest.approx(executed / schedulers)
    active = sum(value(a, "smsp__cycles_active.sum") for a in actions)
    # Issue rate by another counter: instructions issued over active cycles, of all schedulers.
    issued = sum(value(a, "smsp__inst_issued.sum") for a in actions)
    assert found.issue_rate == pytest.approx(issued / active, rel=1e-4)
    elapsed = sum(value(a, "gpc__cycles_elapsed.avg") for a in actions)
    assert found.active == pytest.approx(active / schedulers / elapsed)
    busiest = sum(value(a, "smsp__cycles_active.max") for a in actions)
    assert (found.balance, found.busiest) == pytest.approx(
        (active / schedulers / busiest, busiest / elapsed)
    )
    assert found.clock == pytest.approx(elapsed / duration(actions))
    # All that is left is what was issued more than once: 1.51 % at most, of a kernel of 4 µs.
    assert found.product == pytest.approx(found.seconds * executed / issued, rel=1e-4)
    assert 0 <= 1 - executed / issued < 0.0152


@pytest.mark.parametrize(("shape", "variant"), CAPTURES)
def test_stall_times_are_samples_times_duration(shape: str, variant: str) -> None:
    found = stall_times(capture(shape, variant).metrics)
    actions = raw(shape, variant)
    assert sum(found.values()) == pytest.approx(duration(actions) * 1e6)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    prefix = "smsp__pcsamp_warps_issue_stalled_"
    expected: dict[str, float] = {}
    for action in actions:
        names = [
            n
            for n in action.metric_names()
            if n.startswith(prefix) and not n.endswith("_not_issued")
        ]
        total = sum(value(action, n) for n in names)
        assert total == value(action, "smsp__pcsamp_sample_count")
        for name in names:
            microseconds = value(action, name) / total * duration([action]) * 1e6
            key = name.removeprefix(prefix)
            expected[key] = expected.get(key, 0.0) + microseconds
    assert found == pytest.approx({k: v for k, v in expected.items() if v})


@pytest.mark.parametrize(("shape", "variant"), CAPTURES)
def test_ceilings_and_traffic_are_those_of_ncus_hierarchical_roofline(
    shape: str, variant: str
) -> None:
    found, roof = stands(shape, variant), peaks(capture(shape, variant).metrics)
    assert roof is not None
    actions = raw(shape, variant)
    names = section(actions[0], "SpeedOfLight_HierarchicalTensorRooflineChart")
    shares = {"dram": 0.0, "l2": 0.0, "l1": 0.0}
    moved = dict.fromkeys(shares, 0.0)
    longest = max(actions, key=lambda a: duration([a]))
    counters = {
        "dram": ("dram__bytes.sum", "dram__cycles_elapsed.avg.per_second"),
        "l2": ("derived__lts__lts2xbar_bytes.sum", "lts__cycles_elapsed.avg.per_second"),
        "l1": (
            "derived__l1tex__lsu_writeback_bytes_mem_lgds.sum",
            "gpc__cycles_elapsed.avg.per_second",
        ),
    }
    for level, (traffic, clock) in counters.items():
        peak, rate = f"{traffic}.peak_sustained", f"{traffic}.per_second"
        assert {peak, rate} <= names
        top = value(longest, peak) * value(longest, clock)
        assert roof.rates[level] == pytest.approx(top)
        for action in actions:
            share = value(action, rate) / (value(action, peak) * value(action, clock))
            shares[level] += share * duration([action]) / duration(actions)
            moved[level] += value(action, rate) * duration([action])
    assert [level.name for level in found.levels] == list(shares)
    for at in found.levels:
        assert at.share_of_bandwidth == pytest.approx(shares[at.name], rel=1e-3)
        through = moved[at.name]
        expected = found.flops / through if through else math.inf
        assert at.flop_per_byte == pytest.approx(expected, rel=1e-3)
        if at.name == found.base:
            assert found.flop_per_byte == pytest.approx(expected, rel=1e-3)
    assert moved[found.base] > 0
    dram = value(longest, "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed")
    assert 100 * shares["dram"] == pytest.approx(dram, rel=0.02) or len(actions) > 1


def test_what_is_flushed_comes_from_dram_and_what_is_kept_does_not() -> None:
    """The bytes of Q, K and V are read once where caches are flushed, and not at all else."""
    inputs = 3 * 2 * 8 * 512 * 64 * 2
    for variant in ("baseline", "fix4", "fix15"):
        rows = recorded_capture(SHOWN, variant).metrics.rows("metric", "value")
        kept = sum(value for metric, value in rows if metric == "dram__bytes_read.sum")
        assert sum(value(a, "dram__bytes_read.sum") for a in raw(FLUSHED, variant)) > 0.95 * inputs
        assert kept < 1e-3 * inputs
        assert point(capture(FLUSHED, variant).metrics, base="dram") is not None


def of_the_timed_pass(action: Any) -> float:
    """What a share per cycle is in the pass that was timed: the cycles of one over the other's."""
    return value(action, "sm__cycles_elapsed.avg") / value(action, "gpc__cycles_elapsed.avg")


@pytest.mark.parametrize(("shape", "variant"), CAPTURES)
def test_roofs_are_at_the_clock_of_the_pass_that_was_timed(shape: str, variant: str) -> None:
    """fix15 "ran at 1659 MHz": cycles of one replay pass over the duration of another."""
    found, roof = stands(shape, variant), peaks(capture(shape, variant).metrics)
    assert roof is not None
    actions = raw(shape, variant)
    cycles = sum(value(action, "gpc__cycles_elapsed.avg") for action in actions)
    assert found.sm_clock_hz == pytest.approx(cycles / duration(actions), rel=1e-6)
    longest = max(actions, key=lambda action: duration([action]))
    timed = value(longest, "gpc__cycles_elapsed.avg") / duration([longest])
    assert roof.rates["tensor fp16"] == pytest.approx(timed * 132 * 4096, rel=1e-3)


@pytest.mark.parametrize(("shape", "variant"), CAPTURES)
def test_work_is_that_of_ncus_roofline_sections(shape: str, variant: str) -> None:
    found = stands(shape, variant)
    per_cycle = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
    single = half = tensor = 0.0
    shares = {"fp32": 0.0, "half": 0.0, "tensor": 0.0}
    actions = raw(shape, variant)
    for action in actions:
        cycles = value(action, "smsp__cycles_elapsed.avg.per_second") * duration([action])
        clock = value(action, "gpc__cycles_elapsed.avg.per_second")
        part = duration([action]) / duration(actions) * of_the_timed_pass(action)
        # SpeedOfLight_HierarchicalSingleRooflineChart
        rate = sum(value(action, per_cycle.format(op)) for op in ("fadd", "fmul"))
        rate += value(action, "derived__smsp__sass_thread_inst_executed_op_ffma_pred_on_x2")
        peak = value(action, "derived__sm__sass_thread_inst_executed_op_ffma_pred_on_x2")
        single += rate * cycles
        shares["fp32"] += rate / peak * part
        # SpeedOfLight_HierarchicalHalfRooflineChart, without the HADDs that unpack halves
        rate = sum(
            value(action, f"derived__smsp__sass_thread_inst_executed_op_{op}")
            for op in ("hmul_pred_on_x2", "hfma_pred_on_x4")
        )
        peak = value(action, "derived__sm__sass_thread_inst_executed_op_hfma_pred_on_x4")
        half += rate * cycles
        shares["half"] += rate / peak * part
        # SpeedOfLight_HierarchicalTensorRooflineChart: the type's operations by its dense peak
        name = "sm__ops_path_tensor_src_fp16.sum"
        dense = "sm__ops_path_tensor_op_hgmma_src_fp16_sparsity_off.sum.peak_sustained"
        done = value(action, f"{name}.per_cycle_elapsed")
        assert value(action, name) == pytest.approx(done * cycles, rel=1e-3)
        tensor += value(action, name)
        shares["tensor"] += done / value(action, dense) * part
        # The roll-up's peak allows sparsity: it would halve the share.
        assert value(action, f"{name}.peak_sustained") == 2 * value(action, dense)
        assert clock > 1e9
    assert found.flops == pytest.approx(single + half + tensor, rel=1e-3)
    assert found.arithmetic == max(shares, key=lambda kind: shares[kind])
    assert found.share_of_arithmetic_peak == pytest.approx(shares[found.arithmetic], rel=1e-3)
    assert not found.above_roof


def test_two_captures_of_one_kernel_are_no_surprise() -> None:
    """SDPA as it comes is the cuDNN kernel: the assumed noise must cover how the two differ."""
    first, second = recorded_capture(SHOWN, "sdpa"), recorded_capture(SHOWN, "sdpa_cudnn")
    assert first.kernels == second.kernels
    known = figures(first.metrics), figures(second.metrics)
    found = compare(first, second, ("sdpa", "sdpa_cudnn"), known)
    assert found.largest_changes.figures == ()
    assert found.largest_changes.launch == ()
    was, came = known
    assert (
        max(
            surprise(was[k], came[k])
            for k in was.keys() & came.keys() & catalog().keys()  # what the product ranks
            if not k.startswith("stall.")
        )
        < 3
    )


def test_known_causes_lead_what_moved() -> None:
    def top(shape: str, before: str, after: str) -> str:
        find = capture if shape == FLUSHED else recorded_capture
        sides = find(shape, before), find(shape, after)
        known = figures(sides[0].metrics), figures(sides[1].metrics)
        return compare(*sides, (before, after), known).largest_changes.figures[0].figure

    here = SHOWN
    assert top(here, "baseline", "fix1") == "global_load_requests"  # tiles in shared memory
    assert top(here, "fix1", "fix2") == "sm_active"  # four times the blocks
    assert top(here, "fix2", "fix4") == "warp_instructions"  # tensor cores
    assert top(here, "fix6", "fix7") == "warp_instructions"  # the copy engine copies
    assert top(here, "fix7", "fix8") == "sm_active"  # a block fills an SM: half have none
    assert top(here, "fix7", "fix11") == "warps_per_scheduler"  # more of them a row
    assert top(here, "fix14", "fix15") == "sm_active"  # four times the blocks
    # Only out of flushed caches are packed halves and prefetched tiles on record, and the latency
    # that these hide.
    assert top(FLUSHED, "fix2", "fix3") == top(FLUSHED, "fix3", "fix4") == "warp_instructions"
    assert top(FLUSHED, "fix4", "fix5") == "issue_active"


@pytest.mark.parametrize("variant", ["baseline", "fix1"])
def test_rules_are_ncus_own(variant: str) -> None:
    (action,) = raw(FLUSHED, variant)
    said = {
        (rule["rule_identifier"], rule["rule_message"].get("title", "")): rule
        for rule in action.rule_results_as_dicts()
        if int(rule.get("rule_message", {}).get("type", 0)) == 2
    }
    rows = capture(FLUSHED, variant).rules.rows("rule", "title", "estimated_speedup_pct")
    found = {(rule, title): estimate for rule, title, estimate in rows}
    assert found.keys() == said.keys()
    stall = "CPIStall", "Long Scoreboard Stalls"
    if variant == "baseline":
        assert found[stall] == pytest.approx(said[stall]["speedup_estimation"]["speedup"])


def test_ablate_tells_how_the_ladder_multiplies_out_and_a_point_above_its_roof(
    capsys: Capsys, monkeypatch: Patch
) -> None:
    data = json.loads(output_of("ablate --json --full"))
    out = output_of("ablate --all")
    whole, score = data["whole"], data["predictions"]
    gains = {each["id"]: each for each in whole["decomposition"]["factors"]}
    assert (
        f"baseline to {whole['after']} under ncu: {factor(whole['decomposition']['ratio'])} = "
        f"{factor(gains['instructions']['gain'])} (fewer instructions) × "
        f"{factor(gains['issue_rate']['gain'])}"
    ) in out
    assert (
        f"predictions: {score['confirmed']} confirmed, {score['refuted']} refuted, "
        f"{score['not_measurable']} not measurable"
    ) in out
    assert "above its roof" not in out
    monkeypatch.setattr("workbench.derive.rooflines.ERROR_MARGIN", 0.15)
    out = text_of(capsys, "ablate", "--all", project=FIXTURE)
    assert "> - fix2 stands above its roof: an error in the data" in out  # 20 % of FP32
    assert "> - fix5 stands above its roof: an error in the data" in out  # 20 % of L2
    assert "> - fix3 " not in out


@pytest.mark.parametrize(
    ("text", "value", "step"),
    [("1,004,160", 1004160, 1), ("0.12", 0.12, 0.01), ("1.98e+09", 1.98e9, 1e7), ("-3.0", -3, 0.1)],
)
def test_numbers_as_ncu_prints_them(text: str, value: float, step: float) -> None:
    found = ncu_csv.printed(text)
    assert found is not None
    assert found.value == value
    assert found.step == pytest.approx(step)
