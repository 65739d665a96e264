"""The report of a ladder: ``summary`` for ``OPTIMIZATION_REPORT.md``, ``report`` for the page; and
how the figures were measured, their limits, the environment, and how to reproduce them.

Keys of the sections, in order: result, possible, ladder, changes (``steps`` on the page, with one
section ``step-<variant>`` each), failures, fastest, roofline, next, method.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from workbench.derive.code_diff import sizes_and_summary
from workbench.derive.figures import ISSUING, UNSAMPLED, stall_label
from workbench.derive.source_diff import Cost, Hunk, SourceDiff, SourceRow, add, is_host, signed
from workbench.judge.comparison import Comparison
from workbench.judge.findings import sentence
from workbench.judge.gates import FASTER, shows_bug
from workbench.judge.ladder import Ablation
from workbench.judge.predictions import PredictionOutcome
from workbench.judge.rows import Row, ShapeLadder
from workbench.judge.session_checks import TimingFacts
from workbench.ncu.catalog import DRAM, L2
from workbench.render import doc
from workbench.render.chart.charts import SIZES, chart, memory_chart, stall_pair, timeline
from workbench.render.doc import (
    clip,
    count,
    factor,
    fine,
    harmless,
    interval,
    microseconds,
    number,
    percent,
    quantity,
    unit_shown,
    with_unit,
    within,
)
from workbench.render.document import advice, hunks, variant
from workbench.render.document.printed_ladder import (
    Where,
    anchor,
    answer,
    brief_shape,
    by_time,
    calls,
    compared,
    controls,
    equation,
    has_same_speed,
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
    took,
    verdict,
    verdict_words,
)
from workbench.render.document.variant import FigurePair, gates, stall_words
from workbench.words import ABSENT, NONE, GateState, Regime, Role, Status, Verdict, grouped

NO_DIFFS: Mapping[str, SourceDiff] = MappingProxyType({})


def report(ablation: Ablation, diffs: Mapping[str, SourceDiff]) -> doc.Section:
    """``diffs`` has a step's diff against its parent."""
    title = f"All variants and columns at {table_size(ablation)}"
    return _document(ablation, [doc.fold(title, ladder_table(ablation))], _steps(ablation, diffs))


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
        named = [doc.line(doc.code(row.variant), f" {took(row)}") for row in references]
        parts = [doc.line("References: ", doc.joined(named), "."), *calls(ablation)]
        shown.append(doc.paragraph(doc.joined(parts, " ")))
    if more := len(ablation.rows) - len(rows):
        command = doc.code(f"workbench ablate --all --study {ablation.study}")
        shown.append(doc.paragraph(f"{more} more step{'s' * (more != 1)}: ", command))
    return shown


def _steps(ablation: Ablation, diffs: Mapping[str, SourceDiff]) -> doc.Section:
    sections = [change(row, ablation, diffs.get(row.variant), page=True) for row in steps(ablation)]
    before: list[doc.Block] = [
        *doc.paragraphs(ablation.summary),
        *map(_baseline, ablation.rows[:1]),
    ]
    return doc.section("steps", "Steps, with diffs and stall time by line", *before, *sections)


def _baseline(row: Row) -> doc.Section:
    """Return where the baseline loses its time."""
    title = doc.line(doc.code(row.variant), ": where it loses its time")
    blocks: list[doc.Block] = [doc.paragraph(f"Bottlenecks of the baseline: {ABSENT}.")]
    if row.bottlenecks:
        note = doc.paragraph("Estimates are upper bounds by ncu's rules. They overlap.")
        absent = variant.no_lines(row.no_source_lines)
        blocks = [variant.bottlenecks(row.bottlenecks), *absent, note]
    return _of_step(row, title, blocks, doc.Marking.BASELINE)


def change(
    row: Row, ablation: Ablation, changes: SourceDiff | None, *, page: bool = False
) -> doc.Section:
    """One step: what was changed, why it is faster, the evidence by counter and by line. A ``page``
    has the whole diff, the chart of its stalls, and all details.
    """
    assert row.step is not None
    ladder, here = judged(ablation).get(row.variant, (None, row))
    where = f" at {brief_shape(row.judged_at, ablation)}" if row.judged_at else ""
    parent = parent_of(row)
    rows = ladder.rows if ladder else ablation.rows
    before = next((r.time for r in rows if r.variant == parent and r.time), None)
    took = ABSENT
    if before and here.time:
        took = f"{number(before.value)} → {microseconds(here.time.value)}"
    over = row.deciding_speedup or row.over_parent
    head = f": {short_change(row)}, {took} ({interval(over)}){where}"
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
        blocks += _lines(changes, parent, row.variant) if changes is not None else ()
        if predicted := "; ".join(map(_prediction, row.predictions)):
            blocks.append(doc.paragraph(doc.strong("Predicted."), f" {predicted}."))
        blocks += lessons
    return _of_step(row, row.variant + head, blocks, kind(row))


def _of_step(
    row: Row, title: str | doc.Text, blocks: Iterable[doc.Block], kind: doc.Marking
) -> doc.Section:
    key, name = anchor(row.variant), row.variant
    return doc.section(key, title, *blocks, kind=kind, variant=name, badge=verdict(row))


def judged(ablation: Ablation) -> dict[str, tuple[ShapeLadder, Row]]:
    """Every step's row in the ladder of the shape where it is judged, by variant."""
    return {
        row.variant: (ladder, row)
        for ladder in ablation.ladders
        for row in ladder.rows
        if row.role != Role.START
    }


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
    shape = row.against_parent_at
    other = f", captured at {brief_shape(shape or ablation.shape, ablation)}" if shape else ""
    if row.judged_at and not shape:
        other = f", captured at the table's size, not at {brief_shape(row.judged_at, ablation)}"
    yield doc.paragraph(
        doc.strong("Why."), f" {equation(parts)}, {variant.durations(parts)}{other}."
    )
    shown = [*variant.counters(pair), *stalls(pair)]
    yield variant.counter_table(shown, compared(row, ablation))
    if pair.largest_changes.launch:
        yield doc.paragraph(f"Launch: {variant.launch_parameters(pair)}.")


MOST_STALLS = 3
PCSAMP = "smsp__pcsamp_warps_issue_stalled_"


def stalls(pair: Comparison) -> list[FigurePair]:
    """The stall reasons whose time changed most, in microseconds under ncu."""
    waits = [t for t in pair.stall_microseconds if t.reason not in (ISSUING, UNSAMPLED)]
    return [
        FigurePair(f"stall: {stall_words(t.reason)}", t.before, t.after, "µs", PCSAMP + t.reason)
        for t in waits[:MOST_STALLS]
    ]


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
            blocks += [doc.paragraph(doc.bold(title), " ", first.text), *rest]
    blocks += _predictions(row, where)
    blocks.append(gates(row) if row.gates else doc.paragraph(f"Gates: {ABSENT}."))
    blocks += _times(here, where)
    return doc.fold(
        doc.line(doc.code(row.variant), ": reasons, predictions, gates, times"), *blocks
    )


def written(outcome: PredictionOutcome) -> str:
    """When a prediction was written, and what it restates."""
    return (
        f"{outcome.written}; restates {outcome.restates}" if outcome.restates else outcome.written
    )


PREDICTIONS: list[doc.Field[PredictionOutcome]] = [
    doc.Field("figure", "figure", lambda p: with_unit(p.label, p.unit)),
    doc.Field("expected", "expected", lambda p: p.expected),
    doc.numeric("before", "before", lambda p: quantity(p.before, p.unit)),
    doc.numeric("after", "after", lambda p: quantity(p.after, p.unit)),
    doc.Field("result", "result", lambda p: p.result),
    doc.Field("written", "written", written),
]


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
    return [doc.paragraph(f"Times{where}:"), variant.regimes(row)]


MOST_LINES, HOTTEST, MOST_HUNKS, MOST_UNCHANGED = 12, 8, 3, 3
WORTH_SAYING = 0.005  # of all samples of a variant
WIDTH = 84  # of a line of code


def _lines(changes: SourceDiff, *names: str) -> Iterator[doc.Block]:
    """The diff with the share of each line, and the time of what it does not show. Where no changed
    line has stalls, as of a change of parameters, the unchanged ones with most of them follow.
    """
    shown = important(changes)
    texts = [] if shown else [f"-{names[0]}", f"+{names[1]}"]
    for hunk, marked in shown:
        cost = "" if hunk.host else f": stall time {hunks.sides(hunk, hunks.stall_time)}"
        texts.append(f"@@ {hunks.where(hunk)}{cost} @@")
        texts += [_text(sign, each, hunk.files, _share(each)) for sign, each in marked]
    if not any(_share(each) >= WORTH_SAYING for _, marked in shown for _, each in marked):
        ranked = sorted(changes.shifts, key=lambda s: -max(_share(s.before), _share(s.after)))
        for shift in ranked[:MOST_UNCHANGED]:
            both = _share(shift.before), _share(shift.after)
            texts.append(f"@@ unchanged {hunks.shift_place(shift)} @@")
            texts.append(_text(" ", shift.after, shift.files, *both))
    yield doc.CodeBlock(harmless("\n".join(texts)), "diff")
    if not changes.has_costs:
        yield doc.paragraph(hunks.absences(changes, (names[0], names[1])))
        return
    if changes.kinds and all(changes.kinds):
        yield doc.paragraph(
            doc.strong("Machine code."), " ", sizes_and_summary(*changes.kinds), "."
        )
    excerpt = {hunk.number for hunk, _ in shown}
    edits = [hunk for hunk in hunks.active(changes) if hunk.number in excerpt]
    rest = [hunk for hunk in hunks.active(changes) if hunk.number not in excerpt]
    outside = [changes.unchanged, *changes.elsewhere.values()]
    parts = [
        f"unattributed (lines that did not change): {_both(*map(add, zip(*outside, strict=True)))}"
    ]
    for what, group in (("other edits", rest), ("these edits", edits)):
        if group:
            parts.insert(0, f"{what}: {_both(*(_side(group, n) for n in (0, 1)))}")
    yield doc.paragraph("Stall time and instructions of ", "; ".join(parts), ".")


Marked = tuple[str, SourceRow]  # the sign of a line in a diff
WORD = re.compile(r"[A-Za-z_]\w{3,}")


def important(changes: SourceDiff) -> list[tuple[Hunk, list[Marked]]]:
    """Changed lines of the costliest hunks, in their order: those with the most stall time, and the
    added ones with most words that the parent does not have, since what is fast has no stalls.
    """
    costly = hunks.costliest(changes) or [h for h in changes.hunks if not h.comments_only]
    every = [
        (number, place, marked)
        for number, hunk in enumerate(costly[:MOST_HUNKS])
        for place, marked in enumerate(signed(list(hunk.rows)))
        if marked[0] != " " and marked[1].code
    ]
    rows = (row.before.code for file in changes.files for row in file.rows if row.before)
    old = {word for text in rows for word in WORD.findall(text)}

    def new(item: tuple[int, int, Marked]) -> int:
        sign, each = item[2]
        return -len(set(WORD.findall(each.code)) - old) if sign == "+" else 0

    ranked = sorted(every, key=lambda item: -_share(item[2][1]))
    shown = [item for item in ranked[:HOTTEST] if _share(item[2][1]) >= WORTH_SAYING]
    rest = sorted((item for item in every if item not in shown), key=new)
    shown = sorted([*shown, *rest[: MOST_LINES - len(shown)]], key=lambda item: item[:2])
    return [
        (hunk, [marked for n, _, marked in shown if n == number])
        for number, hunk in enumerate(costly[:MOST_HUNKS])
        if any(n == number for n, _, _ in shown)
    ]


def _share(line: SourceRow) -> float:
    return line.cost.share or 0.0


def _text(sign: str, each: SourceRow, files: tuple[str, str], *shares: float) -> str:
    """A line of a diff with its share of all samples as a comment."""
    text = clip(each.text.rstrip().expandtabs(4), WIDTH)
    if max(shares) < WORTH_SAYING:
        return f"{sign}{text}"
    stalls = f"{f' {hunks.ARROW} '.join(map(percent, shares))} {stall_words(each.cost.top_stall)}"
    return f"{sign}{text:<{WIDTH}} {'#' if is_host(files[1] or files[0]) else '//'} {stalls}"


def _side(edits: Sequence[Hunk], side: int) -> Cost | None:
    """The cost of some edits on one side; None where they have no line there."""
    costs = [(edit.before, edit.after)[side] for edit in edits if edit.span(side)]
    return add(costs) if costs else None


def _both(before: Cost | None, after: Cost | None) -> str:
    sides = (before, after)
    stall = hunks.pair(*(hunks.stalled(c) if c else NONE for c in sides))
    return f"{stall}, {hunks.pair(*(count(c.instructions) if c else NONE for c in sides))}"


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
    where = f" at {brief_shape(row.judged_at, ablation)}" if row.judged_at else ""
    change = row.step.key_change if row.step else row.title
    head = doc.line(
        doc.code(row.variant), f" ({verdict(row)}{where}), ", doc.authored(change), ": "
    )
    lesson = doc.first_sentence(row.step.lesson) if row.step else ()
    return doc.line(head, _reason(row, ablation), ". ", *lost_most(row), lesson)


def lost_most(row: Row) -> Iterator[str | doc.Text]:
    """The factor that cost most of what a slower step lost, with its metric."""
    factors = row.against_parent.decomposition if row.against_parent else None
    least = min(factors.factors, key=lambda part: part.gain) if factors else None
    if least and least.gain < 1 and row.verdict in (Verdict.SLOWER, Verdict.NO_GAIN):
        ends = f"{number(least.before)} to {number(least.after)} {least.unit}"
        yield doc.line(
            f"{least.label}: {ends} ({factor(least.gain)}), ",
            doc.code(least.metric.partition(" / (")[0]),
            ". ",
        )


def _reason(row: Row, ablation: Ablation) -> doc.Text:
    """The gate that it failed; of a slower one the ratio with its interval."""
    if row.status == Status.FAILED and not row.judged_at:
        return doc.line(sentence(row.problem))
    over = row.deciding_speedup or row.over_parent
    failed = [gate for gate in row.gates if gate.state == GateState.FAILED]
    if row.verdict == Verdict.INACCURATE and row.accuracy:
        least = row.accuracy
        where = described(least.shape, ablation) + (f", {least.kind}" if least.kind else "")
        return doc.line(f"{factor(least.times_reference)} {ablation.reference}'s error at {where}")
    if over is not None and all(gate.name == FASTER for gate in failed):
        return doc.line(f"{interval(over)} the speed of ", doc.code(parent_of(row)))
    return doc.line("; ".join(sentence(gate.why) for gate in failed) or ABSENT)


def described(shape: str, ablation: Ablation) -> str:
    """Name a shape, as ``shape_name``, with its parameters where the name says something else."""
    name, parameters = shape_name(shape, ablation), ablation.shapes.get(shape, {})
    return f"{name} ({shape_words(parameters)})" if parameters and name == shape else name


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
        doc.code(row.variant), f"{title} takes {took(row)}. By its own capture:{absent}"
    )
    if row.bottlenecks:
        yield variant.bottlenecks(row.bottlenecks[:3])


def _limits(ablation: Ablation) -> tuple[doc.Block, ...]:
    shown: list[doc.Block] = [_chart("roofline", ablation)]
    if ablation.moves_only:
        rows = (*ablation.path, *ablation.references)
        table = ladder_table(ablation, rows=rows, name="bandwidth", only=("variant", "memory"))
        note = "The problem needs no floating-point arithmetic: the limit is the bandwidth."
        shown = [doc.paragraph(note), table]
    meant = meanings(row.stalls for row in ablation.path)
    return (*shown, _chart("stall-time", ablation), *meant)


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


def meanings(every: Iterable[Mapping[str, float]]) -> Iterator[doc.Block]:
    """The stall reasons of some variants in plain words, by their shares."""
    large = {name for stalls in every for name, share in stalls.items() if share >= LEAST_MEANT}
    if names := large & MEANINGS.keys():
        link = (doc.Span("Nsight Compute's guide", href=GUIDE),)
        yield doc.paragraph(
            "The stall reasons in plain words, after ", link, ". A warp that has one:"
        )
        yield doc.bullets(f"{stall_label(n)}: {MEANINGS[n]}" for n in sorted(names))


def method(ablation: Ablation) -> list[doc.Block]:
    """How correctness, times and profiles were measured, and what limits the evidence."""
    points: list[str | doc.Text] = [
        CORRECTNESS,
        _timing(ablation.timing),
        _regimes(ablation.timing),
        with_cold_l2(ablation),
        _controls(ablation.timing),
        recorded(ablation),
        f"Profiles: {_profile(ablation.environment.ncu_options)}",
        WORDS,
        f"Predictions: {results(ablation.score)}." * bool(ablation.score.total),
    ]
    blocks: list[doc.Block] = [doc.bullets(filter(None, points))]
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


def _timing(facts: TimingFacts | None) -> str:
    if facts is None:
        return f"Times: {ABSENT}."
    added = f" ({facts.most} where a verdict was open, then at 99 %)"
    more = added if facts.most > facts.sessions else ""
    fewer = f" (fewer of {len(facts.fewer)} with slow calls)" if facts.fewer else ""
    return (
        f"Times: {facts.sessions} sessions (processes) of {facts.instances} "
        f"instance{'s' * (facts.instances != 1)} of every "
        f"variant{fewer}{more}, each with buffers and graphs of its own, in {facts.rounds} rounds "
        "of random order: geometric means of the instances' medians. The 95 % interval of a ratio "
        "is Student's t over sessions."
    )


CHAINED = (
    "A call is timed between two other kernels in one CUDA graph: a kernel writes the inputs from "
    "changing sources, the variant runs, a kernel reads its output. Its time is that between "
    "stamps before and after the call, less that between two stamps with nothing between them. "
    "A cold L2 was flushed before the call. Verdicts are on times between two other kernels."
)


def _regimes(facts: TimingFacts | None) -> str:
    text = CHAINED
    if facts is not None and facts.copies > 1:
        text += (
            f" Inputs that are constant, such as weights, are held {facts.copies} times with other "
            "values, and calls have them in turn: none finds in L2 what the one before has read."
        )
    return text


def with_cold_l2(ablation: Ablation) -> doc.Text:
    """The best step over the fastest reference with a cold L2."""
    cold = ablation.best.regimes.get(Regime.COLD) if ablation.best else None
    if cold is None or cold.speedup_over_fastest is None:
        return ()
    over = interval(cold.speedup_over_fastest)
    return doc.line(f"With a cold L2: {over} the speed of ", doc.code(cold.fastest), ".")


def _controls(facts: TimingFacts | None) -> str:
    checks = controls(facts)
    return checks and (
        f"Controls, in which 1 or 0 % is no difference: {checks}. An A/A control is a variant over "
        "itself, built, loaded and timed a second time beside it."
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


CACHES = {"all": "caches flushed before every pass", "none": "caches left as they were"}


def _profile(options: Mapping[str, str]) -> str:
    caches = CACHES.get(options.get("--cache-control", ""), f"cache control {ABSENT}")
    clock = options.get("--clock-control", "")
    clocks = "clocks left alone" if clock == "none" else f"clock control {clock or ABSENT}"
    return f"a run of its own under Nsight Compute, kernel by kernel, {caches}, {clocks}."


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
    facts: list[Fact] = [
        ("Study and shape", f"{ablation.study}, {shape}"),
        *((label, getattr(recorded, key) or ABSENT) for label, key in ENVIRONMENT),
        ("ncu flags", doc.code(" ".join(recorded.ncu_flags)) or ABSENT),
        ("SM clock under ncu", _clocks(ablation)),
        ("Date", f"{recorded.date or ABSENT} ({ablation.source})"),
        ("Measured by", doc.code(recorded.command or "") or ABSENT),
    ]
    fields: list[doc.Field[Fact]] = [
        doc.Field("what", "what", lambda fact: fact[0]),
        doc.Field("value", "value", lambda fact: fact[1]),
    ]
    return doc.table("environment", fields, facts)


def _clocks(ablation: Ablation) -> str:
    clocks = [r.figures["sm_clock"].value for r in ablation.everything if "sm_clock" in r.figures]
    if not clocks:
        return ABSENT
    low, high = number(min(clocks)), number(max(clocks))
    return f"{low} GHz" if low == high else f"{low} to {high} GHz"


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
