"""Every figure of one version, with the metric behind it."""

from __future__ import annotations

from workbench.derive.figures import Figure
from workbench.judge.rows import Row
from workbench.render.document.blocks import Table, code
from workbench.render.document.fields import Field, field, figure_cell, table
from workbench.render.numbers import quantity, unit_shown

FIGURES: list[Field[Figure]] = [
    field("figure", "figure", lambda figure: figure.label),
    field("value", "value", lambda f: figure_cell(f.value, quantity(f.value, f.unit)), right=True),
    field("unit", "unit", lambda figure: unit_shown(figure.unit)),
    field("metric", "from", lambda figure: code(figure.metric)),
]


def figures(row: Row) -> Table:
    return table("figures", FIGURES, row.figures.values())
