"""The gates of a step, and the verdict that they give. Pure.

Some gates are cross-checks of a time by counters and clocks. ncu runs a variant in another process
and reads hardware: which kernels ran, for how long, and how many operations and bytes they did. A
timing that its own capture contradicts is a wrong timing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import geometric_mean, median

import msgspec

from workbench.derive.factors import INSTRUCTIONS
from workbench.derive.figures import DURATION, TIME, Figure, added, figure_label
from workbench.derive.rooflines import TENSOR, counted_flops, peaks
from workbench.derive.speedup import OverRecordings, Ratio
from workbench.evidence.records import (
    Build,
    CapturedKernel,
    Check,
    GraphNode,
    Series,
    Timing,
    Witness,
    are_apart,
    measured_in,
)
from workbench.judge.advice_rules import AdvisedKernel
from workbench.judge.comparison import Comparison, compare
from workbench.judge.findings import (
    NOT_COLLECTED,
    Finding,
    Value,
    finding,
    joined,
    number_of,
    suffix,
)
from workbench.judge.predictions import PredictionOutcome, judge_predictions
from workbench.judge.times import ShapeTimes, interference_of, lost_time, main_timing
from workbench.load import (
    LadderEvidence,
    ShapeEvidence,
    TimedTogether,
    UnseenEvidence,
    VariantEvidence,
)
from workbench.ncu.capture import Launched
from workbench.ncu.catalog import DRAM, GPC_CLOCK, L2, catalog
from workbench.study.config import Config, Gates
from workbench.study.front_ends import LIBRARY
from workbench.study.model import Ladder, Step, Work
from workbench.words import ABSENT, CheckResult, GateState, NodeKind, Regime, Status, Verdict, shown

CORRECT, COMPILER, ACCURATE, FASTER = "correct", "compiler", "accurate", "faster"
UNSEEN = "unseen"
KERNELS, DURATION_GATE, WORK = "kernels", "duration", "work"
OUTPUTS, REFEREE = "timed outputs", "referee"
# Gates that are not measured without one.
OF_A_GAIN = (KERNELS, DURATION_GATE, WORK, UNSEEN, OUTPUTS, REFEREE)
UNCHECKED = "kernels.unchecked"
PARENT_UNTIMED, RECORDINGS = "faster.parent_untimed", "faster.recordings"
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

    @property
    def failure(self) -> Finding | None:
        """Why it failed; None where it did not."""
        return self.why if self.state == GateState.FAILED else None


def gate(
    name: str,
    passed: bool | None,
    code: str,
    message: str,
    **values: Value | Finding | tuple[Finding, ...] | None,
) -> Gate:
    """Make a gate with its finding; ``passed`` is None where there is no evidence for it."""
    state = GateState.PASSED if passed else GateState.FAILED
    why = finding(code, message, **values)
    return Gate(name, GateState.OPEN if passed is None else state, why)


def not_collected(name: str, *, binding: bool = True) -> Gate:
    """An open gate without any evidence."""
    return Gate(name, GateState.OPEN, NOT_COLLECTED, binding)


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
        return not_collected(CORRECT)
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
        return Gate(CORRECT, GateState.OPEN, _not_checked(due))
    errors = [c.max_abs for c in checks.values() if c.status == CheckResult.CORRECT]
    largest = max((float(error) for error in errors if error is not None), default=None)
    error_text = ABSENT if largest is None else f"{largest:.2g}"
    others = f", not checked at {len(unchecked)} others" if unchecked else ""
    return gate(
        CORRECT,
        True,
        "correct.everywhere",
        f"max error {error_text} over {len(errors)} shapes{others}",
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
        return not_collected(COMPILER)
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
        message = f"allowed here: {joined(allowed, '; ')}"
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
    over_parent: Ratio | None,
    gates: Gates,
    absent: Finding = NOT_COLLECTED,
    *,
    alone: Ratio | None = None,
    across: OverRecordings | None = None,
    idle: bool = False,
    corrects: bool = False,
    fails_at: str | None = None,
) -> Gate:
    """The lower end of the interval over the parent must reach the least speedup, chained in turn,
    and that ``across`` recordings of the same sources, if there are others; ``alone`` it must be
    faster at all.

    ``absent`` says why there is no ratio, where there is none; ``idle``: because a call of the
    variant takes no time at all, which no work can. ``gates`` are those of the step, which may say
    that it ``corrects`` its parent; the parent ``fails_at`` a shape, if a check of it failed.
    """
    if over_parent is None:
        return Gate(FASTER, GateState.FAILED if idle else GateState.OPEN, absent)
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


def cross_check_gates(case: Case) -> tuple[Gate, ...]:
    return (kernels_gate(case), duration_gate(case), work_gate(case), outputs_gate(case))


def compared_gates(compared: Iterable[Case]) -> Iterator[Gate]:
    """Give a failed gate for each case whose time is contradicted: a ratio over it is wrong."""
    for case in compared:
        if why := duration_gate(case).failure or slowed(case):
            message = f"{case.variant} has a wrong time: {why.message}"
            yield gate("compared with", False, "compared", message, variant=case.variant, why=why)


def kernels_gate(case: Case) -> Gate:
    """The kernels of the timed graph are those that the capture saw: names, grids, blocks."""
    nodes, launched = case.nodes, case.launched
    if unchecked := next((series for series in case.series if series.unchecked), None):
        line = unchecked.refused_at
        waits = f", which waits for the GPU at {line}" if line else ""
        message = f"no CUDA graph can capture a call{waits}: its time, in a stream, is unchecked"
        return gate(KERNELS, None, UNCHECKED, message, line=line)
    if nodes is None or launched is None:
        return not_collected(KERNELS)
    if not nodes:
        message = "the timed graph is empty: it launched nothing"
        return gate(KERNELS, False, "kernels.empty_graph", message)
    ways = case.timing.ways.get(case.variant, ()) if case.timing else ()
    every: list[Counter[Signature]] = [
        Counter((n.kernel, n.grid, n.block) for n in way if n.kind == NodeKind.KERNEL)
        for way in (nodes, *ways)
    ]
    timed = every[0]
    seen = Counter[Signature]((x.mangled, x.grid or (), x.block or ()) for x in launched)
    if seen not in every:
        not_captured, not_timed = _listed(timed - seen), _listed(seen - timed)
        parts = [
            f"timed and not captured: {joined(not_captured)}" if not_captured else "",
            f"captured and not timed: {joined(not_timed)}" if not_timed else "",
        ]
        differing = {"not_captured": not_captured, "not_timed": not_timed}
        message = "; ".join(filter(None, parts))
        return gate(KERNELS, False, "kernels.differ", message, **differing)
    others = Counter(node.kind for node in nodes if node.kind != NodeKind.KERNEL)
    count = len(every) if ways else None
    message = f"{number_of(timed.total(), 'kernel')} timed as captured" + "".join(
        f", and {number_of(others[kind], kind)}"
        for kind in (NodeKind.MEMCPY, NodeKind.MEMSET, NodeKind.OTHER)
        if others[kind]
    )
    message += f", one of {count} ways that instances chose" if count else ""
    numbers = {"kernels": timed.total(), "ways": count}
    numbers |= {f"{kind}s": number for kind, number in others.items()}
    return gate(KERNELS, True, "kernels.as_captured", message, **numbers)


Signature = tuple[str, tuple[int, ...], tuple[int, ...]]


def _listed(signatures: Counter[Signature]) -> tuple[Finding, ...]:
    return tuple(_kernel(*signature, times) for signature, times in sorted(signatures.items()))


def _kernel(kernel: str, grid: tuple[int, ...], block: tuple[int, ...], times: int) -> Finding:
    blocks, threads = (" x ".join(map(str, extents)) or ABSENT for extents in (grid, block))
    message = f"{kernel or ABSENT} ({blocks} blocks of {threads} threads)"
    several = times if times > 1 else None
    message = f"{times} times {message}" if several else message
    return finding("kernel", message, kernel=kernel, grid=grid, block=block, times=several)


def outputs_gate(case: Case) -> Gate:
    """The outputs of timed calls were right."""
    timing = case.audited or case.timing
    audits = timing.audits.get(case.variant) if timing else None
    if not audits:
        witnesses = timing.witnesses if timing else ()
        impossible = any(not witness.anchor for witness in witnesses)
        return not_collected(OUTPUTS, binding=not impossible)
    wrong = next((audit.why for audit in audits if audit.why), "")
    if wrong:
        return gate(
            OUTPUTS, False, "outputs.wrong", f"wrong while it was timed: {wrong}", text=wrong
        )
    number = int(added(audit.outputs for audit in audits))
    message = f"{number_of(number, 'output')} of timed calls were right"
    return gate(OUTPUTS, True, "outputs.right", message, outputs=number)


@dataclass(frozen=True, eq=False)
class Case:
    """A timed variant, and what its time is checked by: capture, timing, work of one call.

    ``ceilings`` are measured, in FLOP/s and bytes/s by id. ``audited`` is another timing, if the
    referee's audits are of one.
    """

    evidence: VariantEvidence
    timing: Timing | None
    work: Work | None = None
    ceilings: Mapping[str, float] = field(default_factory=dict)
    audited: Timing | None = None

    @property
    def variant(self) -> str:
        return self.evidence.variant

    @property
    def launched(self) -> Sequence[Launched] | None:
        """The launches of a capture made here; None where they are not recorded."""
        capture = self.evidence.capture
        return capture.launched if capture and self.evidence.was_profiled else None

    @property
    def series(self) -> Sequence[Series]:
        return self.timing.by_variant.get(self.variant, ()) if self.timing else ()

    @property
    def nodes(self) -> tuple[GraphNode, ...] | None:
        """The nodes of the graph of one call; None where they were not recorded."""
        return self.timing.nodes.get(self.variant) if self.timing else None

    @cached_property
    def microseconds(self) -> float | None:
        """The time that a call adds to the chained graph: the median over the instances of all
        sessions, or the geometric mean that is claimed, if a few fast instances make that smaller.
        """
        every = [median(series.added) for series in self._chained]
        if not every or min(every) <= 0:
            return median(every) if every else None
        return min(median(every), geometric_mean(every))

    @cached_property
    def ghz(self) -> float | None:
        """The SM clock of these instances, if collected."""
        clocks = [mhz for series in self._chained for mhz in series.mhz]
        return median(clocks) / 1e3 if clocks else None

    @property
    def _chained(self) -> list[Series]:
        return [series for series in self.series if series.regime == Regime.CHAINED]


def rates_of(case: Case) -> Mapping[str, float]:
    """Theoretical peaks at the clock of the timing where the capture has them, else measured."""
    capture = case.evidence.capture
    theory = peaks(capture.metrics) if capture else None
    if theory is None:
        return case.ceilings
    faster = max(1.0, case.ghz * 1e9 / theory.sm_clock) if case.ghz else 1.0
    scaled = {name: rate * (1.0 if name == DRAM else faster) for name, rate in theory.rates.items()}
    return {**case.ceilings, **scaled}


# A call cannot take half as long as its longest launch does in another process, under ncu. No
# closer: ncu runs it at another clock, and with less in L2. Honest kernels take 1.1 times this
# or more (docs/trust.md).
LEAST_SHARE, UNDER_NCU_US = 0.5, 0.6


@dataclass(frozen=True)
class Profiled:
    """µs that launches took under ncu: of the ``longest`` at the clock of the timing or its own,
    whichever is shorter, and of all, whichever is longer. ``from_caches`` is the longest without
    what its reads from DRAM take, if ncu emptied the caches first.
    """

    longest: float
    from_caches: float
    total: float


def profiled(case: Case) -> Profiled | None:
    """A kernel bound by the SMs takes the same cycles at any clock, one bound by DRAM the same
    time: a launch has both. None without a capture made here.
    """
    capture, ghz = case.evidence.capture, case.ghz
    if capture is None or not case.evidence.was_profiled:
        return None
    shortest, longest, from_caches = [], [], []
    index, rate = case.evidence.index, rates_of(case).get(DRAM)
    reads = catalog()["dram_read"].names
    emptied = index is None or index.was_flushed
    for values in capture.metrics.by_launch.values():
        if DURATION not in values:
            return None
        duration = values[DURATION] * 1e-3
        clock = values.get(GPC_CLOCK, 0.0) * 1e-9
        scaled = duration * clock / ghz if ghz and clock else duration
        read = next((values[name] for name in reads if name in values), 0.0)
        shortest.append(min(duration, scaled))
        longest.append(max(duration, scaled))
        from_caches.append(shortest[-1] - (read * 1e6 / rate if rate and emptied else 0.0))
    if not longest:
        return None
    return Profiled(longest=max(shortest), from_caches=max(from_caches), total=sum(longest))


def duration_gate(case: Case) -> Gate:
    """The time that a call adds is no wonder beside what its launches took under ncu."""
    took, under_ncu = case.microseconds, profiled(case)
    if took is None or under_ncu is None:
        return not_collected(DURATION_GATE)
    ncu = under_ncu.longest
    least = LEAST_SHARE * under_ncu.from_caches - UNDER_NCU_US
    code, message = "duration.below", f"{_a_call(took, ncu)}: at least {least:.2f} µs it must be"
    if took < least:
        values = {"microseconds": took, "ncu_us": ncu, "least_us": least}
        return gate(DURATION_GATE, False, code, message, **values)
    values = {"microseconds": took, "ncu_us": under_ncu.total}
    message = _a_call(took, under_ncu.total)
    return gate(DURATION_GATE, True, "duration.accounted", message, **values)


# Recorded calls take 1.12 times what all launches take under ncu at most, and 15 % less than this
# bound or better (docs/trust.md): 1 µs is for each launch, and for a call.
MOST_SHARE, LAUNCH_US = 1.25, 1.0


def slowed(case: Case) -> Finding | None:
    """Why its time is too long beside its capture: something slowed it while it was timed. None for
    a call with copies or memsets, which ncu does not see, or with other kernels than captured.
    """
    took, under_ncu, nodes = case.microseconds, profiled(case), case.nodes
    if took is None or under_ncu is None or not nodes:
        return None
    most = MOST_SHARE * under_ncu.total + LAUNCH_US * (1 + len(nodes))
    seen = all(node.kind == NodeKind.KERNEL for node in nodes)
    if took <= most or not seen or kernels_gate(case).state != GateState.PASSED:
        return None
    message = f"{_a_call(took, under_ncu.total)}: at most {most:.2f} µs it may be"
    values = {"microseconds": took, "ncu_us": under_ncu.total, "most_us": most}
    return finding("duration.above", message, **values)


def _a_call(microseconds: float, under_ncu: float) -> str:
    return f"a call takes {microseconds:.2f} µs, and its launches {under_ncu:.2f} µs under ncu"


PACKED_FLOPS = 64  # of a warp instruction at the most, outside of the tensor cores: two halves
LEAST_WORK = 0.90  # counters of several replay passes agree to some per cent
MARGIN = 1.05  # of a peak: clocks of two passes differ by so much in short kernels
# What may do the arithmetic of a study whose inputs are of a type: also faster types, since float32
# can be put together from halves.
ARITHMETIC = {
    "float64": ("fp64", "tensor fp64"),
    "float32": ("fp32", "half", "tensor tf32", "tensor fp16", "tensor bf16"),
    "float16": ("fp32", "half", "tensor fp16", "tensor bf16"),
    "bfloat16": ("fp32", "half", "tensor fp16", "tensor bf16"),
    "float8_e4m3fn": ("fp32", "half", "tensor fp16", "tensor bf16", "tensor fp8"),
    "float8_e5m2": ("fp32", "half", "tensor fp16", "tensor bf16", "tensor fp8"),
}


def work_gate(case: Case) -> Gate:
    """The capture did what one call needs, and the call was not faster than the GPU can be."""
    work, capture = case.work, case.evidence.capture
    if work is None or capture is None or not case.evidence.was_profiled:
        return not_collected(WORK)
    results = [_operations(case, work), _bytes(case, work), _reads(case, work), _floor(case, work)]
    checked = [result for result in results if result is not None]
    for state in (GateState.FAILED, GateState.OPEN):
        if first := next((result for result in checked if result.state == state), None):
            return first
    if not checked:
        return not_collected(WORK)
    whys = tuple(result.why for result in checked)
    return gate(WORK, True, "work.done", joined(whys), findings=whys)


def _operations(case: Case, work: Work) -> Gate | None:
    """None where they cannot be counted: integers, and additions of halves outside of the tensor
    cores, which ncu counts together with conversions.
    """
    capture = case.evidence.capture
    counted = counted_flops(capture.metrics) if capture and work.flops else None
    if capture is None or counted is None or work.dtype not in ARITHMETIC:
        return None
    done = added(counted.values())
    in_halves = work.dtype not in ("float32", "float64")
    if in_halves and not any(kind.startswith(TENSOR) for kind in counted):
        launches = capture.metrics.by_launch.values()
        done += PACKED_FLOPS * added(values.get(INSTRUCTIONS, 0.0) for values in launches)
        if done >= LEAST_WORK * work.flops:
            return None
    return _at_least(done, work.flops, "operations")


def _bytes(case: Case, work: Work) -> Gate | None:
    """Between the SMs and L2 every operand goes at least once, unless copies and memsets do it."""
    launched = case.launched
    if not work.bytes or not launched or any(x.l2_bytes is None for x in launched):
        return None
    moved = _at_least(sum(x.l2_bytes or 0.0 for x in launched), work.bytes, "bytes")
    if moved.failure and _has_others(case):
        message = (
            f"{moved.why.values['ratio']:.2f} times the bytes through L2 that it needs; copies or "
            "memsets may do the others, and ncu does not see them"
        )
        return gate(WORK, None, "work.bytes_unseen", message, **moved.why.values)
    return moved


def _reads(case: Case, work: Work) -> Gate | None:
    """Check reads from DRAM: L2 can hold only so much of the inputs, once for every launch unless
    ncu emptied it.

    What a call wrote is no input: by L2, or by DRAM and as much as L2 may keep. None beside copies
        and memsets, of which ncu sees nothing.
    """
    figures, index, nodes = case.evidence.figures, case.evidence.index, case.nodes
    l2 = index.provenance.l2_bytes if index else None
    launches = len(case.launched or ())
    if index is None or not l2 or not launches or not nodes or _has_others(case):
        return None
    if not {"dram_read", "dram_write", "l1_to_l2"} <= figures.keys():
        return None
    read, to_dram, to_l2 = (
        figures[name].value * 1e6 for name in ("dram_read", "dram_write", "l1_to_l2")
    )
    inputs = work.bytes - min(to_l2, to_dram + launches * l2)
    needed = inputs - (0 if index.was_flushed else launches * l2)
    if needed <= 0:
        return None
    is_missing = read < LEAST_WORK * needed
    code, message = "work.reads", f"{read / inputs:.2f} times its inputs from DRAM"
    if is_missing:
        code = "work.reads_missing"
        message = (
            f"{read:.3g} B from DRAM, of {inputs:.3g} of inputs of which L2 can hold all but "
            f"{needed:.3g}: reads are missing"
        )
    values = {"done": read, "needed": needed, "inputs": inputs, "ratio": read / inputs}
    return gate(WORK, not is_missing, code, message, **values)


def _has_others(case: Case) -> bool:
    """Whether a call has copies or memsets, of which ncu sees nothing."""
    return any(node.kind != NodeKind.KERNEL for node in case.nodes or ())


def _at_least(done: float, needed: float, what: str) -> Gate:
    is_missing = done < LEAST_WORK * needed
    counted, unit = ("operations", "FLOP") if what == "operations" else ("bytes through L2", "B")
    code, message = f"work.{what}", f"{done / needed:.2f} times the {counted} that it needs"
    if is_missing:
        code = f"work.{what}_missing"
        message = f"{done:.3g} {unit} of {needed:.3g} that one call needs: {counted} are missing"
    values = {"done": done, "needed": needed, "ratio": done / needed}
    return gate(WORK, not is_missing, code, message, **values)


def _floor(case: Case, work: Work) -> Gate | None:
    """No call is faster than its operations at the peak of the fastest arithmetic that could do
    them, or its bytes at twice the rate of L2, which reads and writes at once.
    """
    took, rates = case.microseconds, rates_of(case)
    kinds = ARITHMETIC.get(work.dtype, ())
    peak = max((rates[kind] for kind in kinds if kind in rates), default=0.0)
    floors = {
        "operations": work.flops / peak if peak else 0.0,
        "bytes": work.bytes / (2 * rates[L2]) if rates.get(L2) else 0.0,
    }
    what = max(floors, key=lambda name: floors[name])
    floor = floors[what] / MARGIN * 1e6
    if took is None or not floor:
        return None
    if took < floor:
        message = f"{took:.3g} µs, where the GPU needs {floor:.3g} µs for its {what} alone"
        values: dict[str, Value] = {"microseconds": took, "least_us": floor, "unit": what}
        return gate(WORK, False, "work.too_fast", message, **values)
    message = f"the GPU's floor is {floor:.3g} µs"
    return gate(WORK, True, "work.floor", message, least_us=floor)


INTERFERENCE = "interference"


def company_gate(timing: TimedTogether | None, reference: str) -> Gate:
    """Whether the primary reference takes as long beside the steps as alone. Open where it
    seems not to, and that may be chance, or where its time was lost; open and not binding where it
    was not timed beside them, since a study may have shapes that it does not support.
    """
    if timing is None:
        return not_collected(INTERFERENCE)
    if (reference, Regime.CHAINED, False) not in timing.times:
        lost = lost_time(timing, reference)
        absent = f"not collected: {reference} was not timed beside it"
        why = lost or finding("interference.not_timed", absent, reference=reference)
        return Gate(INTERFERENCE, GateState.OPEN, why, binding=lost is not None)
    beside = interference_of(timing, reference)
    if beside is None:
        absent = f"{reference} alone: not collected"
        return gate(INTERFERENCE, None, "interference.not_alone", absent, reference=reference)
    state = GateState.OPEN if beside.is_off else GateState.PASSED
    return Gate(INTERFERENCE, GateState.FAILED if beside.is_disturbed else state, beside.said())


def referee_gate(
    timing: Timing, step: Step, over_parent: Ratio | None, stamps: float | None, limits: Gates
) -> tuple[Gate, ...]:
    """The referee, in whose process no variant runs, saw the work of timed calls done, in the time
    that the session's ``stamps`` say, and half of the gain that a faster step must have; none for
    what was timed without a referee, and for the one beside which it times all others. Where no
    variant can be timed so, for lack of memory for instance, the other gates decide.
    """
    witnesses = {witness.variant: witness for witness in timing.witnesses}
    if not witnesses or any(each.anchor == step.variant for each in witnesses.values()):
        return ()
    witness = witnesses.get(step.variant)
    if witness is None or witness.unmeasured or stamps is None:
        why = NOT_COLLECTED
        if witness and witness.unmeasured:
            message = f"not collected: {witness.unmeasured}"
            why = finding("referee.unmeasured", message, text=witness.unmeasured)
        return (Gate(REFEREE, GateState.OPEN, why, binding=not (witness and not witness.anchor)),)
    if witness.microseconds is None:
        message = "a call of it adds no time to its neighbours"
        return (gate(REFEREE, None, "referee.idle", message),)
    figures = {
        "microseconds": stamps,
        "by_referee": witness.microseconds,
        "audits": witness.audits,
        "ratio": _ratio_by_referee(witnesses, step.parent, step.variant),
    }
    seen = f"{witness.microseconds:.3g} µs by the referee's clock, {stamps:.3g} µs in sessions"
    code = "referee.agrees"
    if are_apart(stamps, witness.microseconds, anchors_apart(timing, witness)):
        code, seen = "referee.differs", f"the times differ: {seen}"
    elif over_parent and speed_verdict(over_parent, limits) == Verdict.KEPT:
        ratio, least = figures["ratio"], least_by_referee(limits.min_speedup)
        if ratio is None:
            code, seen = "referee.parent", f"not collected of {step.parent}"
        elif ratio < least:
            code = "referee.no_gain"
            seen = f"the referee sees {ratio:.3f}x of its parent, not {least:.4g}x; {seen}"
    message = f"{seen}; {number_of(witness.audits, 'call')} of it were right"
    return (gate(REFEREE, code == "referee.agrees" or None, code, message, **figures),)


def anchors_apart(timing: Timing, witness: Witness) -> float:
    """The microseconds by which the anchor's call takes longer in sessions than by the referee."""
    measured = measured_in(timing.by_variant.get(witness.anchor, ())).get(witness.anchor)
    if measured is None or witness.anchor_microseconds is None:
        return 0.0
    return measured[0] - witness.anchor_microseconds


def least_by_referee(min_speedup: float) -> float:
    """Half of the gain that is asked; a step that need not gain may lose 1 % more."""
    return min_speedup - max(0.01, (min_speedup - 1) / 2)


def _ratio_by_referee(
    witnesses: Mapping[str, Witness], parent: str | None, variant: str
) -> float | None:
    """How many times faster than its parent a variant is, each in the time of the same anchor."""
    in_anchors = {
        name: witness.microseconds / witness.anchor_microseconds
        for name, witness in witnesses.items()
        if witness.microseconds and witness.anchor_microseconds
    }
    in_anchors |= {witness.anchor: 1.0 for witness in witnesses.values()}
    if parent not in in_anchors or variant not in in_anchors:
        return None
    return in_anchors[parent] / in_anchors[variant]


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
    gates = [
        correct_gate(
            evidence.checks,
            view.shape,
            dropped,
            step.drops,
            due=[*evidence.due, *unknown],
            unchecked=evidence.unchecked,
        ),
        gate_of(evidence, limits),
    ]
    if reference:
        gates.append(accuracy_gate(evidence.checks, config, reference))
        gates.append(company_gate(view.times.together(step.variant, *parents), reference))
    gates += cross_check_gates(case_of(view, step.variant, step.parent))
    if step.parent is None:
        return tuple(gates), Verdict.BASELINE, None
    beside = filter(None, (*parents, reference))
    gates += compared_gates(case_of(view, name, step.variant) for name in beside)
    if unseen := evidence.unseen:
        names = (step.parent, step.variant)
        times = ShapeTimes(unseen.first, main_timing(unseen.first, names))
        over = times.ratio(*names, every=True)
        gates.append(unseen_gate(unseen, over, config, reference, timed=bool(parents)))
    if not parents:
        message = f"{step.parent}, which fails its check at {fails_at}, has no time"
        values: dict[str, Value] = {"parent": step.parent, "fails_at": fails_at or ""}
        gates.append(gate(FASTER, True, PARENT_UNTIMED, message, **values))
        return tuple(gates), verdict(gates, None, limits), None
    over, alone, absent, idle = view.times.over_parent(step.parent, step.variant)
    across = None
    if over:
        across = view.times.over_recordings(view.whole, (step.parent, step.variant), over)
    gates.append(
        faster_gate(
            over,
            limits,
            absent,
            alone=alone,
            across=across,
            idle=idle,
            corrects=bool(step.corrects),
            fails_at=fails_at,
        )
    )
    by_referee = view.times.refereed(step.variant, step.parent)
    if by_referee.table:
        time = by_referee.time(step.variant, beside=step.parent)
        stamps = time.value if time else None
        gates += referee_gate(by_referee.table.timing, step, over, stamps, limits)
    return tuple(gates), verdict(gates, over, limits), over


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
        ceilings=view.whole.ceilings,
    )


def standing(evidence: VariantEvidence, shape: str) -> tuple[Status, Finding | None]:
    """A row's status, and why it is not current."""
    if evidence.build and evidence.build.error:
        return Status.FAILED, compiler_failed(evidence.build.error)
    check = evidence.checks.get(shape)
    if check is not None and check.status != CheckResult.CORRECT:
        plain = check.status in (CheckResult.WRONG, CheckResult.UNSUPPORTED)
        return Status.FAILED, failed_check(check) if plain else finding(
            "stopped", check.why, text=check.why
        )
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
