"""The documents of a judged ladder: ``summary`` for ``OPTIMIZATION_REPORT.md``, ``report`` for the
page.

Keys of the sections, in order: result, ladder, steps (on the page alone, with one section
``step-<variant>`` each), lessons, failures, next, roofline, method.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from workbench.derive.diff.line_diff import SourceDiff
from workbench.judge.rows import Ablation, Row, ShapeLadder
from workbench.render.chart import charts
from workbench.render.document import advice, limits, method
from workbench.render.document import result as said
from workbench.render.document.blocks import (
    Block,
    Bullets,
    Chart,
    Document,
    Fold,
    Marking,
    Paragraph,
    Section,
    Text,
    code,
    joined,
    line,
    only,
    paragraph,
    paragraphs,
    words,
)
from workbench.render.document.ladder_table import REPORTED, ladder_table
from workbench.render.document.phrases import judged, steps, took, verdict
from workbench.render.document.step import anchor, step_section
from workbench.words import ABSENT


def report(ablation: Ablation, diffs: Mapping[str, SourceDiff]) -> Document:
    """``diffs`` has a step's diff against its parent."""
    title = line("All versions and columns at ", code(ablation.shape))
    whole = Fold(title, (ladder_table(ablation),))
    return _document(ablation, (whole,), (_steps(ablation, diffs),))


def summary(ablation: Ablation) -> Document:
    return _document(ablation, (), ())


def _document(ablation: Ablation, more_rows: Sequence[Block], steps: Sequence[Section]) -> Document:
    sections = (
        Section("result", (), (Paragraph(said.answer(ablation)),)),
        Section("ladder", words("Time by step"), (*_ladder(ablation), *more_rows)),
        *steps,
        _bullets("lessons", "Lessons", said.lessons(ablation), "No step was kept yet."),
        _bullets("failures", "What did not work", said.failures(ablation), "No step was rejected."),
        Section("next", words(advice.TITLE), advice.next_steps(ablation)),
        Section("roofline", words("Roofline and stall time"), _limits(ablation, bool(steps))),
        Section("method", words("Method and limits"), tuple(method.method(ablation))),
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
    """The path to the best step with what was not kept beside it, the references."""
    steps = only(ladder_table(ablation, ablation.table_rows), REPORTED)
    shown: list[Block] = [_chart("times", ablation), steps]
    if ablation.references:
        rows = sorted(ablation.references, key=lambda r: r.time.value if r.time else math.inf)
        named = [line(code(row.variant), f" {took(row)}") for row in rows]
        message = line("References: ", joined(named), ".")
        for text in said.calls(ablation):
            message = line(message, " ", text)
        shown.append(Paragraph(message))
    if more := len(ablation.rows) - len(ablation.table_rows):
        command = code(f"workbench ablate --all --study {ablation.study}")
        shown.append(paragraph(f"{more} more step{'s' * (more != 1)}: ", command))
    return shown


def _chart(name: str, ablation: Ablation) -> Chart:
    of_what = f"Of {ablation.study}, {ablation.shape}, on {ablation.gpu}."
    alt, caption = charts.caption_of(name, ablation)
    return Chart(name, f"{alt} {of_what}", words(caption))


def _limits(ablation: Ablation, on_page: bool) -> tuple[Block, ...]:
    """On the page each step has its own stall times."""
    shown: list[Block] = [_chart("roofline", ablation)]
    if ablation.moves_only:
        table = ladder_table(ablation, (*ablation.path, *ablation.references), "bandwidth")
        note = "The problem needs no floating-point arithmetic: the limit is the bandwidth."
        shown = [paragraph(note), only(table, ("version", "memory"))]
    return tuple(shown) if on_page else (*shown, _chart("stall-time", ablation))


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
