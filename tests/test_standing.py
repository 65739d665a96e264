"""What a row says of a variant that is stale, wrong, does not build or was never measured."""

from __future__ import annotations

import dataclasses

import pytest

from answers import not_none
from snapshots import build, check, snapshot, step
from workbench.judge.evaluate import standing
from workbench.judge.findings import Finding
from workbench.judge.known_evidence import Snapshot, VariantEvidence
from workbench.judge.ladder import judge
from workbench.judge.rows import Row
from workbench.render.document.sentences import sentence
from workbench.study.config import Config
from workbench.words import CheckResult, Status, Verdict

TAKEN = snapshot(
    [step("base", None), step("fix", "base")], {"s": {"base": 20.0, "fix": 10.0, "library": 15.0}}
)
FIX = TAKEN.shapes["s"].variants["fix"]


def with_fix(evidence: VariantEvidence) -> Snapshot:
    shape = TAKEN.shapes["s"]
    variants = {**shape.variants, "fix": evidence}
    return dataclasses.replace(TAKEN, shapes={"s": dataclasses.replace(shape, variants=variants)})


def row(evidence: VariantEvidence) -> Row:
    return judge(with_fix(evidence), Config()).row("fix")


def state(**changes: Status) -> dict[str, Status]:
    return {**FIX.state, **changes}


def test_a_current_variant_has_its_time_and_its_verdict() -> None:
    found = row(FIX)
    assert (found.status, found.problem, found.verdict) == (Status.CURRENT, None, Verdict.KEPT)
    assert found.time is not None
    assert not_none(found.over_parent).ratio == pytest.approx(2)


def test_what_is_stale_shows_no_figure_and_leaves_the_verdict_open() -> None:
    found = row(dataclasses.replace(FIX, state=state(check=Status.STALE, timing=Status.STALE)))
    assert found.status == Status.STALE
    assert sentence(found.problem) == "its sources changed since (check, timing); measure it again"
    assert found.verdict == Verdict.INCONCLUSIVE
    assert (found.time, found.over_parent, found.over_reference, found.gates) == (None,) * 3 + ((),)


def test_the_baseline_stays_the_baseline_when_it_is_stale() -> None:
    shape = TAKEN.shapes["s"]
    stale = dataclasses.replace(shape.variants["base"], state=state(build=Status.STALE))
    variants = {**shape.variants, "base": stale}
    shapes = {"s": dataclasses.replace(shape, variants=variants)}
    found = judge(dataclasses.replace(TAKEN, shapes=shapes), Config())
    assert found.row("base").verdict == Verdict.BASELINE
    assert found.row("base").time is None


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (CheckResult.WRONG, "wrong: off by 3"),
        (CheckResult.UNSUPPORTED, "unsupported: off by 3"),
        (CheckResult.HUNG, "off by 3"),
    ],
)
def test_what_is_not_correct_has_failed_and_has_no_speed(result: CheckResult, problem: str) -> None:
    checks = {"s": check(result, "off by 3")}
    found = row(dataclasses.replace(FIX, checks=checks, correct=False))
    assert (found.status, sentence(found.problem)) == (Status.FAILED, problem)
    assert (found.verdict, found.time, found.over_parent) == (Verdict.WRONG, None, None)


def test_what_does_not_build_says_so_first() -> None:
    broken = build("fix", error="fix.cu(3): error\nand more")
    stale = dataclasses.replace(FIX, build=broken, state=state(timing=Status.STALE))
    status, why = standing(stale, "s")
    assert (status, sentence(why)) == (Status.FAILED, "fix.cu(3): error")


def test_without_any_evidence_it_is_missing() -> None:
    nothing = dataclasses.replace(FIX, checks={}, build=None)
    missing = dict.fromkeys(FIX.state, Status.MISSING)
    bare = dataclasses.replace(nothing, state=missing)
    assert standing(bare, "s") == (Status.MISSING, Finding("missing.unmeasured"))
