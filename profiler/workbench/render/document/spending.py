"""What measuring has cost, and what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.judge.spending import Spent
from workbench.render.document.blocks import Block, Paragraph, words
from workbench.render.document.fields import Field, field, figure_cell, table
from workbench.render.numbers import number
from workbench.words import NONE


@dataclass(frozen=True)
class Limit:
    """A limit of the budget: ``most`` 0 is none."""

    name: str
    spent: float
    most: float
    unit: str

    @property
    def left(self) -> float | None:
        """None where there is no limit."""
        return max(0.0, self.most - self.spent) if self.most else None


SPENT: list[Field[Spent]] = [
    field("verb", "verb", lambda s: s.verb),
    field("study", "study", lambda s: s.study),
    field("place", "place", lambda s: s.place, rank=2),
    field("gpu", "GPU", lambda s: s.gpu, rank=1),
    field("runs", "runs", lambda s: figure_cell(s.runs), right=True, rank=1),
    field("seconds", "GPU time", lambda s: figure_cell(s.seconds), unit="s", right=True),
    field("cost", "cost", lambda s: _money(s.cost), right=True, rank=1),
]


LIMITS: list[Field[Limit]] = [
    field("limit", "limit", lambda x: x.name),
    field("spent", "spent", lambda x: _amount(x.spent, x.unit), right=True),
    field("most", "most", lambda x: _amount(x.most, x.unit) if x.most else NONE, right=True),
    field(
        "left", "left", lambda x: NONE if x.left is None else _amount(x.left, x.unit), right=True
    ),
]


def _money(cost: float) -> str:
    return f"{cost:.2f}" if cost else NONE


def _amount(value: float, unit: str) -> str:
    return f"{number(value)} {unit}".strip()


def status(spent: Sequence[Spent], limits: Sequence[Limit]) -> list[Block]:
    if not spent:
        return [Paragraph(words("nothing was spent yet")), table("limits", LIMITS, limits)]
    return [table("spent", SPENT, spent), table("limits", LIMITS, limits)]
