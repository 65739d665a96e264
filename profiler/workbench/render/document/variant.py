"""One variant: time, figures with their metrics, stalls, bottlenecks; and the answer of ``try``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from workbench.derive.figures import ISSUING, Figure, figure_label
from workbench.derive.source_diff import SourceDiff
from workbench.judge.bottlenecks import Bottleneck
from workbench.judge.findings import sentence
from workbench.judge.gates import Gate
from workbench.judge.ladder import Ablation, Row
from workbench.judge.predictions import PredictionOutcome, Score
from workbench.render.document import advice, timings, warp_times
from workbench.render.document import limits as bottlenecks
from workbench.render.document.blocks import (
    Block,
    Bullets,
    Content,
    Field,
    Fold,
    Paragraph,
    Section,
    SourceChange,
    Table,
    authored,
    bold,
    code,
    figure_cell,
    line,
    numeric,
    paragraph,
    paragraphs,
    quantity_cell,
    strong,
    table,
    words,
)
from workbench.render.document.limits import (
    IMPOSSIBLE,
    figure_value,
    impossible,
    share_of,
    stall_words,
)
from workbench.render.document.phrases import (
    call_of,
    gate_name,
    has_figures,
    kind,
    parent_of,
    verdict_words,
)
from workbench.render.numbers import factor, interval, ratio, unit_shown, with_unit
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


def origin(ablation: Ablation) -> Paragraph:
    """Return where the figures come from: the first thing a reader must know."""
    ncu = ablation.environment.ncu
    shape = " ".join(f"{k}={v}" for k, v in ablation.parameters.items())
    return paragraph(
        f"{ablation.source} evidence: {ablation.gpu}, {ablation.date or 'no date'}, ncu {ncu}; "
        f"{ablation.study} at {ablation.shape}{f' ({shape})' if shape else ''}"
    )


Known = tuple[str, Figure | None]  # a figure by its id, None where it was not collected


def _value(pair: Known) -> Content:
    figure = pair[1]
    return figure_cell(figure.value, figure_value(figure)) if figure else ABSENT


FIGURES: list[Field[Known]] = [
    Field("figure", "figure", lambda k: figure_label(k[0])[0]),
    numeric("value", "value", _value),
    Field("unit", "unit", lambda k: unit_shown(k[1].unit) if k[1] else ""),
    Field("metric", "ncu metric", lambda k: k[1].metric if k[1] else "", rank=1),
]
STALLS: list[Field[tuple[str, str]]] = [
    Field("reason", "stall reason", lambda stall: stall_words(stall[0])),
    numeric("share", "share of samples", lambda stall: stall[1]),
]


def figure_table(figures: Mapping[str, Figure]) -> Table:
    shown = [(key, figures.get(key)) for key in SHOWN]
    return table("figures", FIGURES, shown, key=lambda k: k[0])


def marked(*sides: Mapping[str, Figure]) -> list[Block]:
    """Return what the mark behind a figure means, where one has it."""
    every = (figure for side in sides for figure in side.values())
    return [paragraph(IMPOSSIBLE)] if any(map(impossible, every)) else []


def profile(
    figures: Mapping[str, Figure],
    stalls: Mapping[str, float],
    limiters: Sequence[str],
    limits: Sequence[Bottleneck],
) -> list[Block]:
    """The figures of one capture."""
    blocks: list[Block] = [
        figure_table(figures),
        *marked(figures),
        paragraph(limited(limiters)),
    ]
    waited = [(name, share) for name, share in stalls.items() if name != ISSUING][:STALLS_SHOWN]
    if waited:
        shown = [(name, share_of(share, figures)) for name, share in waited]
        blocks.append(table("stalls", STALLS, shown, key=lambda stall: stall[0]))
    else:
        blocks.append(paragraph(f"stall samples: {ABSENT}"))
    if limits:
        blocks += [paragraph("Top bottlenecks:"), bottlenecks.bullets(limits)]
    return blocks


def limited(limiters: Sequence[str]) -> str:
    return f"occupancy limited by: {', '.join(limiters) or ABSENT}"


def variant(row: Row, ablation: Ablation) -> Section:
    change = row.step.key_change if row.step else row.title
    return Section(
        row.variant,
        line(code(row.variant), ": ", authored(change)),
        tuple(_blocks(row, ablation)),
        kind(row),
        row.variant,
    )


def _blocks(row: Row, ablation: Ablation) -> list[Block]:
    blocks: list[Block] = (
        [paragraph(f"{row.status}: {sentence(row.problem)}")] if row.problem else []
    )
    if row.problem and not has_figures(row):
        if row.verdict and row.judged_at:
            shown = f"verdict: {verdict_words(row, ablation)}; --shape {row.judged_at} shows it"
            blocks.append(Paragraph(words(shown)))
        return blocks
    blocks += advice.first_look(row.advice, row.hottest)
    blocks.append(timings.regimes(row, ablation.reference))
    if ratios := _ratios(row, ablation):
        blocks.append(Bullets(tuple(map(words, ratios))))
    if row.figures:
        blocks += profile(row.figures, row.stalls, row.occupancy_limiters, row.bottlenecks)
        if row.no_source_lines:
            blocks.append(paragraph(sentence(row.no_source_lines)))
    else:
        blocks.append(paragraph(f"profile: {ABSENT}"))
    if row.timeline:
        blocks += warp_times.timeline(row.timeline, row.time)
    if row.against_parent:
        blocks += bottlenecks.account(row.against_parent)
    if row.gates:
        blocks.append(gates(row))
    if row.verdict and parent_of(row):
        blocks.append(paragraph("verdict: ", strong(verdict_words(row, ablation))))
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


def evidence_states(row: Row) -> Paragraph:
    text = ", ".join(f"{k} {v}" for k, v in row.evidence_state.items())
    alone = " (tables without their report)" if row.tables_only else ""
    return paragraph(f"evidence: {text}{alone}")


METRICS: list[Field[MetricValue]] = [
    numeric("launch", "launch", lambda m: str(m.launch)),
    Field("kernel", "kernel", lambda m: m.kernel),
    numeric("value", "value", lambda m: ABSENT if m.value is None else str(m.value)),
    Field("unit", "unit", lambda m: m.unit),
]


def metric_table(rows: Sequence[MetricValue]) -> Table:
    """One ncu metric of every launch."""
    return table("metric", METRICS, rows)


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


def details(row: Row, here: Row, where: str) -> Fold:
    """Return what most readers skip; ``here`` is the row at the shape where the step is judged,
    which ``where`` names if that is not the table's.
    """
    assert row.step is not None
    blocks: list[Block] = []
    for title, text in (
        (line("What held ", code(parent_of(row)), " back."), row.step.bottleneck),
        (words("Why this should help."), row.step.rationale),
    ):
        if text.strip():
            first, *rest = paragraphs(text)
            blocks += [paragraph(bold(title), " ", first.text), *rest]
    blocks += _predictions(row, where)
    blocks.append(gates(row) if row.gates else paragraph(f"Gates: {ABSENT}."))
    blocks += _times(here, where)
    return Fold(line(code(row.variant), ": reasons, predictions, gates, times"), tuple(blocks))


PREDICTIONS: list[Field[PredictionOutcome]] = [
    Field("figure", "figure", lambda p: with_unit(p.label, p.unit)),
    Field("expected", "expected", lambda p: p.expected),
    numeric("before", "before", lambda p: quantity_cell(p.before, p.unit)),
    numeric("after", "after", lambda p: quantity_cell(p.after, p.unit)),
    Field("result", "result", lambda p: p.result),
    Field("written", "written", written),
]
GATES: list[Field[Gate]] = [
    Field("gate", "gate", gate_name),
    Field("result", "result", lambda gate: _result(gate)),
    Field("why", "why", lambda gate: sentence(gate.why)),
]


def gates(row: Row) -> Table:
    return table("gates", GATES, row.gates, key=lambda gate: gate.name)


def _result(gate: Gate) -> str:
    """Return the state of a gate; one that is open and not binding leaves the verdict alone."""
    informs = gate.state == GateState.OPEN and not gate.binding
    return f"{gate.state}, does not decide" if informs else gate.state


def _predictions(row: Row, where: str) -> list[Block]:
    if not row.predictions:
        made = row.step is not None and row.step.predictions
        return [paragraph(f"Predictions: {ABSENT if made else 'none were made'}.")]
    predictions = table("predictions", PREDICTIONS, row.predictions, key=lambda p: p.figure)
    text = line(f"Predicted{where}; an ", code("x"), " is a factor of the parent's value:")
    return [paragraph(text), predictions]


def _times(row: Row, where: str) -> list[Block]:
    if not row.regimes:
        return [paragraph(f"Times: {ABSENT}.")]
    return [paragraph(f"Times{where}:"), timings.regimes(row)]


def diff(row: Row, changes: SourceDiff | None) -> Block:
    parent = parent_of(row)
    if changes is not None and changes.is_same:
        return paragraph("Only parameters differ from ", code(parent), ".")
    if changes is None or not changes.hunks:
        return paragraph("Diff against ", code(parent), f": {ABSENT}.")
    return Fold(words(f"Diff against {parent}"), (SourceChange(row.variant),))
