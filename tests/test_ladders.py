"""One ladder a shape: every step stands where it is judged, on the evidence of recorded runs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from workbench.commands.target import find_target
from workbench.judge.ladder import judge
from workbench.judge.rows import Ablation
from workbench.judge.snapshot import snapshot
from workbench.words import Role, Verdict

ROOT = Path(__file__).parents[1]


@cache
def recorded() -> Ablation:
    target = find_target(ROOT, None, None)
    return judge(snapshot(target.evidence(), target.steps([])), target.workspace.config)


def test_every_step_stands_once_in_a_ladder_with_its_parent() -> None:
    found = recorded()
    assert found.ladders[0].shape == found.shape
    steps = [r.variant for ladder in found.ladders for r in ladder.rows if r.role != Role.START]
    assert sorted(steps) == sorted(r.variant for r in found.rows)
    for ladder in found.ladders:
        shown = [r.variant for r in ladder.rows]
        order = [r.variant for r in found.rows if r.variant in shown]
        assert shown == order
        for row in ladder.rows:
            assert row.step is not None
            if row.role != Role.START:
                assert row.step.shape in (ladder.shape, "")
                assert row.step.parent is None or row.step.parent in shown


def test_a_verdict_stands_beside_the_ratio_it_was_given_for() -> None:
    found = recorded()
    for ladder in found.ladders:
        for row in ladder.rows:
            assert row.judged_at == ""
            if row.role == Role.START:
                assert row.verdict is None
                assert not row.gates
                continue
            assert row.verdict == found.row(row.variant).verdict
            assert row.deciding == row.over_parent == found.row(row.variant).deciding
            if row.verdict == Verdict.KEPT:
                assert row.over_parent is not None
                assert row.over_parent.low > 1


def test_a_step_at_another_shape_has_the_figures_of_that_shape() -> None:
    found = recorded()
    ladder = next(ladder for ladder in found.ladders if ladder.shape == "b4h16s2048d64")
    here, there = found.row("fix6"), ladder.row("fix6")
    assert (here.judged_at, there.judged_at) == ("b4h16s2048d64", "")
    assert here.warm is not None
    assert there.warm is not None
    assert there.warm.median > 10 * here.warm.median
    assert there.figures["duration"].value > 10 * here.figures["duration"].value
    assert here.against_parent is not None
    assert there.against_parent is not None
    assert there.against_parent.stall_times == here.against_parent.stall_times
    sdpa = ladder.row("sdpa")
    assert sdpa.role == Role.REFERENCE
    assert sdpa.warm is not None
    assert there.over_reference is not None
    assert abs(there.over_reference.ratio - sdpa.warm.median / there.warm.median) < 0.01


def test_a_choice_is_compared_with_the_best_of_what_it_picks_from() -> None:
    found = recorded()
    row = found.ladders[0].row("fix15")
    assert row.role == Role.CHOICE
    assert row.chosen == "fix11[stagger=1,early=1,polynomial=3]"
    assert row.over_chosen is not None
    assert 0.95 < row.over_chosen.ratio < 1.05
