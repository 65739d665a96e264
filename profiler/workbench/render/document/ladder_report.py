"""The documents of a judged ladder: ``summary`` for ``OPTIMIZATION_REPORT.md``, ``report`` for the
page; and how the figures were measured, their limits, the environment, and how to reproduce them.

Keys of the sections, in order: result, ladder, steps (on the page alone, with one section
``step-<variant>`` each), lessons, failures, next, roofline, method.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence

from workbench.derive.source_diff import SourceDiff
from workbench.evidence.records import METHOD
from workbench.judge.findings import sentence
from workbench.judge.ladder import Ablation, Row, ShapeLadder
from workbench.judge.times import TimingFacts
from workbench.render.columns import Where, ladder_table
from workbench.render.document import advice, limits, step, timings
from workbench.render.document import result as said
from workbench.render.document.blocks import (
    Block,
    Bullets,
    Chart,
    CodeBlock,
    Document,
    Field,
    Fold,
    Marking,
    Section,
    Table,
    Text,
    code,
    field,
    joined,
    line,
    paragraph,
    paragraphs,
    table,
    words,
)
from workbench.render.document.captions import caption_of
from workbench.render.document.ladder_view import fitted
from workbench.render.document.phrases import judged, steps, took, verdict
from workbench.render.document.step import anchor, step_section
from workbench.render.numbers import number
from workbench.words import ABSENT


def report(ablation: Ablation, diffs: Mapping[str, SourceDiff]) -> Document:
    """``diffs`` has a step's diff against its parent."""
    title = line("All variants and columns at ", code(ablation.shape))
    whole = Fold(title, (ladder_table(ablation),))
    return _document(ablation, (whole,), (_steps(ablation, diffs),))


def summary(ablation: Ablation) -> Document:
    return _document(ablation, (), ())


def _document(ablation: Ablation, more_rows: Sequence[Block], steps: Sequence[Section]) -> Document:
    sections = (
        Section("result", (), (paragraph(said.answer(ablation)),)),
        Section("ladder", words("Time by step"), (*_ladder(ablation), *more_rows)),
        *steps,
        _bullets("lessons", "Lessons", said.lessons(ablation), "No step was kept yet."),
        _bullets("failures", "What did not work", said.failures(ablation), "No step was rejected."),
        Section("next", words(advice.TITLE), advice.next_steps(ablation)),
        Section("roofline", words("Roofline and stall time"), _limits(ablation)),
        Section("method", words("Method and limits"), tuple(method(ablation))),
    )
    return Document(line(ablation.title or ablation.study), sections, facts(ablation))


def facts(ablation: Ablation) -> dict[str, str]:
    return {
        "study": ablation.study,
        "shape": ablation.shape,
        "gpu": ablation.gpu,
        "date": ablation.date,
        "source": ablation.source,
    }


def _bullets(key: str, title: str, parts: tuple[Text, ...], nothing: str) -> Section:
    blocks = Bullets(parts) if parts else paragraph(nothing)
    return Section(key, words(title), (blocks,))


def _ladder(ablation: Ablation) -> list[Block]:
    """The rows of a screen, and the references."""
    rows, _ = fitted(ablation)
    table = ladder_table(ablation, Where.REPORT, rows)
    shown: list[Block] = [_chart("times", ablation), table]
    if ablation.references:
        known = sorted(ablation.references, key=lambda r: r.time.value if r.time else math.inf)
        named = [line(code(row.variant), f" {took(row)}") for row in known]
        message = line("References: ", joined(named), ".")
        for text in said.calls(ablation):
            message = line(message, " ", text)
        shown.append(paragraph(message))
    if more := len(ablation.rows) - len(rows):
        command = code(f"workbench ablate --all --study {ablation.study}")
        shown.append(paragraph(f"{more} more step{'s' * (more != 1)}: ", command))
    return shown


def _chart(name: str, ablation: Ablation) -> Chart:
    of_what = f"Of {ablation.study}, {ablation.shape}, on {ablation.gpu}."
    alt, caption = caption_of(name, ablation.base)
    return Chart(name, f"{alt} {of_what}", words(caption))


def _limits(ablation: Ablation) -> tuple[Block, ...]:
    shown: list[Block] = [_chart("roofline", ablation)]
    if ablation.moves_only:
        rows = (*ablation.path, *ablation.references)
        table = ladder_table(ablation, rows=rows, name="bandwidth", only=("variant", "memory"))
        note = "The problem needs no floating-point arithmetic: the limit is the bandwidth."
        shown = [paragraph(note), table]
    return (*shown, _chart("stall-time", ablation))


def _steps(ablation: Ablation, diffs: Mapping[str, SourceDiff]) -> Section:
    known = judged(ablation)
    sections = [
        step_section(row, diffs.get(row.variant), *_judged_at(ablation, row, known))
        for row in steps(ablation)
    ]
    blocks: list[Block] = [*paragraphs(ablation.summary), *_baseline(ablation), *sections]
    return Section("steps", words("Steps, with diffs and stall time by line"), tuple(blocks))


def _judged_at(
    ablation: Ablation, row: Row, known: Mapping[str, tuple[ShapeLadder, Row]]
) -> tuple[Row, str, str]:
    """The row at the shape where the step is judged, that shape if it is not the table's ("" if it
    is), and the table's. ``known`` are all that are ``judged``.
    """
    ladder, here = known.get(row.variant, (None, row))
    elsewhere = ladder is not None and ladder.shape != ablation.shape
    return here, ladder.shape if ladder and elsewhere else "", ablation.shape


def _baseline(ablation: Ablation) -> tuple[Section, ...]:
    """Where the baseline loses its time."""
    if not ablation.rows:
        return ()
    row = ablation.rows[0]
    title = line(code(row.variant), ": where it loses its time")
    blocks: tuple[Block, ...] = (paragraph(f"Bottlenecks of the baseline: {ABSENT}."),)
    if row.bottlenecks:
        note = (
            "Estimates are upper bounds by ncu's rules, of the whole runtime (global) or of the "
            "part that a rule covers (local). They overlap and do not add up."
        )
        blocks = (
            limits.bullets(row.bottlenecks),
            *limits.no_lines(row.no_source_lines),
            paragraph(note),
        )
    key, word = anchor(row.variant), verdict(row)
    return (Section(key, title, blocks, Marking.BASELINE, row.variant, word),)


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
Fact = tuple[str, Text]


def method(ablation: Ablation) -> list[Block]:
    """How correctness, times and profiles were measured, and what limits the evidence."""
    points = [
        words(
            "Correctness: every variant against the study's float64 reference, on fresh random and "
            "difficult inputs at several shapes, with outputs filled with NaN before each call. "
            "A wrong variant is never timed."
        ),
        words(_timing(ablation.timing)),
        words(_regimes(ablation.timing)),
        *filter(None, [said.with_cold_l2(ablation)]),
        words(recorded(ablation)),
        words(f"Profiles: {_profile(ablation.environment.ncu_options)}"),
    ]
    if ablation.score.total:
        points.append(words(f"Predictions: {step.results(ablation.score)}."))
    blocks: list[Block] = [Bullets(tuple(points))]
    notes = (*said.warnings(ablation), *sessions(ablation))
    if notes:
        blocks.append(Fold(words("Notes on the evidence"), (Bullets(notes),)))
    known = Fold(words("Environment"), (environment(ablation),))
    return [*blocks, known, *reproduction(ablation)]


def sessions(ablation: Ablation) -> tuple[Text, ...]:
    """What the A/A controls and the interference check show."""
    known = [(ladder.shape, ladder.timing) for ladder in ablation.ladders if ladder.timing]
    shown = [f"{shape}: {text}" for shape, facts in known if (text := timings.control_words(facts))]
    return tuple(map(words, [*_company(ablation), *shown]))


def _timing(facts: TimingFacts | None) -> str:
    if facts is None:
        return f"Times: {ABSENT}."
    added = f" ({facts.most} where a verdict was open, then at 99 %)"
    more = added if facts.most > facts.sessions else ""
    fewer = f" (fewer of {len(facts.fewer)} with slow calls)" if facts.fewer else ""
    return (
        f"Times: {facts.sessions} sessions (processes) of {facts.instances} instances of every "
        f"variant{fewer}{more}, each with buffers and graphs of its own, in {facts.rounds} rounds "
        "of random order: geometric means of the instances' medians. The 95 % interval of a ratio "
        "is Student's t over sessions."
    )


AROUND = (
    "a kernel writes the inputs from changing sources, the variant runs, a kernel reads its output"
)
REGIMES = "A cold L2 was flushed before the call. Verdicts are on chained times."
CHAINED = {
    1: f"Chained is what a call adds to its neighbours in one CUDA graph: {AROUND}; the same graph "
    f"without the variant is timed beside it and taken off. {REGIMES}",
    2: f"Chained is the time of a call between two neighbours in one CUDA graph: {AROUND}. It is "
    "the time between stamps before and after the call, less that between two stamps with nothing "
    "between them. CUDA events are a second clock: a time on which both disagree is not printed. "
    f"{REGIMES}",
}


def _regimes(facts: TimingFacts | None) -> str:
    text = CHAINED[facts.method if facts else METHOD]
    if facts is not None and facts.stride > 1:
        text += (
            f" The inputs are large here: the neighbours touch one of {facts.stride} pieces of "
            "16 bytes, so that the caches are left as they were."
        )
    if facts is not None and facts.copies > 1:
        text += (
            f" Inputs that are constant, such as weights, are held {facts.copies} times with other "
            "values, and calls have them in turn: none finds in L2 what the one before has read."
        )
    return text


def _company(ablation: Ablation) -> list[str]:
    """Whether the reference suffers from what it is timed beside."""
    if ablation.timing is None or not ablation.reference:
        return []
    beside = ablation.timing.interference
    text = sentence(beside.finding("interference.undisturbed")) if beside else ABSENT
    return [f"The reference alone, in a session without any step: {text}."]


def recorded(ablation: Ablation) -> str:
    """How many timing runs there were at this shape, and what became of those that are gone."""
    found = ablation.recordings
    older = f", {found.unnoted} from before the journal" if found.unnoted else ""
    runs = f"{found.total} timing run{'s' * (found.total != 1)} at this shape{older}"
    kept = f"{found.superseded} superseded, their medians kept"
    parts = [runs, kept if found.superseded else "none superseded"]
    if found.cut_short:
        parts.append(f"{found.cut_short} cut short and not kept")
    return f"Recordings: {'; '.join(parts)}."


def _profile(options: Mapping[str, str]) -> str:
    caches = CACHES.get(options.get("--cache-control", ""), f"cache control {ABSENT}")
    clock = options.get("--clock-control", "")
    clocks = "clocks left alone" if clock == "none" else f"clock control {clock or ABSENT}"
    return f"a run of its own under Nsight Compute, kernel by kernel, {caches}, {clocks}."


def environment(ablation: Ablation) -> Table:
    known = ablation.environment
    parameters = " ".join(f"{key}={value}" for key, value in ablation.parameters.items())
    shape = f"{ablation.shape} ({parameters})" if parameters else ablation.shape
    facts: list[Fact] = [
        ("Study and shape", words(f"{ablation.study}, {shape}")),
        *((label, words(getattr(known, key) or ABSENT)) for label, key in ENVIRONMENT),
        ("ncu flags", code(" ".join(known.ncu_flags)) or words(ABSENT)),
        ("SM clock under ncu", words(_clocks(ablation))),
        ("Date", words(f"{known.date or ABSENT} ({ablation.source})")),
        ("Measured by", code(known.command or "") or words(ABSENT)),
    ]
    fields: list[Field[Fact]] = [
        field("what", "what", lambda fact: fact[0]),
        field("value", "value", lambda fact: fact[1]),
    ]
    return table("environment", fields, facts, key=lambda fact: fact[0])


def _clocks(ablation: Ablation) -> str:
    clocks = [r.figures["sm_clock"].value for r in ablation.everything if "sm_clock" in r.figures]
    if not clocks:
        return ABSENT
    low, high = number(min(clocks)), number(max(clocks))
    return f"{low} GHz" if low == high else f"{low} to {high} GHz"


def reproduction(ablation: Ablation) -> list[Block]:
    named = [row.variant for row in steps(ablation)]
    where = ["--study", ablation.study, "--shape", ablation.shape]
    commands = (
        ["pip", "install", "-e", ".[gpu]"],
        ["workbench", "doctor"],
        ["workbench", "ablate", *named, *where],
        ["workbench", "report", *where],
    )
    return [
        CodeBlock("\n".join(map(shlex.join, commands)), "console"),
        paragraph(
            "Run these in a checkout. With a GPU, ",
            code("ablate"),
            " measures what is not recorded; without one, ",
            code("pip install -e ."),
            " is enough and the recorded evidence is used. The page has each step's diff: ",
            code(f"workbench report --open --study {ablation.study}"),
            ".",
        ),
    ]
