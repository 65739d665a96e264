"""``status``: what measuring has cost."""

from __future__ import annotations

from typing import Any

from workbench.app.list import Spending, SpendingLimit
from workbench.judge.open_verdicts import Spent
from workbench.render.as_json import Data, shown_fields
from workbench.render.brief import command
from workbench.render.document.blocks import (
    Block,
    Field,
    field,
    figure_cell,
    numeric,
    paragraph,
    table,
)
from workbench.render.numbers import number
from workbench.words import NONE

SPENT: list[Field[Spent]] = [
    field("verb", "verb", lambda s: s.verb),
    field("study", "study", lambda s: s.study),
    field("place", "machine", lambda s: s.place, rank=2),
    field("gpu", "GPU", lambda s: s.gpu, rank=1),
    numeric("runs", "runs", lambda s: figure_cell(s.runs, str(s.runs)), rank=1),
    numeric("seconds", "seconds", lambda s: figure_cell(s.seconds)),
    numeric("cost", "cost", lambda s: f"{s.cost:.2f}" if s.cost else NONE, rank=1),
]


SHOWN = 4  # rows of what was spent, and shapes, where not all are asked for


def brief(spending: Spending) -> Data:
    return {**shown_fields(spending), **command("", "list")}


def blocks(spending: Spending, options: Any) -> list[Block]:
    """Ten lines: the dearest rows, and the limit; ``wide`` all."""
    limits = [paragraph(_limit(each)) for each in spending.limits]
    if not spending.spent:
        return [paragraph("nothing was spent yet"), *limits]
    shown = spending.spent if options.wide else spending.spent[:SHOWN]
    left = f"{len(spending.spent) - len(shown)} more: --wide"
    more = [paragraph(left)] if len(shown) < len(spending.spent) else []
    return [*limits, table("spent", SPENT, shown), *more]


def _limit(limit: SpendingLimit) -> str:
    """``120 s of 3600 s spent, 3480 s left (max_gpu_seconds)``."""
    if limit.left is None or limit.most is None:
        return f"{number(limit.spent)} {limit.unit} spent, no limit ({limit.limit})"
    amounts = [f"{number(value)} {limit.unit}" for value in (limit.spent, limit.most, limit.left)]
    return f"{amounts[0]} of {amounts[1]} spent, {amounts[2]} left ({limit.limit})"
