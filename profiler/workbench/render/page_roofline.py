"""The page's rooflines as places on a drawing: pure geometry, which the template draws as SVG.

There is one for each level of memory. Each is drawn twice, wide and narrow, since text that
shrinks with its drawing cannot be read on a phone. Lengths are CSS pixels, y downwards.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workbench.derive.roofline.ceilings import LEVELS
from workbench.derive.roofline.point import ERROR_MARGIN
from workbench.judge.rows import Ablation, Row
from workbench.render.canvas import text_width
from workbench.render.ceilings import TERA, Frame, Roofs, roofs
from workbench.render.labels import XY, Anchor, Box, Segment, place, same_place
from workbench.render.levels_chart import LABELS, TITLES, common_frame, level_marks
from workbench.render.measured_roofs import MeasuredLines, measured_lines
from workbench.render.roofline_chart import MANY, Mark, ends
from workbench.render.roofline_table import LEVEL_NAMES
from workbench.render.tables import number, percent
from workbench.words import Verdict

LINE = 1.3  # line height in em


@dataclass(frozen=True)
class Size:
    """A drawing and the margins of its plot."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    font: float
    terse: bool = False


WIDE = Size(1040, 560, 62, 14, 16, 50, 13)
NARROW = Size(352, 420, 46, 6, 12, 46, 12, terse=True)


def kind(row: Row) -> str:
    """How a row is marked everywhere: its verdict, with the baseline among the kept."""
    if row.is_reference:
        return "reference"
    return Verdict.KEPT if row.verdict in (Verdict.KEPT, Verdict.BASELINE) else row.verdict


@dataclass(frozen=True)
class _View:
    """Data to places on the drawing, both axes logarithmic."""

    size: Size
    limits: Frame

    def at(self, x: float, y: float) -> XY:
        size, limits = self.size, self.limits
        across = math.log(x / limits.x0) / math.log(limits.x1 / limits.x0)
        up = math.log(y / limits.y0) / math.log(limits.y1 / limits.y0)
        wide, high = size.width - size.left - size.right, size.height - size.top - size.bottom
        return (
            round(size.left + wide * across, 1),
            round(size.height - size.bottom - high * up, 1),
        )

    @property
    def corners(self) -> tuple[float, float, float, float]:
        size = self.size
        return (size.left, size.top, size.width - size.right, size.height - size.bottom)


def _line(a: XY, b: XY) -> dict[str, float]:
    return {"x1": a[0], "y1": a[1], "x2": b[0], "y2": b[1]}


def drawings(ablation: Ablation, size: Size) -> list[dict[str, Any]]:
    """One drawing for each level of memory, all with the same axes; none without ceilings."""
    ceilings = ablation.ceilings
    marks = {level: level_marks(ablation, level) for level in LEVELS}
    every = [mark for found in marks.values() for mark in found]
    if ceilings is None or not every:
        return []
    compute = roofs(ceilings, packed=any(mark.point.ceiling == "half" for mark in every))
    view = _View(size, common_frame(ceilings, compute, every))
    return [
        _drawing(ablation, level, marks[level], replace(compute, bandwidth=bandwidth / TERA), view)
        for level in LEVELS
        if (bandwidth := ceilings.bandwidth(level)) is not None
    ]


def _drawing(
    ablation: Ablation, level: str, marks: Sequence[Mark], roof: Roofs, view: _View
) -> dict[str, Any]:
    """Ticks, roofs, arrows and points as places."""
    size = view.size
    points = {mark.row.variant: _Point.of(mark, level, view) for mark in marks}
    drawn, taken, lines = _roofs(view, roof, level, measured_lines(ablation, level, roof))
    arrows = _arrows(ablation, points)
    lines += [((a["x1"], a["y1"]), (a["x2"], a["y2"])) for a in arrows]
    left, top, right, bottom = view.corners
    return {
        "level": level,
        "name": TITLES[level],
        "width": size.width,
        "height": size.height,
        "font": size.font,
        "plot": view.corners,
        "x_ticks": _ticks(view, across=True),
        "y_ticks": _ticks(view, across=False),
        "x_title": (round((left + right) / 2, 1), size.height - 8, LABELS[level]),
        "y_title": (size.font, round((top + bottom) / 2, 1)),
        **drawn,
        "arrows": arrows,
        "points": [point.drawn for point in points.values()],
        "labels": _labels(list(points.values()), taken, lines, view, ends(ablation)),
    }


@dataclass(frozen=True)
class _Point:
    """A variant on the drawing of one level; ``share`` is of the roof over it there."""

    row: Row
    at: XY
    share: float
    words: str

    @classmethod
    def of(cls, mark: Mark, level: str, view: _View) -> _Point:
        bound = next(x.bound for x in mark.point.levels if x.level == level)
        share = mark.point.flops_per_second / bound
        words = (
            f"{mark.row.label}: {number(mark.at[1])} TFLOP/s at {number(mark.at[0])} "
            f"{LABELS[level]}, {percent(share)} of the roof over it"
        )
        if share > ERROR_MARGIN:
            words += "; above its roof, an error in the data"
        return cls(mark.row, view.at(*mark.at), share, words)

    @property
    def drawn(self) -> dict[str, Any]:
        x, y = self.at
        return {
            "variant": self.row.variant,
            "kind": kind(self.row),
            "x": x,
            "y": y,
            "wrong": self.share > ERROR_MARGIN,
            "words": self.words,
        }


def _ticks(view: _View, *, across: bool) -> list[dict[str, Any]]:
    """Decades with their words, and between them marks without."""
    limits = view.limits
    low, high = (limits.x0, limits.x1) if across else (limits.y0, limits.y1)
    found = []
    for decade in range(math.floor(math.log10(low)), math.ceil(math.log10(high))):
        for digit in range(1, 10):
            value = digit * 10.0**decade
            if low <= value <= high:
                where = view.at(value, limits.y0)[0] if across else view.at(limits.x0, value)[1]
                found.append({"at": where, "text": f"{value:g}" if digit == 1 else ""})
    return found


def _roofs(
    view: _View, roof: Roofs, level: str, reached: MeasuredLines
) -> tuple[dict[str, Any], list[Box], list[Segment]]:
    """Each ceiling, its words and its ridge; then what the points' labels must keep clear of."""
    limits, size = view.limits, view.size
    start = max(limits.x0, limits.y0 / roof.bandwidth)
    foot, knee = view.at(start, start * roof.bandwidth), view.at(roof.ridge(roof.high), roof.high)
    right, floor = view.corners[2], view.corners[3]
    roof_lines = [{**_line(foot, knee), "key": level}]
    segments: list[Segment] = [(foot, knee)]
    ridges, words = [], []
    taken: list[Box] = []
    for name, value in roof.compute:
        (x, y) = view.at(roof.ridge(value), value)
        roof_lines.append({**_line((x, y), (right, y)), "key": name})
        ridges.append(_line((x, y), (x, floor)))
        segments += [((x, y), (right, y)), ((x, y), (x, floor))]
        short = name.replace(", dense", "") if size.terse else name
        rate = number(value) if size.terse else reached.rate(name, value)
        text = f"{short} {rate}" if size.terse else f"{short}: {rate}"
        words.append(_word(text, (right - 4, y - 6), "end", "roof", size, taken))
        if not size.terse:
            text = f"ridge {number(roof.ridge(value))} FLOP/B"
            height = floor - 7 - LINE * size.font * (len(words) // 2 % 2)
            words.append(_word(text, (x + 5, height), "start", "small", size, taken))
    angle = math.degrees(math.atan2(knee[1] - foot[1], knee[0] - foot[0]))
    first = view.at(roof.ridge(roof.low), roof.low)
    middle = ((foot[0] + first[0]) / 2, (foot[1] + first[1]) / 2)
    colon = "" if size.terse else ":"
    rate = f"{number(roof.bandwidth)} TB/s" if size.terse else reached.slope(roof.bandwidth)
    slope = f"{LEVEL_NAMES[level]}{colon} {rate}"
    words.append(
        {
            "x": round(middle[0], 1),
            "y": round(middle[1], 1),
            "text": slope,
            "anchor": "middle",
            "look": "roof",
            "turn": round(angle, 1),
        }
    )
    area = [(foot[0], floor), foot, knee, (right, knee[1]), (right, floor)]
    dashed = [(view.at(*a), view.at(*b)) for a, b in reached.lines(limits, roof)]
    segments += dashed
    drawn = {
        "roofs": roof_lines,
        "ridges": ridges,
        "words": words,
        "area": area,
        "measured": [_line(a, b) for a, b in dashed],
    }
    return drawn, taken, segments


def _word(
    text: str, at: XY, anchor: str, look: str, size: Size, taken: list[Box]
) -> dict[str, Any]:
    wide = text_width(text, size.font)
    left = at[0] - wide if anchor == "end" else at[0]
    taken.append(Box(left, at[1] - size.font, left + wide, at[1] + 4))
    return {
        "x": round(at[0], 1),
        "y": round(at[1], 1),
        "text": text,
        "anchor": anchor,
        "look": look,
        "turn": 0,
    }


def _arrows(ablation: Ablation, points: Mapping[str, _Point]) -> list[dict[str, Any]]:
    """From each parent to its child, ending short of both markers."""
    found = []
    for row in ablation.rows:
        parent = points.get(row.step.parent or "") if row.step else None
        if parent is None or row.variant not in points:
            continue
        (ax, ay), (bx, by) = parent.at, points[row.variant].at
        length = math.hypot(bx - ax, by - ay)
        if length < 2:
            continue
        ux, uy = (bx - ax) / length, (by - ay) / length
        gap = min(9.0, 0.35 * length)
        start, tip = (ax + ux * gap, ay + uy * gap), (bx - ux * gap, by - uy * gap)
        wings = [
            (tip[0] - 8 * ux + side * 3.6 * uy, tip[1] - 8 * uy - side * 3.6 * ux)
            for side in (1, -1)
        ]
        head = [(round(x, 1), round(y, 1)) for x, y in (tip, *wings)]
        ends = [(round(x, 1), round(y, 1)) for x, y in (start, tip)]
        found.append(
            {
                **_line(*ends),
                "head": head,
                "variant": row.variant,
                "kept": row.verdict == Verdict.KEPT,
            }
        )
    return found


def _labels(
    points: Sequence[_Point],
    taken: Sequence[Box],
    lines: Sequence[Segment],
    view: _View,
    always: Collection[str],
) -> list[dict[str, Any]]:
    """One label a variant; those of one place stand under each other. Those that must be named
    share no label with others, for which there may be no room.

    Of many, those not in ``always`` that find no room are ``spare``: for a choice to show.
    """
    size = view.size
    must = {p.row.variant for p in points} if len(points) <= MANY else set(always)
    groups: list[list[_Point]] = []
    for point in sorted(points, key=lambda p: (p.row.is_reference, p.at[1])):
        for group in groups:
            named = group[0].row.variant in must, point.row.variant in must
            if _alike(group[0], point) and named[0] == named[1]:
                group.append(point)
                break
        else:
            groups.append([point])
    high = LINE * size.font
    anchors = [
        Anchor(
            group[0].at,
            4 + 1.06 * max(text_width(_said(p, size), size.font) for p in group),
            high * len(group),
            tuple(p.at for p in points if _alike(p, group[0])),
            group[0].row.variant in must,
        )
        for group in groups
    ]
    left, top, right, bottom = view.corners
    plot = Box(left + 3, top + 3, right - 3, bottom - 3)
    spots = place(anchors, taken, lines, plot, [point.at for point in points])
    found = []
    for group, anchor, spot in zip(groups, anchors, spots, strict=True):
        side = {"left": "start", "right": "end", "center": "middle"}[spot.side]
        nudge = {"start": 2.0, "end": -2.0, "middle": 0.0}[side]
        first = spot.at[1] - anchor.height / 2 + 0.98 * size.font
        for n, point in enumerate(group):
            leader = spot.leader if n == 0 or spot.spare else None
            found.append(
                {
                    "variant": point.row.variant,
                    "kind": kind(point.row),
                    "text": _said(point, size),
                    "spare": spot.spare,
                    "x": round(spot.at[0] + nudge, 1),
                    "y": round(first + n * high, 1),
                    "anchor": side,
                    "leader": _line(*((round(x, 1), round(y, 1)) for x, y in leader))
                    if leader
                    else None,
                }
            )
    return found


def _alike(one: _Point, other: _Point) -> bool:
    """Whether their marks look the same and cover each other."""
    return kind(one.row) == kind(other.row) and same_place(one.at, other.at)


def _said(point: _Point, size: Size) -> str:
    return point.row.label if size.terse else f"{point.row.label} {percent(point.share)}"
