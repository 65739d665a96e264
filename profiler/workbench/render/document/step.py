"""One step of a ladder: its verdict and why, its lesson, its stall time and its diff."""

from __future__ import annotations

import re

from workbench.derive.source_diff import SourceDiff
from workbench.judge.findings import sentence
from workbench.judge.gates import Gate
from workbench.judge.ladder import Row
from workbench.judge.predictions import PredictionOutcome, Score
from workbench.render.document import timings
from workbench.render.document.blocks import (
    Block,
    Field,
    Fold,
    SourceChange,
    Table,
    bold,
    code,
    field,
    line,
    numeric,
    paragraph,
    paragraphs,
    quantity_cell,
    table,
    words,
)
from workbench.render.document.phrases import (
    gate_name,
    parent_of,
)
from workbench.render.numbers import with_unit
from workbench.words import ABSENT, GateState


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


def anchor(variant: str) -> str:
    return "step-" + re.sub(r"[^a-z0-9]+", "-", variant.lower()).strip("-")


def memory_of(variant: str) -> str:
    """The name of the chart of what it moves."""
    return f"memory-{anchor(variant)}"


def step_chart(variant: str) -> str:
    """The name of the chart of its stall time."""
    return f"stall-time-{anchor(variant)}"


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
    field("figure", "figure", lambda p: with_unit(p.label, p.unit)),
    field("expected", "expected", lambda p: p.expected),
    numeric("before", "before", lambda p: quantity_cell(p.before, p.unit)),
    numeric("after", "after", lambda p: quantity_cell(p.after, p.unit)),
    field("result", "result", lambda p: p.result),
    field("written", "written", written),
]
GATES: list[Field[Gate]] = [
    field("gate", "gate", gate_name),
    field("result", "result", lambda gate: _result(gate)),
    field("why", "why", lambda gate: sentence(gate.why)),
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
    return Fold(words(f"Diff against {parent}"), (SourceChange(row.variant, parent),))
