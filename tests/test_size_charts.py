"""Charts over the size, and names beside a plot: within their place, and nothing left out."""

from __future__ import annotations

import dataclasses
import itertools
from xml.etree import ElementTree

import pytest

import pages
from synthetic import ablation
from workbench.derive.speedup import Ratio, Time
from workbench.judge.regimes import AcrossShapes, AtShape
from workbench.judge.rows import Ablation
from workbench.judge.sizes import OverSizes
from workbench.render.chart import svg
from workbench.render.chart.charts import scene
from workbench.render.chart.scene import Anchor, Label, Polyline, Scene, Sign, spread, text_width
from workbench.render.chart.time_charts import size_lines
from workbench.words import Regime


def time(value: float) -> Time:
    return Time(value, 0.9 * value, 1.1 * value, Regime.CHAINED, 5, 20)


def inside(scene: Scene) -> None:
    for one in pages.labels(scene.items):
        wide = text_width(one.text, one.size, bold=one.bold)
        left = one.at[0] - {Anchor.START: 0, Anchor.MIDDLE: wide / 2, Anchor.END: wide}[one.anchor]
        assert left >= -1, one
        assert left + wide <= scene.width + 1, one
        assert 0 <= one.at[1] <= scene.height, one
    for file in svg.files(scene):
        ElementTree.fromstring(file)


def over(names: int, references: int = 1) -> OverSizes:
    sizes = {f"n{2**i}": float(2**i) for i in range(4, 12)}

    def point(shape: str, microseconds: float) -> AtShape:
        return AtShape(shape, {}, time(microseconds), "", None, None, 1e12, 1e9, None)

    lines = [
        AcrossShapes(f"v{n}", tuple(point(s, (n + 1) * v) for s, v in sizes.items()))
        for n in range(names)
    ]
    return OverSizes(
        study="study",
        gpu="nvidia-h200",
        parameter="n",
        sizes=sizes,
        others={"rows": 2},
        variants=tuple(lines),
        references=tuple(f"v{n}" for n in range(names - references, names)),
        in_flops=True,
    )


@pytest.mark.parametrize("names", [1, 2, 7, 30])
def test_sizes_are_drawn_whatever_their_number(names: int) -> None:
    inside(size_lines(over(names)))


def test_steps_are_drawn_over_the_fastest_reference_with_their_intervals() -> None:
    found = over(30, references=2)
    ratio = Ratio(1.5, 1.2, 1.9)
    lines = tuple(
        dataclasses.replace(
            line,
            shapes=tuple(dataclasses.replace(p, speedup_over_fastest=ratio) for p in line.shapes),
        )
        for line in found.variants
    )
    drawn = size_lines(dataclasses.replace(found, variants=lines))
    inside(drawn)
    told = [label.text for label in pages.labels(drawn.items)]
    assert "v0" in told  # the fastest
    assert "v27" in told  # the last step
    assert not {"v28", "v29"} & set(told)
    assert "fastest reference" in told
    without = [label.text for label in pages.labels(size_lines(found).items)]
    assert without == ["no version was timed beside a reference"]


# ---- names
def test_places_in_a_column_keep_their_order_and_distance() -> None:
    wanted = [10.0, 11.0, 12.0, 80.0, 200.0]
    found = spread(wanted, 14, 5, 205)
    assert all(b - a >= 14 - 1e-9 for a, b in itertools.pairwise(found))
    assert found[3:] == [80.0, 200.0]  # what has room stays where it wants to be
    assert spread([0.0, 1000.0], 10, 50, 100) == [50.0, 100.0]
    assert spread([], 10, 0, 1) == []


def ladder_of(name: str) -> Ablation:
    return pages.recorded()[0] if name == "recorded" else ablation(24)


@pytest.mark.parametrize("name", ["recorded", "long"])
def test_names_overlap_no_name_and_lead_to_their_marks(name: str) -> None:
    one = scene("roofline", ladder_of(name))
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
