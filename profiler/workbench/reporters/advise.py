"""``advise``: what to try next after a variant."""

from __future__ import annotations

from typing import Any

from workbench.app.outcomes import VariantResult
from workbench.judge.findings import sentences
from workbench.render import answers
from workbench.render import brief as in_short
from workbench.render.document import advice, variant
from workbench.render.document.blocks import Block, warned


def data(result: VariantResult) -> object:
    return answers.advised(result.ladder, result.row, result.damaged)


def brief(result: VariantResult) -> dict[str, object]:
    return in_short.step(result.ladder, result.row)


def blocks(result: VariantResult, _: Any) -> list[Block]:
    return [
        variant.origin(result.ladder),
        *warned(sentences(result.damaged)),
        advice.advised(result.row, result.ladder),
    ]
