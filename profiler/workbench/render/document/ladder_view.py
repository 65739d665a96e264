"""A judged ladder as ``ablate`` prints it."""

from __future__ import annotations

from workbench.judge.rows import Ablation, Row
from workbench.render.document import predicted, result, timings, variant, why
from workbench.render.document.blocks import Block, Callout, Paragraph, Section, code, line, words
from workbench.render.document.ladder_table import ladder_table
from workbench.render.document.phrases import ladders
from workbench.render.document.report import shapes_table
from workbench.words import Verdict


def ablation(judged: Ablation, *, own: bool = False) -> list[Block]:
    """The ladder at its shape; ``own``: only the steps that are judged there, and a line for each
    other shape.
    """
    warnings = result.warnings(judged)
    told: list[Block] = [Paragraph(variant.origin(judged))]
    if warnings:
        told.append(Callout("Read this first", warnings))
    if not own:
        return [*told, ladder_table(judged)]
    ladder, best = ladders(judged)[0], judged.best
    shown = {row.variant for row in ladder.rows}
    more = (best,) if best is not None and best.variant not in shown else ()
    rows = (*ladder.rows, *more, *ladder.references)
    return [*told, ladder_table(judged, rows), *_elsewhere(judged)]


def _elsewhere(judged: Ablation) -> list[Block]:
    """How many steps are judged at each other shape, and how many of them were kept."""
    steps: dict[str, list[Row]] = {}
    for row in judged.rows:
        if row.judged_at:
            steps.setdefault(row.judged_at, []).append(row)
    told = (
        f"{len(rows)} at {shape}, of which {sum(map(_kept, rows))} kept"
        for shape, rows in steps.items()
    )
    text = "Steps judged at other shapes (see --shape): " + "; ".join(told)
    return [Paragraph(words(text))] if steps else []


def _kept(row: Row) -> bool:
    return row.verdict == Verdict.KEPT


def account(judged: Ablation) -> list[Block]:
    """The best version, how the whole ladder multiplies out, how its predictions came out."""
    told = [result.brief(judged)]
    if judged.whole and judged.whole.factors:
        ends = f"{judged.whole.before} to {judged.whole.after} under ncu"
        told.append(f"{ends}: {why.equation(judged.whole.factors)}")
    if judged.score.total:
        told.append(f"predictions: {predicted.results(judged.score)}")
    if judged.timing and (twins := timings.twin_words(judged.timing)):
        told.append(twins)
    return [*(Paragraph(words(text)) for text in told), *map(Paragraph, result.calls(judged))]


def across(judged: Ablation) -> list[Block]:
    if judged.across is None:
        return []
    return [
        Section(
            "shapes",
            line(code(judged.across.variant), " at all shapes"),
            (
                shapes_table(judged),
                Paragraph(result.across(judged)),
                *map(Paragraph, result.calls_across(judged)),
            ),
        )
    ]
