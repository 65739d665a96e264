"""Gates, predictions and the verdict of a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.derive.figures import Figure
from workbench.derive.speedup import Ratio
from workbench.study.config import Gates
from workbench.study.model import Prediction
from workbench.words import PredictionResult, Verdict


@dataclass(frozen=True)
class Gate:
    """One condition of a verdict; ``passed`` is None where there is no evidence for it."""

    name: str
    passed: bool | None
    why: str


@dataclass(frozen=True)
class PredictionOutcome:
    """A prediction beside what came: values of parent and variant, and their quotient."""

    figure: str
    label: str
    unit: str
    expected: str
    before: float | None
    after: float | None
    result: str


@dataclass(frozen=True)
class Score:
    """How the predictions of a ladder came out."""

    confirmed: int
    refuted: int
    not_measurable: int

    @property
    def total(self) -> int:
        return self.confirmed + self.refuted + self.not_measurable


def score(outcomes: Iterable[PredictionOutcome]) -> Score:
    counts = Counter(outcome.result for outcome in outcomes)
    return Score(
        counts[PredictionResult.CONFIRMED],
        counts[PredictionResult.REFUTED],
        counts[PredictionResult.NOT_MEASURABLE],
    )


def correct_gate(checks: Mapping[str, Mapping[str, Any]], shape: str) -> Gate:
    """Every shape must be correct or declared unsupported; ``shape`` itself must be correct."""
    if shape not in checks:
        return Gate("correct", None, "not collected")
    for name, check in checks.items():
        if check["status"] not in ("correct", "unsupported"):
            return Gate("correct", False, f"{check['status']} at {name}: {check['why']}")
    if checks[shape]["status"] != "correct":
        return Gate("correct", False, f"unsupported at {shape}: {checks[shape]['why']}")
    done = [c for c in checks.values() if c["status"] == "correct"]
    worst = max(float(c["max_abs"]) for c in done)
    return Gate("correct", True, f"max error {worst:.2g} over {len(done)} shapes")


def compiler_gate(build: Mapping[str, Any] | None, gates: Gates) -> Gate:
    if build is None:
        return Gate("compiler", None, "not collected")
    if build.get("error"):
        return Gate("compiler", False, str(build["error"]).splitlines()[0])
    spilled = sum(k["spill_store_bytes"] + k["spill_load_bytes"] for k in build["kernels"])
    if build["warnings"] and not gates.allow_warnings:
        return Gate("compiler", False, build["warnings"][0])
    if spilled and not gates.allow_spills:
        return Gate("compiler", False, f"{spilled} bytes of register spills")
    return Gate("compiler", True, "no warning, no spill")


def faster_gate(over_parent: Ratio | None, gates: Gates) -> Gate:
    if over_parent is None:
        return Gate("faster", None, "not collected")
    passed = over_parent.low >= gates.min_speedup
    sign = "≥" if passed else "<"
    why = f"lower end {over_parent.low:.3f}x {sign} {gates.min_speedup:g}x over the parent"
    return Gate("faster", passed, why)


def verdict(gates: list[Gate], over_parent: Ratio | None, limits: Gates) -> str:
    """kept: all gates passed. inconclusive: evidence is missing, or the interval spans the gate."""
    failed = {gate.name for gate in gates if gate.passed is False}
    if failed - {"faster"}:
        return Verdict.REJECTED
    if any(gate.passed is None for gate in gates):
        return Verdict.INCONCLUSIVE
    if not failed:
        return Verdict.KEPT
    spans = over_parent is not None and over_parent.high >= limits.min_speedup
    return Verdict.INCONCLUSIVE if spans else Verdict.REJECTED


def _bounds(pair: tuple[float, float], suffix: str) -> str:
    return f"{pair[0]:g} to {pair[1]:g}{suffix}"


def judge_prediction(
    prediction: Prediction, before: Figure | None, after: Figure | None, label: str, unit: str
) -> PredictionOutcome:
    """confirmed where the value, or its factor over the parent's, lies in the predicted range."""
    was = before.value if before else None
    came = after.value if after else None
    pair = prediction.factor or prediction.range
    assert pair is not None
    expected = _bounds(pair, "x" if prediction.factor else f" {unit}")
    measured: float | None = came
    if prediction.factor:
        measured = came / was if came is not None and was else None
    if measured is None:
        result = PredictionResult.NOT_MEASURABLE
    else:
        result = (
            PredictionResult.CONFIRMED
            if pair[0] <= measured <= pair[1]
            else PredictionResult.REFUTED
        )
    return PredictionOutcome(prediction.figure, label, unit, expected, was, came, result)
