"""A label beside a point is read as the nearest point's: whose it is must be certain."""

from __future__ import annotations

import math
from typing import Any

import pytest

import pages
from synthetic import ablation
from workbench.judge.rows import Ablation
from workbench.render import roofline_chart
from workbench.render.canvas import text_width
from workbench.render.labels import CLEAR, XY, Anchor, Box, Segment, Spot, place
from workbench.render.page_roofline import NARROW, WIDE, Size, drawings

PAGE = Box(0, 0, 500, 400)


def box_of(anchor: Anchor, spot: Spot) -> Box:
    left = {"left": 0.0, "right": anchor.width, "center": anchor.width / 2}[spot.side]
    x, y = spot.at[0] - left, spot.at[1] - anchor.height / 2
    return Box(x, y, x + anchor.width, y + anchor.height)


def apart(box: Box, mark: XY) -> float:
    x = min(max(mark[0], box.x0), box.x1)
    y = min(max(mark[1], box.y0), box.y1)
    return math.dist((x, y), mark)


def certain(box: Box, leader: object, own: list[XY], marks: list[XY]) -> bool:
    """Nearer to one of its own than to any other mark, or led to its own and clear of others."""
    others = min((apart(box, mark) for mark in marks if mark not in own), default=math.inf)
    return others > CLEAR if leader else min(apart(box, mark) for mark in own) < others


def long_or_recorded(ladder: str) -> Ablation:
    return pages.recorded()[0] if ladder == "recorded" else ablation(24)


def test_no_label_stands_nearer_to_another_mark_than_to_its_own() -> None:
    column = [(250.0 + i % 2, 100.0 + 9 * i) for i in range(20)]  # too close to name them all
    anchors = [
        Anchor(at, 80.0, 12.0, must=i in (0, 7)) for i, at in enumerate(column) if i % 3 != 2
    ]
    roofs = [((0.0, y), (500.0, y)) for _, y in column[::4]]  # push labels up and down
    spots = place(anchors, [], roofs, PAGE, column)
    shown = [(anchor, spot) for anchor, spot in zip(anchors, spots, strict=True) if not spot.spare]
    assert len(shown) > 4
    for anchor, spot in shown:
        box = box_of(anchor, spot)
        assert box.within(PAGE)
        assert certain(box, spot.leader, [anchor.at], column)


def test_what_must_be_named_is_and_the_rest_is_spare_where_there_is_no_room() -> None:
    wall = [Box(0, 0, 500, 195), Box(0, 205, 500, 400)]
    at = (250.0, 200.0)
    optional, needed = place(
        [Anchor(at, 60.0, 12.0, must=False), Anchor((300.0, 200.0), 60.0, 12.0)], wall, [], PAGE
    )
    assert optional.spare
    assert not needed.spare


def test_an_unnamed_mark_is_not_covered() -> None:
    anchor = Anchor((100.0, 100.0), 60.0, 12.0)
    beside = (130.0, 100.0)  # where the label would go
    (spot,) = place([anchor], [], [], PAGE, [beside])
    assert apart(box_of(anchor, spot), beside) > 6


def test_a_label_too_wide_for_either_side_of_its_point_stays_on_the_page() -> None:
    anchor = Anchor((450.0, 200.0), 480.0, 12.0, must=False)
    (spot,) = place([anchor], [], [], PAGE)
    assert box_of(anchor, spot).within(PAGE)
    assert spot.leader is not None


@pytest.mark.parametrize("ladder", ["recorded", "long"])
def test_the_chart_of_a_long_ladder_leaves_no_doubt(
    ladder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = long_or_recorded(ladder)
    placed: list[tuple[list[Anchor], list[Spot], list[XY]]] = []

    def watched(
        anchors: list[Anchor], taken: list[Box], lines: list[Segment], bounds: Box, marks: list[XY]
    ) -> list[Spot]:
        placed.append((anchors, place(anchors, taken, lines, bounds, marks), marks))
        return placed[-1][1]

    monkeypatch.setattr(roofline_chart, "place", watched)
    assert roofline_chart.draw(found)
    ((anchors, spots, marks),) = placed
    assert len(marks) == len(found.everything)
    shown = [pair for pair in zip(anchors, spots, strict=True) if not pair[1].spare]
    assert shown
    for anchor, spot in shown:
        own = [*anchor.own]
        assert certain(box_of(anchor, spot), spot.leader, own, marks)


def label_boxes(labels: list[dict[str, Any]], size: Size) -> list[Box]:
    boxes = []
    for label in labels:
        wide = text_width(label["text"], size.font)
        x = label["x"] - {"start": 0.0, "middle": wide / 2, "end": wide}[label["anchor"]]
        boxes.append(Box(x, label["y"] - 0.8 * size.font, x + wide, label["y"] + 0.2 * size.font))
    return boxes


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("ladder", ["recorded", "long"])
def test_the_pages_rooflines_leave_no_doubt(ladder: str, size: Size) -> None:
    found = long_or_recorded(ladder)
    assert found.best is not None
    for drawing in drawings(found, size):
        marks = {p["variant"]: (p["kind"], (p["x"], p["y"])) for p in drawing["points"]}
        labels = [label for label in drawing["labels"] if not label["spare"]]
        named = {label["variant"] for label in labels}
        assert {found.rows[0].variant, found.best.variant, found.reference} <= named
        assert {label["variant"] for label in drawing["labels"]} == marks.keys()
        led = [label for label in labels if label["leader"]]
        for label, box in zip(labels, label_boxes(labels, size), strict=True):
            kind, at = marks[label["variant"]]
            # Lines of one label: of marks of one look in one place, the leader is the first's.
            stack = [one for one in labels if one["x"] == label["x"] and one["kind"] == kind]
            if any(one in led for one in stack):
                continue
            look_alike = [
                place
                for look, place in marks.values()
                if look == kind and max(abs(place[0] - at[0]), abs(place[1] - at[1])) < 4
            ]
            others = [m for _, m in marks.values() if m not in look_alike]
            boxes = [
                b for one, b in zip(labels, label_boxes(labels, size), strict=True) if one in stack
            ]
            assert min(apart(b, m) for b in boxes for m in look_alike) < min(
                apart(box, other) for other in others
            )
