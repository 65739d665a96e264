"""A judged ladder as ``ablate`` prints it."""

from __future__ import annotations

from workbench.judge.rows import Ablation
from workbench.render.document import predicted, result, timings, variant, why
from workbench.render.document.blocks import Block, Callout, Paragraph, Section, code, line, words
from workbench.render.document.ladder_table import ladder_table
from workbench.render.document.phrases import ladders
from workbench.render.document.report import shapes_table


def ablation(judged: Ablation, *, by_shape: bool) -> list[Block]:
    """The ladder; ``by_shape`` as one table a shape at which steps are judged, else all at one."""
    warnings = result.warnings(judged)
    told: list[Block] = [Paragraph(variant.origin(judged))]
    if warnings:
        told.append(Callout("Read this first", warnings))
    told += _by_shape(judged) if by_shape else [ladder_table(judged)]
    return told


def _by_shape(judged: Ablation) -> list[Block]:
    told: list[Block] = []
    for ladder in ladders(judged):
        primary = [r for r in ladder.references if r.variant == judged.reference]
        own = ladder.shape == judged.shape
        rows = (*ladder.rows, *(ladder.references if own else primary))
        shown = ladder_table(judged, rows, f"ladder-{ladder.shape}")
        title = line("judged at ", code(ladder.shape)) if len(judged.ladders) > 1 else ()
        told.append(Section(f"ladder-{ladder.shape}", title, (shown,)))
    return told


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
