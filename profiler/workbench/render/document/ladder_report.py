"""The documents of a judged ladder: ``screen`` and ``whole`` as ``ablate`` prints it, ``summary``
for ``OPTIMIZATION_REPORT.md``, ``report`` for the page; and how the figures were measured, their
limits, the environment, and how to reproduce them.

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
from workbench.derive.figures import ISSUING, UNSAMPLED
from workbench.derive.source_diff import Cost, Hunk, SourceDiff, SourceRow, add, is_host, signed
from workbench.judge.comparison import Comparison
from workbench.judge.findings import sentence, sentences
from workbench.judge.gates import shows_bug
from workbench.judge.ladder import Ablation, Row
from workbench.judge.predictions import PredictionOutcome
from workbench.judge.times import TimingFacts
from workbench.ncu.catalog import DRAM, L2
from workbench.render import doc
from workbench.render.chart import timelines
from workbench.render.chart.charts import SIZES, chart, memory_chart, stall_pair, timeline
from workbench.render.columns import Where, ladder_table
from workbench.render.document import advice, hunks, limits, phrases, timings, variant
from workbench.render.document.limits import FigurePair, stall_words
from workbench.render.document.phrases import (
    anchor,
    brief_shape,
    by_time,
    compared,
    has_same_speed,
    judged,
    kind,
    parent_of,
    shape_name,
    short_change,
    steps,
    table_size,
    took,
    verdict,
    verdict_words,
)
from workbench.render.numbers import (
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
    within,
)
from workbench.words import ABSENT, NONE, Verdict, grouped

# The peak that a type's arithmetic is held against.
ARITHMETIC = {"float16": "tensor fp16", "bfloat16": "tensor bf16", "float32": "fp32",
              "float64": "fp64"}  # fmt: skip
MOST_SIZES = 6  # of a screen
NO_DIFFS: Mapping[str, SourceDiff] = MappingProxyType({})


def screen(ablation: Ablation, named: Sequence[str] = ()) -> list[doc.Block]:
    """The answer, the rows that lead to it and the ``named`` ones, other sizes if they are few, and
    the references.
    """
    rows = ablation.rows_with(named)
    above = [doc.paragraph(phrases.answer(ablation)), *doc.warned(sentences(ablation.damage))]
    table = ladder_table(ablation, Where.SCREEN, rows)
    few = ablation.across is not None and len(ablation.across.shapes) <= MOST_SIZES
    sizes = timings.sizes_table(ablation) if few else []
    timed = by_time(ablation.references)
    references = ", ".join(f"{name} {number(us)}" for us, name in timed)
    lines = [f"references (µs): {references}"] * bool(timed)
    counts = {
        "more step": len(ablation.rows) - len(rows),
        "warning": len(phrases.warnings(ablation)),
    }
    more = [f"{n} {what}{'s' * (n != 1)}" for what, n in counts.items() if n]
    lines += [f"{', '.join(more)}: --all"] * bool(more)
    return [*above, table, *sizes, doc.CodeBlock("\n".join(lines))]


def whole(ablation: Ablation) -> list[doc.Block]:
    """All rows and columns, how the ladder multiplies out, how its predictions came out, and the
    controls; warnings at the end.
    """
    parts = [timings.controls(ablation.timing)]
    if ablation.score.total:
        parts.insert(0, f"predictions: {variant.results(ablation.score)}")
    if ablation.whole and ablation.whole.decomposition:
        ends = f"{ablation.whole.before} to {ablation.whole.after} under ncu"
        parts.insert(0, f"{ends}: {limits.equation(ablation.whole.decomposition)}")
    return [
        doc.paragraph(phrases.answer(ablation)),
        variant.origin(ablation),
        ladder_table(ablation),
        *map(doc.paragraph, filter(None, parts)),
        *map(doc.paragraph, phrases.calls(ablation)),
        *doc.warned(phrases.warnings(ablation)),
    ]


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
    result = doc.paragraph(phrases.answer(ablation))
    failures = phrases.failures(ablation)
    failed = doc.bullets(failures) if failures else doc.paragraph("No variant was rejected.")
    over_sizes = doc.section(SIZES, "Time over size", _chart(SIZES, ablation))
    sections = (
        doc.section("result", "", result, *timings.sizes_table(ablation)),
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
        yield limits.bullets(row.bottlenecks[:3])


def _ladder(ablation: Ablation) -> list[doc.Block]:
    """The rows of a screen, and the references."""
    rows = ablation.table_rows
    table = ladder_table(ablation, Where.REPORT, rows)
    first, *others, changed = (column.key for column in table.columns)
    shown: list[doc.Block] = [_chart("times", ablation), doc.only(table, [first, changed, *others])]
    if ablation.references:
        references = sorted(ablation.references, key=lambda r: r.time.value if r.time else math.inf)
        named = [doc.line(doc.code(row.variant), f" {took(row)}") for row in references]
        parts = [doc.line("References: ", doc.joined(named), "."), *phrases.calls(ablation)]
        shown.append(doc.paragraph(doc.joined(parts, " ")))
    if more := len(ablation.rows) - len(rows):
        command = doc.code(f"workbench ablate --all --study {ablation.study}")
        shown.append(doc.paragraph(f"{more} more step{'s' * (more != 1)}: ", command))
    return shown


def _chart(name: str, ablation: Ablation) -> doc.Chart:
    drawn = chart(name, ablation)
    of_what = f"Of {ablation.study}, {table_size(ablation)}, on {ablation.gpu}."
    return replace(drawn, alt=f"{drawn.alt} {of_what}")


def _limits(ablation: Ablation) -> tuple[doc.Block, ...]:
    shown: list[doc.Block] = [_chart("roofline", ablation)]
    if ablation.moves_only:
        rows = (*ablation.path, *ablation.references)
        table = ladder_table(ablation, rows=rows, name="bandwidth", only=("variant", "memory"))
        note = "The problem needs no floating-point arithmetic: the limit is the bandwidth."
        shown = [doc.paragraph(note), table]
    meant = limits.meanings(row.stalls for row in ablation.path)
    return (*shown, _chart("stall-time", ablation), *meant)


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
        absent = limits.no_lines(row.no_source_lines)
        blocks = [limits.bullets(row.bottlenecks), *absent, note]
    return _of_step(row, title, blocks, doc.Marking.BASELINE)


def _of_step(
    row: Row, title: str | doc.Text, blocks: Iterable[doc.Block], kind: doc.Marking
) -> doc.Section:
    key, name = anchor(row.variant), row.variant
    return doc.section(key, title, *blocks, kind=kind, variant=name, badge=verdict(row))


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
CACHES = {"all": "caches flushed before every pass", "none": "caches left as they were"}
Fact = tuple[str, str | doc.Text]


def method(ablation: Ablation) -> list[doc.Block]:
    """How correctness, times and profiles were measured, and what limits the evidence."""
    points: list[str | doc.Text] = [
        CORRECTNESS,
        _timing(ablation.timing),
        _regimes(ablation.timing),
        phrases.with_cold_l2(ablation),
        _controls(ablation.timing),
        recorded(ablation),
        f"Profiles: {_profile(ablation.environment.ncu_options)}",
        WORDS,
        f"Predictions: {variant.results(ablation.score)}." * bool(ablation.score.total),
    ]
    blocks: list[doc.Block] = [doc.bullets(filter(None, points))]
    notes: list[str | doc.Text] = [*_alike(ablation), *phrases.stale(ablation)]
    if notes:
        blocks.append(doc.fold("Notes on the evidence", doc.bullets(notes)))
    return [*blocks, doc.fold("Environment", environment(ablation)), *reproduction(ablation)]


def _alike(ablation: Ablation) -> Iterator[str]:
    """The warnings, with sizes for people; of one kind the first, and how many others there are."""
    kinds = grouped((each.code, each) for each in ablation.warnings)
    for first, *others in kinds.values():
        more = f"; {len(others)} more of this kind" if others else ""
        text = sentence(first)
        for shape in sorted(ablation.shapes, key=len, reverse=True):  # names may begin alike
            text = text.replace(shape, shape_name(shape, ablation))
        yield f"{text}{more}"


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


def _controls(facts: TimingFacts | None) -> str:
    checks = timings.controls(facts)
    return checks and (
        f"Controls, in which 1 or 0 % is no difference: {checks}. An A/A control is a variant over "
        "itself, built, loaded and timed a second time beside it."
    )


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


def _regimes(facts: TimingFacts | None) -> str:
    text = CHAINED
    if facts is not None and facts.copies > 1:
        text += (
            f" Inputs that are constant, such as weights, are held {facts.copies} times with other "
            "values, and calls have them in turn: none finds in L2 what the one before has read."
        )
    return text


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


def _profile(options: Mapping[str, str]) -> str:
    caches = CACHES.get(options.get("--cache-control", ""), f"cache control {ABSENT}")
    clock = options.get("--clock-control", "")
    clocks = "clocks left alone" if clock == "none" else f"clock control {clock or ABSENT}"
    return f"a run of its own under Nsight Compute, kernel by kernel, {caches}, {clocks}."


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


MOST_STALLS = 3
MOST_LINES, HOTTEST, MOST_HUNKS, MOST_UNCHANGED = 12, 8, 3, 3
WORTH_SAYING = 0.005  # of all samples of a variant
WIDTH = 84  # of a line of code
PCSAMP = "smsp__pcsamp_warps_issue_stalled_"


def stalls(pair: Comparison) -> list[FigurePair]:
    """The stall reasons whose time changed most, in microseconds under ncu."""
    waits = [t for t in pair.stall_microseconds if t.reason not in (ISSUING, UNSAMPLED)]
    return [
        FigurePair(f"stall: {stall_words(t.reason)}", t.before, t.after, "µs", PCSAMP + t.reason)
        for t in waits[:MOST_STALLS]
    ]


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
        blocks += [timeline(row, ablation), *timelines.figures(row.timeline, row.time)]
    lesson = doc.first_sentence(row.step.lesson)
    lessons = [doc.paragraph(doc.strong("Lesson."), " ", lesson)] if lesson else []
    if page:
        blocks += lessons
        if stalled := stall_pair(row, ablation):
            blocks.append(stalled)
        if row.figures:
            blocks.append(doc.fold("Memory chart", memory_chart(row, ablation)))
        blocks += [variant.diff(row, changes), variant.details(row, here, where)]
    else:
        blocks += _lines(changes, parent, row.variant) if changes is not None else ()
        if predicted := "; ".join(map(_prediction, row.predictions)):
            blocks.append(doc.paragraph(doc.strong("Predicted."), f" {predicted}."))
        blocks += lessons
    return _of_step(row, row.variant + head, blocks, kind(row))


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
        doc.strong("Why."), f" {limits.equation(parts)}, {limits.durations(parts)}{other}."
    )
    shown = [*limits.counters(pair), *stalls(pair)]
    yield limits.counter_table(shown, compared(row, ablation))
    if pair.largest_changes.launch:
        yield doc.paragraph(f"Launch: {limits.launch(pair)}.")


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


def _side(edits: Sequence[Hunk], side: int) -> Cost | None:
    """The cost of some edits on one side; None where they have no line there."""
    costs = [(edit.before, edit.after)[side] for edit in edits if edit.span(side)]
    return add(costs) if costs else None


def _both(before: Cost | None, after: Cost | None) -> str:
    sides = (before, after)
    stall = hunks.pair(*(hunks.stalled(c) if c else NONE for c in sides))
    return f"{stall}, {hunks.pair(*(count(c.instructions) if c else NONE for c in sides))}"


def _text(sign: str, each: SourceRow, files: tuple[str, str], *shares: float) -> str:
    """A line of a diff with its share of all samples as a comment."""
    text = clip(each.text.rstrip().expandtabs(4), WIDTH)
    if max(shares) < WORTH_SAYING:
        return f"{sign}{text}"
    stalls = f"{f' {hunks.ARROW} '.join(map(percent, shares))} {stall_words(each.cost.top_stall)}"
    return f"{sign}{text:<{WIDTH}} {'#' if is_host(files[1] or files[0]) else '//'} {stalls}"


def _prediction(outcome: PredictionOutcome) -> str:
    came = ABSENT
    if outcome.after is not None:
        came = f"{quantity(outcome.after, outcome.unit)} {unit_shown(outcome.unit)}".strip()
        if outcome.before and outcome.expected.endswith("x"):
            came = factor(outcome.after / outcome.before)
    return f"{within(outcome.label)} {outcome.expected}: {came}, {outcome.result}"
