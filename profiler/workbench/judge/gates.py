"""The gates of a step, and the verdict that they give. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from workbench.derive.figures import Figure
from workbench.derive.speedup import OverRecordings, Ratio
from workbench.evidence.records import Build, CapturedKernel, Check
from workbench.judge.advice_rules import AdvisedKernel
from workbench.judge.comparison import Comparison, compare
from workbench.judge.findings import Finding, Gate, Value, finding, gate, number_of, suffix
from workbench.judge.predictions import PredictionOutcome, judge_predictions
from workbench.judge.time_checks import (
    DURATION_GATE,
    KERNELS,
    OUTPUTS,
    REFEREE,
    WORK,
    Case,
    company_gate,
    compared_gates,
    cross_check_gates,
    referee_gate,
)
from workbench.judge.times import OverParent, ShapeTimes, main_timing
from workbench.load import LadderEvidence, ShapeEvidence, UnseenEvidence, VariantEvidence
from workbench.ncu.catalog import TIME, figure_label
from workbench.study.config import Config, Gates
from workbench.study.front_ends import LIBRARY
from workbench.study.model import Ladder, Step
from workbench.words import ABSENT, CheckResult, GateState, Status, Verdict

CORRECT, COMPILER, ACCURATE, FASTER = "correct", "compiler", "accurate", "faster"
UNSEEN = "unseen"
# Gates that are not measured without one.
OF_A_GAIN = (KERNELS, DURATION_GATE, WORK, UNSEEN, OUTPUTS, REFEREE)
PARENT_UNTIMED, RECORDINGS = "faster.parent_untimed", "faster.recordings"
HARMLESS = (CheckResult.CORRECT, CheckResult.UNSUPPORTED)


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
    not_yet = _not_checked(due)
    if shape not in checks:
        return Gate(CORRECT)
    wrong = next((name for name, c in checks.items() if c.status not in HARMLESS), None)
    if wrong is not None:
        return Gate(CORRECT, GateState.FAILED, failed_check(checks[wrong], wrong))
    if checks[shape].status != CheckResult.CORRECT:
        return Gate(CORRECT, GateState.FAILED, failed_check(checks[shape], shape))
    hidden = tuple(name for name in given_up if name not in drops)
    if hidden:
        names = ", ".join(hidden)
        message = f"no longer supports {names}, which the ladder does not declare (drops)"
        return gate(CORRECT, False, "correct.undeclared", message, shapes=hidden)
    if due:
        return Gate(CORRECT, GateState.OPEN, not_yet)
    errors = [c.max_abs for c in checks.values() if c.status == CheckResult.CORRECT]
    largest = max((float(error) for error in errors if error is not None), default=None)
    error_text = ABSENT if largest is None else f"{largest:.2g}"
    checked = number_of(len(errors), "shape")
    others = f", not checked at {len(unchecked)} others" if unchecked else ""
    return gate(
        CORRECT,
        True,
        "correct.everywhere",
        f"max error {error_text} over {checked}{others}",
        max_error=largest,
        shapes_checked=len(errors),
        shapes_not_checked=len(unchecked) or None,
    )


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
    checked = {shape: check for shape, check in unseen.checks.items() if check is not None}
    if why := accuracy_gate(checked, gates, reference).failure:
        return Gate(UNSEEN, GateState.FAILED, why)
    drawn = f"correct at shapes drawn with seed {unseen.seed}"
    if not timed and not due:
        return gate(UNSEEN, True, "unseen.correct", drawn, seed=unseen.seed)
    first = next(iter(unseen.checks))
    if due or over_parent is None or over_parent.high is None:
        return Gate(UNSEEN, GateState.OPEN, _not_checked(due or (first,)))
    passed, ratio = over_parent.high >= 1 / gates.min_speedup, over_parent.ratio
    message = f"{drawn}; {ratio:.3f}x the parent's speed at {first}"
    seed = unseen.seed
    return gate(UNSEEN, passed, "unseen.speed", message, shape=first, ratio=ratio, seed=seed)


def failed_check(check: Check, shape: str = "") -> Finding:
    """``shape`` where it is not clear which."""
    message = f"{check.status.value}{suffix(shape)}: {check.why or ABSENT}"
    return finding("check.failed", message, status=check.status.value, shape=shape, text=check.why)


def _not_checked(shapes: Iterable[str]) -> Finding:
    names = tuple(shapes)
    return finding("correct.due", f"not collected at {', '.join(names)}", shapes=names)


def compiler_gate(build: Build | None, gates: Gates) -> Gate:
    """It must compile, by default without a warning and without spilled registers."""
    if build is None:
        return Gate(COMPILER)
    spilled = sum(k.spill_store_bytes + k.spill_load_bytes for k in build.kernels)
    spills = finding("compiler.spills", f"{spilled} bytes of register spills", spill_bytes=spilled)
    if build.error:
        return Gate(COMPILER, GateState.FAILED, compiler_failed(build.error))
    if build.warnings and not gates.allow_warnings:
        return Gate(COMPILER, GateState.FAILED, _warning(build))
    if spilled and not gates.allow_spills:
        return Gate(COMPILER, GateState.FAILED, spills)
    if not build.kernels:
        message = "nothing of it was compiled here"
        return gate(COMPILER, True, "compiler.nothing_compiled", message)
    allowed = (*([_warning(build)] if build.warnings else []), *([spills] if spilled else []))
    if allowed:
        message = f"allowed here: {'; '.join(map(str, allowed))}"
        return gate(COMPILER, True, "compiler.allowed", message, findings=allowed)
    by = tuple(dict.fromkeys(k.compiler for k in build.kernels if k.compiler))
    message = f"no warning, no spill{', by ' if by else ''}{', '.join(by)}"
    return gate(COMPILER, True, "compiler.clean", message, by=by)


def compiler_failed(message: str) -> Finding:
    """Quote the first line of the compiler's message."""
    text = first_line(message)
    return finding("compiler.error", text, text=text)


def _warning(build: Build) -> Finding:
    return finding("compiler.warning", build.warnings[0], text=build.warnings[0])


def first_line(text: str) -> str:
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
    beyond = not check.rounding and (check.times_reference or 0.0) > gates.max_error
    return check.status not in HARMLESS or beyond


def shows_bug(gates: Sequence[Gate]) -> bool:
    """Whether a check of its parent shows the bug that the step of these gates fixes."""
    return any("fails_at" in gate.why.values for gate in gates)


def for_bug_fix(gates: Gates) -> Gates:
    """A bug fix need not be faster by so much, nor may it be slower by that."""
    return msgspec.structs.replace(gates, min_speedup=1 / gates.min_speedup)


def speed_verdict(over_parent: Ratio, gates: Gates) -> Verdict:
    """Judge the interval alone: inconclusive if it spans the least speedup or is not collected."""
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
    if alone is None or alone.ends[0] >= least:
        return GateState.PASSED
    return GateState.FAILED if alone.ends[1] < least else GateState.OPEN


def faster_gate(
    over: OverParent,
    gates: Gates,
    *,
    across: OverRecordings | None = None,
    corrects: bool = False,
    fails_at: str | None = None,
) -> Gate:
    """The lower end of the interval over the parent must reach the least speedup, chained in turn,
    and that ``across`` recordings of the same sources, if there are others; alone it must be
    faster at all.

    ``gates`` are those of the step, which may say that it ``corrects`` its parent; the parent
    ``fails_at`` a shape, if a check of it failed.
    """
    over_parent, alone = over.chained, over.alone
    if over_parent is None:
        return Gate(FASTER, GateState.FAILED if over.is_idle else GateState.OPEN, over.absent)
    if over_parent.low is None:
        message = "one session: its interval is not collected"
        return gate(FASTER, None, "faster.one_session", message)
    passed = over_parent.low >= gates.min_speedup
    state = alone_state(alone, gates)
    if passed and alone is not None and state != GateState.PASSED:
        code, judged = "faster.alone_open", "too uncertain to call it faster"
        if state == GateState.FAILED:
            code, judged = "faster.not_alone", "not faster"
        message = f"alone, at the power limit, {alone.words} of its parent: {judged}"
        return Gate(FASTER, state, finding(code, message, **alone.numbers))
    if passed and across and across.recordings > 1 and (across.low or 0.0) < gates.min_speedup:
        message = (
            f"over {across.recordings} recordings {across.ratio:.3f}x [{across.low or 0.0:.3f}, "
            f"{across.high or 0.0:.3f}] of its parent: lower end < {gates.min_speedup:.4g}x"
        )
        values = {"low": across.low, "high": across.high, "recordings": across.recordings}
        return gate(FASTER, None, RECORDINGS, message, ratio=across.ratio, **values)
    unfounded = corrects and not fails_at
    message = (
        f"lower end{over_parent.at_level} {over_parent.low:.3f}x "
        f"{'≥' if passed else '<'} {gates.min_speedup:.4g}x over the parent"
        f"{f', which fails its check at {fails_at}' if fails_at else ''}"
        f"{'; a bug fix, but no recorded check shows the bug' if unfounded else ''}"
    )
    return gate(
        FASTER,
        passed,
        "faster.reached" if passed else "faster.below",
        message,
        low=over_parent.low,
        least=gates.min_speedup,
        level=over_parent.other_level,
        fails_at=fails_at,
        unfounded=unfounded or None,
    )


def verdict(gates: Sequence[Gate], over_parent: Ratio | None, limits: Gates) -> Verdict:
    """kept: all gates passed. inconclusive: evidence is missing, or the interval spans the gate.

    A profile and drawn shapes can only confirm a gain, so a slow step needs none; nor does a call
    without a graph, whose time holds what the host takes, too.
    """
    failed = {gate.name for gate in gates if gate.state == GateState.FAILED}
    by_ratio = speed_verdict(over_parent, limits) if over_parent else Verdict.WRONG
    if failed - {FASTER, UNSEEN} == {COMPILER} and by_ratio in (Verdict.SLOWER, Verdict.NO_GAIN):
        return by_ratio  # spills explain a loss, and make no result wrong
    if failed - {FASTER, UNSEEN}:
        return Verdict.WRONG if failed - {FASTER, UNSEEN, ACCURATE} else Verdict.INACCURATE
    if failed == {UNSEEN}:
        return Verdict.UNSEEN_SHAPE
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
    and on inputs of which ``kind`` (empty: the plain ones). ``rounding``: it is too small for that
    to count. ``varies`` are the shapes at which the same inputs gave other bits.
    """

    times_reference: float
    shape: str
    kind: str = ""
    rounding: bool = False
    varies: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The shape, and the kind of inputs where they are not the plain ones."""
        return f"{self.shape}, {self.kind}" if self.kind else self.shape


def accuracy_of(checks: Mapping[str, Check]) -> Accuracy | None:
    """Over all shapes and kinds of inputs; None where it was not collected at any."""
    errors = {
        shape: (not check.rounding, float(check.times_reference))
        for shape, check in checks.items()
        if check.times_reference is not None
    }
    if not errors:
        return None
    worst = max(errors, key=errors.__getitem__)
    return Accuracy(
        times_reference=errors[worst][1],
        shape=worst,
        kind=checks[worst].kind,
        rounding=checks[worst].rounding,
        varies=tuple(shape for shape, check in checks.items() if check.varies),
    )


def accuracy_gate(checks: Mapping[str, Check], gates: Gates, reference: str) -> Gate:
    """The error may be so many times the reference's; what was not collected fails nothing."""
    accuracy = accuracy_of(checks)
    varies = tuple(shape for shape, check in checks.items() if check.varies)
    if accuracy is None:
        message = f"no error of the reference to compare with{_varying(varies)}"
        code = "accurate.not_collected"
        return replace(gate(ACCURATE, None, code, message, varies=varies), binding=False)
    within = accuracy.times_reference <= gates.max_error
    passed = within or accuracy.rounding
    # The reference is exact at these shapes, or does not support them.
    unknown = tuple(
        shape
        for shape, check in checks.items()
        if check.status == CheckResult.CORRECT and check.times_reference is None
    )
    output = checks[accuracy.shape].output
    message = (
        f"{accuracy.times_reference:.3g}x the error of {reference} at {accuracy.where}"
        f"{f' in {output!r}' if output else ''} {'≤' if within else '>'} {gates.max_error:g}x"
        f"{', which is no more than rounding' if passed and not within else ''}"
        f"{'; not collected at ' if unknown else ''}{', '.join(unknown)}{_varying(varies)}"
    )
    return gate(
        ACCURATE,
        passed,
        "accurate.within" if passed else "accurate.beyond",
        message,
        times_reference=accuracy.times_reference,
        reference=reference,
        shape=accuracy.shape,
        kind=accuracy.kind,
        output=output,
        most=gates.max_error,
        not_collected=unknown,
        varies=varies,
    )


def _varying(shapes: Sequence[str]) -> str:
    return f"; results differ from run to run at {', '.join(shapes)}" if shapes else ""


def gate_of(evidence: VariantEvidence, gates: Gates) -> Gate:
    """Judge the compiler's report of what was compiled here, and the capture for all else."""
    compiled = compiler_gate(evidence.build, gates)
    build = evidence.build
    if compiled.state != GateState.PASSED or build is None:
        return compiled
    if build.kernels and not set(evidence.front_ends) - {LIBRARY}:
        return compiled
    index = evidence.index
    captured = captured_gate(
        index.resources if index else None, evidence.figures, evidence.front_ends, gates
    )
    if not build.kernels or captured.failure:
        return captured
    message = f"{compiled.why.message}; of the others: {captured.why.message}"
    whys = {"here": compiled.why, "others": captured.why}
    return gate(COMPILER, True, "compiler.of_several", message, **whys)


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
        absent = gate(COMPILER, None, "compiler.not_captured", message, by=by)
        return replace(absent, binding=False)
    if not kernels:  # of a capture whose index has no resources
        kernels = [CapturedKernel(kernel="", registers=int(figures["registers"].value))]
    counted = [k.spill_instructions for k in kernels if k.spill_instructions is not None]
    registers = [k.registers for k in kernels if k.registers is not None]
    spilled, least, most = sum(counted), min(registers, default=0), max(registers, default=0)
    shared = max((k.shared_bytes or 0 for k in kernels), default=0)
    is_known = len(counted) == len(kernels) or spilled > 0
    if not is_known:
        spills = f"spills {ABSENT}"
    else:
        spills = f"{spilled} instructions that spill" if spilled else "no spills"
    failed = spilled and not gates.allow_spills and tuple(front_ends) != (LIBRARY,)
    return gate(
        COMPILER,
        not failed,
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


CAPTURED = "compiler.captured"


def compiled_by(front_ends: Sequence[str]) -> Finding:
    """Name the compiler of kernels that the workbench does not compile."""
    if tuple(front_ends) == (LIBRARY,):
        return finding("made_by.torch", "by torch's makers")
    if not front_ends:
        return finding("made_by.unknown", "elsewhere")
    message = f"by {' and '.join(front_ends)}"
    return finding("made_by.front_ends", message, front_ends=tuple(front_ends))


Views = Mapping[str, "View"]  # by shape


@dataclass(frozen=True, eq=False)
class View:
    """One shape of the ``whole`` evidence, and what advice is given on: variants with a capture."""

    whole: LadderEvidence
    config: Config
    evidence: ShapeEvidence
    times: ShapeTimes
    advised: Mapping[str, AdvisedKernel]

    @property
    def ladder(self) -> Ladder:
        return self.whole.ladder

    @property
    def shape(self) -> str:
        return self.evidence.shape

    def variant(self, name: str) -> VariantEvidence:
        """The evidence of a variant at this shape."""
        return self.evidence.variants[name]

    def figure(self, variant: str | None, name: str) -> Figure | None:
        """``time`` is the chained time; all else is from a capture made here: it was measured. What
        failed has no figures, whatever is recorded.
        """
        if variant is None:
            return None
        evidence = self.variant(variant)
        if standing(evidence, self.shape)[0] == Status.FAILED:
            return None
        if name != TIME:
            return evidence.figures.get(name) if evidence.was_profiled else None
        time = self.times.time(variant)
        label, unit = figure_label(TIME)
        return Figure(TIME, label, time.value, unit, "", "lower") if time else None

    def compare(self, before: str, after: str, where: str = "") -> Comparison | None:
        """None where either variant has no capture that counts; ``where`` is added to the names."""
        parent, child = self.variant(before), self.variant(after)
        if parent.capture is None or child.capture is None:
            return None
        return compare(
            parent.capture,
            child.capture,
            names=(before + where, after + where),
            computed=(parent.figures, child.figures),
        )


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The verdict on a step, None for what is no step that is judged, with all that decided it.

    ``judged_at`` names the shape that gates, verdict and predictions are about where that is not
    the table's, and ``deciding_speedup`` is the ratio over the parent there. ``shapes_dropped`` are
    shapes that the parent supports and the step does not. ``against_parent_at`` is that shape where
    the captures behind ``against_parent`` are of it too.
    """

    verdict: Verdict | None = None
    gates: tuple[Gate, ...] = ()
    deciding_speedup: Ratio | None = None
    predictions: tuple[PredictionOutcome, ...] = ()
    shapes_dropped: tuple[str, ...] = ()
    judged_at: str = ""
    against_parent: Comparison | None = None
    against_parent_at: str = ""

    def provisional(self, limits: Gates) -> Verdict | None:
        """The verdict by the gates for which there is evidence so far."""
        if self.deciding_speedup is None:
            return self.verdict
        decided = [gate for gate in self.gates if gate.state != GateState.OPEN]
        limits = for_bug_fix(limits) if shows_bug(self.gates) else limits
        return verdict(decided, self.deciding_speedup, limits)


def judge_step(views: Views, view: View, step: Step) -> Judgement:
    """Judge a step of the table of ``view``, at its own shape where it has one."""
    deciding = views[step.shape] if step.shape else view
    elsewhere = deciding.shape if deciding is not view else ""
    status, problem = standing(view.variant(step.variant), view.shape)
    gates, ruling, over_parent = judged_at_shape(deciding, step)
    comparison, compared_at = None, ""
    if step.parent and elsewhere:
        comparison = deciding.compare(step.parent, step.variant, f" at {elsewhere}")
        compared_at = elsewhere if comparison else ""
    if step.parent and comparison is None and status == Status.CURRENT:
        comparison = view.compare(step.parent, step.variant)
    if status == Status.STALE and not elsewhere:
        ruling = ruling if ruling == Verdict.BASELINE else Verdict.INCONCLUSIVE
        return Judgement(verdict=ruling, against_parent=comparison)
    unsupported = problem and problem.values.get("status") == CheckResult.UNSUPPORTED.value
    if unsupported and ruling != Verdict.BASELINE and not elsewhere:
        ruling = None  # not supporting a shape is no fault
    return Judgement(
        verdict=ruling,
        gates=gates,
        deciding_speedup=over_parent,
        predictions=judge_predictions(step, deciding.figure, view.whole.journal),
        shapes_dropped=_unsupported(deciding, step)[0],
        judged_at=elsewhere,
        against_parent=comparison,
        against_parent_at=compared_at,
    )


def judged_at_shape(
    view: View, step: Step
) -> tuple[tuple[Gate, ...], Verdict | None, Ratio | None]:
    """The gates of a step by the evidence at one shape, its verdict, and the ratio that decided."""
    evidence, config = view.variant(step.variant), view.config.gates
    reference, fails_at = view.ladder.primary_reference or "", _fails_at(view, step)
    limits, parents = for_bug_fix(config) if fails_at else config, _parents(view, step, fails_at)
    dropped, unknown = _unsupported(view, step)
    due = [*evidence.due, *unknown]
    correct = correct_gate(
        evidence.checks, view.shape, dropped, step.drops, due=due, unchecked=evidence.unchecked
    )
    compiled = gate_of(evidence, limits)
    accurate = [accuracy_gate(evidence.checks, config, reference)] if reference else []
    case = case_of(view, step.variant, step.parent)
    compared: list[Case] = []
    speed: list[Gate] = []
    over = None
    if step.parent:
        names = (step.parent, step.variant)
        beside = filter(None, (*parents, reference))
        compared = [case_of(view, name, step.variant) for name in beside]
        if unseen := evidence.unseen:
            times = ShapeTimes(unseen.first, main_timing(unseen.first, names))
            first = times.ratio(*names, every=True)
            speed.append(unseen_gate(unseen, first, config, reference, timed=bool(parents)))
        if parents:
            both = view.times.over_parent(*names)
            over = both.chained
            across = view.times.over_recordings(view.whole, names, over) if over else None
            speed.append(
                faster_gate(
                    both,
                    limits,
                    across=across,
                    corrects=bool(step.corrects),
                    fails_at=fails_at,
                )
            )
        else:
            message = f"{step.parent}, which fails its check at {fails_at}, has no time"
            values: dict[str, Value] = {"parent": step.parent, "fails_at": fails_at or ""}
            speed.append(gate(FASTER, True, PARENT_UNTIMED, message, **values))
    is_faster = over is not None and speed_verdict(over, limits) == Verdict.KEPT
    together = view.times.together(step.variant, *parents)
    refereed = view.times.refereed(step.variant, step.parent)
    time = refereed.time(step.variant, beside=step.parent or "")
    stamps = time.value if time else None
    company = [company_gate(together, reference)] if reference else []
    cross_checks = [*cross_check_gates(case), *compared_gates(compared)]
    by_referee: tuple[Gate, ...] = ()
    if parents and refereed.table:
        timing = refereed.table.timing
        by_referee = referee_gate(timing, step, stamps, limits, is_faster=is_faster)
    gates = (correct, compiled, *accurate, *company, *cross_checks, *speed, *by_referee)
    ruling = verdict(gates, over, limits) if step.parent else Verdict.BASELINE
    return gates, ruling, over


def _parents(view: View, step: Step, fails_at: str | None) -> tuple[str, ...]:
    """Name what a step is compared with: nothing where its parent fails, and it corrects that."""
    if step.parent is None:
        return ()
    fails = standing(view.variant(step.parent), view.shape)[0] == Status.FAILED
    return () if fails and fails_at else (step.parent,)


def _fails_at(view: View, step: Step) -> str | None:
    """Find a shape where a check of the parent shows the bug that the step says it corrects."""
    if step.parent is None or not step.corrects:
        return None
    parent = view.variant(step.parent)
    if parent.build and parent.build.error:
        return view.shape
    return corrected_at(view.variant(step.variant).checks, parent.checks, view.config.gates)


def _unsupported(view: View, step: Step) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Shapes that a step does not support and its parent does; and others that it does not declare
    and its parent was not checked at, but is when they are measured.
    """
    if step.parent is None:
        return (), ()
    checks, parents = (view.variant(name).checks for name in (step.variant, step.parent))
    refused = [name for name, check in checks.items() if check.status == CheckResult.UNSUPPORTED]
    supported = {name for name, check in parents.items() if check.status == CheckResult.CORRECT}
    unknown = (
        name
        for name in refused
        if name not in parents
        and name not in step.drops
        and view.ladder.is_measured_at(name, step.parent)
    )
    return tuple(name for name in refused if name in supported), tuple(unknown)


def case_of(view: View, variant: str, beside: str | None = None) -> Case:
    """Collect what is recorded of a variant at the shape of a view.

    The timing is that of its ratio over, or to, ``beside``; if they were not timed together, that
    of the variant.
    """
    both = view.times.together(variant, beside) if beside else None
    together = both or view.times.together(variant)
    refereed = view.times.refereed(variant, beside).table
    return Case(
        evidence=view.variant(variant),
        timing=together.timing if together else None,
        audited=refereed.timing if refereed else None,
        work=view.evidence.work,
        theory=view.advised[variant].peaks if variant in view.advised else None,
        ceilings=view.whole.ceilings,
    )


def standing(evidence: VariantEvidence, shape: str) -> tuple[Status, Finding | None]:
    """A row's status, and why it is not current."""
    check, failed = evidence.checks.get(shape), None
    if check is not None and check.status != CheckResult.CORRECT:
        is_plain = check.status in (CheckResult.WRONG, CheckResult.UNSUPPORTED)
        failed = failed_check(check) if is_plain else finding("stopped", check.why, text=check.why)
    if evidence.build and evidence.build.error:
        failed = compiler_failed(evidence.build.error)
    if failed:
        return Status.FAILED, failed
    state = evidence.state
    late = tuple(kind for kind, value in state.items() if value == Status.STALE)
    if late:
        message = f"its sources changed since ({', '.join(late)}); measure it again"
        return Status.STALE, finding("stale", message, evidence=late)
    if state["timing"] != Status.MISSING:
        return Status.CURRENT, None
    if state["capture"] == Status.DAMAGED:
        return Status.MISSING, finding("missing.damaged", "its capture is damaged")
    if state["capture"] == Status.MISSING:
        return Status.MISSING, finding("missing.unmeasured", "not measured")
    return Status.CURRENT, None
