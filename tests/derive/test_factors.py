"""Why a step is faster: factors, stall time, moves and rules, by hand-made numbers."""

from __future__ import annotations

import math

import pytest

from answers import not_none
from made_records import metrics
from workbench.derive.factors import (
    BUSIEST,
    WHOLE,
    DurationParts,
    Factor,
    SpeedupFactors,
    duration_parts,
    largest_changes,
    speedup_factors,
)
from workbench.derive.figures import UNSAMPLED, Figure, compare_times, stall_times
from workbench.ncu.catalog import catalog

PREFIX = "smsp__pcsamp_warps_issue_stalled_"


def launch(
    *,
    instructions: float = 8e6,
    issue: float = 0.5,
    active: float = 3e4,
    busiest: float | None = None,
    elapsed: float = 4e4,
    clock: float = 2e9,
    **more: float,
) -> dict[str, float]:
    """Ten SMs; the duration follows from elapsed cycles and clock."""
    return {
        "device__attribute_multiprocessor_count": 10,
        "device__attribute_num_schedulers_per_multiprocessor": 4,
        "smsp__inst_executed.sum": instructions,
        "smsp__issue_active.avg.per_cycle_active": issue,
        "smsp__cycles_active.avg": active,
        "smsp__cycles_active.max": busiest or active,
        "gpc__cycles_elapsed.avg": elapsed,
        "gpc__cycles_elapsed.avg.per_second": clock,
        "gpu__time_duration.sum": elapsed / clock * 1e9,
        **more,
    }


def consistent(issue: float, active: float, elapsed: float, clock: float = 2e9) -> dict[str, float]:
    """A launch in which every issue slot used is an instruction executed."""
    return launch(
        instructions=issue * active * 40, issue=issue, active=active, elapsed=elapsed, clock=clock
    )


def test_replayed_instructions_stand_in_the_residual() -> None:
    before = duration_parts(metrics(consistent(0.2, 3e4, 4e4)))
    odd = consistent(0.2, 3e4, 4e4)
    odd["smsp__inst_executed.sum"] *= 0.9  # a tenth was issued again
    after = duration_parts(metrics(odd))
    assert after is not None
    assert speedup_factors(not_none(before), after).residual == pytest.approx(0.9)


def parts(active: float, busiest: float | None, elapsed: float) -> DurationParts:
    one = {**consistent(0.5, active, elapsed), "smsp__cycles_active.max": busiest or 0.0}
    found = not_none(duration_parts(metrics({k: v for k, v in one.items() if v})))
    return found


def test_more_sms_at_work_do_not_hide_a_longer_head_and_tail() -> None:
    """ "Share of the time active, 1.20x" was 1.87x more SMs and 0.64x the time any of them runs."""
    before, after = parts(2.5e4, 4.9e4, 5e4), parts(1.5e4, 1.57e4, 2.5e4)
    found = speedup_factors(before, after)
    gains = {factor.id: factor.gain for factor in found.factors}
    assert gains["balance"] == pytest.approx(1.873, rel=1e-3)
    assert gains["busiest"] == pytest.approx(0.641, rel=1e-3)
    assert gains["balance"] * gains["busiest"] == pytest.approx(after.active / before.active)
    assert found.residual == pytest.approx(1)


def test_without_the_busiest_scheduler_the_two_stand_as_one() -> None:
    found = speedup_factors(parts(2.5e4, None, 5e4), parts(1.5e4, 1.5e4, 2.5e4))
    assert [factor.id for factor in found.factors] == list(WHOLE)
    assert found.residual == pytest.approx(1)


@pytest.mark.parametrize("missing", sorted({*launch()} - {BUSIEST}))
def test_a_missing_counter_is_not_collected_and_no_guess(missing: str) -> None:
    odd = {name: value for name, value in launch().items() if name != missing}
    assert duration_parts(metrics(odd)) is None
    assert duration_parts(metrics(launch(), odd)) is None


def test_nothing_executed_has_no_factors() -> None:
    assert duration_parts(metrics(launch(issue=0.0))) is None
    assert duration_parts(metrics()) is None


def test_a_launch_without_samples_is_said_to_be_so() -> None:
    table = metrics(
        {"gpu__time_duration.sum": 8000.0, PREFIX + "wait": 1},
        {"gpu__time_duration.sum": 2000.0, PREFIX + "wait": 0},
    )
    assert stall_times(table) == pytest.approx({"wait": 8.0, UNSAMPLED: 2.0})
    assert stall_times(metrics({"gpu__time_duration.sum": 1.0})) == {}
    assert stall_times(metrics({PREFIX + "wait": 1})) == {}


def test_times_are_ranked_by_change_and_a_side_without_samples_compares_to_nothing() -> None:
    found = compare_times({"wait": 5.0, "barrier": 9.0}, {"wait": 6.0, "selected": 2.0})
    assert [(t.reason, t.change) for t in found] == [("barrier", -9), ("selected", 2), ("wait", 1)]
    assert compare_times({"wait": 5.0}, {}) == []


def figures(**values: float) -> dict[str, Figure]:
    """By the catalogue, or a stall's share where the name has ``stall_`` before it."""
    found = {}
    for key, value in values.items():
        if key.startswith("stall_"):
            name = f"stall.{key[6:]}"
            found[name] = Figure(name, name, value, "% of samples", "")
        else:
            spec = catalog()[key]
            found[key] = Figure(key, spec.label, value, spec.unit, spec.names[0], spec.better)
    return found


def product(**gains: float) -> SpeedupFactors:
    measured = math.prod(gains.values())
    factors = tuple(Factor(key, key, "", 1, gain, gain, "") for key, gain in gains.items())
    return SpeedupFactors(100.0, 100.0 / measured, measured, factors)


def test_a_small_change_in_the_bottleneck_outranks_a_large_one_beside_it() -> None:
    before = figures(
        global_load_requests=1.0,
        shared_conflicts=1.0,
        warp_instructions=10.0,
        stall_long_scoreboard=80.0,
        stall_short_scoreboard=1.0,
    )
    after = figures(
        global_load_requests=0.7,
        shared_conflicts=100.0,
        warp_instructions=10.0,
        stall_long_scoreboard=60.0,
        stall_short_scoreboard=1.0,
    )
    found = largest_changes(before, after, None)
    assert [m.figure for m in found.figures] == ["global_load_requests", "shared_conflicts"]
    assert found.figures[0].part == pytest.approx(0.8)
    assert found.figures[1].surprise > found.figures[0].surprise


def test_what_is_within_the_noise_did_not_move() -> None:
    before = figures(issue_active=0.50, l2_hit=50.0, warp_instructions=10.0)
    after = figures(issue_active=0.53, l2_hit=58.0, warp_instructions=10.1)
    found = largest_changes(before, after, product(issue_rate=1.1))
    assert found.figures == ()


def test_counters_that_tell_the_same_are_shown_once() -> None:
    before = figures(issue_active=0.1, eligible_warps=0.1, warp_instructions=10.0)
    after = figures(issue_active=0.4, eligible_warps=0.4, warp_instructions=40.0)
    found = largest_changes(before, after, product(instructions=0.25, issue_rate=4.0))
    by_id = {m.figure: m for m in found.figures}
    assert set(by_id) == {"issue_active", "warp_instructions"}  # another fact at the same factor
    assert by_id["issue_active"].alike == ("Eligible warps per scheduler",)


def test_a_rate_that_only_follows_the_duration_is_no_move() -> None:
    before, after = figures(fma_pipe=10.0, xu_pipe=10.0), figures(fma_pipe=20.0, xu_pipe=50.0)
    found = largest_changes(before, after, product(instructions=1.1, issue_rate=2 / 1.1))
    assert [m.figure for m in found.figures] == ["xu_pipe"]


def test_launch_parameters_are_listed_and_not_ranked() -> None:
    before, after = figures(registers=128, grid=64), figures(registers=168, grid=64)
    found = largest_changes(before, after, product(issue_rate=2.0))
    assert found.figures == ()
    assert [(m.figure, m.before, m.after) for m in found.launch] == [("registers", 128, 168)]


def test_a_handful_of_events_among_millions_is_no_change() -> None:
    before = figures(shared_conflicts=36e-6, warp_instructions=2.7, stall_short_scoreboard=30.0)
    after = figures(shared_conflicts=0.0, warp_instructions=2.7, stall_short_scoreboard=30.0)
    assert largest_changes(before, after, None).figures == ()
    many = figures(shared_conflicts=3.0, warp_instructions=2.7, stall_short_scoreboard=30.0)
    assert [m.figure for m in largest_changes(many, after, None).figures] == ["shared_conflicts"]
