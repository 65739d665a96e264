"""The report of a ladder: ``summary`` for ``OPTIMIZATION_REPORT.md``, ``report`` for the page; and
how the figures were measured, their limits, the environment, and how to reproduce them.

Keys of the sections, in order: result, possible, ladder, changes (``steps`` on the page, with one
section ``step-<variant>`` each), failures, fastest, roofline, next, method.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from workbench.derive.figures import stall_label
from workbench.derive.source_diff import SourceDiff
from workbench.judge.findings import sentence
from workbench.judge.gates import FASTER, shows_bug
from workbench.judge.ladder import Ablation
from workbench.judge.predictions import PredictionOutcome
from workbench.judge.rows import Row
from workbench.ncu.catalog import DRAM, L2
from workbench.render import doc
from workbench.render.chart.charts import SIZES, chart, memory_chart, stall_pair, timeline
from workbench.render.doc import (
    factor,
    fine,
    interval,
    microseconds,
    number,
    percent,
    quantity,
    took,
    unit_shown,
    with_unit,
    within,
)
from workbench.render.document import advice, hunks, variant
from workbench.render.document.printed_ladder import (
    Where,
    anchor,
    answer,
    at_shape,
    brief_shape,
    by_time,
    calls,
    compared,
    controls,
    durations,
    equation,
    has_same_speed,
    key_change,
    kind,
    ladder_table,
    parent_of,
    results,
    shape_name,
    shape_words,
    short_change,
    sizes_table,
    stale,
    table_size,
    verdict,
    verdict_words,
)
from workbench.words import ABSENT, GateState, Regime, Role, Status, Verdict, grouped

NO_DIFFS: Mapping[str, SourceDiff] = MappingProxyType({})


def report(ablation: Ablation, diffs: Mapping[str, SourceDiff]) -> doc.Section:
    """``diffs`` has a step's diff against its parent."""
    more_rows = doc.fold(
        f"All variants and columns at {table_size(ablation)}", ladder_table(ablation)
    )
    blocks: list[doc.Block] = [*doc.paragraphs(ablation.summary)]
    blocks += map(_baseline, ablation.rows[:1])
    blocks += (change(row, ablation, diffs.get(row.variant), page=True) for row in steps(ablation))
    title = "Steps, with diffs and stall time by line"
    return _document(ablation, [more_rows], doc.section("steps", title, *blocks))


def summary(ablation: Ablation, diffs: Mapping[str, SourceDiff] = NO_DIFFS) -> doc.Section:
    """Return the report with the changes on the path to the best variant in place of all steps."""
    shown = [row for row in ablation.path if row.verdict != Verdict.BASELINE]
    parts: list[doc.Block] = [change(row, ablation, diffs.get(row.variant)) for row in shown]
    blocks = parts or [doc.paragraph("No variant was kept yet.")]
    return _document(ablation, [], doc.section("changes", "The changes", *blocks))


def _document(
    ablation: Ablation, more_rows: Sequence[doc.Block], steps: doc.Section
) -> doc.Section:
    result = doc.paragraph(answer(ablation))
    lost = failures(ablation)
    failed = doc.bullets(lost) if lost else doc.paragraph("No variant was rejected.")
    over_sizes = doc.section(SIZES, "Time over size", _chart(SIZES, ablation))
    sections = (
        doc.section("result", "", result, *sizes_table(ablation)),
        doc.section("possible", "What is possible", *possible(ablation)),
        *[over_sizes] * ablation.has_sizes,
        doc.section("ladder", "Time by variant", *_ladder(ablation), *more_rows),
        steps,
        doc.section("failures", "What did not work", failed),
        doc.section("fastest", "Limits of the fastest reference", *_fastest(ablation)),
        doc.section("roofline", "Roofline and stall time", *_limits(ablation)),
        doc.section("next", advice.TITLE, *advice.next_steps(ablation)),
        doc.section("method", "Method and limits", *method(ablation)),
    )
    return doc.section("report", ablation.title or ablation.study, *sections)


# The peak that a type's arithmetic is held against.
ARITHMETIC = {"float16": "tensor fp16", "bfloat16": "tensor bf16", "float32": "fp32",
              "float64": "fp64"}  # fmt: skip


def possible(ablation: Ablation) -> Iterator[doc.Block]:
    """Yield what one call must compute and move, the time that this takes at the peaks of the GPU,
    and the share of that which the best variant and each reference reach.
    """
    work, peaks, best = ablation.work, ablation.ceilings, ablation.best
    mhz = best.time.sm_clock_mhz if best and best.time else None
    if work is None or peaks is None or best is None:
        yield doc.paragraph(f"The work of a call, or the peaks of the GPU, are {ABSENT}.")
        return
    speed = mhz * 1e6 / peaks.sm_clock if mhz else 1.0
    fits = work.bytes <= (ablation.environment.l2_bytes or 0)
    roof, level = ARITHMETIC.get(work.dtype, ""), L2 if fits else DRAM
    moves = 1e6 * work.bytes / peaks.rates[level]
    bounds = [(moves, f"{number(moves)} µs at the {level.upper()} peak "
               f"({number(peaks.rates[level] / 1e12)} TB/s)")]  # fmt: skip
    amount = f"moves at least {number(work.bytes / 1e6)} MB"
    if work.flops and roof in peaks.rates:
        rate = peaks.rates[roof] * speed
        computes = 1e6 * work.flops / rate
        text = f"{number(computes)} µs at the {roof} peak ({number(rate / 1e12)} TFLOP/s)"
        bounds.insert(0, (computes, text))
        amount = f"computes {number(work.flops / 1e9)} GFLOP and {amount}"
    clock = f"{number((mhz or peaks.sm_clock / 1e6) / 1e3)} GHz"
    bound = max(time for time, _ in bounds)
    yield doc.paragraph(
        f"One call {amount}. At {clock}, the SM clock while it was timed, that takes ",
        " and ".join(text for _, text in bounds),
        f". So {number(bound)} µs is the least",
        ", with the inputs in L2, where the kernel before leaves them." if fits else ".",
    )
    timed = by_time([best, *ablation.references])
    fields: list[doc.Field[tuple[float, str]]] = [
        doc.Field("variant", "variant", lambda pair: doc.code(pair[1])),
        doc.numeric("time", "time", lambda pair: number(pair[0]), unit="µs"),
        doc.numeric("share", "share of what is possible", lambda pair: percent(bound / pair[0])),
    ]
    yield doc.table("possible", fields, timed, key=lambda pair: pair[1])


def _ladder(ablation: Ablation) -> list[doc.Block]:
    """The rows of a screen, and the references."""
    rows = ablation.table_rows
    table = ladder_table(ablation, Where.REPORT, rows)
    first, *others, changed = (column.key for column in table.columns)
    shown: list[doc.Block] = [_chart("times", ablation), doc.only(table, [first, changed, *others])]
    if ablation.references:
        references = sorted(ablation.references, key=lambda r: r.time.value if r.time else math.inf)
        named = [doc.line(doc.code(row.variant), f" {took(row.time)}") for row in references]
        parts = [doc.line("References: ", doc.joined(named), "."), *calls(ablation)]
        shown.append(doc.paragraph(doc.joined(parts, " ")))
    if more := len(ablation.rows) - len(rows):
        command = doc.code(f"workbench ablate --all --study {ablation.study}")
        shown.append(doc.paragraph(f"{more} more step{'s' * (more != 1)}: ", command))
    return shown


def _baseline(row: Row) -> doc.Section:
    """Return where the baseline loses its time."""
    title = doc.line(doc.code(row.variant), ": where it loses its time")
    blocks: list[doc.Block] = [doc.paragraph(f"Bottlenecks of the baseline: {ABSENT}.")]
    if row.bottlenecks:
        note = doc.paragraph("Estimates are upper bounds by ncu's rules. They overlap.")
        limits = variant.bottlenecks(row.bottlenecks)
        blocks = [limits, *variant.no_lines(row.no_source_lines), note]
    return _of_step(row, title, blocks, doc.Marking.BASELINE)


def change(
    row: Row, ablation: Ablation, changes: SourceDiff | None, *, page: bool = False
) -> doc.Section:
    """One step: what was changed, why it is faster, the evidence by counter and by line. A ``page``
    has the whole diff, the chart of its stalls, and all details.
    """
    assert row.step is not None
    judged = (
        (ladder, step)
        for ladder in ablation.ladders
        for step in ladder.rows
        if step.variant == row.variant and step.role != Role.START
    )
    ladder, here = next(judged, (ablation, row))
    parent, where = parent_of(row), at_shape(row.judged_at, ablation)
    label, times = short_change(row), ABSENT
    before = next((r.time for r in ladder.rows if r.variant == parent and r.time), None)
    if before and here.time:
        times = f"{number(before.value)} → {microseconds(here.time.value)}"
    over = interval(row.deciding_speedup or row.over_parent)
    head = f"{row.variant}: {label}, {times} ({over}){where}"
    changed = doc.line(doc.strong("Changed."), " ", doc.authored(row.step.key_change), ".")
    blocks: list[doc.Block] = [doc.paragraph(changed, *_ruling(row, ablation))]
    blocks += [*_why(row, ablation), *_sizes(row, ablation)]
    if row.timeline:
        blocks += [timeline(row, ablation), *variant.timeline(row.timeline, row.time)]
    lesson = doc.first_sentence(row.step.lesson)
    lessons = [doc.paragraph(doc.strong("Lesson."), " ", lesson)] if lesson else []
    if page:
        blocks += lessons
        if stalled := stall_pair(row, ablation):
            blocks.append(stalled)
        if row.figures:
            blocks.append(doc.fold("Memory chart", memory_chart(row, ablation)))
        blocks += [diff(row, changes), details(row, here, where)]
    else:
        blocks += hunks.excerpt(changes, (parent, row.variant)) if changes is not None else ()
        if predicted := "; ".join(map(_prediction, row.predictions)):
            blocks.append(doc.paragraph(doc.strong("Predicted."), f" {predicted}."))
        blocks += lessons
    return _of_step(row, head, blocks, kind(row))


def _of_step(
    row: Row, title: str | doc.Text, blocks: Iterable[doc.Block], kind: doc.Marking
) -> doc.Section:
    key, name = anchor(row.variant), row.variant
    return doc.section(key, title, *blocks, kind=kind, variant=name, badge=verdict(row))


def _ruling(row: Row, ablation: Ablation) -> Iterator[str | doc.Text]:
    """The verdict where it is more than that the step was kept here, the bug that it fixes, and
    what it supports no longer.
    """
    said = verdict_words(row, ablation)
    if said != Verdict.KEPT.label:
        yield doc.line(" ", doc.strong(said[:1].upper() + said[1:]), ".")
    if row.judged_at and row.over_parent:
        yield f" At the table's size: {interval(row.over_parent)}."
    if row.step and row.step.corrects:
        bug = "Bug" if shows_bug(row.gates) else "Bug, by its author,"
        yield doc.line(
            f" {bug} of ", doc.code(parent_of(row)), ": ", doc.authored(row.step.corrects), "."
        )
    if row.over_chosen:
        yield doc.line(
            f" It is {interval(row.over_chosen)} of ", doc.code(row.chosen), ", which it calls."
        )
    if row.shapes_dropped:
        dropped = ", ".join(brief_shape(shape, ablation) for shape in row.shapes_dropped)
        yield f" It no longer supports {dropped}."


def _why(row: Row, ablation: Ablation) -> Iterator[doc.Block]:
    pair = row.against_parent
    if pair is None or pair.decomposition is None:
        yield doc.paragraph(doc.strong("Why."), f" Counters: {ABSENT}.")
        return
    parts = pair.decomposition
    other = ""
    if row.against_parent_at:
        other = f", captured{at_shape(row.against_parent_at, ablation)}"
    elif row.judged_at:
        other = f", captured at the table's size, not{at_shape(row.judged_at, ablation)}"
    why = f" {equation(parts)}, {durations(parts)}{other}."
    yield doc.paragraph(doc.strong("Why."), why)
    yield from variant.counter_evidence(pair, compared(row, ablation), with_stalls=True)


def _sizes(row: Row, ablation: Ablation) -> Iterator[doc.Block]:
    """The sizes at which the change holds, where several were timed: it is faster there, or as a
    bug fix no slower, by its interval.
    """
    over = {**ablation.over_parents.get(row.variant, {})}
    if decided := row.deciding_speedup or row.over_parent:
        over[row.judged_at or ablation.shape] = decided
    if len(over) < 2:
        return
    holds, same, slower = [], 0, []
    for shape, ratio in sorted(over.items(), key=lambda item: -item[1].ratio):
        is_same = has_same_speed(ratio) or (ratio.low or 0.0) < 1 < (ratio.high or 0.0)
        if (ratio.ratio > 1 and not is_same) or (is_same and shows_bug(row.gates)):
            holds.append(fine(ratio.ratio))
        elif is_same:
            same += 1
        else:
            name = "the table's size" if shape == ablation.shape else brief_shape(shape, ablation)
            slower.append(f"{name} ({fine(ratio.ratio)})")
    text = f" at {len(holds)} of {len(over)} timed sizes"
    text += f": {' to '.join(dict.fromkeys(holds[:1] + holds[-1:]))}" * bool(holds)
    text += f"; the same speed at {same}" * bool(same)
    text += f"; slower at {', '.join(slower)}" * bool(slower)
    yield doc.paragraph(doc.strong("Holds"), f"{text}.")


def diff(row: Row, changes: SourceDiff | None) -> doc.Block:
    parent = parent_of(row)
    if changes is not None and changes.is_same:
        return doc.paragraph("Only parameters differ from ", doc.code(parent), ".")
    if changes is None or not changes.hunks:
        return doc.paragraph("Diff against ", doc.code(parent), f": {ABSENT}.")
    return doc.fold(f"Diff against {parent}", doc.SourceChange(row.variant))


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
            blocks += [doc.paragraph(doc.strong(title), " ", first.text), *rest]
    if row.predictions:
        factors = doc.line("; an ", doc.code("x"), " is a factor of the parent's value:")
        blocks.append(doc.paragraph(f"Predicted{where}", factors))
        blocks.append(doc.table("predictions", PREDICTIONS, row.predictions))
    else:
        made = ABSENT if row.step.predictions else "none were made"
        blocks.append(doc.paragraph(f"Predictions: {made}."))
    gates = doc.table("gates", variant.GATES, row.gates)
    blocks.append(gates if row.gates else doc.paragraph(f"Gates: {ABSENT}."))
    if here.regimes:
        blocks += [doc.paragraph(f"Times{where}:"), variant.regimes(here)]
    else:
        blocks.append(doc.paragraph(f"Times: {ABSENT}."))
    title = doc.line(doc.code(row.variant), ": reasons, predictions, gates, times")
    return doc.fold(title, *blocks)


PREDICTIONS: list[doc.Field[PredictionOutcome]] = [
    doc.Field("figure", "figure", lambda p: with_unit(p.label, p.unit)),
    doc.Field("expected", "expected", lambda p: p.expected),
    doc.numeric("before", "before", lambda p: quantity(p.before, p.unit)),
    doc.numeric("after", "after", lambda p: quantity(p.after, p.unit)),
    doc.Field("result", "result", lambda p: p.result),
    doc.Field(
        "written",
        "written",
        lambda p: f"{p.written}; restates {p.restates}" if p.restates else p.written,
    ),
]


def _prediction(outcome: PredictionOutcome) -> str:
    came = ABSENT
    if outcome.after is not None:
        came = f"{quantity(outcome.after, outcome.unit)} {unit_shown(outcome.unit)}".strip()
        if outcome.before and outcome.expected.endswith("x"):
            came = factor(outcome.after / outcome.before)
    return f"{within(outcome.label)} {outcome.expected}: {came}, {outcome.result}"


MOST_FAILURES = 13


def failures(ablation: Ablation) -> tuple[doc.Text, ...]:
    """Rejected steps beside the path, each with its reason, the counter that explains it, and its
    lesson; of many those judged at this shape.
    """
    rejected = (row for row in steps(ablation) if row.verdict and row.verdict.is_rejected)
    every = [row for row in rejected if row not in ablation.path]
    near = sorted(every, key=lambda row: bool(row.judged_at))
    chosen = near[:MOST_FAILURES]
    more = len(every) - len(chosen)
    rest = doc.line(f"{more} more: ", doc.code(f"workbench ablate --all --study {ablation.study}"))
    shown = (_failure(row, ablation) for row in every if row in chosen)
    return (*shown, *[rest] * bool(more))


def _failure(row: Row, ablation: Ablation) -> doc.Text:
    """A rejected step; of a slower one also the factor that cost most, with its metric."""
    ruling = f" ({verdict(row)}{at_shape(row.judged_at, ablation)}), "
    change = doc.authored(key_change(row))
    parts: list[str | doc.Text] = [doc.code(row.variant), ruling, change, ": "]
    parts += [_reason(row, ablation), ". "]
    factors = row.against_parent.decomposition if row.against_parent else None
    least = min(factors.factors, key=lambda part: part.gain) if factors else None
    if least and least.gain < 1 and row.verdict in (Verdict.SLOWER, Verdict.NO_GAIN):
        ends = f"{number(least.before)} to {number(least.after)} {least.unit}"
        parts.append(f"{least.label}: {ends} ({factor(least.gain)}), ")
        parts += [doc.code(least.metric.partition(" / (")[0]), ". "]
    return doc.line(*parts, doc.first_sentence(row.step.lesson) if row.step else ())


def _reason(row: Row, ablation: Ablation) -> doc.Text:
    """The gate that it failed; of a slower one the ratio with its interval."""
    if row.status == Status.FAILED and not row.judged_at:
        return doc.line(sentence(row.problem))
    over = row.deciding_speedup or row.over_parent
    failed = [gate for gate in row.gates if gate.state == GateState.FAILED]
    if row.verdict == Verdict.INACCURATE and row.accuracy:
        least = row.accuracy
        where, parameters = shape_name(least.shape, ablation), ablation.shapes.get(least.shape)
        if parameters and where == least.shape:  # the name says something else
            where += f" ({shape_words(parameters)})"
        where += f", {least.kind}" if least.kind else ""
        return doc.line(f"{factor(least.times_reference)} {ablation.reference}'s error at {where}")
    if over is not None and all(gate.name == FASTER for gate in failed):
        return doc.line(f"{interval(over)} the speed of ", doc.code(parent_of(row)))
    return doc.line("; ".join(sentence(gate.why) for gate in failed) or ABSENT)


def steps(ablation: Ablation) -> list[Row]:
    """The rows that change something: all but the baseline."""
    return [row for row in ablation.rows if row.step and row.verdict != Verdict.BASELINE]


def _fastest(ablation: Ablation) -> Iterator[doc.Block]:
    """The three largest limits of the fastest reference by its own capture."""
    timed = by_time(ablation.references)
    if not timed:
        yield doc.paragraph(f"Time of a reference: {ABSENT}.")
        return
    row = ablation.row(timed[0][1])
    title = f" ({row.title})" * bool(row.title)
    absent = "" if row.bottlenecks else f" {ABSENT}."
    yield doc.paragraph(
        doc.code(row.variant), f"{title} takes {took(row.time)}. By its own capture:{absent}"
    )
    if row.bottlenecks:
        yield variant.bottlenecks(row.bottlenecks[:3])


def _limits(ablation: Ablation) -> list[doc.Block]:
    """The roofline, or of a problem without arithmetic its bandwidth, and the stall time."""
    shown: list[doc.Block] = [_chart("roofline", ablation)]
    if ablation.moves_only:
        rows = (*ablation.path, *ablation.references)
        table = ladder_table(ablation, rows=rows, name="bandwidth", only=("variant", "memory"))
        note = "The problem needs no floating-point arithmetic: the limit is the bandwidth."
        shown = [doc.paragraph(note), table]
    shown.append(_chart("stall-time", ablation))
    shares = [item for row in ablation.path for item in row.stalls.items()]
    large = {name for name, share in shares if share >= LEAST_MEANT}
    if names := sorted(large & MEANINGS.keys()):
        link = (doc.Span("Nsight Compute's guide", href=GUIDE),)
        head = doc.line("The stall reasons in plain words, after ", link, ". A warp that has one:")
        shown += [
            doc.paragraph(head),
            doc.bullets(f"{stall_label(name)}: {MEANINGS[name]}" for name in names),
        ]
    return shown


def _chart(name: str, ablation: Ablation) -> doc.Chart:
    drawn = chart(name, ablation)
    of_what = f"Of {ablation.study}, {table_size(ablation)}, on {ablation.gpu}."
    return replace(drawn, alt=f"{drawn.alt} {of_what}")


GUIDE = "https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html"
LEAST_MEANT = 0.005  # of all samples
MEANINGS = {
    "barrier": "waits for other warps at a barrier",
    "branch_resolving": "waits for the target of a jump",
    "dispatch_stall": "is held back by the dispatcher",
    "drain": "waits for its stores before it ends",
    "imc_miss": "waits for constants that are not in the constant cache",
    "lg_throttle": "waits for room in the queue of global memory instructions",
    "long_scoreboard": "waits for data from global memory: L1, L2 or DRAM",
    "math_pipe_throttle": "waits for a busy arithmetic unit",
    "membar": "waits at a memory fence",
    "mio_throttle": "waits for room in the queue of shared memory instructions",
    "no_instructions": "waits for its next instruction to be fetched",
    "not_selected": "could go on, but another warp was chosen",
    "short_scoreboard": "waits for shared memory or the special function units",
    "wait": "waits a fixed number of cycles for the instruction before",
    "warpgroup_arrive": "waits for the registers of a matrix product (wgmma)",
}


CACHES = {"all": "caches flushed before every pass", "none": "caches left as they were"}


def method(ablation: Ablation) -> list[doc.Block]:
    """How correctness, times and profiles were measured, and what limits the evidence."""
    options = ablation.environment.ncu_options
    caches = CACHES.get(options.get("--cache-control", ""), f"cache control {ABSENT}")
    clock = options.get("--clock-control", "")
    clocks = "clocks left alone" if clock == "none" else f"clock control {clock or ABSENT}"
    points: list[str | doc.Text] = [CORRECTNESS, *_timing(ablation), recorded(ablation)]
    points.append(
        f"Profiles: a run of its own under Nsight Compute, kernel by kernel, {caches}, {clocks}."
    )
    points.append(WORDS)
    if ablation.score.total:
        points.append(f"Predictions: {results(ablation.score)}.")
    blocks: list[doc.Block] = [doc.bullets(points)]
    notes: list[str | doc.Text] = [*_alike(ablation), *stale(ablation)]
    if notes:
        blocks.append(doc.fold("Notes on the evidence", doc.bullets(notes)))
    return [*blocks, doc.fold("Environment", environment(ablation)), *reproduction(ablation)]


CORRECTNESS = (
    "Correctness: every variant against the study's float64 reference, on fresh random and "
    "difficult inputs at several shapes, with outputs filled with NaN before each call. "
    "A wrong variant is never timed."
)
WORDS = (
    "Words: a variant is one version of the kernel, its parent the one that it changes. Kept: "
    "correct, and faster than its parent by the gate. A reference is what others offer. A session "
    "is one process that times all variants; a run has several. A capture is what Nsight Compute "
    "measured of one call. Not collected: nobody measured it; it is never 0."
)
CHAINED = (
    "A call is timed between two other kernels in one CUDA graph: a kernel writes the inputs from "
    "changing sources, the variant runs, a kernel reads its output. Its time is that between "
    "stamps before and after the call, less that between two stamps with nothing between them. "
    "A cold L2 was flushed before the call. Verdicts are on times between two other kernels."
)


def _timing(ablation: Ablation) -> Iterator[str | doc.Text]:
    """How many sessions, what a time is, the best step with a cold L2, and the controls."""
    facts, copies = ablation.timing, ""
    if facts is None:
        yield f"Times: {ABSENT}."
    else:
        added = f" ({facts.most} where a verdict was open, then at 99 %)"
        more = added if facts.most > facts.sessions else ""
        fewer = f" (fewer of {len(facts.fewer)} with slow calls)" if facts.fewer else ""
        yield (
            f"Times: {facts.sessions} sessions (processes) of {facts.instances} "
            f"instance{'s' * (facts.instances != 1)} of every variant{fewer}{more}, each with "
            f"buffers and graphs of its own, in {facts.rounds} rounds of random order: geometric "
            "means of the instances' medians. The 95 % interval of a ratio is Student's t over "
            "sessions."
        )
        copies = (
            f" Inputs that are constant, such as weights, are held {facts.copies} times with other "
            "values, and calls have them in turn: none finds in L2 what the one before has read."
        ) * (facts.copies > 1)
    yield CHAINED + copies
    cold = ablation.best.regimes.get(Regime.COLD) if ablation.best else None
    if cold and (over := cold.speedup_over_fastest):
        yield doc.line(
            f"With a cold L2: {interval(over)} the speed of ", doc.code(cold.fastest), "."
        )
    if checks := controls(facts):
        yield (
            f"Controls, in which 1 or 0 % is no difference: {checks}. An A/A control is a variant "
            "over itself, built, loaded and timed a second time beside it."
        )


def recorded(ablation: Ablation) -> str:
    """How many timing runs there were at this shape, and what became of those that are gone."""
    recordings = ablation.recordings
    older = f", {recordings.unnoted} from before the journal" if recordings.unnoted else ""
    runs = f"{recordings.total} timing run{'s' * (recordings.total != 1)} at this size{older}"
    kept = f"the newest is shown, the medians of {recordings.superseded} others are kept"
    parts = [runs, *[kept] * bool(recordings.superseded)]
    if recordings.cut_short:
        parts.append(f"{recordings.cut_short} cut short and not kept")
    return f"Runs: {'; '.join(parts)}."


def _alike(ablation: Ablation) -> Iterator[str]:
    """The warnings, with sizes for people; of one kind the first, and how many others there are."""
    kinds = grouped((each.code, each) for each in ablation.warnings)
    for first, *others in kinds.values():
        more = f"; {len(others)} more of this kind" if others else ""
        text = sentence(first)
        for shape in sorted(ablation.shapes, key=len, reverse=True):  # names may begin alike
            text = text.replace(shape, shape_name(shape, ablation))
        yield f"{text}{more}"


ENVIRONMENT = (
    ("GPU", "gpu"),
    ("Compute capability", "compute_capability"),
    ("Driver", "driver"),
    ("CUDA", "cuda"),
    ("NVRTC", "nvrtc"),
    ("PyTorch", "torch"),
    ("cuDNN", "cudnn"),
    ("Python", "python"),
    ("Nsight Compute", "ncu"),
)
Fact = tuple[str, str | doc.Text]


def environment(ablation: Ablation) -> doc.Table:
    recorded = ablation.environment
    parameters = " ".join(f"{key}={value}" for key, value in ablation.parameters.items())
    shape = f"{ablation.shape} ({parameters})" if parameters else ablation.shape
    clocks = [r.figures["sm_clock"].value for r in ablation.everything if "sm_clock" in r.figures]
    ends = [number(end) for end in (min(clocks), max(clocks))] if clocks else []
    clock = f"{' to '.join(dict.fromkeys(ends))} GHz" if ends else ABSENT
    facts: list[Fact] = [
        ("Study and shape", f"{ablation.study}, {shape}"),
        *((label, getattr(recorded, key) or ABSENT) for label, key in ENVIRONMENT),
        ("ncu flags", doc.code(" ".join(recorded.ncu_flags)) or ABSENT),
        ("SM clock under ncu", clock),
        ("Date", f"{recorded.date or ABSENT} ({ablation.source})"),
        ("Measured by", doc.code(recorded.command or "") or ABSENT),
    ]
    fields: list[doc.Field[Fact]] = [
        doc.Field("what", "what", lambda fact: fact[0]),
        doc.Field("value", "value", lambda fact: fact[1]),
    ]
    return doc.table("environment", fields, facts)


def reproduction(ablation: Ablation) -> list[doc.Block]:
    where = ["--study", ablation.study]
    names = [row.variant for row in steps(ablation)] if ablation.across is None else []
    shape = ["--shape", ablation.shape] if ablation.across is None else []
    return [
        doc.CodeBlock(shlex.join(["workbench", "ablate", *names, *where, *shape]), "console"),
        doc.paragraph(
            "Run this in a checkout after ",
            doc.code("pip install -e ."),
            ", with ",
            doc.code(".[gpu]"),
            " on a machine with a GPU. It measures what is not recorded. The page has every ",
            "variant's whole diff: ",
            doc.code(f"workbench report --html --study {ablation.study}"),
            ".",
        ),
    ]
