"""What a verdict makes of the times of a process in which no variant runs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

import made_evidence as made
from workbench.evidence.records import Timing, Witness
from workbench.judge.findings import Gate
from workbench.judge.ladder import judge
from workbench.judge.time_checks import least_by_referee, referee_gate
from workbench.study.config import Config, Gates
from workbench.study.model import Step
from workbench.words import GateState, Verdict

PARENT = Witness(
    variant="parent", anchor="torch", microseconds=9.0, anchor_microseconds=10.0, audits=200
)
SEEN = Witness(
    variant="fix1", anchor="torch", microseconds=6.0, anchor_microseconds=10.0, audits=300
)


def timing(*witnesses: Witness, torch: float = 10.0) -> Timing:
    """``torch``: microseconds of the anchor in a session, with what is around it."""
    known = made.timing("large", {"torch": torch - made.AROUND}, spread=0.0)
    return structs.replace(known, witnesses=witnesses)


def gates(
    *witnesses: Witness, faster: float = 1.5, stamps: float = 6.1, torch: float = 10.0
) -> tuple[Gate, ...]:
    step = Step(variant="fix1", parent="parent", key_change="")
    is_faster = faster > 1.1
    return referee_gate(timing(*witnesses, torch=torch), step, stamps, Gates(), is_faster=is_faster)


def changed(**values: Any) -> Witness:
    return structs.replace(SEEN, **values)


@pytest.mark.parametrize(
    ("witness", "state", "said"),
    [
        (SEEN, GateState.PASSED, "6 µs by the referee's clock, 6.1 µs in sessions; 300 calls"),
        (changed(unmeasured="no memory"), GateState.OPEN, "not collected: no memory"),
        (changed(microseconds=9.0), GateState.OPEN, "the times differ: 9 µs by the referee"),
        (changed(microseconds=None), GateState.OPEN, "adds no time to its neighbours"),
        (changed(anchor_microseconds=6.7), GateState.OPEN, "sees 1.005x of its parent, not 1.015x"),
    ],
)
def test_a_gain_must_be_seen_by_the_referee(witness: Witness, state: GateState, said: str) -> None:
    (gate,) = gates(PARENT, witness)
    assert gate.state == state
    assert said in gate.why.message


def test_the_times_may_differ_as_those_of_the_anchor_do() -> None:
    """Its inputs and outputs have the same size, and what they leave in L2 is in one time alone."""
    (gate,) = gates(PARENT, SEEN, stamps=8.0, torch=12.4)
    assert gate.state == GateState.PASSED
    (gate,) = gates(PARENT, SEEN, stamps=8.0)
    assert gate.state == GateState.OPEN


def test_what_the_auditor_finds_wrong_has_no_time() -> None:
    timed = timing(PARENT, changed(why="max error 1", audits=1))
    assert timed.wrong == {"fix1": "max error 1"}
    assert [audit.outputs for audit in timed.audits["parent"]] == [200]


def test_a_parent_that_is_slowed_in_its_childs_process_gives_no_gain() -> None:
    """By stamps the step is 4 times as fast as its parent; in processes of their own they tie."""
    (gate,) = gates(changed(variant="parent", microseconds=6.0), SEEN, faster=4.0)
    assert gate.state == GateState.OPEN
    assert "the referee sees 1.000x of its parent" in gate.why.message


def test_a_step_that_claims_no_gain_need_not_have_one() -> None:
    (gate,) = gates(changed(variant="parent", microseconds=6.0), SEEN, faster=1.0)
    assert gate.state == GateState.PASSED


def test_what_was_timed_without_a_referee_has_no_such_gate() -> None:
    assert gates() == ()
    assert gates(changed(anchor="fix1", variant="other")) == ()
    (gate,) = gates(PARENT)
    assert gate.state == GateState.OPEN


def test_a_referee_that_can_time_nobody_keeps_nothing_back() -> None:
    (gate,) = gates(changed(anchor="", unmeasured="the referee cannot time torch: no memory"))
    assert (gate.state, gate.binding) == (GateState.OPEN, False)
    (gate,) = gates(changed(unmeasured="no memory"))
    assert gate.binding


def seen(name: str, **values: Any) -> Witness:
    times = {"base": 20.0, "fix": 10.0, "other": 15.0}
    known = {
        "anchor": "torch",
        "anchor_microseconds": 18.0,
        "audits": 99,
        "microseconds": times[name],
    }
    return Witness(variant=name, **{**known, **values})


BUSY: dict[str, Any] = {"unmeasured": "the referee was interrupted", "microseconds": None}
SLOWED = seen("base", microseconds=10.0)
LIE: dict[str, Any] = {"why": "max error 1", "microseconds": None}


@pytest.mark.parametrize(
    ("now", "before", "kept"),
    [
        ((seen("base"), seen("fix")), (), True),
        ((seen("base"), seen("fix", **BUSY)), (seen("base"), seen("fix")), True),
        ((seen("base", **BUSY), seen("fix")), (seen("base"), seen("fix")), True),
        ((seen("base"), seen("fix", **BUSY)), (seen("base"),), False),
        ((seen("base"), seen("fix", **BUSY)), (SLOWED, seen("fix")), False),
        ((seen("base"), seen("fix", **LIE)), (seen("base"), seen("fix")), False),
        ((seen("base", **BUSY), seen("fix", **LIE)), (seen("base"), seen("fix")), False),
    ],
)  # fmt: skip
def test_another_recording_has_the_time_that_a_busy_host_did_not_give(
    now: tuple[Witness, ...], before: tuple[Witness, ...], kept: bool
) -> None:
    times = {"base": 20.0, "fix": 10.0, "torch": 18.0}
    evidence = made.snapshot(
        [made.step("base", None), made.step("fix", "base")], {"s": times}, "torch"
    )
    recordings = (
        made.together(structs.replace(made.timing("s", times, reference="torch"), witnesses=each))
        for each in (before, now)
    )
    judged = judge(made.with_timings(evidence, "s", *recordings), Config())
    assert (judged.row("fix").verdict == Verdict.KEPT) == kept


def test_half_of_the_gain_is_asked_of_the_referee() -> None:
    assert least_by_referee(1.03) == pytest.approx(1.015)
    assert least_by_referee(0.97) == pytest.approx(0.96)
