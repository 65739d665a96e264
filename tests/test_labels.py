"""A name beside a point is read as the nearest point's: whose it is must be certain."""

from __future__ import annotations

import itertools
import math

import pytest

import pages
from synthetic import ablation
from workbench.judge.rows import Ablation
from workbench.render.chart.charts import scene
from workbench.render.chart.placing import NEAR, Space, clusters, spread, text_box
from workbench.render.chart.scene import XY, Box, Group, Label, Line, Sign, groups

PAGE = Box(0, 0, 500, 400)


def apart(box: Box, mark: XY) -> float:
    x = min(max(mark[0], box.x0), box.x1)
    y = min(max(mark[1], box.y0), box.y1)
    return math.dist((x, y), mark)


def test_no_name_stands_nearer_to_another_mark_than_to_its_own() -> None:
    column = [(250.0 + i % 2, 100.0 + 9 * i) for i in range(20)]  # too close to name them all
    roofs = [((0.0, y), (500.0, y)) for _, y in column[::4]]  # push names up and down
    space = Space(PAGE, column, lines=list(roofs))
    spots = [(at, space.put([at], ["name of it"], 12.0)) for at in column[::3]]
    shown = [(at, spot) for at, spot in spots if spot]
    assert len(shown) > 3
    for at, spot in shown:
        assert spot.box.within(PAGE)
        others = min(apart(spot.box, mark) for mark in column if mark != at)
        assert spot.leader or apart(spot.box, at) < others
    for (_, one), (_, other) in itertools.combinations(shown, 2):
        assert not one.box.overlaps(other.box)


def test_where_there_is_no_room_there_is_no_name() -> None:
    walls = [Box(0, 0, 500, 195), Box(0, 205, 500, 400)]
    space = Space(PAGE, [(250.0, 200.0)], boxes=walls)
    assert space.put([(250.0, 200.0)], ["too high for the gap"], 12.0) is None


def test_a_name_crosses_a_line_rather_than_be_left_out() -> None:
    """sdpa_flash stood without a name between a roof, a ridge, arrows and a frame's lines."""
    mark = (250.0, 200.0)
    grid = [((0.0, 20.0 * n), (500.0, 20.0 * n)) for n in range(21)]
    grid += [((25.0 * n, 0.0), (25.0 * n, 400.0)) for n in range(21)]
    crossing = Space(PAGE, [mark], lines=grid).put([mark], ["name over lines"], 12.0)
    assert crossing is not None
    assert any(crossing.box.clipped(line) for line in grid)
    free = Space(PAGE, [mark], lines=[((250.0, 200.0), (400.0, 200.0))])
    beside = free.put([mark], ["name over lines"], 12.0)
    assert beside is not None
    assert not beside.box.clipped(free.lines[0])


def test_a_mark_without_a_name_is_not_covered() -> None:
    beside = (130.0, 100.0)  # where the name would go
    spot = Space(PAGE, [(100.0, 100.0), beside]).put([(100.0, 100.0)], ["some name"], 12.0)
    assert spot is not None
    assert apart(spot.box, beside) > 6


def test_places_in_a_column_keep_their_order_and_distance() -> None:
    wanted = [10.0, 11.0, 12.0, 80.0, 200.0]
    found = spread(wanted, 14, 5, 205)
    assert all(b - a >= 14 - 1e-9 for a, b in itertools.pairwise(found))
    assert found[3:] == [80.0, 200.0]  # what has room stays where it wants to be
    assert found[1] == pytest.approx(sum(wanted[:3]) / 3 + 8)  # pushed down by the upper end
    assert spread([0.0, 1000.0], 10, 50, 100) == [50.0, 100.0]
    assert spread([], 10, 0, 1) == []


def test_marks_of_different_clusters_do_not_cover_each_other() -> None:
    marks = [(10.0 * (i % 7), 4.0 * (i * i % 13)) for i in range(30)]
    found = clusters(marks)
    assert sorted(itertools.chain(*found)) == list(range(30))
    for one, other in itertools.combinations(found, 2):
        for i, j in itertools.product(one, other):
            (ax, ay), (bx, by) = marks[i], marks[j]
            assert max(abs(ax - bx), abs(ay - by)) >= NEAR


def test_a_segment_is_cut_at_a_box() -> None:
    box = Box(0, 0, 10, 10)
    assert box.clipped(((-5, 5), (15, 5))) == ((0, 5), (10, 5))
    assert box.clipped(((5, 5), (6, 6))) == ((5, 5), (6, 6))
    assert box.clipped(((-5, 2), (5, 22))) is None
    assert box.clipped(((-5, 12), (15, 12))) is None


def ladder(name: str) -> Ablation:
    return pages.recorded()[0] if name == "recorded" else ablation(24)


def name_boxes(found: list[Group]) -> list[tuple[Label, Box]]:
    words = [item for group in found for item in group.items if isinstance(item, Label)]
    return [
        (label, text_box(label.at, label.text, label.size, label.anchor, bold=label.bold))
        for label in words
    ]


@pytest.mark.parametrize("name", ["recorded", "long"])
def test_names_overlap_no_name_and_no_mark(name: str) -> None:
    one = scene("roofline", ladder(name))
    named = [group for group in groups(one.items) if group.kind == "name"]
    boxes = name_boxes(named)
    for (first, box), (second, other) in itertools.combinations(boxes, 2):
        assert not box.grown(-1).overlaps(other.grown(-1)), (first.text, second.text)
    marks = [
        item.at for g in groups(one.items) if g.areas for item in g.items if isinstance(item, Sign)
    ]
    for label, box in boxes:
        assert not any(box.holds(mark) for mark in marks), label.text
        assert box.x1 <= one.width, label.text


def test_in_the_enlarged_crowd_a_line_leads_from_each_name_to_its_mark() -> None:
    one = scene("roofline", pages.recorded()[0])
    everything = groups(one.items)
    areas = {v: g.areas[g.variants.index(v)] for g in everything if g.areas for v in g.variants}
    led = [
        (group.variants[0], item)
        for group in everything
        for item in group.items
        if group.kind == "name" and isinstance(item, Line) and len(item.points) == 3
    ]
    assert len(led) > 15
    for variant, line in led:
        assert math.dist(line.points[0], areas[variant].middle) < 0.1
