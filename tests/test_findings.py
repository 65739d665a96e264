"""``judge`` returns codes and values, also of what is stale, wrong or was never measured."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from answers import not_none
from snapshots import build, check, snapshot, step
from workbench.judge.findings import Finding, Value, finding
from workbench.judge.ladder import judge, standing
from workbench.judge.rows import Row
from workbench.load import LadderEvidence, VariantEvidence
from workbench.render.document.phrases import note, verdict
from workbench.render.document.sentences import SENTENCES, sentence
from workbench.study.config import Config
from workbench.words import ABSENT, CheckResult, Status, Verdict

JUDGE = Path(__file__).parents[1] / "profiler" / "workbench" / "judge"
MOST_WORDS = 2
BY_RENDER = {"timing.throttling"}  # of a fact that the report tells
# Units and names of ncu's rules, which a report gives without a title.
LABELS = {
    "% of the {} bandwidth",
    "% of the busiest SM",
    "% of the duration",
    "warps per scheduler",
    "Achieved occupancy below theoretical",
    "Issue slots idle",
    "Uncoalesced global accesses",
    "Uncoalesced shared accesses",
}


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of every string but docstrings and annotations; ``{}`` for what is put in."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.JoinedStr):
            texts = (v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
            yield node.lineno, "".join(map(str, texts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        else:
            yield from strings(node)


def words(text: str) -> list[str]:
    return [word for word in text.split() if re.search("[A-Za-z]{2}", word)]


def test_prose_is_seen() -> None:
    tree = ast.parse('"""Not this one."""\nx = f"it took {y} long"\nz = ("dram__bytes.sum", "a b")')
    assert [text for _, text in strings(tree) if len(words(text)) > MOST_WORDS] == [
        "it took {} long"
    ]


def test_judge_has_no_sentence() -> None:
    found = [
        f"{path.relative_to(JUDGE)}:{line}: {text}"
        for path in sorted(JUDGE.rglob("*.py"))
        for line, text in strings(ast.parse(path.read_text()))
        if len(words(text)) > MOST_WORDS and text not in LABELS
    ]
    assert found == []


def codes() -> set[str]:
    """What ``judge`` calls a finding, where it says so in one string."""
    text = "".join(path.read_text() for path in JUDGE.rglob("*.py"))
    return set(re.findall(r'"([a-z_]+\.[a-z_0-9]+)"', text))


def test_every_sentence_has_a_finding_and_every_finding_a_sentence() -> None:
    """``cli/gate.py`` makes two more, of a study that cannot be read."""
    joined = re.compile(r"work\.|commit\.(same_|comments_|study_)")
    alone = {
        "not_collected",
        "variant",
        "stopped",
        "stale",
        "compared",
        "kernel",
        "rule",
    } | BY_RENDER
    unused = {code for code in SENTENCES.keys() - codes() - alone if not joined.match(code)}
    assert unused == set()
    dotted = {code.partition(".")[0] for code in SENTENCES if "." in code}
    assert {c for c in codes() - SENTENCES.keys() if c.partition(".")[0] in dotted} == set()


@pytest.mark.parametrize("code", SENTENCES)
def test_a_finding_without_values_has_a_sentence(code: str) -> None:
    """What is not collected is said, and no sentence needs a value to be there."""
    needed: dict[str, Value] = {
        "share": 0.5,
        "reasons": ("wait",),
        "what": "time",
        "before": 1.0,
        "after": 2.0,
        "not_timed": "k",
    }
    said = sentence(Finding(code, needed))
    assert said
    assert "|" not in said
    assert "{" not in said


def test_how_a_sentence_is_made() -> None:
    kernel = finding("kernel", kernel="k", grid=(2, 3), block=(128,), times=2)
    differ = finding("kernels.differ", not_captured=(kernel,))
    assert sentence(differ) == "timed and not captured: 2 times k (2 x 3 blocks of 128 threads)"
    assert sentence(finding("kernels.as_captured", kernels=1, memsets=2)) == (
        "1 kernel timed as captured, and 2 memsets"
    )
    assert sentence(finding("correct.everywhere", max_error=None, shapes_checked=2)) == (
        f"max error {ABSENT} over 2 shapes"
    )
    assert finding("stopped", text="", shape=None).values == {}
    assert sentence(None) == ""


# ---- standing
TAKEN = snapshot(
    [step("base", None), step("fix", "base")], {"s": {"base": 20.0, "fix": 10.0, "library": 15.0}}
)
FIX = TAKEN.shapes["s"].variants["fix"]


def with_fix(evidence: VariantEvidence) -> LadderEvidence:
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


def test_a_stale_capture_at_the_tables_shape_leaves_the_verdict_of_another_shape() -> None:
    times = {"base": 20.0, "fix": 10.0, "library": 15.0}
    steps = [step("base", None), step("fix", "base", shape="t")]
    found = snapshot(steps, {"s": times, "t": times})
    here = found.shapes["s"]
    old = dataclasses.replace(here.variants["fix"], state=state(capture=Status.STALE))
    shapes = {"s": dataclasses.replace(here, variants={**here.variants, "fix": old})}
    row = judge(dataclasses.replace(found, shapes={**found.shapes, **shapes}), Config()).row("fix")
    assert (row.status, row.verdict, row.judged_at) == (Status.STALE, Verdict.KEPT, "t")
    assert row.time is None


def test_a_step_unsupported_here_gives_its_reason_at_the_shape_where_it_is_judged() -> None:
    times = {"base": 20.0, "fix": 10.0, "library": 15.0}
    steps = [step("base", None), step("fix", "base", shape="t")]
    found = snapshot(steps, {"s": times, "t": times})
    checks = {"s": check(CheckResult.UNSUPPORTED, "no"), "t": check(CheckResult.WRONG, "off by 3")}
    shapes = {}
    for name, shape in found.shapes.items():
        fix = dataclasses.replace(shape.variants["fix"], checks=checks, correct=name == "t")
        shapes[name] = dataclasses.replace(shape, variants={**shape.variants, "fix": fix})
    row = judge(dataclasses.replace(found, shapes=shapes), Config()).row("fix")
    assert (verdict(row), row.judged_at) == ("wrong", "t")
    assert "off by 3" in note(row)


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
    expected = None if result == CheckResult.UNSUPPORTED else Verdict.WRONG
    assert (found.verdict, found.time, found.over_parent) == (expected, None, None)
    assert verdict(found) == ("unsupported" if expected is None else "wrong")


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
