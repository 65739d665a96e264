"""Names in a column beside a plot: none covers another, and a line leads to each mark."""

from __future__ import annotations

import itertools

import pytest

import pages
from synthetic import ablation
from workbench.judge.rows import Ablation
from workbench.render.chart.charts import scene
from workbench.render.chart.scene import Label, Polyline, Sign, spread


def test_places_in_a_column_keep_their_order_and_distance() -> None:
    wanted = [10.0, 11.0, 12.0, 80.0, 200.0]
    found = spread(wanted, 14, 5, 205)
    assert all(b - a >= 14 - 1e-9 for a, b in itertools.pairwise(found))
    assert found[3:] == [80.0, 200.0]  # what has room stays where it wants to be
    assert spread([0.0, 1000.0], 10, 50, 100) == [50.0, 100.0]
    assert spread([], 10, 0, 1) == []


def ladder(name: str) -> Ablation:
    return pages.recorded()[0] if name == "recorded" else ablation(24)


@pytest.mark.parametrize("name", ["recorded", "long"])
def test_names_overlap_no_name_and_lead_to_their_marks(name: str) -> None:
    one = scene("roofline", ladder(name))
    named = [group for group in pages.groups(one.items) if group.areas]
    assert len(named) > 7
    boxes = []
    for group in named:
        line, label, mark = group.items[:3]
        assert isinstance(line, Polyline)
        assert isinstance(label, Label)
        assert isinstance(mark, Sign)
        assert line.points[0] == mark.at
        boxes.append(pages.text_box(label))
        assert boxes[-1].x0 > line.points[-1][0]
        assert boxes[-1].x1 <= one.width
    for first, second in itertools.combinations(boxes, 2):
        assert not pages.overlap(first, second)
