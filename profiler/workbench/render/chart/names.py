"""The names of marks: beside them where they are few, in a column where they crowd."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.render.chart.lettering import LINE, fitted
from workbench.render.chart.marks import Mark
from workbench.render.chart.placing import Space, clusters
from workbench.render.chart.scale import spread
from workbench.render.chart.scene import XY, Anchor, Box, Group, Item, Label, Line, Stroke
from workbench.render.document.blocks import Kind

LEADER = Stroke("muted", 0.6)
APART = 20.0  # of a column from the plot
BASE = 0.35  # of the size, from the middle of a line down to where its letters stand


def label(mark: Mark, at: XY, size: float, text: str = "", anchor: Anchor = Anchor.START) -> Label:
    """Steps stand out from references. ``text`` where it is not all of the mark's words."""
    own = mark.kind != Kind.REFERENCE
    colour = "ink" if own else "muted"
    return Label(at, text or mark.text, size, colour, anchor, bold=own, halo=True)


def beside(marks: Sequence[Mark], places: Sequence[XY], space: Space, size: float) -> list[Item]:
    """Where there is room; names of marks that cover each other stand under one another."""
    items: list[Item] = []
    for members in clusters(places):
        own = [places[i] for i in members]
        spot = space.put(own, [marks[i].text for i in members], size)
        if spot is None:
            continue
        for n, i in enumerate(members):
            at = (spot.at[0], spot.at[1] + n * LINE * size)
            leader = [Line(spot.leader, LEADER)] if spot.leader and n == 0 else []
            text = label(marks[i], at, size, anchor=spot.anchor)
            items.append(Group((*leader, text), (marks[i].row.variant,), "name"))
    return items


def column(
    named: Sequence[tuple[Mark, str, XY]], box: Box, right: float, size: float, row: float
) -> list[Item]:
    """Right of a plot, by the heights of the marks, each with a line to its own.

    ``named`` are marks with their words and places; ``row`` is from line to line.
    """
    order = sorted(named, key=lambda entry: (entry[2][1], entry[2][0]))
    wanted = [place[1] for _, _, place in order]
    left = box.x1 + APART
    items: list[Item] = []
    for (mark, words, place), y in zip(
        order, spread(wanted, row, box.y0 + row / 2, box.y1 - row / 2), strict=True
    ):
        text = fitted(words, right - left, size, bold=True)
        line = Line((place, (box.x1, y), (left - 3, y)), LEADER)
        name = label(mark, (left, y + BASE * size), size, text)
        items.append(Group((line, name), (mark.row.variant,), "name"))
    return items
