"""The documents of a judged ladder, in the order in which people read them: ``report`` is all of
it, for the page, and ``summary`` what Markdown has room for.

Keys of its sections: result, lessons, ladder, shapes, sizes (where shapes differ in one parameter
alone), roofline, why, steps (with one ``step-<variant>`` each, the baseline's first),
failures, next, method, environment, reproduction,
sources. Warnings stand before them all.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from workbench.derive.diff.line_diff import SourceDiff
from workbench.judge.rows import Ablation, Row, ShapeLadder
from workbench.render.chart import charts
from workbench.render.document import advice, limits, method, rooflines, why
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
    line,
    paragraphs,
    warned,
    words,
)
from workbench.render.document.ladder_table import across, ladder_table, shape_ladder, tree
from workbench.render.document.phrases import judged, ladders, steps
from workbench.render.document.step import anchor, brief_section, step_section
from workbench.render.document.timings import sizes_sections
from workbench.words import ABSENT


def report(ablation: Ablation, diffs: Mapping[str, SourceDiff]) -> Document:
    """``diffs`` has a step's diff against its parent."""
    return _document(ablation, _steps(ablation, diffs))


def summary(ablation: Ablation) -> Document:
    """Without diffs, and of folds only the ``brief`` ones: GitHub cuts a file at 512 KB."""
    whole = _document(ablation, _brief_steps(ablation))
    return replace(whole, blocks=_pruned(whole.blocks))


def _pruned(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Sections of which nothing is left go with their folds."""
    kept: list[Block] = []
    for block in blocks:
        if isinstance(block, Section):
            block = replace(block, blocks=_pruned(block.blocks))
            if not block.blocks:
                continue
        elif isinstance(block, Fold) and not block.brief:
            continue
        kept.append(block)
    return tuple(kept)


def _document(ablation: Ablation, steps: Section) -> Document:
    sections = (
        Section("result", (), (Paragraph(said.result(ablation)),)),
        _lessons(ablation),
        _ladder(ablation),
        *across(ablation),
        *sizes_sections(ablation.sizes),
        _roofline(ablation),
        _why(ablation),
        steps,
        _failures(ablation),
        advice.section(ablation),
        Section("method", words("Method"), tuple(method.method(ablation))),
        _environment(ablation),
        Section("reproduction", words("Reproduce it"), tuple(method.reproduction(ablation))),
        _sources(ablation),
    )
    title = line("Optimization report: ", ablation.title or ablation.study)
    return Document(title, (*warned(said.warnings(ablation)), *sections), facts(ablation))


def facts(ablation: Ablation) -> dict[str, str]:
    return {
        "study": ablation.study,
        "shape": ablation.shape,
        "gpu": ablation.gpu,
        "date": ablation.date,
        "source": ablation.source,
    }


def _lessons(ablation: Ablation) -> Section:
    nothing = "There is no step beyond the baseline yet."
    blocks = _bullets(said.lessons(ablation), nothing)
    return Section("lessons", words("What was learned"), blocks)


def _bullets(told: tuple[Text, ...], nothing: str) -> tuple[Block, ...]:
    return (Bullets(told) if told else Paragraph(words(nothing)),)


def _environment(ablation: Ablation) -> Section:
    told = (method.environment(ablation),)
    fold = Fold(words("GPU, driver, libraries, ncu and its flags"), told, brief=True)
    return Section("environment", words("Environment"), (fold,))


def _ladder(ablation: Ablation) -> Section:
    """One table a shape at which steps are judged, each on the evidence at its own."""
    first, *others = ladders(ablation)
    note = (
        "A ratio above 1 is faster. A row for context is what a step starts from: its own verdict "
        "is of another shape."
    )
    blocks: tuple[Block, ...] = (
        _chart("times", ablation),
        shape_ladder(ablation, first),
        Paragraph(words(note)),
        *map(Paragraph, said.calls(ablation)),
        *(
            Section(
                f"ladder-{ladder.shape}",
                line("Judged at ", code(ladder.shape)),
                (shape_ladder(ablation, ladder, primary=True),),
            )
            for ladder in others
        ),
        Paragraph(words("Which step changes which:")),
        tree(ablation),
        Fold(line("All versions and columns at ", code(ablation.shape)), (ladder_table(ablation),)),
    )
    return Section("ladder", words("The ladder"), blocks)


def _chart(name: str, ablation: Ablation) -> Chart:
    of_what = f"Of {ablation.study}, {ablation.shape}, on {ablation.gpu}."
    alt, caption = charts.told(name, ablation)
    return Chart(name, f"{alt} {of_what}", words(caption))


def _roofline(ablation: Ablation) -> Section:
    measured: tuple[Block, ...] = ()
    if ablation.measured:
        known = (rooflines.ceilings(ablation.measured),)
        measured = (Fold(words("Measured ceilings"), known, brief=True),)
    distances = (rooflines.roofline(ablation), Bullets(rooflines.notes(ablation)))
    if ablation.moves_only:
        told = Paragraph(
            words("Nothing here does floating-point arithmetic: what counts is bytes.")
        )
        return Section("roofline", words("Bandwidth"), (told, *distances, *measured))
    fold = Fold(words("Distance to the roofs of every level"), distances, brief=True)
    blocks = (_chart("roofline", ablation), fold, *measured)
    return Section("roofline", words("Roofline"), blocks)


def _why(ablation: Ablation) -> Section:
    blocks: list[Block] = []
    if ablation.whole and ablation.whole.decomposition:
        parts = ablation.whole.decomposition
        text = f": {why.equation(parts)}, {why.durations(parts)}."
        whole = line("From ", code(ablation.whole.before), " to ", code(ablation.whole.after), text)
        text = (
            "Every step multiplies out: time = warp instructions per scheduler ÷ (issue rate while "
            "active × load balance over the SMs × the busiest SM's share of the time × clock), an "
            "identity but for the residual. A factor above 1 made it faster. "
        )
        blocks += [Paragraph(whole), Paragraph(words(text + method.explained(ablation)))]
    else:
        blocks.append(Paragraph(words(f"The factors of the speedup: {ABSENT}.")))
    blocks.append(_chart("stall-time", ablation))
    return Section("why", words("Why it got faster"), tuple(blocks))


STEPS = "Each step with its verdict, the factors of its speedup under ncu, "


def _steps(ablation: Ablation, diffs: Mapping[str, SourceDiff]) -> Section:
    known = judged(ablation)
    sections = [
        step_section(row, diffs.get(row.variant), *_judged_at(ablation, row, known))
        for row in steps(ablation)
    ]
    note = (
        f"{STEPS}the hunks that cost the most stall time, and its lesson; the rest is folded away."
    )
    return _step_by_step(ablation, words(note), sections)


def _brief_steps(ablation: Ablation) -> Section:
    known = judged(ablation)
    sections = [brief_section(row, *_judged_at(ablation, row, known)) for row in steps(ablation)]
    note = line(
        f"{STEPS}and its lesson. ",
        code(shlex.join(["workbench", "report", "--open", "--study", ablation.study])),
        " shows its diff with the stall time of every line, its gates and its predictions; ",
        code("workbench diff PARENT STEP"),
        " prints them.",
    )
    return _step_by_step(ablation, note, sections)


def _step_by_step(ablation: Ablation, note: Text, sections: Sequence[Section]) -> Section:
    told = (*paragraphs(ablation.summary), Paragraph(note)) if sections else ()
    blocks: tuple[Block, ...] = (*told, *_baseline(ablation), *sections)
    return Section("steps", words("Step by step"), blocks)


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
    blocks: tuple[Block, ...] = (Paragraph(words(f"Bottlenecks of the baseline: {ABSENT}.")),)
    if row.bottlenecks:
        note = (
            "Estimates are upper bounds by ncu's rules, of the whole runtime (global) or of the "
            "part that a rule covers (local); they overlap and do not add up."
        )
        blocks = (
            limits.bullets(row.bottlenecks),
            *limits.no_lines(row.no_source_lines),
            Paragraph(words(note)),
            Fold(words("What ncu says"), (limits.messages(row.bottlenecks),)),
        )
    return (Section(anchor(row.variant), title, blocks, Marking.BASELINE, row.variant),)


def _failures(ablation: Ablation) -> Section:
    blocks = _bullets(said.failures(ablation), "Every step was kept.")
    return Section("failures", words("What did not work"), blocks)


def _sources(ablation: Ablation) -> Section:
    blocks = (
        Fold(words("Columns and factors"), (method.sources(ablation),), brief=True),
        Fold(words("Captures and their kernels"), tuple(method.captures(ablation))),
        Fold(words("What is counted, and the noise assumed"), (method.conventions(ablation),)),
    )
    return Section("sources", words("Where each number comes from"), blocks)
