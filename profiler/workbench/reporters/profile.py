"""``profile``: variants with the figures of their captures."""

from __future__ import annotations

from typing import Any

from workbench.app.outcomes import VariantResult
from workbench.judge.findings import sentence, sentences
from workbench.judge.ladder import Row
from workbench.render import answers
from workbench.render import brief as in_short
from workbench.render.document import variant
from workbench.render.document.blocks import Block, warned


def data(result: VariantResult) -> object:
    return answers.ablation(result.ladder, full=[row.variant for row in result.rows])


def brief(result: VariantResult) -> dict[str, object]:
    return in_short.together([in_short.step(result.ladder, row) for row in result.rows])


def blocks(result: VariantResult, _: Any) -> list[Block]:
    found = result.ladder
    shown = (variant.variant(row, found) for row in result.rows)
    return [variant.origin(found), *shown, *warned(sentences(found.warnings))]


def problem(row: Row) -> str:
    """Why a row has no figures."""
    return sentence(row.problem)
