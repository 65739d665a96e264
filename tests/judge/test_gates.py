"""Gates, verdicts and predictions, by hand-made numbers."""

from __future__ import annotations

import msgspec
import pytest

from made_evidence import check
from made_records import build_of, built_kernel
from workbench.derive.figures import Figure
from workbench.derive.speedup import Ratio, over_recordings
from workbench.evidence.records import Build, Check, Provenance
from workbench.judge.findings import NOT_COLLECTED, Finding, Gate, sentence
from workbench.judge.gates import (
    OF_A_GAIN,
    accuracy_gate,
    compiler_gate,
    correct_gate,
    corrected_at,
    faster_gate,
    for_bug_fix,
    verdict,
)
from workbench.judge.predictions import judge_prediction
from workbench.judge.time_checks import UNCHECKED
from workbench.judge.times import OverParent
from workbench.study.config import Gates
from workbench.study.model import Prediction
from workbench.words import CheckResult, GateState

LIMITS = Gates()
PASSED = [
    Gate("correct", GateState.PASSED, NOT_COLLECTED),
    Gate("compiler", GateState.PASSED, NOT_COLLECTED),
]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.5, 1.6, "kept"),
        (1.03, 1.04, "kept"),
        (1.0, 1.05, "inconclusive"),
        (0.9, 0.99, "slower"),
        (0.9, 1.01, "no_gain"),
    ],
)
def test_the_interval_decides(low: float, high: float, expected: str) -> None:
    over = Ratio((low + high) / 2, low, high)
    assert verdict([*PASSED, faster_gate(OverParent(over), LIMITS)], over, LIMITS) == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.98, 1.0, "kept"),
        (1.1, 1.2, "kept"),
        (0.96, 0.98, "inconclusive"),
        (0.9, 0.97, "slower"),
    ],
)
def test_what_corrects_its_parent_has_to_be_no_slower(
    low: float, high: float, expected: str
) -> None:
    over = Ratio((low + high) / 2, low, high)
    limits = for_bug_fix(LIMITS)
    gate = faster_gate(OverParent(over), limits, corrects=True, fails_at="ragged")
    assert verdict([*PASSED, gate], over, limits) == expected
    assert sentence(gate.why).endswith("over the parent, which fails its check at ragged")


def with_error(status: str, error: float | None = None) -> Check:
    return Check(status=CheckResult(status), times_reference=error, fingerprint="")


def test_another_recording_may_take_a_gain_back() -> None:
    """One has it above the gate; with what ratios vary from recording to recording it is not."""
    over = Ratio(1.040, 1.035, 1.045, 5)
    again = over_recordings([over, Ratio(1.034, 1.029, 1.039, 5)], known_between=0.006)
    gate = faster_gate(OverParent(over), LIMITS, across=again)
    assert gate.state == GateState.OPEN
    assert gate.why.message.startswith("over 2 recordings 1.037x [1.0")
    assert (
        faster_gate(OverParent(over), LIMITS, across=over_recordings([over], 0.006)).state
        == GateState.PASSED
    )
    sure = over_recordings([Ratio(1.2, 1.19, 1.21, 5)] * 2, known_between=0.006)
    assert (
        faster_gate(OverParent(Ratio(1.2, 1.19, 1.21, 5)), LIMITS, across=sure).state
        == GateState.PASSED
    )


@pytest.mark.parametrize(
    ("parent", "own", "shown"),
    [
        (with_error("correct"), with_error("correct"), False),
        (with_error("wrong"), with_error("correct"), True),
        (with_error("hung"), with_error("correct"), True),
        (with_error("unsupported"), with_error("correct"), False),
        (with_error("wrong"), with_error("wrong"), False),
        (with_error("wrong"), with_error("unsupported"), False),
        (with_error("wrong"), None, False),
        (with_error("correct", 2.5), with_error("correct", 1.1), True),
        (with_error("correct", 2.5), with_error("correct", 2.4), False),
        (None, with_error("correct"), False),
    ],
)
def test_a_bug_is_shown_by_a_check_that_the_parent_fails_and_the_step_passes(
    parent: Check | None, own: Check | None, shown: bool
) -> None:
    plain = {"plain": with_error("correct")}
    parents = plain | ({"ragged": parent} if parent else {})
    checks = plain | ({"ragged": own} if own else {})
    assert corrected_at(checks, parents, LIMITS) == ("ragged" if shown else None)


def test_a_multiple_of_an_error_that_is_rounding_fails_nothing() -> None:
    checks = {
        "small": msgspec.structs.replace(with_error("correct", 9.0), rounding=True),
        "large": with_error("correct", 1.9),
    }
    assert accuracy_gate(checks, LIMITS, "ref").why.values["times_reference"] == 1.9
    del checks["large"]
    gate = accuracy_gate(checks, LIMITS, "ref")
    assert gate.state == GateState.PASSED
    assert sentence(gate.why).endswith("at small > 2x, which is no more than rounding")
    assert corrected_at({"small": with_error("correct", 1.0)}, checks, LIMITS) is None


def test_a_failed_gate_rejects_and_a_missing_one_leaves_it_open() -> None:
    over = Ratio(2.0, 1.9, 2.1)
    faster = faster_gate(OverParent(over), LIMITS)
    wrong = Gate("correct", GateState.FAILED, NOT_COLLECTED)
    rough = Gate("accurate", GateState.FAILED, NOT_COLLECTED)
    assert verdict([wrong, rough, faster], over, LIMITS) == "wrong"
    assert verdict([*PASSED, rough, faster], over, LIMITS) == "inaccurate"
    spills = Gate("compiler", GateState.FAILED, NOT_COLLECTED)
    assert verdict([PASSED[0], spills, faster], over, LIMITS) == "wrong"
    slow = Ratio(0.66, 0.65, 0.67)
    assert (
        verdict([PASSED[0], spills, faster_gate(OverParent(slow), LIMITS)], slow, LIMITS)
        == "slower"
    )
    assert (
        verdict([PASSED[0], Gate("compiler", GateState.OPEN, NOT_COLLECTED), faster], over, LIMITS)
        == "inconclusive"
    )
    assert verdict([*PASSED, faster_gate(OverParent(None), LIMITS)], None, LIMITS) == "inconclusive"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.2, 0.3, "slower"), (0.9, 1.2, "inconclusive"), (1.2, 1.3, "inconclusive")],
)
def test_a_time_alone_can_reject_and_not_keep(low: float, high: float, expected: str) -> None:
    over = Ratio((low + high) / 2, low, high, 5)
    gates = [*PASSED, faster_gate(OverParent(over), LIMITS)]
    in_a_stream = Gate("kernels", GateState.OPEN, Finding(UNCHECKED))
    assert verdict([*gates, in_a_stream], over, LIMITS) == expected
    not_measured = [Gate(name, GateState.OPEN, NOT_COLLECTED) for name in OF_A_GAIN]
    assert verdict([*gates, *not_measured], over, LIMITS) == expected


def build(*, spilled: int = 0, error: str = "", warnings: tuple[str, ...] = ()) -> Build:
    kernel = built_kernel(spill_store_bytes=spilled)
    return build_of(
        kernel, warnings=warnings, error=error, provenance=Provenance(date="2026-01-02T03:04:05Z")
    )


@pytest.mark.parametrize(
    ("built", "allowed", "passed", "why"),
    [
        (build(), False, True, "no warning, no spill"),
        (build(), True, True, "no warning, no spill"),
        (build(warnings=("w",)), False, False, "w"),
        (build(warnings=("w",)), True, True, "allowed here: w"),
        (build(spilled=8), False, False, "8 bytes of register spills"),
        (build(spilled=8), True, True, "allowed here: 8 bytes of register spills"),
        (build(error="no\nmore"), False, False, "no"),
        (
            msgspec.structs.replace(build(), kernels=()),
            True,
            True,
            "nothing of it was compiled here",
        ),
        (None, False, None, "not collected"),
    ],
)
def test_warnings_and_spills_fail_the_compiler_gate(
    built: Build | None, allowed: bool, passed: bool | None, why: str
) -> None:
    gate = compiler_gate(built, Gates(allow_warnings=allowed, allow_spills=allowed))
    assert (gate.passed, sentence(gate.why)) == (passed, why)


GOOD, OFF = check(), check(CheckResult.WRONG, "off by one")
REFUSED = check(CheckResult.UNSUPPORTED, "S is no multiple of 64")
LOST = "no longer supports t, which the ladder does not declare (drops)"


@pytest.mark.parametrize(
    ("checks", "more", "passed", "why"),
    [
        ({"s": GOOD, "t": REFUSED}, {}, True, "max error 0.001 over 1 shape"),
        ({"s": with_error("correct")}, {}, True, "max error not collected over 1 shape"),
        ({"s": GOOD, "t": OFF}, {}, False, "wrong at t: off by one"),
        ({"s": REFUSED, "t": GOOD}, {}, False, "unsupported at s: S is no multiple of 64"),
        ({}, {}, None, "not collected"),
        (
            {"s": GOOD},
            {"unchecked": ["t", "u"]},
            True,
            "max error 0.001 over 1 shape, not checked at 2 others",
        ),
        ({"s": GOOD}, {"due": ["ragged"], "unchecked": ["t"]}, None, "not collected at ragged"),
        ({"s": GOOD, "t": OFF}, {"due": ["ragged"]}, False, "wrong at t: off by one"),
        ({"s": GOOD, "t": REFUSED}, {"given_up": ["t"]}, False, LOST),
        (
            {"s": GOOD, "t": REFUSED},
            {"given_up": ["t"], "drops": ["t"]},
            True,
            "max error 0.001 over 1 shape",
        ),
    ],
)
def test_a_step_is_right_at_all_shapes_that_it_does_not_declare_to_drop(
    checks: dict[str, Check], more: dict[str, list[str]], passed: bool | None, why: str
) -> None:
    """What was not checked is told, and leaves open what is always checked."""
    gate = correct_gate(checks, "s", **more)
    assert (gate.passed, sentence(gate.why)) == (passed, why)
    assert gate.binding


@pytest.mark.parametrize(
    ("factor", "before", "after", "result"),
    [
        (True, 100.0, 50.0, "confirmed"),
        (True, 100.0, 70.0, "refuted"),
        (True, None, 50.0, "not measurable"),
        (False, None, 20.0, "confirmed"),
        (False, 15.0, None, "not measurable"),
    ],
)
def test_predictions_are_confirmed_refuted_or_not_measurable(
    factor: bool, before: float | None, after: float | None, result: str
) -> None:
    said = Prediction("x", (0.4, 0.6), None) if factor else Prediction("x", None, (10, 20))
    old, new = (None if v is None else Figure("x", "X", v, "u", "m") for v in (before, after))
    assert judge_prediction(said, old, new).result == result


def test_the_output_that_decided_is_named() -> None:
    one = with_error("correct", 1.5)
    one = msgspec.structs.replace(one, output="lse")
    gate = accuracy_gate({"large": one}, LIMITS, "torch")
    assert sentence(gate.why) == "1.5x the error of torch at large in 'lse' ≤ 2x"
