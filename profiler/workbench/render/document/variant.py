"""One variant: time, figures with their metrics, stalls, bottlenecks; and the answer of ``try``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from workbench.derive.figures import ISSUING, Figure, figure_label
from workbench.derive.source_diff import SourceDiff
from workbench.judge.findings import sentence
from workbench.judge.gates import Gate
from workbench.judge.ladder import Ablation, Row
from workbench.judge.predictions import PredictionOutcome, Score
from workbench.render import doc
from workbench.render.chart import timelines
from workbench.render.document import advice, limits, timings
from workbench.render.document.phrases import (
    call_of,
    gate_name,
    has_figures,
    parent_of,
    verdict_words,
)
from workbench.render.numbers import factor, interval, quantity, ratio, unit_shown, with_unit
from workbench.words import ABSENT, GateState

if TYPE_CHECKING:
    from workbench.ncu.capture import MetricValue


FIGURE_IDS = (
    "duration sm_clock warp_instructions issue_active sm_active warps_per_scheduler "
    "achieved_occupancy theoretical_occupancy registers shared_memory grid block memory_pct "
    "compute_pct dram_read dram_write dram_bandwidth dram_pct l2_hit l1_hit sectors_per_request "
    "shared_conflicts tensor_pipe fma_pipe local_loads"
)
SHOWN = tuple(FIGURE_IDS.split())
STALLS_SHOWN = 5


def origin(ablation: Ablation) -> doc.Paragraph:
    """Return where the figures come from: the first thing a reader must know."""
    ncu = ablation.environment.ncu
    shape = " ".join(f"{k}={v}" for k, v in ablation.parameters.items())
    return doc.paragraph(
        f"{ablation.source} evidence: {ablation.gpu}, {ablation.date or 'no date'}, ncu {ncu}; "
        f"{ablation.study} at {ablation.shape}{f' ({shape})' if shape else ''}"
    )


Known = tuple[str, Figure | None]  # a figure by its id, None where it was not collected


FIGURES: list[doc.Field[Known]] = [
    doc.Field("figure", "figure", lambda k: figure_label(k[0])[0]),
    doc.numeric("value", "value", lambda k: limits.figure_value(k[1])),
    doc.Field("unit", "unit", lambda k: unit_shown(k[1].unit) if k[1] else ""),
    doc.Field("metric", "ncu metric", lambda k: k[1].metric if k[1] else "", rank=1),
]
STALLS: list[doc.Field[tuple[str, str]]] = [
    doc.Field("reason", "stall reason", lambda stall: limits.stall_words(stall[0])),
    doc.numeric("share", "share of samples", lambda stall: stall[1]),
]


def marked(*sides: Mapping[str, Figure]) -> list[doc.Block]:
    """Return what the mark behind a figure means, where one has it."""
    every = [figure for side in sides for figure in side.values()]
    shown = any(limits.is_impossible(figure.value, figure.unit) for figure in every)
    return [doc.paragraph(limits.IMPOSSIBLE)] if shown else []


def profile(
    figures: Mapping[str, Figure], stalls: Mapping[str, float], limiters: Sequence[str]
) -> list[doc.Block]:
    """The figures of one capture."""
    waited = [(name, share) for name, share in stalls.items() if name != ISSUING][:STALLS_SHOWN]
    shown = [(name, limits.share_of(share, figures)) for name, share in waited]
    return [
        doc.table("figures", FIGURES, [(key, figures.get(key)) for key in SHOWN]),
        *marked(figures),
        doc.paragraph(limited(limiters)),
        doc.table("stalls", STALLS, shown) if shown else doc.paragraph(f"stall samples: {ABSENT}"),
    ]


def limited(limiters: Sequence[str]) -> str:
    return f"occupancy limited by: {', '.join(limiters) or ABSENT}"


def variant(row: Row, ablation: Ablation) -> doc.Section:
    change = row.step.key_change if row.step else row.title
    title = doc.line(doc.code(row.variant), ": ", doc.authored(change))
    return doc.section(row.variant, title, *_blocks(row, ablation))


def _blocks(row: Row, ablation: Ablation) -> list[doc.Block]:
    blocks: list[doc.Block] = (
        [doc.paragraph(f"{row.status}: {sentence(row.problem)}")] if row.problem else []
    )
    if row.problem and not has_figures(row):
        if row.verdict and row.judged_at:
            shown = f"verdict: {verdict_words(row, ablation)}; --shape {row.judged_at} shows it"
            blocks.append(doc.paragraph(shown))
        return blocks
    blocks += advice.first_look(row.advice, row.hottest)
    blocks.append(timings.regimes(row, ablation.reference))
    if ratios := _ratios(row, ablation):
        blocks.append(doc.bullets(ratios))
    if row.figures:
        blocks += profile(row.figures, row.stalls, row.occupancy_limiters)
        if row.bottlenecks:
            blocks += [doc.paragraph("Top bottlenecks:"), limits.bullets(row.bottlenecks)]
        blocks += limits.no_lines(row.no_source_lines)
    else:
        blocks.append(doc.paragraph(f"profile: {ABSENT}"))
    if row.timeline:
        blocks += timelines.figures(row.timeline, row.time)
    if row.against_parent:
        blocks += limits.account(row.against_parent)
    if row.gates:
        blocks.append(gates(row))
    if row.verdict and parent_of(row):
        blocks.append(doc.paragraph("verdict: ", doc.strong(verdict_words(row, ablation))))
    return blocks


def _ratios(row: Row, ablation: Ablation) -> list[str]:
    parts = [f"one call is {call}"] if (call := call_of(row)) else []
    parts += [
        f"vs its A/A control, {control.regime.label}: {interval(control.ratio)}"
        for control in (ablation.timing.controls if ablation.timing else ())
        if control.variant == row.variant
    ]
    if row.accuracy:
        parts.append(
            f"error: {factor(row.accuracy.times_reference)} that of {ablation.reference}, "
            f"at {row.accuracy.where}"
        )
    if row.shapes_dropped:
        parts.append(f"no longer supports {', '.join(row.shapes_dropped)}")
    parent, first = parent_of(row), ablation.rows[0].variant
    if parent and parent != first:
        parts.append(f"vs {first}: {ratio(row.over_baseline)}")
    if row.chosen:
        parts.append(f"vs {row.chosen} (the fastest that it calls): {interval(row.over_chosen)}")
    return parts


def evidence_states(row: Row) -> doc.Paragraph:
    text = ", ".join(f"{k} {v}" for k, v in row.evidence_state.items())
    alone = " (tables without their report)" if row.tables_only else ""
    return doc.paragraph(f"evidence: {text}{alone}")


METRICS: list[doc.Field[MetricValue]] = [
    doc.numeric("launch", "launch", lambda m: str(m.launch)),
    doc.Field("kernel", "kernel", lambda m: m.kernel),
    doc.numeric("value", "value", lambda m: ABSENT if m.value is None else str(m.value)),
    doc.Field("unit", "unit", lambda m: m.unit),
]


def results(score: Score) -> str:
    """All that count, by result, and those written before the first measurement."""
    again = f"; {score.restated} that restate another do not count" if score.restated else ""
    return (
        f"{score.confirmed} confirmed, {score.refuted} refuted, {score.not_measurable} not "
        f"measurable (of {score.before} written before the first measurement, "
        f"{score.confirmed_before} confirmed{again})"
    )


def written(outcome: PredictionOutcome) -> str:
    """When a prediction was written, and what it restates."""
    return (
        f"{outcome.written}; restates {outcome.restates}" if outcome.restates else outcome.written
    )


def details(row: Row, here: Row, where: str) -> doc.Fold:
    """Return what most readers skip; ``here`` is the row at the shape where the step is judged,
    which ``where`` names if that is not the table's.
    """
    assert row.step is not None
    blocks: list[doc.Block] = []
    for title, text in (
        (doc.line("What held ", doc.code(parent_of(row)), " back."), row.step.bottleneck),
        (doc.line("Why this should help."), row.step.rationale),
    ):
        if text.strip():
            first, *rest = doc.paragraphs(text)
            blocks += [doc.paragraph(doc.bold(title), " ", first.text), *rest]
    blocks += _predictions(row, where)
    blocks.append(gates(row) if row.gates else doc.paragraph(f"Gates: {ABSENT}."))
    blocks += _times(here, where)
    return doc.fold(
        doc.line(doc.code(row.variant), ": reasons, predictions, gates, times"), *blocks
    )


PREDICTIONS: list[doc.Field[PredictionOutcome]] = [
    doc.Field("figure", "figure", lambda p: with_unit(p.label, p.unit)),
    doc.Field("expected", "expected", lambda p: p.expected),
    doc.numeric("before", "before", lambda p: quantity(p.before, p.unit)),
    doc.numeric("after", "after", lambda p: quantity(p.after, p.unit)),
    doc.Field("result", "result", lambda p: p.result),
    doc.Field("written", "written", written),
]
GATES: list[doc.Field[Gate]] = [
    doc.Field("gate", "gate", gate_name),
    doc.Field("result", "result", lambda gate: _result(gate)),
    doc.Field("why", "why", lambda gate: sentence(gate.why)),
]


def gates(row: Row) -> doc.Table:
    return doc.table("gates", GATES, row.gates)


def _result(gate: Gate) -> str:
    """Return the state of a gate; one that is open and not binding leaves the verdict alone."""
    informs = gate.state == GateState.OPEN and not gate.binding
    return f"{gate.state}, does not decide" if informs else gate.state


def _predictions(row: Row, where: str) -> list[doc.Block]:
    if not row.predictions:
        made = row.step is not None and row.step.predictions
        return [doc.paragraph(f"Predictions: {ABSENT if made else 'none were made'}.")]
    predictions = doc.table("predictions", PREDICTIONS, row.predictions)
    text = doc.line(f"Predicted{where}; an ", doc.code("x"), " is a factor of the parent's value:")
    return [doc.paragraph(text), predictions]


def _times(row: Row, where: str) -> list[doc.Block]:
    if not row.regimes:
        return [doc.paragraph(f"Times: {ABSENT}.")]
    return [doc.paragraph(f"Times{where}:"), timings.regimes(row)]


def diff(row: Row, changes: SourceDiff | None) -> doc.Block:
    parent = parent_of(row)
    if changes is not None and changes.is_same:
        return doc.paragraph("Only parameters differ from ", doc.code(parent), ".")
    if changes is None or not changes.hunks:
        return doc.paragraph("Diff against ", doc.code(parent), f": {ABSENT}.")
    return doc.fold(f"Diff against {parent}", doc.SourceChange(row.variant))
