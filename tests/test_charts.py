"""Charts: the same bytes, well-formed, within their place, and names that overlap nothing."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from xml.etree import ElementTree

import pytest

import pages
from answers import not_none
from synthetic import CEILINGS, ablation, not_current, with_row
from workbench.derive.speedup import Ratio, Time
from workbench.judge.rows import Ablation
from workbench.judge.sizes import OverSizes
from workbench.judge.times import AcrossShapes, AtShape
from workbench.render.chart import svg
from workbench.render.chart.charts import CHARTS, FILES, chart_files, page_scenes, scene
from workbench.render.chart.scene import (
    PALETTE,
    Anchor,
    Bar,
    Box,
    Item,
    Label,
    Polyline,
    Scene,
    Sign,
    VariantItems,
    ink_on,
    spread,
    text_width,
)
from workbench.render.chart.stall_bars import COLOURS, ISSUING_FILL, OTHER_FILL, fills, parts
from workbench.render.chart.time_charts import size_lines
from workbench.render.document.step import step_chart
from workbench.render.numbers import percent
from workbench.words import Regime

HERE = Path(__file__).parent


def chart(name: str, found: Ablation) -> str:
    return svg.files(scene(name, found))[0]


def texts(picture: str) -> list[str]:
    """The words of a chart; reading them also proves that it is well-formed XML."""
    root = ET.fromstring(picture)
    return ["".join(e.itertext()).strip() for e in root.iter() if e.tag.endswith("}text")]


def bars(items: tuple[Item, ...], part: str) -> list[Box]:
    found = [item for group in pages.groups(items) for item in group.items]
    return [item.box for item in found if isinstance(item, Bar) and item.part == part]


def test_bytes_do_not_depend_on_the_hash_seed() -> None:
    script = (
        "import hashlib; from synthetic import ablation; "
        "from workbench.render.chart.charts import chart_files; "
        "print(hashlib.sha256(repr(chart_files(ablation(3))).encode()).hexdigest())"
    )
    source = os.pathsep.join([str(HERE), str(HERE.parent / "profiler")])
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": source},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_no_drawing_library_is_imported() -> None:
    script = "import sys, workbench.render.chart.charts; "
    script += "assert not {'matplotlib', 'numpy', 'pandas', 'jinja2'} & set(sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(HERE.parent / "profiler")}
    subprocess.run([sys.executable, "-c", script], env=env, check=True)


def test_light_and_dark_differ_in_their_style_alone() -> None:
    files = chart_files(ablation(3))
    assert tuple(files) == FILES
    for name in CHARTS:
        light, dark = (files[f"{name}-{shade}.svg"].splitlines() for shade in ("light", "dark"))
        apart = [pair for pair in zip(light, dark, strict=True) if pair[0] != pair[1]]
        assert len(apart) == 1
        assert all(line.startswith("<style>") for line in apart[0])
        assert PALETTE["ink"].light in apart[0][0]
        assert PALETTE["ink"].dark in apart[0][1]


@pytest.mark.parametrize("name", CHARTS)
def test_names_of_any_kind_are_text(name: str) -> None:
    nasty = 'A <b> & $x_1$ "\x00\x1f\ud800\ufffe\n]]>'
    found = ablation(3, gpu=nasty, shape="a|b", reference=nasty)
    rows = tuple(
        dataclasses.replace(row, variant=nasty) if row.variant == "fix3" else row
        for row in found.rows
    )
    found = dataclasses.replace(found, rows=rows)
    one = scene(name, found)
    for picture in (*svg.files(one), svg.inline(one)):
        root = ET.fromstring(picture.encode())
        assert "A <b> & $x_1$" in " ".join(root.itertext()) + " ".join(
            value for e in root.iter() for value in e.attrib.values()
        )
        assert not {e.tag.rpartition("}")[2] for e in root.iter()} & {"b", "script"}


def test_ceilings_carry_value_and_unit() -> None:
    told = texts(chart("roofline", ablation(1)))
    assert "DRAM 4.81 TB/s" in told
    assert "FP32 67.0 TFLOP/s, ridge 13.9" in told
    assert "Tensor, dense FP16 1073 TFLOP/s, ridge 223" in told


def test_the_path_to_the_best_and_the_references_are_named() -> None:
    told = [text.split()[0] for text in texts(chart("roofline", ablation(6)))]
    assert {"baseline", "fix1", "fix6", "sdpa"} <= set(told)
    assert "fix2" not in told  # rejected
    found, _ = pages.recorded()
    named = {g.variant for g in pages.groups(scene("roofline", found).items) if g.areas}
    assert len(named) == 12
    assert {
        "baseline",
        not_none(found.best).variant,
        *(row.variant for row in found.references),
    } <= named


def test_height_is_the_work_that_the_problem_needs() -> None:
    """Read back from the picture: the share of the roof over the mark."""
    found, _ = pages.recorded()
    row = found.row("fix15")
    assert row.roofline is not None
    rates, seconds = not_none(found.ceilings).rates, row.figures["duration"].value * 1e-6
    assert found.work is not None
    (level,) = (one for one in row.roofline.levels if one.name == found.base)
    moved = level.bytes_per_second * seconds
    over = min(rates["tensor fp16"], found.work.flops / moved * rates[found.base])
    share = found.work.flops / seconds / over
    assert abs(found.work.flops - row.roofline.flops) > 0.01 * row.roofline.flops  # executed
    (label,) = (t for t in texts(chart("roofline", found)) if t.startswith("fix15 "))
    assert label == f"fix15 {percent(share)}"


@pytest.mark.parametrize("name", CHARTS)
def test_every_choice_can_be_reached_at_its_last_area(name: str) -> None:
    """Of all hit areas over the middle of one, the last drawn is its own group's."""
    found, _ = pages.recorded()
    one = scene(name, found)
    chosen = [group for group in pages.groups(one.items) if group.areas]
    for group in chosen:
        assert group.words
        middle = group.areas[-1].middle
        over = [g for g in chosen if any(pages.holds(a, middle) for a in g.areas)]
        assert over[-1] == group
    reached = {group.variant for group in pages.groups(one.items)}
    path = {row.variant for row in found.path}
    shown = {row.variant for row in found.everything if row.figures}
    assert len(shown) > 20
    assert len(path) > 5
    references = {row.variant for row in found.references}
    wanted = {"roofline": shown, "times": path | references, "stall-time": path - {"baseline"}}
    assert reached >= wanted[name]
    told = [text for text in texts(svg.files(one)[0]) if text.startswith("not collected: ")]
    if name == "roofline":
        assert told[0].startswith("not collected: fix3 (failed: wrong: with outliers inputs: max")


def test_rows_without_evidence_are_named() -> None:
    found = not_current(ablation(3), "fix2", "stale", "sources changed")
    told = texts(svg.files(scene("roofline", found))[0])
    assert "not collected: fix2 (stale)" in told
    assert not any(text.startswith("fix2") for text in told)


def test_no_ceilings_no_tensor_no_captures_no_samples() -> None:
    bare: Ablation = ablation(1)
    for row in bare.everything:
        bare = not_current(bare, row.variant, "missing", "not measured")
    assert "ceilings not collected" in texts(chart("roofline", ablation(1, ceilings=None)))
    rates = {name: CEILINGS.rates[name] for name in ("dram", "fp32")}
    plain = ablation(1, ceilings=type(CEILINGS)(CEILINGS.sm_clock, rates))
    assert not any("Tensor" in text for text in texts(chart("roofline", plain)))
    for name in CHARTS:
        assert scene(name, bare).height < 700
    assert "stall samples not collected" in texts(chart("stall-time", bare))


def test_the_time_of_each_step_stands_beside_its_parent() -> None:
    told = texts(chart("stall-time", ablation(3)))
    assert [told.count(name) for name in ("baseline", "fix1", "fix2", "fix3")] == [1, 2, 0, 1]
    assert "960 µs" in told
    assert "505 µs, 1.90x" in told
    assert "672" in told  # of 960 µs, 70 % in long scoreboard
    of_steps = {one.name for one in page_scenes(ablation(3))}
    assert of_steps >= {step_chart(name) for name in ("fix1", "fix2", "fix3")}
    assert "stall-time" not in of_steps
    nothing = ablation(1, whole=None)
    nothing = with_row(nothing, "fix1", against_parent=None)
    assert "stall samples not collected" in texts(chart("stall-time", nothing))


def test_bars_are_drawn_to_scale() -> None:
    before, after = bars(scene("stall-time", ablation(1)).items, "long_scoreboard")[:2]
    assert after.width / before.width == pytest.approx(0.4 / 0.7 / 1.9, rel=0.01)


def test_small_reasons_are_summed_as_other() -> None:
    many = {f"reason{i}": 0.1 for i in range(10)}
    colours = fills([many])
    assert list(colours)[-1] == "other"
    assert dict(parts(many, colours))["other"] == pytest.approx(0.3)


def test_text_is_readable_in_both_themes() -> None:
    for name in ("ink", "muted", "step", "reference", "rejected"):
        for theme in ("light", "dark"):
            text, paper = (getattr(PALETTE[one], theme) for one in (name, "paper"))
            assert pages.contrast(text, paper) >= 4.5
    for fill in {*COLOURS.values(), ISSUING_FILL, OTHER_FILL}:
        for theme in ("light", "dark"):
            text, under = (getattr(PALETTE[one], theme) for one in (ink_on(fill), fill))
            assert pages.contrast(text, under) >= 4.5


@pytest.mark.parametrize("name", CHARTS)
def test_nothing_leaves_the_picture_and_all_words_of_the_scene_are_there(name: str) -> None:
    found, _ = pages.recorded()
    one = scene(name, found)
    assert one.width == 920
    for label in pages.labels(one.items):
        assert -1 <= label.at[0] <= one.width + 1
        assert 0 <= label.at[1] <= one.height
    assert all((one.title, one.subtitle, one.alt, one.caption))
    assert "faster" not in one.caption


def test_a_page_gets_buttons_and_no_colours_of_its_own() -> None:
    one = scene("roofline", ablation(3))
    root = ET.fromstring(svg.inline(one))
    buttons = [e for e in root.iter() if e.attrib.get("role") == "button"]
    assert buttons
    assert all(e.attrib["aria-label"] and e.attrib["tabindex"] == "0" for e in buttons)
    assert all("data-variant" in e.attrib for e in buttons)
    assert "#" not in "".join(v for e in root.iter() for k, v in e.attrib.items() if k != "d")
    assert "light-dark(#1f2328,#f0f6fc)" in svg.page_style()
    assert all(rule.startswith(".chart ") for rule in svg.page_style().split("}")[:-1])


def test_an_unnumbered_group_is_not_a_button() -> None:
    name = VariantItems((), "fix1", "name")
    one = dataclasses.replace(scene("roofline", ablation(1)), items=(name,))
    assert "button" not in svg.inline(one)
    assert math.isfinite(one.height)


def test_a_time_stands_where_its_logarithm_is() -> None:
    found = ablation(3)
    one = scene("times", found)
    at = {
        group.variant: sign.at[0]
        for group in pages.groups(one.items)
        for sign in group.items
        if isinstance(sign, Sign)
    }
    assert list(at) == [row.variant for row in found.path]
    times = {row.variant: row.time.value for row in found.everything if row.time}
    first, second, third = "baseline", "fix1", "fix3"
    scale = (at[first] - at[second]) / math.log(times[first] / times[second])
    assert at[second] - at[third] == pytest.approx(scale * math.log(times[second] / times[third]))
    lines = {
        group.variant: item.points[0][0]
        for group in pages.groups(one.items)
        for item in group.items
        if isinstance(item, Polyline) and item.stroke.dash
    }
    assert set(lines) == {row.variant for row in found.references}
    for name, x in lines.items():
        assert x - at[second] == pytest.approx(scale * math.log(times[name] / times[second]))


def test_a_ladder_without_times_says_so() -> None:
    found = ablation(0, references=0)
    found = not_current(found, "baseline", "missing", "not measured")
    assert "timing not collected" in texts(chart("times", found))


# ---- over the size
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
