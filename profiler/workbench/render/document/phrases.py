"""What is said of one row of a ladder in a few words, the same wherever it is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.judge.rows import Ablation, Row, ShapeLadder
from workbench.render.document.authored import authored
from workbench.render.document.blocks import Kind, Text, code, joined
from workbench.render.numbers import microseconds
from workbench.render.plain import shorten
from workbench.words import ABSENT, Role, Status, Verdict

REASON_WIDTH = 60


def has_figures(row: Row) -> bool:
    return row.status in (Status.CURRENT, Status.ADOPTED)


def reason(row: Row) -> str:
    """Why a row has no figures, in one short phrase."""
    if row.status == Status.MISSING:
        return "not measured"
    if row.status == Status.FAILED:
        return shorten(f"failed: {row.problem}", REASON_WIDTH)
    return row.status if row.status != Status.CURRENT else ABSENT


def verdict(row: Row) -> str:
    """The verdict, or what stands in its place."""
    if row.status == Status.ADOPTED:
        return "adopted, not timed"
    if row.status != Status.CURRENT:
        return reason(row)
    if row.is_reference:
        return "reference"
    if row.role == Role.START:
        return "context"
    return f"{row.verdict} at {row.judged_at}" if row.judged_at else str(row.verdict or ABSENT)


def kind(row: Row) -> Kind:
    if row.is_reference:
        return Kind.REFERENCE
    return Kind(row.verdict) if row.verdict and has_figures(row) else Kind.PLAIN


def key_change(row: Row) -> Text:
    return authored(row.step.key_change if row.step else row.title)


def figure(row: Row, name: str) -> float | None:
    known = row.figures.get(name)
    return known.value if known else None


def parent_of(row: Row) -> str:
    return (row.step.parent if row.step else None) or ""


def warm(row: Row) -> str:
    return microseconds(row.warm.median if row.warm else None)


def steps(ablation: Ablation) -> list[Row]:
    """The rows that change something: all but the baseline."""
    return [row for row in ablation.rows if row.step and row.verdict != Verdict.BASELINE]


def ladders(ablation: Ablation) -> tuple[ShapeLadder, ...]:
    """One a shape at which a step is judged, the table's own first."""
    return ablation.ladders or (
        ShapeLadder(
            shape=ablation.shape,
            parameters=ablation.parameters,
            rows=ablation.rows,
            references=ablation.references,
        ),
    )


def judged(ablation: Ablation) -> dict[str, tuple[ShapeLadder, Row]]:
    """Every step's row in the ladder of the shape where it is judged, by variant."""
    return {
        row.variant: (ladder, row)
        for ladder in ladders(ablation)
        for row in ladder.rows
        if row.role != Role.START
    }


def names(variants: list[str]) -> Text:
    return joined([code(variant) for variant in variants])


def shape_words(parameters: Mapping[str, Any]) -> str:
    """``B=2 H=8 causal``: a flag by its name alone, one that is off not at all."""
    return " ".join(
        key if value is True else f"{key}={value}"
        for key, value in parameters.items()
        if value is not False
    )
