"""One variant: time, figures with their metrics, stalls, bottlenecks; and the answer of ``try``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from workbench.derive.figures import ISSUING, MEMORY_LEVELS, Figure, figure_label
from workbench.judge.bottlenecks import Bottleneck
from workbench.judge.findings import sentence
from workbench.judge.ladder import Ablation, Row
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
    authored,
    code,
    field,
    figure_cell,
    line,
    numeric,
    paragraph,
    strong,
    table,
    words,
)
from workbench.render.document.limits import share_of, stall_words
from workbench.render.document.phrases import (
    call_of,
    has_figures,
    kind,
    parent_of,
    verdict_at,
)
from workbench.render.numbers import factor, interval, quantity, ratio, unit_shown
from workbench.words import ABSENT

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
MEMORY = "The memory hierarchy, from the kernel to DRAM"


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


def figure_value(figure: Figure) -> str:
    """A figure without its unit; a share that cannot be has a mark."""
    text = quantity(figure.value, figure.unit)
    return f"{text} *" if impossible(figure) else text


def figure_text(figure: Figure | None) -> str:
    return f"{figure_value(figure)} {unit_shown(figure.unit)}".strip() if figure else ABSENT


def impossible(figure: Figure | None) -> bool:
    return figure is not None and figure.unit == "%" and figure.value >= 100.5


IMPOSSIBLE = "* over 100 %: ncu counted hits and lookups in different passes, which differ"


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
    shown = [(key, figures.get(key)) for key in keys]
    return table(name, FIGURES, shown, key=lambda k: k[0])


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
    blocks += advice.first_look(row.advice, row.hottest, ablation.record_at(row.variant))
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


def _calls(row: Row, ablation: Ablation) -> list[str]:
    """Return what else is in a call, its own or that of a reference that it is compared with."""
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
