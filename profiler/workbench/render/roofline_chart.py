"""The roofline's points: one per variant, joined along the ladder, over the ceilings."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.derive.roofline.point import Point
from workbench.judge.rows import Ablation, Row
from workbench.render.canvas import FONT_SIZE, LIGHT, POINTS, Entry, key, note_absent, text_width
from workbench.render.ceilings import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    SMALL,
    TERA,
    TOP,
    WIDTH,
    Frame,
    draw_axes,
    draw_roofs,
    frame,
    roofs,
)
from workbench.render.labels import Anchor, Box, Segment, place, same_place
from workbench.render.measured_roofs import KEY, draw_measured, measured_lines
from workbench.render.tables import percent, reason
from workbench.words import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Look:
    """How a kind of point is drawn, and its word in the key."""

    word: str
    marker: str
    edge: str
    filled: bool

    @property
    def sign(self) -> dict[str, Any]:
        return {
            "marker": self.marker,
            "markersize": 7 if self.marker == "o" else 6,
            "markerfacecolor": self.edge if self.filled else LIGHT.paper,
            "markeredgecolor": self.edge,
            "markeredgewidth": 1.6,
        }


REFERENCE = Look("reference", "D", LIGHT.reference, True)
GOOD = Look("step, kept", "o", LIGHT.step, True)
BAD = Look("step, rejected", "o", LIGHT.rejected, False)
OPEN = Look("step, inconclusive", "s", LIGHT.rejected, False)
WRONG: dict[str, Any] = {
    "marker": "x",
    "markersize": 14,
    "markeredgewidth": 2.2,
    "color": LIGHT.rejected,
}


MANY = 12  # points that can all be named
CROWD = 14.0  # points of the page between named ones, where there are more


@dataclass(frozen=True)
class Mark:
    """A variant's point in the chart's units."""

    row: Row
    point: Point
    intensity: float  # FLOP per byte of the chart's level of memory

    @property
    def at(self) -> tuple[float, float]:
        return self.intensity, self.point.flops_per_second / TERA

    @property
    def look(self) -> Look:
        if self.row.is_reference:
            return REFERENCE
        if self.row.verdict in (Verdict.KEPT, Verdict.BASELINE):
            return GOOD
        return BAD if self.row.verdict == Verdict.REJECTED else OPEN

    @property
    def label(self) -> str:
        share = percent(self.point.share)
        if self.point.above_roof:
            return f"{self.row.label} (error in the data: {share} of its roof)"
        word = (
            f" ({self.row.verdict})"
            if self.row.verdict in (Verdict.REJECTED, Verdict.INCONCLUSIVE)
            else ""
        )
        return f"{self.row.label}{word} {share}"


def draw(ablation: Ablation) -> Figure:
    """Drawn for a light page; ``canvas.swap`` makes the dark one."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT))
    axes = figure.add_axes((LEFT, BOTTOM, RIGHT - LEFT, TOP - BOTTOM))
    where = f"{ablation.study}, {ablation.shape}, {ablation.gpu}"
    figure.text(
        LEFT,
        0.958,
        "Roofline: how close does each variant come to the hardware's limit?",
        color=LIGHT.ink,
        fontsize=FONT_SIZE + 2.5,
        fontweight="bold",
    )
    draw_note(figure, ablation)
    told = f"{where}; percentages are of the roof over each point"
    if ablation.ceilings is None:
        figure.text(LEFT, 0.925, told, color=LIGHT.muted)
        axes.set_axis_off()
        figure.text(
            0.5,
            0.5,
            "ceilings not collected",
            color=LIGHT.muted,
            ha="center",
            fontsize=FONT_SIZE + 2,
        )
        return figure
    marks = [Mark(row, row.point, row.point.intensity) for row in ablation.everything if row.point]
    packed = any(row.point and row.point.ceiling == "half" for row in ablation.everything)
    roof = roofs(ablation.ceilings, packed=packed)
    view = frame(roof, [mark.at for mark in marks])
    draw_axes(axes, view)
    reached = measured_lines(ablation, "dram", roof)
    dashed = reached.lines(view, roof)
    said = {name: reached.rate(name, value) for name, value in roof.compute}
    said["DRAM"] = reached.slope(roof.bandwidth)
    taken, lines = draw_roofs(axes, view, roof, said if dashed else {}, reached.compute)
    lines += draw_measured(axes, view, dashed)
    lines += draw_path(axes, view, marks)
    for mark in marks:
        axes.plot(*mark.at, zorder=4, **mark.look.sign)
        if mark.point.above_roof:
            axes.plot(*mark.at, zorder=5, **WRONG)
    wanted = named(view, marks, ablation)
    always = ends(ablation) if len(marks) > MANY else None
    shown = draw_labels(axes, view, marks, wanted, taken, lines, always=always)
    if shown < len(marks):
        told += ", crowded points without a name"
    figure.text(LEFT, 0.925, told, color=LIGHT.muted)
    draw_key(figure, marks, 0.093 * HEIGHT * POINTS, measured=bool(dashed))
    return figure


def draw_path(axes: Axes, view: Frame, marks: list[Mark]) -> list[Segment]:
    """An arrow from each parent to its child, dashed where the child was not kept."""
    found = {mark.row.variant: mark for mark in marks}
    lines: list[Segment] = []
    for mark in marks:
        parent = found.get(mark.row.step.parent or "") if mark.row.step else None
        if parent is None:
            continue
        kept = mark.row.verdict == Verdict.KEPT
        axes.annotate(
            "",
            mark.at,
            xytext=parent.at,
            zorder=3,
            arrowprops={
                "arrowstyle": "-|>",
                "color": LIGHT.step if kept else LIGHT.rejected,
                "linewidth": 1.5 if kept else 1.1,
                "linestyle": "-" if kept else (0, (4, 3)),
                "shrinkA": 5,
                "shrinkB": 5,
                "mutation_scale": 10,
            },
        )
        lines.append((view.page(*parent.at), view.page(*mark.at)))
    return lines


def ends(ablation: Ablation) -> set[str]:
    """What is named on every roofline: the ladder's ends, the reference and errors in the data."""
    best = {ablation.best.variant} if ablation.best else set()
    wrong = {row.variant for row in ablation.everything if row.point and row.point.above_roof}
    return {ablation.rows[0].variant, ablation.reference} | best | wrong


def named(view: Frame, marks: list[Mark], ablation: Ablation) -> list[Mark]:
    """All marks where they are few; of many, the ends of the ladder, and what stands apart."""
    if len(marks) <= MANY:
        return marks
    always = ends(ablation)
    order = sorted(marks, key=lambda m: (m.row.variant not in always, m.look != GOOD))
    places: list[tuple[float, float]] = []
    chosen = set()
    for mark in order:
        at = view.page(*mark.at)
        if mark.row.variant in always or all(math.dist(at, other) >= CROWD for other in places):
            places.append(at)
            chosen.add(mark.row.variant)
    return [mark for mark in marks if mark.row.variant in chosen]


def _groups(view: Frame, marks: list[Mark], must: Collection[str]) -> list[list[Mark]]:
    """Marks of one look that fall on the same place; steps first, from the top down. Those that
    must be named do not share a label with others, for which there may be no room.
    """
    groups: list[list[Mark]] = []
    for mark in sorted(marks, key=lambda m: (m.row.is_reference, -m.at[1])):
        for group in groups:
            first = group[0]
            alike = first.look == mark.look and (
                (first.row.variant in must) == (mark.row.variant in must)
            )
            if alike and same_place(view.page(*first.at), view.page(*mark.at)):
                group.append(mark)
                break
        else:
            groups.append([mark])
    return groups


def draw_labels(
    axes: Axes,
    view: Frame,
    marks: list[Mark],
    wanted: list[Mark],
    taken: list[Box],
    lines: list[Segment],
    *,
    short: bool = False,
    always: Collection[str] | None = None,
) -> int:
    """Names the ``wanted`` of the marks; returns how many it named.

    ``short``: only the names, one line for all that share a place, for small charts. ``always``:
    what is named where there is no room too; None is all.
    """
    size = SMALL if short else FONT_SIZE
    must = {mark.row.variant for mark in wanted} if always is None else always
    groups = _groups(view, wanted, must)
    every = [(view.page(*mark.at), mark.look) for mark in marks]
    texts = [
        "\n".join(mark.row.variant if short else mark.label for mark in group) for group in groups
    ]
    bold = [not group[0].row.is_reference for group in groups]
    anchors = [
        Anchor(
            view.page(*group[0].at),
            text_width(text, size) * (1.1 if heavy else 1),
            1.3 * size * (1 + text.count("\n")),
            tuple(
                at
                for at, look in every
                if look == group[0].look and same_place(at, view.page(*group[0].at))
            ),
            group[0].row.variant in must,
        )
        for group, text, heavy in zip(groups, texts, bold, strict=True)
    ]
    shown = 0
    spots = place(anchors, taken, lines, view.bounds, [at for at, _ in every])
    for group, anchor, text, heavy, spot in zip(groups, anchors, texts, bold, spots, strict=True):
        if spot.spare:
            continue
        shown += len(group)
        if spot.leader:
            axes.annotate(
                "",
                spot.leader[1],
                xytext=anchor.at,
                xycoords="figure points",
                textcoords="figure points",
                zorder=2,
                arrowprops={
                    "arrowstyle": "-",
                    "color": LIGHT.muted,
                    "linewidth": 0.7,
                    "shrinkA": 4,
                    "shrinkB": 0,
                },
            )
        axes.annotate(
            text,
            spot.at,
            xycoords="figure points",
            ha=spot.side,
            va="center",
            color=LIGHT.ink if heavy else LIGHT.muted,
            zorder=6,
            fontsize=size,
            fontweight="bold" if heavy else "normal",
        )
    return shown


def draw_key(figure: Figure, marks: list[Mark], top: float, *, measured: bool = False) -> None:
    """``top`` in points; starts where the axes do."""
    looks = dict.fromkeys(mark.look for mark in marks)
    entries = [Entry(look.word, look.sign) for look in looks]
    if any(mark.row.step and mark.row.step.parent for mark in marks):
        arrow = {"marker": ">", "markersize": 6, "color": LIGHT.step}
        entries.append(Entry("from parent to child", arrow))
    if any(mark.point.above_roof for mark in marks):
        entries.append(Entry("above its roof: an error in the data", {**WRONG, "markersize": 8}))
    if measured:
        entries.append(KEY)
    key(figure, entries, LEFT * WIDTH * POINTS, top)


def draw_note(figure: Figure, ablation: Ablation) -> None:
    absent = [f"{row.variant} ({reason(row)})" for row in ablation.everything if not row.point]
    note_absent(figure, absent, LEFT, 0.012)
