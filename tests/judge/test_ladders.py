"""One ladder a shape: every step stands where it is judged, on recorded evidence and by hand."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from answers import not_none
from made_evidence import (
    THEIR_TIMES,
    TWO_STEPS,
    check,
    step,
    together,
    with_sessions,
    with_timings,
    with_variant,
)
from made_evidence import snapshot as by_hand
from workbench.app.ablate import named
from workbench.app.executor import Local
from workbench.app.target import find_target
from workbench.errors import UsageError
from workbench.judge.findings import sentence, sentences
from workbench.judge.ladder import TABLE_ROWS, Ablation, judge
from workbench.judge.rows import ShapeLadder
from workbench.load import LadderEvidence, UnseenEvidence
from workbench.render import markdown
from workbench.render.doc import Table, plain
from workbench.render.document.ladder_report import change
from workbench.render.document.printed_ladder import gate_name, sizes_table, verdict_words, warnings
from workbench.study.config import Config
from workbench.study.model import Ladder, Variant
from workbench.words import Change, CheckResult, Role, Verdict
from workspaces import FIXTURE, GOOD, ROOT, make, recorded_ladder


def test_a_step_at_another_shape_has_the_figures_of_that_shape() -> None:
    found = recorded_ladder()
    ladder = next(ladder for ladder in found.ladders if ladder.shape == "b4h16s2048d64")
    here, there = found.row("fix6"), ladder.row("fix6")
    assert (here.judged_at, there.judged_at) == ("b4h16s2048d64", "")
    assert there.time is not None
    assert there.time.value > 10 * not_none(here.time).value
    assert there.figures["duration"].value > 10 * here.figures["duration"].value
    assert there.against_parent is not None
    assert (
        there.against_parent.stall_microseconds == not_none(here.against_parent).stall_microseconds
    )
    sdpa = ladder.row("sdpa")
    assert sdpa.role == Role.REFERENCE
    assert there.over_reference is not None
    assert abs(there.over_reference.ratio - not_none(sdpa.time).value / there.time.value) < 0.01


STEPS = [
    step("base", None),
    step("small", "base"),
    step("wide", "small", shape="large"),
    step("wider", "wide", shape="large"),
    step("tiny", "small"),
    step("either", "wider", chooses=("tiny", "wider")),
]
TIMES = {
    "normal": {
        "base": 80.0,
        "small": 40.0,
        "wide": 60.0,
        "wider": 50.0,
        "tiny": 20.0,
        "either": 21.0,
        "library": 30.0,
    },
    "large": {"small": 900.0, "wide": 600.0, "wider": 300.0, "either": 301.0, "library": 450.0},
}


def made(times: Mapping[str, Mapping[str, float]] = TIMES) -> Ablation:
    return judge(by_hand(STEPS, times), Config())


def told(ladder: ShapeLadder) -> dict[str, tuple[Role, Verdict | None]]:
    return {row.variant: (row.role, row.verdict) for row in ladder.rows}


def test_each_shape_has_its_steps_and_their_parents_in_the_order_of_the_ladder() -> None:
    normal, large = made().ladders
    assert told(normal) == {
        "base": (Role.STEP, Verdict.BASELINE),
        "small": (Role.STEP, Verdict.KEPT),
        "wider": (Role.START, None),
        "tiny": (Role.STEP, Verdict.KEPT),
        "either": (Role.CHOICE, Verdict.KEPT),
    }
    assert told(large) == {
        "small": (Role.START, None),
        "wide": (Role.STEP, Verdict.KEPT),
        "wider": (Role.STEP, Verdict.KEPT),
    }
    assert (normal.shape, large.shape) == ("normal", "large")
    assert [row.variant for row in large.references] == ["library"]
    choice = normal.row("either")  # it is held against the fastest at its shape
    assert choice.chosen == "tiny"
    assert not_none(choice.over_chosen).ratio == pytest.approx(20 / 21)
    assert not_none(choice.over_parent).ratio == pytest.approx(50 / 21)


@pytest.mark.parametrize("study", ["moe", "softmax"])
def test_a_table_ends_with_the_winner_and_has_the_parent_of_each_row(study: str) -> None:
    found = recorded_ladder(ROOT, study)
    assert found.best is not None
    shown = [row.variant for row in found.table_rows]
    assert shown[-1] == found.best.variant
    assert len(shown) <= TABLE_ROWS
    assert len(set(shown)) == len(shown)
    for row in found.table_rows[:-1]:
        assert row.step is not None
        before = row.chosen if row in found.path and row.chosen else row.step.parent
        assert before is None or before in shown
    path = [row.variant for row in found.path]
    assert path[0] == "baseline"
    assert set(path) <= set(shown)
    if found.best.chosen:
        assert path[-2] == found.best.chosen


def test_ratios_and_times_are_of_the_ladders_own_shape() -> None:
    found = made()
    large = found.ladders[1]
    row, start = large.row("wider"), large.row("small")
    assert not_none(row.time).value == pytest.approx(300, rel=1e-2)
    assert row.over_parent is not None
    assert row.over_parent.ratio == pytest.approx(2)
    assert not_none(row.over_reference).ratio == pytest.approx(1.5)
    assert start.over_parent is None
    assert not_none(start.over_reference).ratio == pytest.approx(0.5)
    table = found.row("wider")
    assert table.judged_at == "large"
    assert table.deciding_speedup == row.over_parent
    assert not_none(table.over_parent).ratio == pytest.approx(1.2)


def test_a_choice_that_could_have_taken_a_faster_one_is_warned_of() -> None:
    def warned(either: float) -> list[str]:
        normal = {**TIMES["normal"], "either": either}
        large = {**TIMES["large"], "either": either * 10}
        found = made({"normal": normal, "large": large})
        return [told for told in sentences(found.warnings) if "fastest" in told]

    (told,) = warned(21.0)
    assert re.fullmatch(
        r"either does not choose the fastest: it is 0\.95\dx \[0\.9\d+, 0\.9\d+\] of tiny", told
    )
    assert warned(20.2) == [], "less than a step has to bring"
    assert warned(19.0) == []


def test_what_a_named_choice_picks_from_is_measured_beside_it() -> None:
    target = find_target(Local(), FIXTURE, None, None)
    step = not_none(target.study.ladder.step("fix15"))
    found = named(target, ["fix15"])
    assert set(step.chooses) < set(found)
    assert set(step.chooses) - {step.variant for step in target.steps(["fix15"])}
    assert len(found) == len(set(found))
    assert "fix11[stagger=1]" not in named(target, ["fix14"])


def test_a_choice_without_times_of_what_it_chooses_is_held_against_nothing() -> None:
    normal = {k: v for k, v in TIMES["normal"].items() if k not in ("tiny", "wider")}
    row = made({**TIMES, "normal": normal}).ladders[0].row("either")
    assert (row.role, row.chosen, row.over_chosen) == (Role.CHOICE, "", None)
    assert row.verdict == Verdict.INCONCLUSIVE


def test_what_was_not_measured_at_another_shape_is_inconclusive_there_and_here() -> None:
    found = made({**TIMES, "large": {}})
    row = found.ladders[1].row("wide")
    assert (row.time, row.over_parent, row.verdict) == (None, None, Verdict.INCONCLUSIVE)
    assert found.row("wide").verdict == Verdict.INCONCLUSIVE
    assert found.row("wide").time is not None
    assert {gate.name: str(gate.state) for gate in row.gates} == {
        "correct": "passed",
        "compiler": "passed",
        "accurate": "open",
        "interference": "open",
        "kernels": "open",
        "duration": "open",
        "work": "open",
        "timed outputs": "open",
        "faster": "open",
    }


def test_all_shapes_are_told_of_the_last_step() -> None:
    found = not_none(made().across)
    assert [result.shape for result in found.shapes] == ["normal", "large"]
    assert found.geometric_mean == pytest.approx(math.sqrt(30 / 21 * 450 / 301))


def test_all_shapes_are_told_of_the_choice_and_not_of_a_step_behind_it() -> None:
    """A step for one shape alone, which the next choice may take up."""
    steps = [
        step("base", None),
        step("choice", "base", chooses=("base",)),
        step("few", "base", shape="normal"),
    ]
    times = {"base": 20.0, "choice": 10.0, "library": 15.0}
    found = by_hand(steps, {"normal": {**times, "few": 8.0}, "large": times})
    across = not_none(judge(found, Config()).across)
    assert across.variant == "choice"
    assert [result.shape for result in across.shapes] == ["normal", "large"]


def with_checks(timed: LadderEvidence, variant: str, **results: CheckResult) -> LadderEvidence:
    """With these results of a variant's checks by shape beside those that it has."""
    known = timed.shapes["normal"].variants[variant].checks
    checks = {**known, **{shape: check(result) for shape, result in results.items()}}
    return with_variant(timed, "normal", variant, checks=checks)


def test_a_bug_that_a_check_shows_is_corrected_where_the_step_is_not_slower() -> None:
    steps = [
        step("base", None),
        step("right", "base", corrects="it reads too early", kind=Change.BARRIERS),
        step("plain", "base", kind=Change.BARRIERS),
        step("slow", "base", corrects="it reads too early", kind=Change.BARRIERS),
    ]
    times = {"base": 20.0, "right": 20.1, "plain": 20.1, "slow": 22.0, "library": 30.0}
    timed = by_hand(steps, {"normal": times})
    unfounded = judge(timed, Config())
    row = unfounded.ladders[0].row("right")
    assert row.verdict == Verdict.SLOWER
    faster = next(gate.why for gate in row.gates if gate.name == "faster")
    assert sentence(faster).endswith("a bug fix, but no recorded check shows the bug")
    assert verdict_words(row, unfounded) == "slower"

    timed = with_checks(timed, "base", ragged=CheckResult.WRONG)
    for name in ("right", "slow"):
        timed = with_checks(timed, name, ragged=CheckResult.CORRECT)
    found = judge(timed, Config())
    (ladder,) = found.ladders
    verdicts = {row.variant: row.verdict for row in ladder.rows}
    assert verdicts == {
        "base": Verdict.BASELINE,
        "right": Verdict.KEPT,
        "plain": Verdict.SLOWER,
        "slow": Verdict.SLOWER,
    }
    right, other = (markdown.section(change(found.row(n), found, None)) for n in ("right", "plain"))
    assert "Bug of `base`: it reads too early." in right
    assert "Bug" not in other
    assert verdict_words(ladder.row("right"), found) == "bug fix, same speed"
    (speed,) = (gate for gate in ladder.row("right").gates if gate.name == "faster")
    assert gate_name(speed) == "not slower"


def test_what_corrects_a_wrong_parent_has_nothing_to_be_slower_than() -> None:
    steps = [
        step("base", None),
        step("wrong", "base"),
        step("right", "wrong", corrects="it reads too early"),
        step("other", "wrong"),
    ]
    times = {"base": 20.0, "right": 10.0, "other": 10.0, "library": 30.0}
    timed = by_hand(steps, {"normal": times})
    unsupported = with_checks(timed, "wrong", normal=CheckResult.UNSUPPORTED)
    row = judge(unsupported, Config()).ladders[0].row("right")
    assert row.verdict == Verdict.INCONCLUSIVE
    timed = with_checks(timed, "wrong", normal=CheckResult.WRONG)
    (ladder,) = judge(timed, Config()).ladders
    assert ladder.row("wrong").verdict == Verdict.WRONG
    row = ladder.row("right")
    assert row.verdict == Verdict.KEPT
    (faster,) = (gate for gate in row.gates if gate.name == "faster")
    assert sentence(faster.why) == "wrong, which fails its check at normal, has no time"
    assert ladder.row("other").verdict == Verdict.INCONCLUSIVE


@pytest.mark.parametrize("parent", [CheckResult.CORRECT, CheckResult.WRONG])
@pytest.mark.parametrize("drawn", [CheckResult.CORRECT, CheckResult.WRONG])
def test_a_bug_fix_is_right_at_unseen_shapes_and_no_faster_there(
    parent: CheckResult, drawn: CheckResult
) -> None:
    steps = [step("base", None), step("bad", "base"), step("right", "bad", corrects="it is late")]
    times = {"base": 20.0, "bad": 20.0, "right": 20.0, "library": 30.0}
    timed = by_hand(steps, {"normal": times})
    timed = with_checks(timed, "bad", normal=parent, ragged=CheckResult.WRONG)
    timed = with_checks(timed, "right", normal=CheckResult.CORRECT, ragged=CheckResult.CORRECT)
    unseen = UnseenEvidence({"odd": check(drawn)}, "5eed", timed.shapes["normal"])
    timed = with_variant(timed, "normal", "right", unseen=unseen)
    (ladder,) = judge(timed, Config()).ladders
    good = drawn == CheckResult.CORRECT
    assert ladder.row("right").verdict == (Verdict.KEPT if good else Verdict.UNSEEN_SHAPE)


def test_at_a_partial_shape_a_part_of_the_ladder_is_measured() -> None:
    steps = [
        step("base", None),
        step("first", "base"),
        step("second", "first", shape="large"),
        step("third", "second"),
        step("choice", "third", chooses=("third",)),
        step("last", "third"),
    ]
    ladder = Ladder(
        study="s",
        path=Path("ablation.toml"),
        steps=tuple(steps),
        references=(),
        primary_reference="",
        partial=("large",),
    )
    assert ladder.measured_at("normal", steps) == steps
    at_large = [each.variant for each in ladder.measured_at("large", steps)]
    assert at_large == ["first", "second", "third", "choice"]
    part = ladder.chain(["third"])
    assert [each.variant for each in ladder.measured_at("large", part)] == [
        *("first", "second", "third")
    ]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('partial = ["larger"]', "'partial' names 'larger', which is no shape of the study"),
        ('partial = "large"', "'partial': expected a list, got `str`"),
    ],
)
def test_a_part_of_the_ladder_at_a_shape_that_there_is_none_of_is_refused(
    line: str, told: str, tmp_path: Path
) -> None:
    make(tmp_path, {"baseline": GOOD})
    path = tmp_path / "ablations" / "scale" / "ablation.toml"
    path.write_text(f"{line}\n{path.read_text()}")
    with pytest.raises(UsageError) as error:
        find_target(Local(), tmp_path, "scale", None)
    assert told in error.value.message
    assert error.value.hint


@pytest.mark.parametrize(("intensity", "unit"), [(100.0, "TFLOP/s"), (0.75, "TB/s")])
def test_the_rate_is_of_bytes_where_those_are_what_counts(intensity: float, unit: str) -> None:
    judged = made()
    assert judged.across is not None
    results = tuple(
        replace(result, flops_per_second=1e12 * intensity, bytes_per_second=1e12)
        for result in judged.across.shapes
    )
    everywhere = replace(judged.across, shapes=results)
    shown = markdown.blocks(sizes_table(replace(judged, across=everywhere)))
    head, _, first, *_ = shown.splitlines()
    assert f" {unit} " in head
    assert (" 1.00 " in first) is (unit == "TB/s")


def test_both_rates_are_shown_where_some_shapes_are_traffic_and_others_arithmetic() -> None:
    """As with a mixture of experts: few tokens are bound by its weights, many by its products."""
    judged = made()
    assert judged.across is not None
    few, many = judged.across.shapes
    few = replace(few, flops_per_second=1e12, bytes_per_second=2e12)
    many = replace(many, flops_per_second=500e12, bytes_per_second=1e12)
    found = replace(judged, across=replace(judged.across, shapes=(few, many)))
    (shown,) = (block for block in sizes_table(found) if isinstance(block, Table))
    assert [column.key for column in shown.columns][1:4] == ["time", "rate", "traffic"]
    assert [markdown.spans(row.cells["rate"].text) for row in shown.rows] == ["1.00", "500"]
    assert [markdown.spans(row.cells["traffic"].text) for row in shown.rows] == ["2.00", "1.00"]


@pytest.mark.parametrize(
    ("time", "expected", "why"),
    [
        (10.0, "inconclusive", "inconclusive: not profiled"),
        (30.0, "slower", "slower"),
    ],
)
def test_a_step_that_is_not_profiled_can_be_slower_and_not_kept(
    time: float, expected: str, why: str
) -> None:
    times = {**THEIR_TIMES, "fix": time}
    judged = judge(by_hand(TWO_STEPS, {"normal": times}, captured=False), Config())
    row = judged.row("fix")
    assert (row.verdict, verdict_words(row, judged)) == (expected, why)


def test_a_card_that_was_slowed_down_at_a_shape_of_the_last_step_alone_is_told_of() -> None:
    found = by_hand(TWO_STEPS, {"normal": THEIR_TIMES, "large": THEIR_TIMES})
    (known,) = found.shapes["large"].timings
    slowed = with_sessions(known.timing, throttled=1.0, reasons=("sw_power_cap",))
    judged = judge(with_timings(found, "large", together(slowed)), Config())
    assert [ladder.shape for ladder in judged.ladders] == ["normal"]
    (told,) = sentences(judged.warnings)
    assert told.startswith("the GPU was power-limited at large, in 100 % of the rounds")


def test_a_reference_that_is_in_some_shapes_alone_is_named_beside_their_mean() -> None:
    """It might be the fastest where it was not timed: the mean over all shapes is then too good."""
    rival = Variant("rival", Path())
    normal = {**TIMES["normal"], "rival": 22.0}
    found = by_hand(STEPS, {"normal": normal, "large": TIMES["large"]})
    references = (*found.ladder.references, rival)
    timed = found.shapes["normal"].variants["library"]
    shapes = {
        name: replace(shape, variants={**shape.variants, "rival": replace(timed, variant="rival")})
        for name, shape in found.shapes.items()
    }
    ladder = replace(found.ladder, references=references)
    judged = judge(replace(found, ladder=ladder, shapes=shapes), Config())
    assert not_none(judged.across).untimed == {"rival": ("large",)}
    told = [plain(text) for text in warnings(judged)]
    assert "rival was not timed at large." in told


def test_a_choice_that_was_timed_at_fewer_shapes_does_not_stand_in_for_the_one_before() -> None:
    choices = [step("choice", "base", chooses=("fix",)), step("newer", "choice", chooses=("fix",))]
    steps = [*TWO_STEPS, *choices]
    times = {**THEIR_TIMES, "choice": 10.0}
    once = {"normal": {**times, "newer": 9.0}, "large": times}
    judged = judge(by_hand(steps, once), Config())
    assert judged.across is not None
    assert judged.across.variant == "choice"
    assert len(judged.across.shapes) == 2
    everywhere = {"normal": once["normal"], "large": once["normal"]}
    judged = judge(by_hand(steps, everywhere), Config())
    assert judged.across is not None
    assert judged.across.variant == "newer"


def test_a_snapshot_pulls_of_other_shapes_only_what_is_judged_or_shown_there() -> None:
    target = find_target(Local(), FIXTURE, None, None)
    taken = target.load_ladder(target.steps([]))
    judged = {"b2h8s512d64", "b4h16s2048d64", "b4h16s2048d128", "b4h16s2048d128-causal"}
    for name, shape in taken.shapes.items():
        if name in judged:
            continue
        assert set(shape.variants) == {"fix15", "sdpa", "sdpa_flash", "sdpa_cudnn", "fa4"}
        assert not any(variant.capture for variant in shape.variants.values())
    causal = taken.shapes["b4h16s2048d128-causal"].variants
    assert {name for name, variant in causal.items() if variant.capture} == {
        "fix9",
        "fix10",
        "sdpa",
    }
    assert not any(variant.texts for variant in causal.values())
