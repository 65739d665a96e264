"""One variant: time, figures with their metrics, stalls, what limits it and when its warps ran; and
why it is faster or slower than another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workbench.derive.figures import (
    ISSUING,
    UNSAMPLED,
    Figure,
    StallTime,
    added,
    stall_label,
    standard_error,
)
from workbench.derive.speedup import Time
from workbench.derive.timeline import CallTimeline, LaunchTimeline
from workbench.judge.advice_rules import faults
from workbench.judge.bottlenecks import ROOF, Bottleneck
from workbench.judge.comparison import Comparison
from workbench.judge.findings import Finding, Gate, sentence, sentences
from workbench.judge.ladder import Ablation
from workbench.judge.rows import InRegime, Row
from workbench.ncu.catalog import figure_label
from workbench.render import doc
from workbench.render.doc import (
    factor,
    figure_value,
    interval,
    is_impossible,
    microseconds,
    number,
    percent,
    quantity,
    ratio,
    share,
    spread,
    time_words,
    times,
    unit_shown,
    with_cycles,
    with_unit,
    within,
)
from workbench.render.document import advice
from workbench.render.document.printed_ladder import (
    call_of,
    durations,
    equation,
    gate_name,
    has_figures,
    key_change,
    parent_of,
    samples,
    verdict_words,
)
from workbench.words import ABSENT, GateState, Regime, shown

if TYPE_CHECKING:
    from workbench.ncu.capture import MetricValue


def variant(row: Row, ablation: Ablation) -> doc.Section:
    title = doc.line(doc.code(row.variant), ": ", doc.authored(key_change(row)))
    return doc.section(row.variant, title, *_blocks(row, ablation))


def _blocks(row: Row, ablation: Ablation) -> Iterator[doc.Block]:
    if row.problem:
        yield doc.paragraph(f"{row.status}: {sentence(row.problem)}")
        if not has_figures(row):
            if row.verdict and row.judged_at:
                elsewhere = f"; --shape {row.judged_at} shows it"
                yield doc.paragraph(f"verdict: {verdict_words(row, ablation)}{elsewhere}")
            return
    yield from advice.first_look(row.advice, row.hottest)
    yield regimes(row, ablation.reference)
    if ratios := [*_ratios(row, ablation)]:
        yield doc.bullets(ratios)
    if row.figures:
        yield from profile(row.figures, row.stalls, row.occupancy_limiters)
        if row.bottlenecks:
            yield doc.paragraph("Top bottlenecks:")
            yield bottlenecks(row.bottlenecks)
        yield from no_lines(row.no_source_lines)
    else:
        yield doc.paragraph(f"profile: {ABSENT}")
    if row.timeline:
        yield from timeline(row.timeline, row.time)
    if row.against_parent:
        yield from account(row.against_parent)
    if row.gates:
        yield doc.table("gates", GATES, row.gates)
    if row.verdict and parent_of(row):
        yield doc.paragraph("verdict: ", doc.strong(verdict_words(row, ablation)))


def _ratios(row: Row, ablation: Ablation) -> Iterator[str]:
    """What one call is, and what it is held against beside the table of its times."""
    if call := call_of(row):
        yield f"one call is {call}"
    for control in ablation.timing.controls if ablation.timing else ():
        if control.variant == row.variant:
            yield f"vs its A/A control, {control.regime.label}: {interval(control.ratio)}"
    if error := row.accuracy:
        of = f"that of {ablation.reference}, at {error.where}"
        yield f"error: {factor(error.times_reference)} {of}"
    if row.shapes_dropped:
        yield f"no longer supports {', '.join(row.shapes_dropped)}"
    parent, first = parent_of(row), ablation.rows[0].variant
    if parent and parent != first:
        yield f"vs {first}: {ratio(row.over_baseline)}"
    if row.chosen:
        yield f"vs {row.chosen} (the fastest that it calls): {interval(row.over_chosen)}"


def regimes(row: Row, reference: str = "") -> doc.Table:
    """One variant: a row a regime, with the ratios there; a column of ratios only where it has a
    parent, or a reference.
    """
    parent = parent_of(row)
    timed = {regime: row.regimes.get(regime) or InRegime() for regime in regimes_of(row)}

    def over_fastest(regime: Regime) -> doc.Content:
        over, fastest = timed[regime].speedup_over_fastest, timed[regime].fastest
        if over is None:
            return ABSENT
        return doc.cell(f"{with_cycles(over)} of {fastest}", short=f"{interval(over)} {fastest}")

    fields: list[doc.Field[Regime]] = [
        doc.Field("regime", "regime", lambda r: doc.cell(r.label, short=r.label.split()[0])),
        doc.numeric("time", "time", lambda r: time_words(timed[r].microseconds), unit="µs"),
        doc.numeric("range", "95 % interval", lambda r: spread(timed[r].microseconds), rank=3),
        doc.numeric(
            "parent", f"vs {parent}", lambda r: with_cycles(timed[r].speedup_over_parent), rank=1
        ),
        doc.numeric(
            "reference",
            f"vs {reference}",
            lambda r: with_cycles(timed[r].speedup_over_reference),
            rank=2,
        ),
        doc.Field("fastest", "vs the fastest reference", over_fastest, rank=1),
    ]
    absent = {
        "parent": not (parent and row.verdict),
        "reference": reference in ("", row.variant),
        "fastest": row.is_reference or not reference,
    }
    shown = [f for f in fields if not absent.get(f.key)]
    return doc.table("timings", shown, timed, key=lambda regime: regime)


def regimes_of(*rows: Row) -> list[Regime]:
    """Chained and cold, and alone where any was timed so: only at the power limit."""
    alone = any(Regime.ALONE in row.regimes for row in rows)
    return [Regime.CHAINED, Regime.COLD, *([Regime.ALONE] if alone else [])]


def time_in(row: Row, regime: Regime) -> str:
    return time_words(at.microseconds if (at := row.regimes.get(regime)) else None)


FIGURE_IDS = (
    "duration sm_clock warp_instructions issue_active sm_active warps_per_scheduler "
    "achieved_occupancy theoretical_occupancy registers shared_memory grid block memory_pct "
    "compute_pct dram_read dram_write dram_bandwidth dram_pct l2_hit l1_hit sectors_per_request "
    "shared_conflicts tensor_pipe fma_pipe local_loads"
)
SHOWN = tuple(FIGURE_IDS.split())
STALLS_SHOWN = 5
Known = tuple[str, Figure | None]  # a figure by its id, None where it was not collected


FIGURES: list[doc.Field[Known]] = [
    doc.Field("figure", "figure", lambda k: figure_label(k[0])[0]),
    doc.numeric("value", "value", lambda k: figure_value(k[1])),
    doc.Field("unit", "unit", lambda k: unit_shown(k[1].unit) if k[1] else ""),
    doc.Field("metric", "ncu metric", lambda k: k[1].metric if k[1] else "", rank=1),
]
STALLS: list[doc.Field[tuple[str, str]]] = [
    doc.Field("reason", "stall reason", lambda stall: stall_words(stall[0])),
    doc.numeric("share", "share of samples", lambda stall: stall[1]),
]


def profile(
    figures: Mapping[str, Figure], stalls: Mapping[str, float], limiters: Sequence[str]
) -> list[doc.Block]:
    """The figures of one capture."""
    waited = [item for item in stalls.items() if item[0] != ISSUING][:STALLS_SHOWN]
    taken = samples(figures)
    shown = [(name, share(part, standard_error(part, taken))) for name, part in waited]
    return [
        doc.table("figures", FIGURES, [(key, figures.get(key)) for key in SHOWN]),
        *marked(figures),
        doc.paragraph(limited(limiters)),
        doc.table("stalls", STALLS, shown) if shown else doc.paragraph(f"stall samples: {ABSENT}"),
    ]


def marked(*sides: Mapping[str, Figure]) -> list[doc.Block]:
    """Return what the mark behind a figure means, where one has it."""
    every = [figure for side in sides for figure in side.values()]
    shown = any(is_impossible(figure.value, figure.unit) for figure in every)
    return [doc.paragraph(IMPOSSIBLE)] if shown else []


IMPOSSIBLE = "* over 100 %: ncu counted hits and lookups in different passes, which differ"


def limited(limiters: Sequence[str]) -> str:
    return f"occupancy limited by: {', '.join(limiters) or ABSENT}"


def stall_words(name: str) -> str:
    """A stall reason in words; empty for none."""
    if name == UNSAMPLED:
        return "not sampled"
    return "issuing, not stalled" if name == ISSUING else stall_label(name)


SCOPES = {"global": "of the runtime", "local": "of the part that the rule covers"}


def bottlenecks(limits: Sequence[Bottleneck]) -> doc.Bullets:
    return doc.bullets(map(bottleneck, limits), ordered=True)


def bottleneck(limit: Bottleneck) -> doc.Text:
    """One line: the rule, its metric, NVIDIA's estimate and of what, and the hottest line."""
    if limit.scope == ROOF:
        text = f"at {percent(limit.value / 100)} of its peak ({limit.metric})"
        return doc.line(doc.strong(limit.title), f" {text}")
    part = f", {percent(limit.part)} of the durations"
    kernel = (" in ", doc.code(limit.kernel), part) if limit.part < 1 else ()  # one of several
    text = "no estimate"
    if math.isfinite(limit.estimated_speedup_pct):
        scope = SCOPES.get(limit.scope, "")
        text = f"NVIDIA estimates {limit.estimated_speedup_pct:.0f} % {scope}"
    value = f" = {number(limit.value)}" if math.isfinite(limit.value) else ""
    line: doc.Text = ()
    if hot := limit.hot_line:
        counter = "stall" if hot.counter == "stalls" else hot.counter.replace("_", " ")
        counted = counter if counter.startswith("excess") else f"{counter} samples"
        share = f", {percent(hot.share)} of its {counted}"
        line = doc.line("; hottest line ", doc.place(hot.file, hot.line), share)
    return doc.line(
        doc.strong(limit.title),
        *kernel,
        f": {limit.metric}{value}; {text}",
        line,
    )


def no_lines(why_none: Finding | None) -> list[doc.Block]:
    """Why no line is named, where a capture has none."""
    why = sentence(why_none)
    return [doc.paragraph(f"{why[0].upper()}{why[1:]}.")] if why else []


def account(pair: Comparison) -> list[doc.Block]:
    """All of a comparison, for a terminal."""
    blocks: list[doc.Block] = []
    if pair.decomposition:
        factors = f"{equation(pair.decomposition)}, {durations(pair.decomposition)}"
        blocks.append(doc.paragraph(f"Against {pair.before}: {factors}"))
    if times := stall_table(pair):
        blocks.append(times)
    return [*blocks, *counter_evidence(pair, (pair.before, pair.after))]


STALLS_COMPARED = 6


def stall_table(pair: Comparison) -> doc.Table | None:
    """Return what the warps did: the reasons that changed most, the rest as one, and the duration,
    so that the columns add up; None without samples on both sides.
    """
    times = pair.stall_microseconds
    if not times:
        return None
    top, rest = times[:STALLS_COMPARED], times[STALLS_COMPARED:]
    rows = [*top, *[_sum("other", rest)] * bool(rest), _sum("", times)]
    fields: list[doc.Field[StallTime]] = [
        doc.Field("reason", "warp state", lambda t: stall_words(t.reason) or "all (the duration)"),
        doc.numeric("before", pair.before, lambda t: number(t.before), unit="µs"),
        doc.numeric("after", pair.after, lambda t: number(t.after), unit="µs"),
        doc.numeric("change", "change", lambda t: signed(t.change), unit="µs"),
    ]
    return doc.table("stall-times", fields, rows, key=lambda t: t.reason)


def signed(change: float) -> str:
    if not change:
        return "0"
    return f"{'+' if change > 0 else '−'}{number(abs(change))}"


def _sum(name: str, times: Sequence[StallTime]) -> StallTime:
    return StallTime(name, added(t.before for t in times), added(t.after for t in times))


MOST_COUNTERS, LEAST_COUNTERS, MOST_STALLS = 5, 3, 3
LARGE = 0.1  # of the logarithm of a factor that has a counter of its own
PCSAMP = "smsp__pcsamp_warps_issue_stalled_"
UNITS_TOLD = ("%", "kB")  # others are in the label: "blocks 64 to 256 block" helps nobody


def counter_evidence(
    pair: Comparison, names: tuple[str, str], *, with_stalls: bool = False
) -> list[doc.Block]:
    """The counters that explain a change, ``with_stalls`` also the stall reasons whose time changed
    most, and the launch parameters that changed.
    """
    waits = [t for t in pair.stall_microseconds if t.reason not in (ISSUING, UNSAMPLED)]
    stalls = [
        FigurePair(f"stall: {stall_words(t.reason)}", t.before, t.after, "µs", PCSAMP + t.reason)
        for t in waits[: MOST_STALLS * with_stalls]
    ]
    blocks: list[doc.Block] = [counter_table([*counters(pair), *stalls], names)]
    parameters = [
        f"{within(m.label)} {_exact(m.before)} to {_exact(m.after)}"
        f"{f' {m.unit}' if m.unit in UNITS_TOLD else ''}"
        for m in pair.largest_changes.launch
    ]
    if parameters:
        blocks.append(doc.paragraph(f"Launch: {', '.join(parameters)}."))
    return blocks


def counters(pair: Comparison) -> list[FigurePair]:
    """Return those that explain the largest factors: figures by their part in the change, then
    factors that none of them speaks of. Where little moved, what stayed as it was says so.
    """
    top = pair.largest_changes.figures[:MOST_COUNTERS]
    shown = [FigurePair(f.label, f.before, f.after, f.unit, f.metric) for f in top]
    factors = pair.decomposition.factors if pair.decomposition else ()
    for moved in sorted(factors, key=lambda moved: -abs(math.log(moved.gain))):
        metric = moved.metric.partition(" / (")[0]  # of an average scheduler
        new = all(counter.metric != metric for counter in shown)
        large = abs(math.log(moved.gain)) >= LARGE
        if new and (large or len(shown) < LEAST_COUNTERS):
            shown.append(FigurePair(moved.label, moved.before, moved.after, moved.unit, metric))
    return shown


@dataclass(frozen=True)
class FigurePair:
    """None on a side that has not collected it."""

    label: str = field(repr=False)
    before: float | None
    after: float | None
    unit: str
    metric: str

    @property
    @shown
    def factor(self) -> float | None:
        """After over before; None from zero."""
        return self.after / self.before if self.before and self.after is not None else None


def figure_pairs(
    before: Mapping[str, Figure], after: Mapping[str, Figure]
) -> dict[str, FigurePair]:
    """Return pairs by the id of the figure."""
    pairs = {}
    for key, figure in {**after, **before}.items():
        old, new = (side[key].value if key in side else None for side in (before, after))
        pairs[key] = FigurePair(figure.label, old, new, figure.unit, figure.metric)
    return pairs


def counter_table(
    shown: Sequence[FigurePair],
    names: tuple[str, str],
    name: str = "counters",
    text: Callable[[float | None, str], str] = quantity,
) -> doc.Table:
    """Figures before and after, with ncu's names; ``text`` makes one of a value and its unit."""
    fields: list[doc.Field[FigurePair]] = [
        doc.Field("figure", "under ncu", lambda c: with_unit(c.label, c.unit)),
        doc.numeric("before", names[0], lambda c: text(c.before, c.unit)),
        doc.numeric("after", names[1], lambda c: text(c.after, c.unit)),
        doc.numeric("factor", "factor", lambda c: times(c.before, c.after, c.unit)),
        doc.Field("metric", "metric", lambda c: doc.code(c.metric), rank=6),
    ]
    return doc.table(name, fields, shown)


def _exact(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else number(value)


NAME = 40  # characters of a kernel's name
TIMELINE: list[doc.Field[LaunchTimeline]] = [
    doc.Field("kernel", "kernel", lambda one: doc.code(one.kernel[:NAME])),
    doc.numeric("span", "µs", lambda one: number(one.span_us)),
    doc.numeric("blocks", "blocks", lambda one: f"{one.blocks:,}"),
    doc.numeric("resident", "on an SM", lambda one: str(one.resident)),
    doc.numeric("median", "median block", lambda one: microseconds(one.median_us)),
    doc.numeric("longest", "longest", lambda one: microseconds(one.longest_us)),
    doc.numeric("ramp", "ramp", lambda one: microseconds(one.ramp_us)),
    doc.numeric("tail", "tail", lambda one: microseconds(one.tail_us)),
    doc.numeric("idle", "idle in tail", lambda one: percent(one.tail_idle)),
    doc.numeric("gaps", "between blocks", lambda one: percent(one.gaps_idle)),
    doc.numeric("imbalance", "busiest SM", lambda one: factor(one.imbalance)),
]
SLOWED = 1.1  # times the time without tracing
NO_FAULT = "No tail, slow block, early producer or gap is worth a step."


def timeline(call: CallTimeline, time: Time | None = None) -> list[doc.Block]:
    """The figures of a call. ``time`` is that of one where nothing traced it."""
    beside = ""
    if time and time.value:
        slowed = call.span_us / time.value
        beside = f", {factor(slowed)} its time between kernels, {microseconds(time.value)}"
        beside += ": tracing slows it, so distrust gaps and tails" if slowed > SLOWED else ""
    first = doc.paragraph(f"Timeline: {microseconds(call.span_us)} while traced{beside}.")
    return [first, *traced(call.launches, [fault.why for fault in faults(call)])]


def traced(every: Sequence[LaunchTimeline], wrong: Sequence[Finding]) -> list[doc.Block]:
    """The figures of launches, the roles of their warps, and what is ``wrong``."""
    blocks: list[doc.Block] = [doc.table("timeline", TIMELINE, every)]
    for one in every:
        if len(one.roles) > 1:
            ends = ", ".join(f"{role.words} {percent(role.end)}" for role in one.roles)
            blocks.append(doc.paragraph(f"Of a block's life in {one.kernel[:NAME]}: {ends}."))
    lines = [f"{text}." for text in sentences(wrong)]
    return [*blocks, doc.bullets(lines) if lines else doc.paragraph(NO_FAULT)]


GATES: list[doc.Field[Gate]] = [
    doc.Field("gate", "gate", gate_name),
    doc.Field("result", "result", lambda gate: _result(gate)),
    doc.Field("why", "why", lambda gate: sentence(gate.why)),
]


def _result(gate: Gate) -> str:
    """Return the state of a gate; one that is open and not binding leaves the verdict alone."""
    informs = gate.state == GateState.OPEN and not gate.binding
    return f"{gate.state}, does not decide" if informs else gate.state


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
