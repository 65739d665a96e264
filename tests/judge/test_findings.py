"""``judge`` returns codes and values, also of what is stale, wrong or was never measured."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from answers import not_none
from made_evidence import THEIR_TIMES, TWO_STEPS, build, check, snapshot, step, with_variant
from workbench.judge.findings import Finding, change, finding, percent, sentence
from workbench.judge.gates import correct_gate, standing
from workbench.judge.ladder import judge
from workbench.judge.rows import Row
from workbench.render.doc import plain
from workbench.render.document.ladder_report import failures
from workbench.render.document.printed_ladder import verdict, verdict_words
from workbench.study.config import Config
from workbench.words import CheckResult, Status, Verdict
from workspaces import recorded_ladder

# ---- sentences


def findings_in(value: object) -> Iterator[Finding]:
    """Every finding in a result, those in the values of another included."""
    if isinstance(value, Finding):
        yield value
        yield from findings_in(value.values)
    elif dataclasses.is_dataclass(value):
        for each in dataclasses.fields(value):
            yield from findings_in(getattr(value, each.name))
    elif isinstance(value, Mapping):
        yield from findings_in(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from findings_in(item)


@pytest.mark.parametrize("study", ["attention", "softmax", "transpose"])
def test_every_finding_of_a_recorded_ladder_says_what_it_found(study: str) -> None:
    every = list(findings_in(recorded_ladder(study=study)))
    assert {"correct.everywhere", "faster.reached"} <= {each.code for each in every}
    for each in every:
        assert each.message, each
        assert not re.search(r"[{}|]|None|\bnan\b", each.message), each


def test_a_value_that_was_not_collected_is_not_among_the_values() -> None:
    assert finding("stopped", "", text="", shape=None).values == {}
    assert sentence(None) == ""


def test_the_words_of_a_finding_agree_with_its_values() -> None:
    gate = correct_gate({"s": check(), "t": check()}, "s", unchecked=["u"])
    assert gate.why.values == {"max_error": 1e-3, "shapes_checked": 2, "shapes_not_checked": 1}
    assert gate.why.message == "max error 0.001 over 2 shapes, not checked at 1 others"
    assert percent(0.004) == "under 1 %"
    assert percent(0.996) == "100 %"
    assert change(0.5) == "-50.0"


# ---- standing
TAKEN = snapshot(TWO_STEPS, {"s": THEIR_TIMES})
FIX = TAKEN.shapes["s"].variants["fix"]


def row(**changes: Any) -> Row:
    """The row of a step of whose evidence this is changed."""
    return judge(with_variant(TAKEN, "s", "fix", **changes), Config()).row("fix")


def state(**changes: Status) -> dict[str, Status]:
    return {**FIX.state, **changes}


def test_a_current_variant_has_its_time_and_its_verdict() -> None:
    found = row()
    assert (found.status, found.problem, found.verdict) == (Status.CURRENT, None, Verdict.KEPT)
    assert found.time is not None
    assert not_none(found.over_parent).ratio == pytest.approx(2)


def test_what_is_stale_shows_no_figure_and_leaves_the_verdict_open() -> None:
    found = row(state=state(check=Status.STALE, timing=Status.STALE))
    assert found.status == Status.STALE
    assert sentence(found.problem) == "its sources changed since (check, timing); measure it again"
    assert found.verdict == Verdict.INCONCLUSIVE
    assert (found.time, found.over_parent, found.over_reference, found.gates) == (None,) * 3 + ((),)


JUDGED_AT_T = snapshot(
    [TWO_STEPS[0], step("fix", "base", shape="t")], {"s": THEIR_TIMES, "t": THEIR_TIMES}
)


def test_a_stale_capture_at_the_tables_shape_leaves_the_verdict_of_another_shape() -> None:
    found = with_variant(JUDGED_AT_T, "s", "fix", state=state(capture=Status.STALE))
    row = judge(found, Config()).row("fix")
    assert (row.status, row.verdict, row.judged_at) == (Status.STALE, Verdict.KEPT, "t")
    assert row.time is None


def test_a_step_unsupported_here_gives_its_reason_at_the_shape_where_it_is_judged() -> None:
    checks = {"s": check(CheckResult.UNSUPPORTED, "no"), "t": check(CheckResult.WRONG, "off by 3")}
    found = JUDGED_AT_T
    for shape in found.shapes:
        found = with_variant(found, shape, "fix", checks=checks, correct=shape == "t")
    judged = judge(found, Config())
    row = judged.row("fix")
    assert (verdict(row), row.judged_at) == ("wrong", "t")
    assert verdict_words(row, judged) == "wrong at t: error 0.00100"
    assert "off by 3" in plain(failures(judged)[0])


def test_the_baseline_stays_the_baseline_when_it_is_stale() -> None:
    found = judge(with_variant(TAKEN, "s", "base", state=state(build=Status.STALE)), Config())
    assert (found.row("base").verdict, found.row("base").time) == (Verdict.BASELINE, None)


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (CheckResult.WRONG, "wrong: off by 3"),
        (CheckResult.UNSUPPORTED, "unsupported: off by 3"),
        (CheckResult.HUNG, "off by 3"),
    ],
)
def test_what_is_not_correct_has_failed_and_has_no_speed(result: CheckResult, problem: str) -> None:
    found = row(checks={"s": check(result, "off by 3")}, correct=False)
    assert (found.status, sentence(found.problem)) == (Status.FAILED, problem)
    expected = None if result == CheckResult.UNSUPPORTED else Verdict.WRONG
    assert (found.verdict, found.time, found.over_parent) == (expected, None, None)
    assert verdict(found) == ("unsupported" if expected is None else "wrong")


def test_what_does_not_build_says_so_first() -> None:
    broken = build("fix", error="fix.cu(3): error\nand more")
    stale = dataclasses.replace(FIX, build=broken, state=state(timing=Status.STALE))
    status, why = standing(stale, "s")
    assert (status, sentence(why)) == (Status.FAILED, "fix.cu(3): error")


def test_without_any_evidence_it_is_missing() -> None:
    missing = dict.fromkeys(FIX.state, Status.MISSING)
    bare = dataclasses.replace(FIX, checks={}, build=None, state=missing)
    assert standing(bare, "s") == (Status.MISSING, finding("missing.unmeasured", "not measured"))
