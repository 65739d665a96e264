"""One variant: time, figures with their metrics, stalls, bottlenecks; and the answer of ``try``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from workbench.derive.figures import ISSUING, MEMORY_LEVELS, Figure, figure_label
from workbench.judge.bottlenecks import Bottleneck
from workbench.judge.findings import sentence, sentences
from workbench.judge.gates import ACCURATE, CORRECT
from workbench.judge.rows import Ablation, Row
from workbench.problems.problem import Problem
from workbench.render.columns import Where, ladder_table
from workbench.render.document import advice, step, timings, why
from workbench.render.document import limits as bottlenecks
from workbench.render.document.blocks import (
    Block,
    Bullets,
    Content,
    Field,
    Fold,
    Paragraph,
    Section,
    Table,
    Text,
    authored,
    code,
    field,
    figure_cell,
    line,
    numeric,
    paragraph,
    strong,
    table,
    warned,
    words,
)
from workbench.render.document.limits import bullets, share_of, stall_words
from workbench.render.document.phrases import (
    call_of,
    has_figures,
    kind,
    parent_of,
    took,
    verdict_at,
    with_cycles,
)
from workbench.render.numbers import factor, interval, number, quantity, ratio, unit_shown
from workbench.study.config import Gates
from workbench.words import ABSENT, CheckResult, Status, TryVerdict

if TYPE_CHECKING:
    from workbench.ncu.capture import MetricValue
    from workbench.run.protocol import Learned


SHOWN = (
    "duration",
    "sm_clock",
    "warp_instructions",
    "issue_active",
    "sm_active",
    "warps_per_scheduler",
    "achieved_occupancy",
    "theoretical_occupancy",
    "registers",
    "shared_memory",
    "grid",
    "block",
    "memory_pct",
    "compute_pct",
    "dram_read",
    "dram_write",
    "dram_bandwidth",
    "dram_pct",
    "l2_hit",
    "l1_hit",
    "sectors_per_request",
    "shared_conflicts",
    "tensor_pipe",
    "fma_pipe",
    "local_loads",
)
STALLS_SHOWN = 5
MEMORY = "The memory hierarchy, from the kernel to DRAM"


def origin(ablation: Ablation) -> Paragraph:
    """Where the figures come from: the first thing a reader must know."""
    ncu = ablation.environment.ncu
    shape = " ".join(f"{k}={v}" for k, v in ablation.parameters.items())
    return paragraph(
        f"{ablation.source} evidence: {ablation.gpu}, {ablation.date or 'no date'}, ncu {ncu}; "
        f"{ablation.study} at {ablation.shape}{f' ({shape})' if shape else ''}"
    )


Known = tuple[str, Figure | None]  # a figure by its id, None where it was not collected


def _value(known: Known) -> Content:
    figure = known[1]
    if figure is None:
        return ABSENT
    return figure_cell(figure.value, quantity(figure.value, figure.unit))


FIGURES: list[Field[Known]] = [
    field("figure", "figure", lambda k: figure_label(k[0])[0]),
    numeric("value", "value", _value, json="value"),
    field("unit", "unit", lambda k: unit_shown(k[1].unit) if k[1] else ""),
    field("metric", "ncu metric", lambda k: k[1].metric if k[1] else "", rank=1),
]
STALLS: list[Field[tuple[str, str]]] = [
    field("reason", "stall reason", lambda stall: stall_words(stall[0])),
    numeric("share", "share of samples", lambda stall: stall[1]),
]


def figure_table(
    figures: Mapping[str, Figure], keys: Sequence[str] = SHOWN, name: str = "figures"
) -> Table:
    known = [(key, figures.get(key)) for key in keys]
    return table(name, FIGURES, known, key=lambda k: k[0])


def profile(
    figures: Mapping[str, Figure],
    stalls: Mapping[str, float],
    limiters: Sequence[str],
    limits: Sequence[Bottleneck],
) -> list[Block]:
    """The figures of one capture."""
    blocks: list[Block] = [
        figure_table(figures),
        paragraph(limited(limiters)),
        Fold(words(MEMORY), (figure_table(figures, MEMORY_LEVELS, "memory"),)),
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
            shown = f"verdict: {verdict_at(row)}; --shape {row.judged_at} shows it"
            blocks.append(Paragraph(words(shown)))
        return blocks
    blocks += advice.first_look(row.advice, row.hottest, ablation.record)
    blocks.append(timings.regimes(row, ablation.reference))
    if ratios := _ratios(row, ablation):
        blocks.append(Bullets(tuple(map(words, ratios))))
    if row.figures:
        blocks += profile(row.figures, row.stalls, row.occupancy_limiters, row.bottlenecks)
        if row.no_source_lines:
            blocks.append(paragraph(sentence(row.no_source_lines)))
    else:
        blocks.append(paragraph(f"profile: {ABSENT}"))
    if row.against_parent:
        blocks += why.account(row.against_parent)
    if row.gates:
        blocks.append(step.gates(row))
    if row.verdict and parent_of(row):
        blocks.append(paragraph("verdict: ", strong(verdict_at(row))))
    return blocks


def _ratios(row: Row, ablation: Ablation) -> list[str]:
    parts = _calls(row, ablation)
    parts += [
        f"vs its A/A control, {control.regime}: {interval(control.ratio)}"
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


def _calls(row: Row, ablation: Ablation) -> list[str]:
    """What else is in a call, its own or that of a reference that it is compared with."""
    if call := call_of(row):
        return [f"one call is {call}"]
    against = [
        r for r in ablation.references if r.variant in (ablation.reference, row.chained.fastest)
    ]
    return [
        f"one call of {other.variant} is {call}"
        for other in against
        if (call := call_of(other)) and other is not row
    ]


def evidence_states(row: Row) -> Paragraph:
    text = ", ".join(f"{k} {v}" for k, v in row.evidence_state.items())
    alone = " (tables without their report)" if row.tables_only else ""
    return paragraph(f"evidence: {text}{alone}")


METRICS: list[Field[MetricValue]] = [
    numeric("launch", "launch", lambda m: str(m.launch)),
    field("kernel", "kernel", lambda m: m.kernel),
    numeric("value", "value", lambda m: ABSENT if m.value is None else str(m.value)),
    field("unit", "unit", lambda m: m.unit),
]


def metric_table(rows: Sequence[MetricValue]) -> Table:
    """One ncu metric of every launch."""
    return table("metric", METRICS, rows)


def introduction(problem: Problem, trial: Learned) -> list[Block]:
    """What it is, what goes in and out, and what it is checked against."""
    given = ", ".join(f"{name} {text}" for name, text in trial.inputs.items())
    lines = [words(f"takes {given}; gives {', '.join(trial.outputs)}")]
    lines.append(words(checked_by(problem, trial)))
    if trial.larger is not None:
        lines.append(words("checked for larger inputs too: 4 times each, the first row 32 times"))
    if trial.in_place:
        lines.append(words(f"changes its inputs in place: {', '.join(trial.in_place)}"))
    if trial.constant:
        lines.append(words("warning: other random inputs give the same result, so that a constant "
                           "would pass the check"))  # fmt: skip
    return [paragraph(strong(problem.what)), Bullets(tuple(lines))]


def answer(verdict: TryVerdict, times: float | None, against: str, alone: bool) -> Text:
    """The verdict in a few words."""
    if verdict == TryVerdict.INACCURATE and times is not None:
        why = f": {factor(times)} the error of {against}, where {Gates().max_error:g}x is allowed"
        return line(strong(verdict), why)
    if verdict == TryVerdict.UNCHECKED:
        return line(strong(verdict), ": it could not be called here")
    if alone and verdict == TryVerdict.CORRECT:
        return line(strong(verdict), " against itself in float64: only rounding errors are checked")
    return line(strong(verdict))


def checked_by(problem: Problem, trial: Learned) -> str:
    against = "itself" if problem.itself else problem.against
    if trial.exact:
        text = f"checked against {against} in float64"
    else:
        text = f"checked against {against} in its own precision: {trial.refusal}"
    if problem.itself:
        text += ": --vs names another"
    return text


def result(row: Row, judged: Ablation, *, profiled: bool) -> list[Block]:
    """Time against the reference, then the three largest bottlenecks."""
    blocks: list[Block] = [origin(judged), *warned(sentences(judged.warnings))]
    if row.status == Status.FAILED:
        return [*blocks, paragraph(strong("failed"), f": {sentence(row.problem)}")]
    blocks.append(paragraph(headline(row, judged)))
    blocks.append(ladder_table(judged, Where.TRY, [row, *judged.references], "times"))
    if call := call_of(row):
        blocks.append(paragraph(f"one call is {call}"))
    correct = [name for name, check in row.checks.items() if check.status == CheckResult.CORRECT]
    if correct:
        blocks.append(paragraph(f"correct at {', '.join(correct)}"))
    shown = [g for g in row.gates if g.passed is False and g.name not in (ACCURATE, CORRECT)]
    shown += [g for g in row.gates if g.why.code == "kernels.unchecked"]
    blocks += [paragraph(f"{gate.name}: {sentence(gate.why)}") for gate in shown]
    if row.bottlenecks:
        blocks += [paragraph("What limits it:"), bullets(row.bottlenecks)]
        blocks.append(paragraph(limited(row.occupancy_limiters)))
    else:
        blocks.append(paragraph(f"profile: {ABSENT if profiled else 'not asked for'}"))
    return [*blocks, *advice.to_try(row.advice)]


def headline(row: Row, judged: Ablation) -> Text:
    """``1.06x [1.05, 1.07] of torch.softmax: 88.1 µs, and it 93.4 µs``."""
    if not judged.reference:
        return line(strong(took(row)), ", and nothing to compare it with: --vs names something")
    against = judged.row(judged.reference)
    ratio = with_cycles(row.over_reference)
    speed = line(strong(ratio), " the speed of ", code(against.title or against.variant))
    return line(speed, f": {took(row)} against {took(against)}")


def next_steps(steps: Sequence[Text]) -> list[Block]:
    return [paragraph("Next:"), Bullets(tuple(steps))] if steps else []


def agreement(
    errors: Mapping[str, tuple[float, float]], why_not: Mapping[str, str], compiled: str = ""
) -> list[Block]:
    """What a call on the CPU did: errors absolute and relative by name, or why there is none; and
    what the compiler made of a CUDA source.
    """
    items = [
        words(f"{name}: on the CPU its largest error is {number(a)}, relative {number(r)}")
        for name, (a, r) in errors.items()
    ]
    items += [words(compiled)] if compiled else []
    items += [words(f"{name}: not called on the CPU: {why}") for name, why in why_not.items()]
    return [Bullets(tuple(items))] if items else []
