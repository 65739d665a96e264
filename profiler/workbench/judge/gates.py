"""The gates of a step, and the verdict that they give. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from workbench.derive.intervals import LEVEL, Ratio
from workbench.ncu.capture import has_lines
from workbench.study.config import Gates
from workbench.study.front_ends import LIBRARY, front_end
from workbench.words import ABSENT, GENERATED_ROOT, VIRTUAL_ROOT, CheckResult, GateState, Verdict

if TYPE_CHECKING:
    from workbench.derive.figures import Figure
    from workbench.evidence.records import Build, CapturedKernel, Check
    from workbench.judge.inputs import VariantEvidence
    from workbench.ncu.capture import Capture
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


ACCURATE = "accurate"


@dataclass(frozen=True)
class Accuracy:
    """The largest error as a multiple of the primary reference's on the same inputs, where it is,
    and on inputs of which ``kind`` (empty: the plain ones). ``varies`` are the shapes at which the
    same inputs gave other bits.
    """

    times_reference: float
    shape: str
    kind: str = ""
    varies: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The shape, and the kind of inputs where they are not the plain ones."""
        return f"{self.shape}, {self.kind}" if self.kind else self.shape


def accuracy_of(checks: Mapping[str, Check]) -> Accuracy | None:
    """Over all shapes and kinds of inputs; None where it was not collected at any."""
    known = {
        shape: float(check.times_reference)
        for shape, check in checks.items()
        if check.times_reference is not None
    }
    if not known:
        return None
    worst = max(known, key=known.__getitem__)
    return Accuracy(
        times_reference=known[worst],
        shape=worst,
        kind=checks[worst].kind,
        varies=tuple(shape for shape, check in checks.items() if check.varies),
    )


def accuracy_gate(checks: Mapping[str, Check], gates: Gates, reference: str) -> Gate:
    """The error may be so many times the reference's; what was not collected fails nothing."""
    found = accuracy_of(checks)
    varies = [shape for shape, check in checks.items() if check.varies]
    unsteady = f"; results differ from run to run at {', '.join(varies)}" if varies else ""
    if found is None:
        return Gate(ACCURATE, GateState.OPEN, f"{ABSENT}{unsteady}", binding=False)
    passed = found.times_reference <= gates.max_error
    output = checks[found.shape].output
    of = f" in '{output}'" if output else ""
    why = (
        f"{found.times_reference:.3g}x the error of {reference} at {found.where}{of} "
        f"{'≤' if passed else '>'} {gates.max_error:g}x{_unknown(checks)}{unsteady}"
    )
    return Gate(ACCURATE, GateState.PASSED if passed else GateState.FAILED, why)


def _unknown(checks: Mapping[str, Check]) -> str:
    """Shapes at which the step is correct and no multiple is known: the reference is exact there,
    or does not support them.
    """
    shapes = [
        shape
        for shape, check in checks.items()
        if check.status == CheckResult.CORRECT and check.times_reference is None
    ]
    return f"; {ABSENT} at {', '.join(shapes)}" if shapes else ""


def given_up(checks: Mapping[str, Check], parents: Mapping[str, Check]) -> tuple[str, ...]:
    """Shapes at which the parent is correct and the step says that it does not support them."""
    return tuple(
        shape
        for shape, check in checks.items()
        if check.status == CheckResult.UNSUPPORTED
        and shape in parents
        and parents[shape].status == CheckResult.CORRECT
    )


OWN = "compiled by torch's makers"


def gate_of(evidence: VariantEvidence, gates: Gates) -> Gate:
    """By the compiler's report of what was compiled here, and by the capture for all else."""
    own = compiler_gate(evidence.build, gates)
    build = evidence.build
    if own.state != GateState.PASSED or build is None:
        return own
    if build.kernels and not set(evidence.front_ends) - {LIBRARY}:
        return own
    index = evidence.index
    told = captured_gate(
        index.resources if index else None, evidence.figures, evidence.front_ends, gates
    )
    if not build.kernels or told.state == GateState.FAILED:
        return told
    return Gate(COMPILER, own.state, f"{own.why}; of the others: {told.why}")


def captured_gate(
    kernels: Sequence[CapturedKernel] | None,
    figures: Mapping[str, Figure],
    front_ends: Sequence[str],
    gates: Gates,
) -> Gate:
    """Spilled registers fail it, but in kernels of torch's own library, which nobody here can
    compile otherwise. Without a capture it is open, and decides nothing.
    """
    by = compiled_by(front_ends)
    if not kernels and "registers" not in figures:
        return Gate(COMPILER, GateState.OPEN, f"{ABSENT}: {by}, and not captured", binding=False)
    if not kernels:
        registers = f"{figures['registers'].value:.0f} registers in the capture"
        return Gate(COMPILER, GateState.PASSED, f"{registers}, spills {ABSENT}; {by}")
    counted = [k.spill_instructions for k in kernels if k.spill_instructions is not None]
    spilled = sum(counted)
    spills = f"{spilled} instructions that spill" if spilled else "no spills"
    spills = spills if len(counted) == len(kernels) or spilled else f"spills {ABSENT}"
    told = f"{', '.join([*_amounts(kernels), spills])} in the capture; {by}"
    failed = spilled and not gates.allow_spills and tuple(front_ends) != (LIBRARY,)
    return Gate(COMPILER, GateState.FAILED if failed else GateState.PASSED, told)


def _amounts(kernels: Sequence[CapturedKernel]) -> list[str]:
    """Registers a thread, and shared memory a block where there is any, over all kernels."""
    registers = [k.registers for k in kernels if k.registers is not None]
    shared = max((k.shared_bytes or 0 for k in kernels), default=0)
    told = [f"{_range(registers)} registers"] if registers else []
    return [*told, *([f"{shared} bytes of shared memory"] if shared else [])]


def _range(values: Sequence[int]) -> str:
    least, most = min(values), max(values)
    return str(most) if least == most else f"{least} to {most}"


def compiled_by(front_ends: Sequence[str]) -> str:
    """In words."""
    if tuple(front_ends) == (LIBRARY,):
        return OWN
    return f"compiled by {' and '.join(front_ends)}" if front_ends else "compiled elsewhere"


def lines_missing(capture: Capture, front_ends: Sequence[str]) -> str:
    """That a capture has no source lines, or none of the user's own files; "" where it has."""
    if not has_lines(capture):
        return f"no source lines: {why_no_lines(front_ends)}"
    files = [str(file) for file in set(capture.lines["file"]) if file]
    generated = [file.startswith(GENERATED_ROOT) for file in files]
    own = [file.startswith(VIRTUAL_ROOT) for file in files]
    if any(generated) and not any(own):
        by = compiled_by(front_ends).replace("compiled", "generated", 1)
        return f"no source lines of its own files: those shown are of code {by}"
    return ""


def why_no_lines(front_ends: Sequence[str]) -> str:
    """Why a capture has none, with what gives them where that is known."""
    known = [found for name in front_ends if (found := front_end(name))]
    if not known:
        return "its kernels were built without line information"
    first = known[0]
    return f"{first.no_lines}{f': {first.lines} gives it' if first.lines else ''}"
