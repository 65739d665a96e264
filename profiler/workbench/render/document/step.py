"""One step of a ladder: its verdict and why, its lesson, its stall time and its diff."""

from __future__ import annotations

import re

from workbench.derive.source_diff import SourceDiff
from workbench.judge.findings import sentence
from workbench.judge.gates import Gate, shows_bug
from workbench.judge.ladder import Row
from workbench.judge.predictions import PredictionOutcome, Score
from workbench.render.document import hunks, timings, why
from workbench.render.document.blocks import (
    Block,
    Bullets,
    Chart,
    Field,
    Fold,
    Paragraph,
    Section,
    SourceChange,
    Table,
    Text,
    authored,
    bold,
    code,
    field,
    line,
    numeric,
    paragraph,
    paragraphs,
    quantity_cell,
    strong,
    table,
    words,
)
from workbench.render.document.phrases import (
    brief_reason,
    gate_name,
    has_figures,
    kind,
    names,
    parent_of,
    took,
    verdict,
    with_cycles,
)
from workbench.render.numbers import interval, with_unit
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


def step_section(
    row: Row, changes: SourceDiff | None, here: Row | None = None, shape: str = "", table: str = ""
) -> Section:
    """Verdict, reason and lesson, its stall time and its diff. ``here`` is the row at the shape
    where the step is judged, which ``shape`` names where it is not that of the ``table``.
    """
    assert row.step is not None
    captured = table if row.judged_at and row.against_parent_at != row.judged_at else ""
    shown: list[Block] = [paragraph(verdict_line(here or row, shape)), _numbers(row, captured)]
    if changes is not None and (lines := hunks.costliest_lines(changes)):
        shown.append(Bullets(lines))
    if row.step.lesson.strip():
        first, *rest = paragraphs(row.step.lesson)
        shown += [paragraph(strong("Lesson."), " ", first.text), *rest]
    if row.against_parent is not None and row.against_parent.stall_microseconds:
        alt = f"Stall time of {row.variant} beside {parent_of(row)}, under ncu."
        shown.append(Chart(step_chart(row.variant), alt))
    shown += [diff(row, changes), details(row, here or row, shape)]
    title = line(code(row.variant), ": ", authored(row.step.key_change))
    return Section(anchor(row.variant), title, tuple(shown), kind(row), row.variant, verdict(row))


def step_chart(variant: str) -> str:
    """The name of the chart of its stall time."""
    return f"stall-time-{anchor(variant)}"


def verdict_line(row: Row, shape: str = "") -> Text:
    """The verdict, the shape it is about, time and speed, and the gates that decided it."""
    where = line(" at ", code(shape)) if shape else ()
    return line(
        strong((row.verdict.label if row.verdict else ABSENT).capitalize()),
        where,
        ": ",
        _speed(row),
        ". ",
        gate_words(row),
        *price(row),
        *_corrects(row),
    )


def _corrects(row: Row) -> tuple[str | Text, ...]:
    if row.step is None or not row.step.corrects:
        return ()
    says = " It corrects " if shows_bug(row.gates) else " It is said to correct "
    return (says, code(parent_of(row)), ": ", authored(row.step.corrects), ".")


def price(row: Row) -> tuple[str | Text, ...]:
    """What the parent supports and the step does not."""
    if not row.shapes_dropped:
        return ()
    return (" It no longer supports ", names(list(row.shapes_dropped)), ".")


def _speed(row: Row) -> Text:
    if not has_figures(row):
        return words(f"no figures, {brief_reason(row)}")
    text = line(f"{took(row)}, {with_cycles(row.over_parent)} over ", code(parent_of(row)))
    if row.over_chosen is None:
        return text
    best = line(f"; it chooses, and is {interval(row.over_chosen)} of ", code(row.chosen))
    return line(text, best, ", the best of those")


def gate_words(row: Row) -> Text:
    """Gates that failed or are open with their reasons; how many passed."""
    if not row.gates:
        return words(f"Gates: {ABSENT}.")
    if all(gate.state == GateState.PASSED for gate in row.gates):
        return words(f"{len(row.gates)} gates passed.")
    parts = []
    for state in (GateState.FAILED, GateState.OPEN):
        by_why: dict[str, list[str]] = {}
        for gate in row.gates:
            if gate.state == state:
                by_why.setdefault(sentence(gate.why), []).append(gate_name(gate))
        if by_why:
            gates = [f"{', '.join(alike)} ({why})" for why, alike in by_why.items()]
            parts.append(f"{state}: {', '.join(gates)}")
    passed = [gate for gate in row.gates if gate.state == GateState.PASSED]
    return words(f"Gates {'; '.join([*parts, f'{len(passed)} passed'])}.")


def _numbers(row: Row, captured: str) -> Paragraph:
    """``captured`` is the shape of the captures where the step is judged at another."""
    pair = row.against_parent
    if pair is None or pair.decomposition is None:
        return paragraph(f"How it multiplies out: {ABSENT}.")
    text = f" {why.brief_equation(pair.decomposition)}, {why.durations(pair.decomposition)}"
    where = line(" at ", code(captured)) if captured else ""
    return paragraph(strong("Why."), text, where, ".")


def details(row: Row, here: Row, shape: str) -> Fold:
    """What most readers skip; ``here`` and ``shape`` as in ``step_section``."""
    assert row.step is not None
    blocks: list[Block] = []
    for title, text in (
        (line("What held ", code(parent_of(row)), " back."), row.step.bottleneck),
        (words("Why this should help."), row.step.rationale),
    ):
        if text.strip():
            first, *rest = paragraphs(text)
            blocks += [paragraph(bold(title), " ", first.text), *rest]
    blocks += _predictions(row)
    blocks.append(gates(row) if row.gates else paragraph(f"Gates: {ABSENT}."))
    blocks += _times(here, shape)
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
    """What is open and not binding leaves the verdict alone."""
    informs = gate.state == GateState.OPEN and not gate.binding
    return f"{gate.state}, does not decide" if informs else gate.state


def _predictions(row: Row) -> list[Block]:
    if not row.predictions:
        made = row.step is not None and row.step.predictions
        return [paragraph(f"Predictions: {ABSENT if made else 'none were made'}.")]
    where = line(", for ", code(row.judged_at)) if row.judged_at else ()
    predictions = table("predictions", PREDICTIONS, row.predictions, key=lambda p: p.figure)
    text = line("Predicted", where, "; an ", code("x"), " is a factor of the ")
    return [paragraph(text, "parent's value:"), predictions]


def _times(row: Row, shape: str) -> list[Block]:
    if not row.regimes:
        return [paragraph(f"Times: {ABSENT}.")]
    text = line("Times by regime", *((" at ", code(shape)) if shape else ()), ":")
    return [paragraph(text), timings.regimes(row)]


def diff(row: Row, changes: SourceDiff | None) -> Block:
    parent = parent_of(row)
    if changes is not None and changes.is_same:
        return paragraph("Only parameters differ from ", code(parent), ".")
    if changes is None or not changes.hunks:
        return paragraph("Diff against ", code(parent), f": {ABSENT}.")
    return Fold(words(f"Diff against {parent}"), (SourceChange(row.variant, parent),))
