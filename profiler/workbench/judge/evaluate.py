"""One variant judged by the evidence at a shape. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from workbench.derive.figures import Figure, occupancy_limiters, stall_shares
from workbench.derive.roofline.ceilings import DRAM, L2
from workbench.derive.roofline.point import point
from workbench.derive.speedup import Ratio
from workbench.judge.cross_checks import case_of, compared_gates, cross_check_gates
from workbench.judge.findings import Finding, finding
from workbench.judge.gates import (
    FASTER,
    Gate,
    accuracy_gate,
    accuracy_of,
    compiled_by,
    compiler_failed,
    correct_gate,
    corrected_at,
    failed_check,
    faster_gate,
    for_bug_fix,
    gate_of,
    given_up,
    unseen_gate,
    verdict,
)
from workbench.judge.known_evidence import VariantEvidence
from workbench.judge.predictions import PredictionOutcome, judge_predictions
from workbench.judge.regimes import in_regimes
from workbench.judge.rows import Row
from workbench.judge.sessions import company_gate
from workbench.judge.view import View
from workbench.ncu.capture import Capture, has_lines
from workbench.study.model import Step
from workbench.words import (
    GENERATED_ROOT,
    HEADLINE,
    VIRTUAL_ROOT,
    CheckResult,
    GateState,
    Regime,
    Role,
    Status,
    Verdict,
)


def reference_row(view: View, variant: str) -> Row:
    """A reference as measured at one shape: it has neither gates nor a verdict."""
    needs = next(r.needs for r in view.ladder.references if r.name == variant)
    bare = replace(_bare(view, variant), role=Role.REFERENCE, needs=needs)
    if needs and bare.status == Status.MISSING:
        bare = replace(bare, problem=finding("missing.package", package=needs))
    return bare if bare.status == Status.STALE else _measured(bare, view)


def start_row(view: View, step: Step) -> Row:
    """Its times and figures only: the verdict is reported at the shape where it is judged."""
    bare = replace(_bare(view, step.variant), step=step, role=Role.START)
    return bare if bare.status == Status.STALE else _measured(bare, view)


def step_row(view: View, deciding: View, step: Step) -> Row:
    """A step as measured at one shape; gates, verdict and predictions are of ``deciding``."""
    bare = replace(_bare(view, step.variant), step=step)
    judgement = judge_step(deciding, step)
    stale = bare.status == Status.STALE
    if stale and deciding is view:
        baseline = judgement.verdict == Verdict.BASELINE
        return replace(bare, verdict=judgement.verdict if baseline else Verdict.INCONCLUSIVE)
    if bare.is_unsupported and judgement.verdict != Verdict.BASELINE and deciding is view:
        judgement = replace(judgement, verdict=None)  # of no fault of its own
    row = bare if stale else _with_choice(_measured(bare, view), view, step)
    return replace(
        row,
        shapes_dropped=_price(deciding, step),
        gates=judgement.gates,
        verdict=judgement.verdict,
        deciding_speedup=judgement.over_parent,
        predictions=outcomes(deciding, step),
        judged_at=deciding.shape if deciding is not view else "",
    )


@dataclass(frozen=True)
class Judgement:
    """The verdict on a step with the gates and the ratio that decided it."""

    gates: tuple[Gate, ...]
    verdict: Verdict | None
    over_parent: Ratio | None = None


def judge_step(view: View, step: Step) -> Judgement:
    """A step by the evidence at one shape."""
    evidence, fails_at = view.variant(step.variant), _fails_at(view, step)
    limits = for_bug_fix(view.config.gates) if fails_at else view.config.gates
    price = _price(view, step)
    gates = [
        correct_gate(
            evidence.checks,
            view.shape,
            price,
            step.drops,
            due=[*evidence.due, *_not_compared(view, step)],
            unchecked=evidence.unchecked,
        ),
        gate_of(evidence, limits),
        *_beside_reference(view, step),
        *cross_check_gates(case_of(view, step.variant, step.parent)),
    ]
    if step.parent is None:
        return Judgement(tuple(gates), Verdict.BASELINE)
    parents = _parents(view, step)
    beside = filter(None, (*parents, view.ladder.primary_reference))
    gates += compared_gates(case_of(view, name, step.variant) for name in beside)
    reference = view.ladder.primary_reference or ""
    unseen = unseen_gate(evidence, view.config.gates, reference, timed=bool(parents))
    gates += filter(None, [unseen])
    if not parents:
        why = finding("faster.parent_untimed", parent=step.parent, fails_at=fails_at)
        gates.append(Gate(FASTER, GateState.PASSED, why))
        return Judgement(tuple(gates), verdict(gates, None, limits))
    over, alone = (
        view.times.ratio(step.parent, step.variant, regime, every=True)
        for regime in (HEADLINE, Regime.ALONE)
    )
    absent = view.times.why_no_ratio(step.parent, step.variant)
    idle = view.times.is_idle(step.variant)
    faster = faster_gate(
        *(over, limits, absent),
        alone=alone,
        idle=idle,
        corrects=bool(step.corrects),
        fails_at=fails_at,
    )
    gates.append(faster)
    return Judgement(tuple(gates), verdict(gates, over, limits), over)


def _beside_reference(view: View, step: Step) -> Iterator[Gate]:
    """Gates that a study without a reference does not have."""
    reference = view.ladder.primary_reference
    if not reference:
        return
    yield accuracy_gate(view.variant(step.variant).checks, view.config.gates, reference)
    yield company_gate(view.times.together(step.variant, *_parents(view, step)), reference)


def _parents(view: View, step: Step) -> tuple[str, ...]:
    """What a step is compared with: nothing where its parent fails and the step corrects that."""
    if step.parent is None:
        return ()
    fails = standing(view.variant(step.parent), view.shape)[0] == Status.FAILED
    return () if fails and _fails_at(view, step) else (step.parent,)


def _fails_at(view: View, step: Step) -> str | None:
    """Where a check of the parent shows the bug that the step says it corrects."""
    if step.parent is None or not step.corrects:
        return None
    parent = view.variant(step.parent)
    if parent.build and parent.build.error:
        return view.shape
    return corrected_at(view.variant(step.variant).checks, parent.checks, view.config.gates)


def _price(view: View, step: Step) -> tuple[str, ...]:
    """Shapes that the parent supports and the step does not."""
    if step.parent is None:
        return ()
    return given_up(view.variant(step.variant).checks, view.variant(step.parent).checks)


def _not_compared(view: View, step: Step) -> tuple[str, ...]:
    """Shapes that a step does not support or declare, and that its parent was not checked at."""
    if step.parent is None:
        return ()
    own, parents = view.variant(step.variant).checks, view.variant(step.parent).checks
    refused = (name for name, check in own.items() if check.status == CheckResult.UNSUPPORTED)
    return tuple(name for name in refused if name not in parents and name not in step.drops)


def outcomes(view: View, step: Step) -> tuple[PredictionOutcome, ...]:
    """What became of a step's predictions. What failed has no figures, whatever is recorded."""

    def figure(variant: str | None, name: str) -> Figure | None:
        if variant is None or standing(view.variant(variant), view.shape)[0] == Status.FAILED:
            return None
        return view.figure(variant, name)

    return judge_predictions(step, figure, view.journal)


def _bare(view: View, variant: str) -> Row:
    """What a row says even where there is no evidence."""
    evidence = view.variant(variant)
    status, problem = standing(evidence, view.shape)
    return Row(
        variant=variant,
        title=evidence.title,
        step=None,
        evidence_state=evidence.state,
        status=status,
        problem=problem,
    )


def standing(evidence: VariantEvidence, shape: str) -> tuple[Status, Finding | None]:
    """A row's status, and why it is not current."""
    if evidence.build and evidence.build.error:
        return Status.FAILED, compiler_failed(evidence.build.error)
    check = evidence.checks.get(shape)
    if check is not None and check.status != CheckResult.CORRECT:
        plain = check.status in (CheckResult.WRONG, CheckResult.UNSUPPORTED)
        return Status.FAILED, failed_check(check) if plain else finding("stopped", text=check.why)
    return _on_record(evidence.state)


def _on_record(state: Mapping[str, Status]) -> tuple[Status, Finding | None]:
    late = tuple(kind for kind, value in state.items() if value == Status.STALE)
    if late:
        return Status.STALE, finding("stale", evidence=late)
    if state["timing"] != Status.MISSING:
        return Status.CURRENT, None
    if state["capture"] == Status.DAMAGED:
        return Status.MISSING, Finding("missing.damaged")
    if state["capture"] == Status.MISSING:
        return Status.MISSING, Finding("missing.unmeasured")
    return Status.CURRENT, None


def _measured(row: Row, view: View) -> Row:
    """With times, figures and what the compiler and the checks said."""
    evidence = view.variant(row.variant)
    row = replace(
        row, checks=evidence.checks, build=evidence.build, accuracy=accuracy_of(evidence.checks)
    )
    if row.status == Status.FAILED:
        return row
    parent = row.step.parent if row.step and row.role != Role.START else None
    timing = view.times.together(row.variant)
    row = replace(
        row,
        regimes=in_regimes(view.times, view.ladder, row.variant, parent),
        call=timing.timing.nodes.get(row.variant, ()) if timing else (),
    )
    return _with_capture(row, view)


def _with_capture(row: Row, view: View) -> Row:
    evidence = view.variant(row.variant)
    capture, index = evidence.capture, evidence.index
    if capture is None or index is None:
        return row
    return replace(
        row,
        figures=evidence.figures,
        stalls=stall_shares(capture.metrics),
        occupancy_limiters=tuple(occupancy_limiters(capture.metrics)),
        bottlenecks=evidence.bottlenecks,
        roofline=point(capture.metrics, view.ceilings, DRAM if index.was_flushed else L2),
        kernels=capture.kernels,
        capture=capture.path.name,
        tables_only=evidence.tables_only,
        no_source_lines=lines_missing(capture, evidence.front_ends),
        advice=view.advice(row.variant),
        hottest=view.hottest(row.variant),
    )


def _with_choice(row: Row, view: View, step: Step) -> Row:
    """With the ratio over the fastest of those that it chooses among, where it chooses."""
    if not step.chooses:
        return row
    chosen, over = view.times.least(step.chooses, step.variant)
    return replace(row, role=Role.CHOICE, chosen=chosen, over_chosen=over)


def lines_missing(capture: Capture, front_ends: Sequence[str]) -> Finding | None:
    """That a capture has no source lines, or none of the user's own files; None where it has."""
    if not has_lines(capture):
        return finding("lines.none", front_ends=tuple(front_ends))
    files = [str(file) for file in set(capture.lines["file"]) if file]
    generated = [file.startswith(GENERATED_ROOT) for file in files]
    own = [file.startswith(VIRTUAL_ROOT) for file in files]
    if any(generated) and not any(own):
        return finding("lines.generated", by=compiled_by(front_ends))
    return None
