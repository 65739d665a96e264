"""What decides about a step: sessions, regimes, accuracy, and what the sessions say of themselves.

``fix11[early=1]`` is on record as 1.16x back to back and 0.96 to 0.99x chained.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import msgspec
import pytest

import made_evidence
from answers import not_none
from made_evidence import (
    THEIR_TIMES,
    TWO_STEPS,
    check,
    session,
    snapshot,
    step,
    timing,
    together,
    with_series,
    with_timings,
    with_variant,
    wrongly_timed,
)
from workbench.evidence.records import GraphNode, Series, Session, Timing
from workbench.judge.findings import Gate, finding, sentence, sentences
from workbench.judge.gates import accuracy_gate, accuracy_of, speed_verdict
from workbench.judge.ladder import Ablation, judge
from workbench.judge.open_verdicts import open_variants, timed_pair
from workbench.judge.rows import Row
from workbench.judge.session_checks import timing_facts
from workbench.judge.times import ShapeTimes
from workbench.load import LadderEvidence, ShapeEvidence
from workbench.render import answers, in_short, markdown
from workbench.render.as_json import plain_data
from workbench.render.doc import Bullets, plain
from workbench.render.document import ladder_report, variant
from workbench.render.document.ladder_report import change, summary
from workbench.render.document.printed_ladder import Where, answer, call_of, controls, ladder_table
from workbench.study.config import Config, Gates
from workbench.study.model import Prediction
from workbench.words import CheckResult, GateState, NodeKind, Regime, Verdict

STEPS = [step("fix11", None), step("fix11[early=1]", "fix11")]
REFERENCE = "library"
CHAINED, BACK_TO_BACK, COLD = Regime.CHAINED, Regime.BACK_TO_BACK, Regime.COLD
By = Mapping[Regime, Mapping[str, float]]


def in_regimes(by_regime: By, sessions: int = 5, alone: float | None = None) -> Timing:
    """Microseconds by regime and variant, the same in every session but for a thousandth."""
    names = {name: 1.0 for times in by_regime.values() for name in times}
    known = timing("s", names, sessions=sessions)

    def of(number: int) -> tuple[Series, ...]:
        each = (session(number, times, regimes={r: 1.0}) for r, times in by_regime.items())
        return tuple(series for one in each for series in one.series)

    found = [msgspec.structs.replace(s, series=of(s.number)) for s in known.sessions]
    if alone is not None:
        found.append(session(sessions + 1, {REFERENCE: alone}, regimes={CHAINED: 1.0}, alone=True))
    return msgspec.structs.replace(known, sessions=tuple(found))


def taken(known: Timing) -> LadderEvidence:
    """With captures that bear the first round of each variant out."""
    every = (series for session in known.sessions for series in session.series)
    times = {
        s.variant: float(s.microseconds[0] - s.around[0]) for s in every if s.regime == CHAINED
    }
    return with_timings(snapshot(STEPS, {"s": times}), "s", together(known))


def judged(known: Timing) -> Ablation:
    return judge(taken(known), Config())


EARLY = {
    CHAINED: {"fix11": 5.457, "fix11[early=1]": 5.57, REFERENCE: 9.7},
    BACK_TO_BACK: {"fix11": 5.7, "fix11[early=1]": 4.92, REFERENCE: 9.3},
    COLD: {"fix11": 9.41, "fix11[early=1]": 9.31, REFERENCE: 12.4},
}


LIMITED = {
    CHAINED: {"fix11": 125.0, "fix11[early=1]": 120.0, REFERENCE: 150.0},
    Regime.ALONE: {"fix11": 132.0, "fix11[early=1]": 130.0, REFERENCE: 151.0},
}


def alone_of(microseconds: float, spread: float = 0.0) -> Timing:
    """The last step takes so long alone, more or less by ``spread`` from session to session."""
    times = {**LIMITED[Regime.ALONE], "fix11[early=1]": microseconds}
    known = in_regimes({**LIMITED, Regime.ALONE: times}, alone=150.0)

    def varied(session: Session, one: Series) -> Series:
        if (one.variant, one.regime) != ("fix11[early=1]", Regime.ALONE):
            return one
        by = 1 + spread * (-1) ** session.number
        return msgspec.structs.replace(one, microseconds=tuple(by * t for t in one.microseconds))

    return with_series(known, varied)


def test_the_smaller_of_two_ratios_is_claimed() -> None:
    found = judged(in_regimes(LIMITED, alone=150.0))
    best = not_none(found.best)
    assert (best.variant, best.over_fastest and best.chained.fastest) == (
        "fix11[early=1]",
        REFERENCE,
    )
    told = (
        "The GPU was at its power limit: 1.25x between two other kernels, 1.16x [1.16, 1.16] "
        "without other kernels; 1.16x counts."
    )
    assert told in plain(answer(found))
    for where in (Where.SCREEN, Where.REPORT, Where.PAGE):
        (row,) = (r for r in ladder_table(found, where).rows if r.key == best.variant)
        assert plain(row.cells["speedup_over_fastest"].text) == "1.16x alone"
    over = in_short.step(found, best)["speedup_over_fastest"]
    told_brief = plain_data(over)
    assert (told_brief["of"], told_brief["regime"]) == (REFERENCE, "alone")
    assert told_brief["ratio"][0] == pytest.approx(151 / 130, rel=1e-3)
    in_json = plain_data(answers.row(found, best))["speedup_over_fastest"]
    assert in_json["ratio"] == pytest.approx(told_brief["ratio"][0], rel=1e-3)
    assert not_none(found.claimed).ratio == pytest.approx(151 / 130, rel=1e-3)
    assert not_none(found.across).geometric_mean == pytest.approx(151 / 130, rel=1e-3)
    alone = answers.row(found, best).regimes
    assert "alone" in plain_data(alone)
    rows = [r.key for r in variant.regimes(best).rows]
    assert rows == ["chained", "cold", "alone"]


@pytest.mark.parametrize(
    ("known", "told"),
    [(alone_of(100.0), "without other kernels; 1.25x counts"), (in_regimes(EARLY), "")],
)
def test_what_is_faster_alone_or_was_not_timed_alone_is_claimed_by_its_ratio_in_turn(
    known: Timing, told: str
) -> None:
    found = judged(known)
    best, said = not_none(found.best), plain(answer(found))
    assert best.claimed == best.over_fastest
    assert told in said
    assert told or "alone" not in said
    rows = [r.key for r in variant.regimes(best).rows]
    assert rows == ["chained", "cold", *["alone"] * bool(told)]


@pytest.mark.parametrize(
    ("microseconds", "spread", "verdict", "why"),
    [
        (130.0, 0.0, Verdict.KEPT, "lower end"),
        (131.9, 0.01, Verdict.INCONCLUSIVE, "too uncertain to call it faster"),
        (135.0, 0.0, Verdict.NO_GAIN, "alone, at the power limit, 0.978x [0.97"),
    ],
)
def test_a_step_that_is_not_faster_alone_is_not_kept(
    microseconds: float, spread: float, verdict: Verdict, why: str
) -> None:
    """In turn it is 1.042x of its parent."""
    known = alone_of(microseconds, spread)
    row = judged(known).row("fix11[early=1]")
    assert row.verdict == verdict
    assert why in sentence(gate(row, "faster").why)
    open_ = open_variants(known, taken(known).ladder, Config().gates)
    assert ("fix11[early=1]" in open_) is (verdict == Verdict.INCONCLUSIVE)


def test_predictions_of_what_failed_are_counted_and_not_measurable() -> None:
    """It was timed before it was found to be wrong: it has no speed to confirm anything with."""
    said = (Prediction("time", (0.9, 1.1), None),)
    steps = (STEPS[0], msgspec.structs.replace(STEPS[1], predictions=said))
    found = dataclasses.replace(taken(in_regimes(EARLY, alone=9.7)), steps=steps)
    right = judge(found, Config())
    assert (right.score.confirmed, right.score.not_measurable) == (1, 0)
    off = {"s": check(CheckResult.WRONG, "off by one")}
    failed = judge(with_variant(found, "s", "fix11[early=1]", checks=off, correct=False), Config())
    assert (failed.score.confirmed, failed.score.not_measurable) == (0, 1)
    assert failed.row("fix11[early=1]").predictions[0].after is None


# The table is of the newer timing, which has all steps but the baseline.
FOUR_STEPS = [*TWO_STEPS, step("one", "base"), step("two", "base")]
TIMES_OF_FOUR = {**THEIR_TIMES, "one": 9.0, "two": 8.0}
IN_TWO_TIMINGS = snapshot(FOUR_STEPS, {"s": TIMES_OF_FOUR})
OLDER = timing("s", THEIR_TIMES)
NEWER = timing("s", {name: time for name, time in TIMES_OF_FOUR.items() if name != "base"})


def test_who_testifies_is_of_the_timing_that_the_ratio_is_of() -> None:
    """The ratio of the first step over the baseline is of the older one: its outputs were wrong."""
    timings = together(wrongly_timed(OLDER, "fix", len(OLDER.sessions))), together(NEWER)
    row = judge(with_timings(IN_TWO_TIMINGS, "s", *timings), Config()).row("fix")
    assert row.over_parent is None
    why = "the outputs of timed calls of fix were wrong: it has no time"
    assert sentence(gate(row, "faster").why) == why
    outputs = gate(row, "timed outputs")
    assert (outputs.passed, sentence(outputs.why)) == (False, "wrong while it was timed: all zero")
    assert row.verdict == Verdict.WRONG


def test_without_a_chained_time_there_is_no_verdict_on_speed() -> None:
    old = {regime: EARLY[regime] for regime in (BACK_TO_BACK, COLD)}
    found = judged(in_regimes(old, sessions=1))
    row = found.row("fix11[early=1]")
    assert (row.verdict, row.time, row.over_parent) == (Verdict.INCONCLUSIVE, None, None)
    faster = gate(row, "faster")
    assert (faster.state, sentence(faster.why)) == ("open", "not collected")
    over = not_none(row.regimes[BACK_TO_BACK].speedup_over_parent)
    assert over.ratio == pytest.approx(1.158, abs=0.003)
    assert over.low is None


def test_one_session_decides_nothing() -> None:
    row = judged(in_regimes(EARLY, sessions=1, alone=9.7)).row("fix11[early=1]")
    assert row.verdict == Verdict.INCONCLUSIVE
    assert sentence(gate(row, "faster").why) == "one session: its interval is not collected"
    assert speed_verdict(not_none(row.over_parent), Gates()) == Verdict.INCONCLUSIVE


def test_a_call_that_adds_nothing_is_rejected() -> None:
    times = {CHAINED: {"fix11": 5.0, "fix11[early=1]": 0.0, REFERENCE: 9.7}}
    row = judged(in_regimes(times, alone=9.7)).row("fix11[early=1]")
    assert row.verdict == Verdict.WRONG
    assert (
        sentence(gate(row, "faster").why)
        == "a call of fix11[early=1] adds no time to its neighbours"
    )


def test_a_round_of_no_time_moves_nothing() -> None:
    """Another process may have the GPU between two stamps, and no median is of one round."""
    known = in_regimes(EARLY, alone=9.7)

    def once(session: Session, one: Series) -> Series:
        first, _, *others = one.microseconds
        return msgspec.structs.replace(one, microseconds=(first, 0.0, *others))

    before, after = judged(known), judged(with_series(known, once))
    assert [(row.time, row.over_parent, row.verdict) for row in after.rows] == [
        (row.time, row.over_parent, row.verdict) for row in before.rows
    ]


def test_an_open_verdict_asks_for_more_sessions_of_the_step_its_parent_and_the_reference() -> None:
    ladder = taken(in_regimes(EARLY)).ladder
    assert open_variants(in_regimes(EARLY), ladder, Gates()) == ()
    near = {CHAINED: {"fix11": 5.15, "fix11[early=1]": 5.0, REFERENCE: 9.7}}
    three = ("fix11", "fix11[early=1]", REFERENCE)
    assert open_variants(in_regimes(near), ladder, Gates()) == three
    once = in_regimes(EARLY, sessions=1)
    assert open_variants(once, ladder, Gates()) == three
    alone = in_regimes({CHAINED: {"fix11": 5.15, "fix11[early=1]": 5.0}})
    assert open_variants(alone, ladder, Gates()) == three[:2]
    corrected = [
        msgspec.structs.replace(s, corrects="it is early" if s.parent else "") for s in ladder.steps
    ]
    corrects = dataclasses.replace(ladder, steps=tuple(corrected))
    assert open_variants(in_regimes(near), corrects, Gates()) == three  # it may have to be faster
    even = in_regimes({CHAINED: {"fix11": 5.0, "fix11[early=1]": 5.0, REFERENCE: 9.7}})
    assert open_variants(even, corrects, Gates()) == ()
    parentless = {CHAINED: {"fix11[early=1]": 5.0}}
    assert open_variants(in_regimes(parentless), ladder, Gates()) == ()


def test_what_is_judged_at_another_shape_asks_for_nothing_here() -> None:
    near = in_regimes({CHAINED: {"fix11": 5.15, "fix11[early=1]": 5.0}})
    ladder = dataclasses.replace(
        taken(near).ladder, steps=(STEPS[0], msgspec.structs.replace(STEPS[1], shape="long"))
    )
    assert open_variants(near, ladder, Gates()) == ()
    there = msgspec.structs.replace(near, shape="long")
    assert open_variants(there, ladder, Gates()) == ("fix11", "fix11[early=1]")


def test_the_fastest_reference_is_what_the_headline_is_held_against() -> None:
    found = judge(snapshot(TWO_STEPS, {"s": {**THEIR_TIMES, REFERENCE: 30.0}}), Config())
    row = found.row("fix")
    assert row.chained.fastest == REFERENCE
    assert not_none(row.over_fastest).ratio == pytest.approx(3.0)
    said = plain(answer(found))
    assert f"fix takes 10.0 µs per call: 3.00x [3.00, 3.00] the speed of {REFERENCE} (30.0" in said
    assert "Its error beside that of library is not collected" in said
    correct = Gate("correct", GateState.PASSED, finding("correct", "exact", max_error=0.0))
    exact = dataclasses.replace(row, gates=(correct,))
    rows = tuple(exact if each is row else each for each in found.rows)
    assert "Its results are exact." in plain(answer(dataclasses.replace(found, rows=rows)))


def gate(row: Row, name: str) -> Gate:
    (found,) = (each for each in row.gates if each.name == name)
    return found


def test_a_reference_that_is_slower_in_company_rejects() -> None:
    fair = judged(in_regimes(EARLY, alone=9.6)).row("fix11[early=1]")
    assert gate(fair, "interference").passed is True
    slowed = judged(in_regimes(EARLY, alone=7.0))
    row = slowed.row("fix11[early=1]")
    assert gate(row, "interference").passed is False
    told = "something in these sessions slows the reference down: library takes"
    assert told in sentence(gate(row, "interference").why)
    assert "alone and 9.7 µs beside the steps, +38.6 % [+" in sentence(
        gate(row, "interference").why
    )
    assert row.verdict == Verdict.WRONG
    assert any(told in text for text in sentences(slowed.warnings))
    missing = judged(in_regimes(EARLY)).row("fix11[early=1]")
    assert gate(missing, "interference").passed is None


def test_a_ratio_of_other_sessions_than_the_table_says_so() -> None:
    timings = (
        dataclasses.replace(together(OLDER), file="older.json"),
        dataclasses.replace(together(NEWER), file="newer.json"),
    )
    judged = judge(with_timings(IN_TWO_TIMINGS, "s", *timings), Config())
    assert judged.timing_file == "newer.json"
    (told,) = (text for text in sentences(judged.warnings) if text.startswith("times or ratios of"))
    assert told == ("times or ratios of another run (older.json): base, fix")
    at_once = sentences(judge(IN_TWO_TIMINGS, Config()).warnings)
    assert not any("times or ratios of" in text for text in at_once)


def test_what_was_wrong_while_it_was_timed_has_no_time_wherever_it_is_shown() -> None:
    """At a shape where no step is judged there are no gates: the mean over all shapes had it in."""
    found = snapshot(TWO_STEPS, {"s": THEIR_TIMES, "t": THEIR_TIMES})
    right = judge(found, Config())
    assert [result.shape for result in not_none(right.across).shapes] == ["s", "t"]
    wrong = wrongly_timed(found.shapes["t"].timings[0].timing, "fix")
    judged = judge(with_timings(found, "t", together(wrong)), Config())
    assert [result.shape for result in not_none(judged.across).shapes] == ["s"]
    told = "outputs of timed calls were wrong at t, so that there is no time: fix"
    assert told in sentences(judged.warnings)
    assert timed_pair(wrong, "base", "fix") is None
    assert open_variants(wrong, found.ladder, Gates()) == ()


def test_a_reference_that_was_not_timed_is_told_and_no_witness() -> None:
    times = {CHAINED: {"fix11": 6.0, "fix11[early=1]": 5.0}}
    row = judged(in_regimes(times)).row("fix11[early=1]")
    company = gate(row, "interference")
    assert (company.passed, company.binding) == (None, False)
    assert sentence(company.why) == "not collected: library was not timed beside it"
    assert row.verdict == Verdict.KEPT
    found = with_timings(taken(in_regimes(times, alone=9.7)), "s")
    untimed = judge(found, Config()).row("fix11[early=1]")
    assert sentence(gate(untimed, "interference").why) == "not collected"


def test_a_reference_whose_timed_outputs_are_wrong_leaves_the_verdict_open() -> None:
    wrong = wrongly_timed(timing("s", THEIR_TIMES), REFERENCE)
    found = snapshot(TWO_STEPS, {"s": THEIR_TIMES})
    row = judge(with_timings(found, "s", together(wrong)), Config()).row("fix")
    reason = "the outputs of timed calls of library were wrong: it has no time"
    assert sentence(gate(row, "interference").why) == reason
    assert (gate(row, "interference").binding, row.verdict) == (True, Verdict.INCONCLUSIVE)


def test_a_reference_that_may_be_slower_by_chance_leaves_the_verdict_open() -> None:
    """5 % slower in sessions that differ by 5 %: by itself it has been seen but once."""
    times = {CHAINED: {"fix11": 6.0, "fix11[early=1]": 5.0, REFERENCE: 9.7}}

    def among(*factors: float) -> Row:
        sessions = [
            in_regimes({CHAINED: {**times[CHAINED], REFERENCE: 9.7 * factor}}, n).sessions[n - 1]
            for n, factor in enumerate(factors, 1)
        ]
        alone = in_regimes(times, 5, alone=9.24).sessions[-1]
        known = msgspec.structs.replace(in_regimes(times), sessions=(*sessions, alone))
        return judged(known).row("fix11[early=1]")

    steady = among(1.0, 1.001, 0.999, 1.0, 1.001)
    assert (gate(steady, "interference").passed, steady.verdict) == (False, Verdict.WRONG)
    row = among(1.0, 1.05, 0.95, 1.04, 0.96)
    assert gate(row, "interference").passed is None
    assert gate(row, "interference").binding
    assert sentence(gate(row, "interference").why).startswith(
        "too uncertain to say: library takes 9.2"
    )
    assert row.verdict == Verdict.INCONCLUSIVE


def test_a_reference_that_only_the_clock_changes_is_not_disturbed() -> None:
    """In a card at its limit of power half of it waits for memory: 8 % more time, in 4 % fewer
    cycles. What takes more of both is disturbed, at whatever clock.
    """

    def among(alone_us: float, alone_mhz: float) -> Gate:
        def at(session: Session, one: Series) -> Series:
            clocks = (alone_mhz if session.alone else 1500.0,) * len(one.microseconds)
            around = clocks if one.around else ()
            return msgspec.structs.replace(one, mhz=clocks, around_mhz=around)

        known = with_series(in_regimes(EARLY, alone=alone_us), at)
        return gate(judged(known).row("fix11[early=1]"), "interference")

    limited = among(9.7 / 1.08, 1500.0 * 1.08 / 0.96)
    assert limited.passed is True
    assert sentence(limited.why).endswith(" in cycles, +8.0 % in time, at another clock")
    assert among(9.7 / 1.08, 1500.0 * 1.08 / 1.05).passed is False
    assert among(9.7 / 1.02, 1500.0 * 1.02 / 1.05).passed is False
    assert among(9.7 / 1.08, 1500.0).passed is False


def test_json_tells_the_gates_that_bind_and_at_which_level_an_interval_is() -> None:
    known = in_regimes(EARLY, sessions=5, alone=9.7)
    added = in_regimes(EARLY, sessions=10).sessions[5:]
    more = msgspec.structs.replace(known, sessions=(*known.sessions, *added), planned=5)
    told = []
    for each in (known, more):
        row = plain_data(answers.row(found := judged(each), found.row("fix11[early=1]")))
        over = row["deciding_speedup"]
        told.append((over["level"], over["cycles"]["level"]))
        assert row["microseconds"].get("level", 95) == 95
        assert row["gates"]["faster"]["binding"] is True
        (cell,) = (
            r.cells["speedup_over_parent"]
            for r in ladder_table(found).rows
            if r.key == row["variant"]
        )
        assert not cell.note.endswith(" at 99 %")
        shown = row["speedup_over_parent"], row["microseconds"]
        assert {of["sessions"] for of in shown} == {5}
        assert ("lower end at 99 %" in row["gates"]["faster"]["why"]["message"]) is (each is more)
    assert told == [(95, 95), (99, 99)]
    accurate = row["gates"]["accurate"]
    assert (accurate["passed"], accurate["binding"]) == (None, False)


def test_controls_that_differ_are_a_warning_and_all_are_shown() -> None:
    known = timing("s", {"fix11": 5.0, "fix11[early=1]": 4.0, REFERENCE: 9.0}, controls=["fix11"])
    facts = not_none(timing_facts(together(known), REFERENCE))
    assert [(t.variant, t.is_off) for t in facts.controls] == [("fix11", False)] * 3

    def off(_: Session, one: Series) -> Series:
        by = 1.02 if one.control else 1.0
        return msgspec.structs.replace(one, microseconds=tuple(by * t for t in one.microseconds))

    found = judged(with_series(known, off))
    warned = "the A/A control of fix11, chained, is"
    assert any(t.startswith(warned) for t in sentences(found.warnings))
    assert "A/A controls: fix11 0.96" in controls(found.timing)


def test_who_has_fewer_instances_is_told() -> None:
    known = timing("s", {"fix11": 5000.0, "fix11[early=1]": 4.0, REFERENCE: 9.0})
    assert "instances of every variant, each" in _method(judged(known))
    slow = with_series(known, lambda _, s: s if s.variant != "fix11" or s.instance == 0 else None)
    found = judged(slow)
    assert not_none(found.timing).fewer == ("fix11",)
    assert "of every variant (fewer of 1 with slow calls), each" in _method(found)


def _method(found: Ablation) -> str:
    return " ".join(
        plain(item)
        for b in ladder_report.method(found)
        if isinstance(b, Bullets)
        for item in b.items
    )


def test_what_else_is_in_a_call_of_a_reference_is_told() -> None:
    nodes = (GraphNode(kind=NodeKind.MEMSET), GraphNode(kind=NodeKind.KERNEL, kernel="k"))
    known = msgspec.structs.replace(in_regimes(EARLY, alone=9.7), nodes={REFERENCE: nodes})
    found = judged(known)
    assert call_of(found.row(REFERENCE)) == "a memset and a kernel"
    assert call_of(found.row("fix11")) == ""
    assert "A call of `library` is a memset and a kernel." in markdown.blocks(summary(found).blocks)


def test_accuracy_is_judged_over_all_shapes_and_kinds_of_inputs() -> None:
    plainly = msgspec.structs.replace(check(), times_reference=1.2)
    sink = msgspec.structs.replace(check(), times_reference=2.4, kind="sink", varies=True)
    found = not_none(accuracy_of({"s": plainly, "t": sink}))
    assert (found.times_reference, found.where, found.varies) == (2.4, "t, sink", ("t",))
    failed = accuracy_gate({"s": plainly, "t": sink}, Gates(), "sdpa")
    assert failed.passed is False
    assert sentence(failed.why) == (
        "2.4x the error of sdpa at t, sink > 2x; results differ from run to run at t"
    )
    assert accuracy_gate({"t": sink}, Gates(max_error=3), "sdpa").passed is True
    partly = accuracy_gate({"s": plainly, "t": check(), "u": check()}, Gates(), "sdpa")
    assert partly.passed is True
    assert sentence(partly.why) == "1.2x the error of sdpa at s ≤ 2x; not collected at t, u"
    declined = check(CheckResult.UNSUPPORTED, "no")
    assert sentence(accuracy_gate({"s": plainly, "t": declined}, Gates(), "sdpa").why).endswith(
        "≤ 2x"
    )
    absent = accuracy_gate({"s": check()}, Gates(), "sdpa")
    assert (absent.passed, absent.binding) == (None, False)
    assert sentence(absent.why) == "no error of the reference to compare with"


def test_the_price_of_a_step_is_told_and_must_be_declared() -> None:
    def with_lost(
        drops: tuple[str, ...], parent_checked: bool = True, partial: tuple[str, ...] = ()
    ) -> Ablation:
        found = taken(in_regimes(EARLY, alone=9.7))
        odd = {"odd": check()} if parent_checked else {}
        for name in found.shapes["s"].variants:
            found = with_variant(found, "s", name, checks={"s": check(), **odd})
        refused = {"s": check(), "odd": check(CheckResult.UNSUPPORTED, "no")}
        found = with_variant(found, "s", "fix11[early=1]", checks=refused)
        steps = (STEPS[0], msgspec.structs.replace(STEPS[1], drops=drops))
        ladder = dataclasses.replace(found.ladder, partial=partial)
        return judge(dataclasses.replace(found, steps=steps, ladder=ladder), Config())

    hidden = with_lost(()).rows[1]
    assert hidden.shapes_dropped == ("odd",)
    assert gate(hidden, "correct").passed is False
    ladder = with_lost(("odd",))
    declared = ladder.rows[1]
    assert gate(declared, "correct").passed is True
    assert "It no longer supports odd." in markdown.section(change(declared, ladder, None))
    unknown = with_lost((), parent_checked=False).rows[1]
    assert (gate(unknown, "correct").passed, unknown.verdict) == (None, Verdict.INCONCLUSIVE)
    assert gate(with_lost(("odd",), parent_checked=False).rows[1], "correct").passed is True
    never = with_lost((), parent_checked=False, partial=("odd",)).rows[1]
    assert gate(never, "correct").passed is True, "the parent is not measured there"


def in_two_runs(later: Mapping[str, float], spread: float) -> Ablation:
    """All steps but the last were timed first, and then the last one beside its parent."""
    parents = {"base": None, "slow": "base", "fix": "base", "last": "fix"}
    steps = [step(name, parent) for name, parent in parents.items()]
    first = {**THEIR_TIMES, "slow": 30.0}
    found = snapshot(steps, {"s": {**first, "last": 9.0}}, REFERENCE, spread=spread)
    runs = (timing("s", times, reference=REFERENCE, spread=spread) for times in (first, later))
    return judge(with_timings(found, "s", *map(together, runs)), Config())


def test_times_beside_a_ratio_at_all_shapes_are_of_its_sessions() -> None:
    """The table has other sessions, in which the reference was faster."""
    judged = in_two_runs({"fix": 10.0, "last": 9.0, REFERENCE: 18.0}, spread=0.0)
    assert judged.across is not None
    (at,) = judged.across.shapes
    assert judged.across.variant == "last"
    assert (at.microseconds.value, not_none(at.reference_microseconds).value) == pytest.approx(
        (9.0, 18.0)
    )
    assert not_none(at.speedup_over_fastest).ratio == pytest.approx(2.0)
    assert judged.row("last").over_baseline is None
    told = plain(answer(judged))
    assert "its speed relative to base (20.0 µs) is not collected." in told


@pytest.mark.parametrize(("microseconds", "best"), [(9.999, "fix"), (9.5, "last")])
def test_the_best_is_one_that_was_timed_beside_the_baseline_unless_another_is_clearly_faster(
    microseconds: float, best: str
) -> None:
    """The last step is kept over its parent, which was slower that day."""
    later = {"fix": 11.0, "last": microseconds, REFERENCE: 15.0}
    judged = in_two_runs(later, spread=0.01)
    assert judged.row("last").verdict == Verdict.KEPT
    assert not_none(judged.best).variant == best


def test_a_row_has_ratios_of_the_method_of_its_time() -> None:
    """Its time is by method 2 here, and beside ``old`` it was only timed by method 1."""
    first = together(timing("large", {"old": 5.0, "both": 4.0}))
    timed = timing("large", {"both": 4.1, "new": 3.0})
    second = together(msgspec.structs.replace(timed, method=2))
    evidence = ShapeEvidence(
        shape="large",
        parameters={},
        timings=(first, second),
        variants={name: made_evidence.variant(name, ["large"]) for name in ("old", "both", "new")},
    )
    times = ShapeTimes(evidence, table=second)
    assert times.ratio("old", "both") is None
    assert times.ratio("both", "new") is not None
    assert ShapeTimes(evidence, table=first).ratio("old", "both") is not None
