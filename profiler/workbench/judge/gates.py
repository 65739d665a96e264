"""The gates of a step, and the verdict that they give. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from workbench.derive.figures import Figure
from workbench.derive.speedup import LEVEL, Ratio
from workbench.evidence.records import Build, CapturedKernel, Check
from workbench.judge.findings import NOT_COLLECTED, Finding, at, finding, joined
from workbench.load import UnseenEvidence, VariantEvidence
from workbench.study.config import Gates
from workbench.study.front_ends import LIBRARY
from workbench.words import ABSENT, CheckResult, GateState, Verdict, shown

CORRECT, COMPILER, ACCURATE, FASTER = "correct", "compiler", "accurate", "faster"
UNSEEN = "unseen"
KERNELS, DURATION, WORK = "kernels", "duration", "work"
OF_A_GAIN = (KERNELS, DURATION, WORK, UNSEEN)  # gates that are not measured without one
UNCHECKED = "kernels.unchecked"
HARMLESS = (CheckResult.CORRECT, CheckResult.UNSUPPORTED)


@dataclass(frozen=True)
class Gate:
    """One condition of a verdict; one that is not ``binding`` leaves it alone while it is open."""

    name: str
    state: GateState = field(repr=False)
    why: Finding
    binding: bool = True

    @property
    @shown
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
    that are always checked and were not (``due``) leave it open; others that were not are reported.
    """
    if shape not in checks:
        return Gate(CORRECT, GateState.OPEN, NOT_COLLECTED)
    wrong = next((name for name, c in checks.items() if c.status not in HARMLESS), None)
    if wrong is not None:
        return Gate(CORRECT, GateState.FAILED, failed_check(checks[wrong], wrong))
    if checks[shape].status != CheckResult.CORRECT:
        return Gate(CORRECT, GateState.FAILED, failed_check(checks[shape], shape))
    hidden = tuple(name for name in given_up if name not in drops)
    if hidden:
        return Gate(CORRECT, GateState.FAILED, _undeclared(hidden))
    if due:
        return Gate(CORRECT, GateState.OPEN, _not_checked(due))
    errors = [c.max_abs for c in checks.values() if c.status == CheckResult.CORRECT]
    largest = max((float(error) for error in errors if error is not None), default=None)
    error_text = ABSENT if largest is None else f"{largest:.2g}"
    others = f", not checked at {len(unchecked)} others" if unchecked else ""
    why = finding(
        "correct.everywhere",
        f"max error {error_text} over {len(errors)} shapes{others}",
        max_error=largest,
        shapes_checked=len(errors),
        shapes_not_checked=len(unchecked) or None,
    )
    return Gate(CORRECT, GateState.PASSED, why)


def unseen_gate(
    unseen: UnseenEvidence,
    over_parent: Ratio | None,
    gates: Gates,
    reference: str,
    *,
    timed: bool = True,
) -> Gate:
    """A step must be correct and accurate at every shape that was drawn for it, and, unless its
    parent has no time, at the first not slower than its parent by the gate's speedup.
    """
    due = tuple(shape for shape, check in unseen.checks.items() if check is None)
    for shape, check in unseen.checks.items():
        if check is not None and check.status != CheckResult.CORRECT:
            return Gate(UNSEEN, GateState.FAILED, failed_check(check, shape))
    known = {shape: check for shape, check in unseen.checks.items() if check is not None}
    accurate = accuracy_gate(known, gates, reference)
    if accurate.state == GateState.FAILED:
        return Gate(UNSEEN, GateState.FAILED, accurate.why)
    drawn = f"correct at shapes drawn with seed {unseen.seed}"
    if not timed and not due:
        why = finding("unseen.correct", drawn, seed=unseen.seed)
        return Gate(UNSEEN, GateState.PASSED, why)
    first = next(iter(unseen.checks))
    if due or over_parent is None or over_parent.high is None:
        return Gate(UNSEEN, GateState.OPEN, _not_checked(due or (first,)))
    passed = over_parent.high >= 1 / gates.min_speedup
    why = finding(
        "unseen.speed",
        f"{drawn}; {over_parent.ratio:.3f}x the parent's speed at {first}",
        shape=first,
        ratio=over_parent.ratio,
        seed=unseen.seed,
    )
    return Gate(UNSEEN, GateState.PASSED if passed else GateState.FAILED, why)


def failed_check(check: Check, shape: str = "") -> Finding:
    """``shape`` where it is not clear which."""
    message = f"{check.status.value}{at(shape)}: {check.why or ABSENT}"
    return finding("check.failed", message, status=check.status.value, shape=shape, text=check.why)


def _undeclared(shapes: tuple[str, ...]) -> Finding:
    message = f"no longer supports {', '.join(shapes)}, which the ladder does not declare (drops)"
    return finding("correct.undeclared", message, shapes=shapes)


def _not_checked(shapes: Iterable[str]) -> Finding:
    names = tuple(shapes)
    return finding("correct.due", f"not collected at {', '.join(names)}", shapes=names)


def compiler_gate(build: Build | None, gates: Gates) -> Gate:
    """It must compile, by default without a warning and without spilled registers."""
    if build is None:
        return Gate(COMPILER, GateState.OPEN, NOT_COLLECTED)
    spilled = sum(k.spill_store_bytes + k.spill_load_bytes for k in build.kernels)
    spills = finding("compiler.spills", f"{spilled} bytes of register spills", spill_bytes=spilled)
    if build.error:
        return Gate(COMPILER, GateState.FAILED, compiler_failed(build.error))
    if build.warnings and not gates.allow_warnings:
        return Gate(COMPILER, GateState.FAILED, _warning(build))
    if spilled and not gates.allow_spills:
        return Gate(COMPILER, GateState.FAILED, spills)
    if not build.kernels:
        why = finding("compiler.nothing_compiled", "nothing of it was compiled here")
        return Gate(COMPILER, GateState.PASSED, why)
    allowed = (*([_warning(build)] if build.warnings else []), *([spills] if spilled else []))
    if allowed:
        message = f"allowed here: {joined(allowed, '; ')}"
        why = finding("compiler.allowed", message, findings=allowed)
        return Gate(COMPILER, GateState.PASSED, why)
    by = tuple(dict.fromkeys(k.compiler for k in build.kernels if k.compiler))
    message = f"no warning, no spill{', by ' if by else ''}{', '.join(by)}"
    return Gate(COMPILER, GateState.PASSED, finding("compiler.clean", message, by=by))


def compiler_failed(message: str) -> Finding:
    """By the first line of the compiler's message."""
    text = first_line(message)
    return finding("compiler.error", text, text=text)


def _warning(build: Build) -> Finding:
    return finding("compiler.warning", build.warnings[0], text=build.warnings[0])


def first_line(text: str) -> str:
    """Of a message of several lines."""
    return text.splitlines()[0]


def corrected_at(
    checks: Mapping[str, Check], parents: Mapping[str, Check], gates: Gates
) -> str | None:
    """A shape at which the parent fails its check and the step passes; None if none is recorded."""
    fixed = (
        shape
        for shape, check in parents.items()
        if shape in checks
        and _fails(check, gates)
        and checks[shape].status == CheckResult.CORRECT
        and not _fails(checks[shape], gates)
    )
    return next(fixed, None)


def _fails(check: Check, gates: Gates) -> bool:
    error = check.times_reference
    return check.status not in HARMLESS or (error is not None and error > gates.max_error)


def shows_bug(gates: Sequence[Gate]) -> bool:
    """Whether a check of its parent shows the bug that the step of these gates fixes."""
    return any("fails_at" in gate.why.values for gate in gates)


def for_bug_fix(gates: Gates) -> Gates:
    """A bug fix need not be faster by so much, nor may it be slower by that."""
    return replace(gates, min_speedup=1 / gates.min_speedup)


def speed_verdict(over_parent: Ratio, gates: Gates) -> Verdict:
    """By the interval alone: inconclusive where it spans the least speedup or is not collected."""
    if over_parent.low is None or over_parent.high is None:
        return Verdict.INCONCLUSIVE
    if over_parent.low >= gates.min_speedup:
        return Verdict.KEPT
    if over_parent.high >= gates.min_speedup:
        return Verdict.INCONCLUSIVE
    return Verdict.SLOWER if over_parent.high < 1 else Verdict.NO_GAIN


def alone_state(alone: Ratio | None, gates: Gates) -> GateState:
    """Whether a step is faster alone, where its own power sets the clock, too: open where the
    interval spans that, passed where it was not measured.
    """
    least = min(1.0, gates.min_speedup)
    if alone is None:
        return GateState.PASSED
    low, high = (alone.ratio if end is None else end for end in (alone.low, alone.high))
    if low >= least:
        return GateState.PASSED
    return GateState.FAILED if high < least else GateState.OPEN


def faster_gate(
    over_parent: Ratio | None,
    gates: Gates,
    absent: Finding = NOT_COLLECTED,
    *,
    alone: Ratio | None = None,
    idle: bool = False,
    corrects: bool = False,
    fails_at: str | None = None,
) -> Gate:
    """The lower end of the interval over the parent must reach the least speedup, chained in turn;
    ``alone`` it must be faster at all.

    ``absent`` says why there is no ratio, where there is none; ``idle``: because a call of the
    variant takes no time at all, which no work can. ``gates`` are those of the step, which may say
    that it ``corrects`` its parent; the parent ``fails_at`` a shape, if a check of it failed.
    """
    if over_parent is None:
        return Gate(FASTER, GateState.FAILED if idle else GateState.OPEN, absent)
    if over_parent.low is None:
        why = finding("faster.one_session", "one session: its interval is not collected")
        return Gate(FASTER, GateState.OPEN, why)
    passed = over_parent.low >= gates.min_speedup
    state = alone_state(alone, gates)
    if passed and alone is not None and state != GateState.PASSED:
        code, judged = "faster.alone_open", "too uncertain to call it faster"
        if state == GateState.FAILED:
            code, judged = "faster.not_alone", "not faster"
        ends = ""
        if alone.low is not None and alone.high is not None:
            ends = f" [{alone.low:.3f}, {alone.high:.3f}]"
        message = f"alone, at the power limit, {alone.ratio:.3f}x{ends} of its parent: {judged}"
        why = finding(code, message, ratio=alone.ratio, low=alone.low, high=alone.high)
        return Gate(FASTER, state, why)
    level = None if over_parent.level == LEVEL else over_parent.level
    unfounded = corrects and not fails_at
    message = (
        f"lower end{f' at {level} %' if level else ''} {over_parent.low:.3f}x "
        f"{'≥' if passed else '<'} {gates.min_speedup:.4g}x over the parent"
        f"{f', which fails its check at {fails_at}' if fails_at else ''}"
        f"{'; a bug fix, but no recorded check shows the bug' if unfounded else ''}"
    )
    why = finding(
        "faster.reached" if passed else "faster.below",
        message,
        low=over_parent.low,
        least=gates.min_speedup,
        level=level,
        fails_at=fails_at,
        unfounded=unfounded or None,
    )
    return Gate(FASTER, GateState.PASSED if passed else GateState.FAILED, why)


def verdict(gates: Sequence[Gate], over_parent: Ratio | None, limits: Gates) -> Verdict:
    """kept: all gates passed. inconclusive: evidence is missing, or the interval spans the gate.

    A profile and drawn shapes can only confirm a gain, so a slow step needs none; nor does a call
    without a graph, whose time holds what the host takes, too.
    """
    failed = {gate.name for gate in gates if gate.state == GateState.FAILED}
    if failed - {FASTER, UNSEEN}:
        return Verdict.WRONG if failed - {FASTER, UNSEEN, ACCURATE} else Verdict.INACCURATE
    if failed == {UNSEEN}:
        return Verdict.UNSEEN_SHAPE
    by_ratio = speed_verdict(over_parent, limits) if over_parent else Verdict.WRONG
    missing = {gate.name for gate in gates if gate.state == GateState.OPEN and gate.binding}
    if missing:
        slow = missing <= set(OF_A_GAIN) and by_ratio in (Verdict.SLOWER, Verdict.NO_GAIN)
        return by_ratio if slow else Verdict.INCONCLUSIVE
    if failed and by_ratio == Verdict.KEPT:  # in turn, and not alone
        return Verdict.NO_GAIN
    return by_ratio if failed else Verdict.KEPT


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
    varies = tuple(shape for shape, check in checks.items() if check.varies)
    if found is None:
        message = f"no error of the reference to compare with{_varying(varies)}"
        absent = finding("accurate.not_collected", message, varies=varies)
        return Gate(ACCURATE, GateState.OPEN, absent, binding=False)
    passed = found.times_reference <= gates.max_error
    output, unknown = checks[found.shape].output, _unknown(checks)
    message = (
        f"{found.times_reference:.3g}x the error of {reference} at {found.where}"
        f"{f' in {output!r}' if output else ''} {'≤' if passed else '>'} {gates.max_error:g}x"
        f"{'; not collected at ' if unknown else ''}{', '.join(unknown)}{_varying(varies)}"
    )
    why = finding(
        "accurate.within" if passed else "accurate.beyond",
        message,
        times_reference=found.times_reference,
        reference=reference,
        shape=found.shape,
        kind=found.kind,
        output=output,
        most=gates.max_error,
        not_collected=unknown,
        varies=varies,
    )
    return Gate(ACCURATE, GateState.PASSED if passed else GateState.FAILED, why)


def _varying(shapes: Sequence[str]) -> str:
    return f"; results differ from run to run at {', '.join(shapes)}" if shapes else ""


def _unknown(checks: Mapping[str, Check]) -> tuple[str, ...]:
    """Shapes at which the step is correct and no multiple is known: the reference is exact there,
    or does not support them.
    """
    return tuple(
        shape
        for shape, check in checks.items()
        if check.status == CheckResult.CORRECT and check.times_reference is None
    )


def given_up(checks: Mapping[str, Check], parents: Mapping[str, Check]) -> tuple[str, ...]:
    """Shapes at which the parent is correct and the step says that it does not support them."""
    return tuple(
        shape
        for shape, check in checks.items()
        if check.status == CheckResult.UNSUPPORTED
        and shape in parents
        and parents[shape].status == CheckResult.CORRECT
    )


def gate_of(evidence: VariantEvidence, gates: Gates) -> Gate:
    """By the compiler's report of what was compiled here, and by the capture for all else."""
    own = compiler_gate(evidence.build, gates)
    build = evidence.build
    if own.state != GateState.PASSED or build is None:
        return own
    if build.kernels and not set(evidence.front_ends) - {LIBRARY}:
        return own
    index = evidence.index
    found = captured_gate(
        index.resources if index else None, evidence.figures, evidence.front_ends, gates
    )
    if not build.kernels or found.state == GateState.FAILED:
        return found
    message = f"{own.why.message}; of the others: {found.why.message}"
    both = finding("compiler.of_several", message, here=own.why, others=found.why)
    return Gate(COMPILER, own.state, both)


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
        message = f"not collected: compiled {by.message}, and not captured"
        absent = finding("compiler.not_captured", message, by=by)
        return Gate(COMPILER, GateState.OPEN, absent, binding=False)
    if not kernels:
        most = int(figures["registers"].value)
        message = f"{most} registers, spills {ABSENT} in the capture; compiled {by.message}"
        return Gate(COMPILER, GateState.PASSED, finding(CAPTURED, message, registers=most, by=by))
    counted = [k.spill_instructions for k in kernels if k.spill_instructions is not None]
    registers = [k.registers for k in kernels if k.registers is not None]
    spilled, least, most = sum(counted), min(registers, default=0), max(registers, default=0)
    shared = max((k.shared_bytes or 0 for k in kernels), default=0)
    is_known = len(counted) == len(kernels) or spilled > 0
    if not is_known:
        spills = f"spills {ABSENT}"
    else:
        spills = f"{spilled} instructions that spill" if spilled else "no spills"
    found = finding(
        CAPTURED,
        f"{f'{least} to ' if least != most else ''}{f'{most} registers, ' if registers else ''}"
        f"{f'{shared} bytes of shared memory, ' if shared else ''}{spills} in the capture; "
        f"compiled {by.message}",
        least_registers=least if least != most else None,
        registers=most if registers else None,
        shared_bytes=shared or None,
        spill_instructions=spilled if is_known else None,
        by=by,
    )
    failed = spilled and not gates.allow_spills and tuple(front_ends) != (LIBRARY,)
    return Gate(COMPILER, GateState.FAILED if failed else GateState.PASSED, found)


CAPTURED = "compiler.captured"


def compiled_by(front_ends: Sequence[str]) -> Finding:
    """What compiles kernels that the workbench does not."""
    if tuple(front_ends) == (LIBRARY,):
        return finding("made_by.torch", "by torch's makers")
    if not front_ends:
        return finding("made_by.unknown", "elsewhere")
    message = f"by {' and '.join(front_ends)}"
    return finding("made_by.front_ends", message, front_ends=tuple(front_ends))
