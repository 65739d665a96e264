"""The gates of a step, and the verdict that they give. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from workbench.derive.intervals import LEVEL, Ratio
from workbench.study.config import Gates
from workbench.words import ABSENT, CheckResult, GateState, Verdict

if TYPE_CHECKING:
    from workbench.evidence.records import Build, Check
    from workbench.study.model import Step

CORRECT, COMPILER, FASTER = "correct", "compiler", "faster"
HARMLESS = (CheckResult.CORRECT, CheckResult.UNSUPPORTED)


@dataclass(frozen=True)
class Gate:
    """One condition of a verdict; one that is not ``binding`` leaves it alone while it is open."""

    name: str
    state: GateState
    why: str
    binding: bool = True

    @property
    def passed(self) -> bool | None:
        """None where there is no evidence for it."""
        return None if self.state == GateState.OPEN else self.state == GateState.PASSED


def correct_gate(
    checks: Mapping[str, Check],
    shape: str,
    given_up: Sequence[str] = (),
    drops: Sequence[str] = (),
    due: Sequence[str] = (),
    unchecked: Sequence[str] = (),
) -> Gate:
    """Every shape must be correct or unsupported; ``shape`` itself must be correct. Of what the
    parent supports and the step does not (``given_up``), all must be declared: ``drops``. Shapes
    that are always checked and were not (``due``) leave it open; others that were not are told.
    """
    if shape not in checks:
        return Gate(CORRECT, GateState.OPEN, ABSENT)
    wrong = next((name for name, c in checks.items() if c.status not in HARMLESS), None)
    if wrong is not None:
        why = f"{checks[wrong].status} at {wrong}: {checks[wrong].why}"
        return Gate(CORRECT, GateState.FAILED, why)
    if checks[shape].status != CheckResult.CORRECT:
        return Gate(CORRECT, GateState.FAILED, f"unsupported at {shape}: {checks[shape].why}")
    hidden = [name for name in given_up if name not in drops]
    if hidden:
        why = f"no longer supports {', '.join(hidden)}, which the ladder does not declare (drops)"
        return Gate(CORRECT, GateState.FAILED, why)
    if due:
        return Gate(CORRECT, GateState.OPEN, f"{ABSENT} at {', '.join(due)}")
    errors = [c.max_abs for c in checks.values() if c.status == CheckResult.CORRECT]
    worst = max((float(error) for error in errors if error is not None), default=None)
    told = ABSENT if worst is None else f"{worst:.2g}"
    rest = f", not checked at {len(unchecked)} others" if unchecked else ""
    return Gate(CORRECT, GateState.PASSED, f"max error {told} over {len(errors)} shapes{rest}")


def compiler_gate(build: Build | None, gates: Gates) -> Gate:
    """It must compile, by default without a warning and without spilled registers."""
    if build is None:
        return Gate(COMPILER, GateState.OPEN, ABSENT)
    spilled = sum(k.spill_store_bytes + k.spill_load_bytes for k in build.kernels)
    if build.error:
        return Gate(COMPILER, GateState.FAILED, first_line(build.error))
    if build.warnings and not gates.allow_warnings:
        return Gate(COMPILER, GateState.FAILED, build.warnings[0])
    if spilled and not gates.allow_spills:
        return Gate(COMPILER, GateState.FAILED, f"{spilled} bytes of register spills")
    if not build.kernels:
        return Gate(COMPILER, GateState.PASSED, "nothing of it was compiled here")
    allowed = [*build.warnings[:1], *([f"{spilled} bytes of register spills"] if spilled else [])]
    if allowed:
        return Gate(COMPILER, GateState.PASSED, f"allowed here: {'; '.join(allowed)}")
    return Gate(COMPILER, GateState.PASSED, "no warning, no spill")


def first_line(text: str) -> str:
    """Of a message of several lines."""
    return text.splitlines()[0]


def for_step(gates: Gates, step: Step) -> Gates:
    """One that corrects its parent need not be faster by so much, nor may it be slower by that."""
    return replace(gates, min_speedup=1 / gates.min_speedup) if step.corrects else gates


def speed_verdict(over_parent: Ratio, gates: Gates) -> Verdict:
    """By the interval alone: kept, rejected, or inconclusive where it spans the gate or is not
    collected.
    """
    if over_parent.low is None or over_parent.high is None:
        return Verdict.INCONCLUSIVE
    if over_parent.low >= gates.min_speedup:
        return Verdict.KEPT
    return Verdict.REJECTED if over_parent.high < gates.min_speedup else Verdict.INCONCLUSIVE


def faster_gate(
    over_parent: Ratio | None,
    gates: Gates,
    absent: str = ABSENT,
    *,
    idle: bool = False,
    corrects: bool = False,
) -> Gate:
    """The lower end of the interval over the parent must reach the least speedup, chained.

    ``absent`` says why there is no ratio, where there is none; ``idle``: because a call of the
    variant takes no time at all, which no work can. ``gates`` are those of the step, which says
    whether it ``corrects`` its parent.
    """
    if over_parent is None:
        return Gate(FASTER, GateState.FAILED if idle else GateState.OPEN, absent)
    if over_parent.low is None:
        return Gate(FASTER, GateState.OPEN, f"one session: its interval is {ABSENT}")
    passed = over_parent.low >= gates.min_speedup
    sign = "≥" if passed else "<"
    end = "lower end" if over_parent.level == LEVEL else f"lower end at {over_parent.level} %"
    which = ", which it corrects" if corrects else ""
    why = f"{end} {over_parent.low:.3f}x {sign} {gates.min_speedup:.4g}x over the parent{which}"
    return Gate(FASTER, GateState.PASSED if passed else GateState.FAILED, why)


def by_speed(gates: Sequence[Gate]) -> bool:
    """Whether speed decides: what fails another gate is rejected in every regime."""
    return all(gate.name == FASTER or gate.state != GateState.FAILED for gate in gates)


def verdict(gates: Sequence[Gate], over_parent: Ratio | None, limits: Gates) -> Verdict:
    """kept: all gates passed. inconclusive: evidence is missing, or the interval spans the gate."""
    if not by_speed(gates):
        return Verdict.REJECTED
    if any(gate.state == GateState.OPEN and gate.binding for gate in gates):
        return Verdict.INCONCLUSIVE
    if not any(gate.state == GateState.FAILED for gate in gates):
        return Verdict.KEPT
    return speed_verdict(over_parent, limits) if over_parent else Verdict.REJECTED
