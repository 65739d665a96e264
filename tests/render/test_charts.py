"""Charts: the same bytes, well-formed, within their place, and names that overlap nothing."""

from __future__ import annotations

import itertools
import math
import xml.etree.ElementTree as ET
from functools import lru_cache
from pathlib import Path

import pytest

import pages
from answers import not_none, python
from made_ladder import CEILINGS, ablation, not_current, with_row
from workbench.app.ablate import judged
from workbench.app.executor import Local
from workbench.app.target import find_recorded
from workbench.judge.ladder import Ablation
from workbench.ncu.catalog import STALL_REASONS
from workbench.render.chart import svg
from workbench.render.chart.charts import (
    CHARTS,
    COLOURS,
    MOST,
    chart,
    chart_files,
    charts,
    fills,
    parts,
)
from workbench.render.doc import microseconds, percent
from workbench.render.document.printed_ladder import anchor
from workspaces import ROOT

HERE = Path(__file__).parents[1]
ON_A_PHONE = 350.0  # what a page of 390 px leaves for a chart


def texts(name: str, found: Ablation) -> list[str]:
    return pages.texts(chart(name, found))


def test_no_drawing_library_is_imported() -> None:
    script = "import sys, workbench.render.chart.charts; "
    script += "assert not {'numpy', 'pandas', 'jinja2'} & set(sys.modules)"
    assert python("-c", script, PYTHONPATH=str(HERE.parent / "profiler")).returncode == 0


def test_light_and_dark_differ_in_their_style_alone() -> None:
    files = chart_files(ablation(3))
    drawn = [name for name in CHARTS if name != "sizes"]  # it is of one size
    names = [f"{name}{end}" for name in drawn for end in ("", "-phone")]
    assert list(files) == [f"{name}-{shade}.svg" for name in names for shade in ("light", "dark")]
    for name in names:
        light, dark = (files[f"{name}-{shade}.svg"].splitlines() for shade in ("light", "dark"))
        apart = [pair for pair in zip(light, dark, strict=True) if pair[0] != pair[1]]
        assert len(apart) == 1
        assert all(line.startswith("<style>") for line in apart[0])
        assert svg.PALETTE["ink"].light in apart[0][0]
        assert svg.PALETTE["ink"].dark in apart[0][1]


def test_ceilings_carry_value_and_unit() -> None:
    told = texts("roofline", ablation(1))
    assert "DRAM 4.81 TB/s" in told
    assert "FP32 67.0 TFLOP/s" in told
    assert "Tensor, dense FP16 1073 TFLOP/s" in told


def test_the_path_to_the_best_and_the_references_are_named() -> None:
    told = [text.split()[0] for text in texts("roofline", ablation(6))]
    assert {"baseline", "fix1", "fix6", "sdpa"} <= set(told)
    assert "fix2" not in told  # rejected
    found, _ = pages.recorded()
    drawing = chart("roofline", found)
    shown = {row.variant for row in found.everything if row.roofline and row.figures}
    titles = {mark.words.split(" ")[0] for mark in marks(drawing)}
    assert titles == shown  # a pointer over a mark without a name shows it
    named = titles & {text.split(" ")[0] for text in pages.texts(drawing)}
    assert len(shown) > 20
    assert len(named) == 12
    assert {
        "baseline",
        not_none(found.best).variant,
        *(row.variant for row in found.references),
    } <= named


def marks(drawing: svg.Drawing) -> list[pages.Element]:
    """The signs of variants, which have a title."""
    return [e for e in pages.elements(drawing) if e.tag != "text" and e.words]


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
    (label,) = (t for t in texts("roofline", found) if t.startswith("fix15 "))
    assert label == f"fix15 {percent(share)}"


def test_titles_of_the_marks_say_what_the_table_says() -> None:
    found, _ = pages.recorded()
    times = {row.variant: microseconds(row.time.value) for row in found.path if row.time}
    told = dict(mark.words.split(": ") for mark in marks(chart("times", found)))
    assert {name: words.split(", ")[0] for name, words in told.items()} == times
    assert told["fix1"].endswith(", kept")


def test_rows_without_evidence_are_named() -> None:
    found = not_current(ablation(3), "fix2", "stale", "sources changed")
    told = texts("roofline", found)
    assert "not collected: fix2 (stale)" in told
    assert not any(text.startswith("fix2") for text in told)
    told = [text for text in texts("roofline", pages.recorded()[0]) if "not collected" in text]
    assert told[0].startswith("not collected: fix3 (failed: wrong: with outliers inputs: max")


def test_no_ceilings_no_tensor_no_captures_no_samples() -> None:
    bare: Ablation = ablation(1)
    for row in bare.everything:
        bare = not_current(bare, row.variant, "missing", "not measured")
    assert "ceilings not collected" in texts("roofline", ablation(1, ceilings=None))
    rates = {name: CEILINGS.rates[name] for name in ("dram", "fp32")}
    plain = ablation(1, ceilings=type(CEILINGS)(CEILINGS.sm_clock, rates))
    assert not any("Tensor" in text for text in texts("roofline", plain))
    for name in CHARTS:
        assert chart(name, bare).on().height < 700
    assert "stall samples not collected" in texts("stall-time", bare)


def test_the_time_of_each_step_stands_beside_its_parent() -> None:
    told = texts("stall-time", ablation(3))
    assert [told.count(name) for name in ("baseline", "fix1", "fix2", "fix3")] == [1, 2, 0, 1]
    assert "960 µs" in told
    assert "505 µs, 1.90x" in told
    assert "672" in told  # of 960 µs, 70 % in long scoreboard
    of_steps = {drawing.name for drawing in pages.charts_of(ablation(3))}
    assert of_steps >= {f"stall-time-{anchor(name)}" for name in ("fix1", "fix2", "fix3")}
    assert "stall-time" in of_steps
    nothing = ablation(1, whole=None)
    nothing = with_row(nothing, "fix1", against_parent=None)
    assert "stall samples not collected" in texts("stall-time", nothing)


def test_bars_are_drawn_to_scale() -> None:
    rects = pages.elements(chart("stall-time", ablation(1)), "rect")
    key, before, after = (r for r in rects if r.colour == COLOURS["long_scoreboard"])
    assert key["width"] == 12
    assert after["width"] / before["width"] == pytest.approx(0.4 / 0.7 / 1.9, rel=0.01)


def test_small_reasons_are_summed_as_other() -> None:
    many = dict.fromkeys([*COLOURS][1 : MOST + 4], 0.1)
    colours = fills([{**many, "of another ncu": 0.1}])
    assert list(colours)[-1] == "other"
    assert dict(parts(many, colours))["other"] == pytest.approx(0.3)


def test_a_stall_reason_has_one_colour_in_every_chart_and_on_the_page() -> None:
    assert set(STALL_REASONS) - COLOURS.keys() <= {"misc", "tex_throttle"}  # grey, as the rest
    assert len(set(COLOURS.values())) == len(COLOURS)
    found, _ = pages.recorded()
    data = pages.Outline(pages.recorded_page()).data
    on_page = {each["label"]: each["colour"] for each in data["reasons"]}
    for drawing in pages.charts_of(found):
        if drawing.name.startswith("stall-time"):
            drawn = pages.elements(drawing)
            for key, word in itertools.pairwise(drawn):
                if key.tag == "rect" and word.tag == "text" and word.words in on_page:
                    assert key.colour == on_page[word.words], drawing.name
    assert len(on_page) > 10


def test_text_is_readable_in_both_themes() -> None:
    for name in ("ink", "muted", "step", "reference", "rejected"):
        for theme in ("light", "dark"):
            text, paper = (getattr(svg.PALETTE[one], theme) for one in (name, "paper"))
            assert pages.contrast(text, paper) >= 4.5
    for fill in COLOURS.values():
        for theme in ("light", "dark"):
            text, under = (getattr(svg.PALETTE[one], theme) for one in (svg.ink_on(fill), fill))
            assert pages.contrast(text, under) >= 4.5


@pytest.mark.parametrize("name", CHARTS)
def test_nothing_leaves_the_picture_and_all_words_of_the_scene_are_there(name: str) -> None:
    drawing = chart(name, pages.recorded()[0])
    for width in (svg.WIDTH, svg.PHONE):
        inside(drawing, width)
    assert all((drawing.title, drawing.subtitle, drawing.alt, drawing.caption))
    assert "faster" not in drawing.caption


def test_a_page_gets_no_colours_and_no_buttons() -> None:
    drawing = chart("roofline", ablation(3))
    root = ET.fromstring(f"<div>{drawing.inline()}</div>")
    assert [each.attrib["aria-label"] for each in root] == [drawing.alt, drawing.alt]
    assert not {"tabindex", "data-variant"} & {k for e in root.iter() for k in e.attrib}
    assert "#" not in "".join(v for e in root.iter() for k, v in e.attrib.items() if k != "d")
    assert "light-dark(#1f2328,#f0f6fc)" in svg.page_style()
    assert all(rule.startswith(".chart ") for rule in svg.page_style().split("}")[:-1])


def test_a_time_stands_where_its_logarithm_is() -> None:
    found = ablation(3)
    drawing = chart("times", found)
    at = {mark.words.partition(":")[0]: mark["cx"] for mark in marks(drawing)}
    assert list(at) == [row.variant for row in found.path]
    times = {row.variant: row.time.value for row in found.everything if row.time}
    first, second, third = "baseline", "fix1", "fix3"
    scale = (at[first] - at[second]) / math.log(times[first] / times[second])
    expected = scale * math.log(times[second] / times[third])
    assert at[second] - at[third] == pytest.approx(expected, abs=0.2)
    lines = [e for e in pages.elements(drawing, "path") if "stroke-dasharray" in e.attributes]
    references = sorted(times[row.variant] for row in found.references)
    assert len(lines) == len(references) > 0
    for line, value in zip(lines, references, strict=True):
        expected = scale * math.log(value / times[second])
        assert line.points[0][0] - at[second] == pytest.approx(expected, abs=0.2)


def test_a_ladder_without_times_says_so() -> None:
    found = ablation(0, references=0)
    found = not_current(found, "baseline", "missing", "not measured")
    assert "timing not collected" in texts("times", found)


# ---- over the size


def inside(drawing: svg.Drawing, width: float = svg.WIDTH) -> None:
    """No text leaves its chart, and none but one that is turned covers another."""
    drawn = pages.elements(drawing, "text", width)
    texts = [text for text in drawn if "x" in text.attributes]
    for text in texts:
        assert text.box.x0 >= -1, text
        assert text.box.x1 <= width + 1, text
        assert 0 <= text["y"] <= drawing.on(width).height, text
        assert text["font-size"] >= 11
    for one, other in itertools.combinations(texts, 2):
        assert not pages.overlap(one.box, other.box), (one, other)
    for file in drawing.files().values():
        ET.fromstring(file)


@pytest.mark.slow
def test_times_over_the_size_stand_beside_the_newest_version() -> None:
    ladder = studies()["attention"]
    told = pages.texts(chart("sizes", ladder))
    assert {row.variant for row in ladder.references} <= set(told)
    assert "B=4 H=16 S=2048 D=128 causal" in told
    assert "4.58 µs" in told


# ---- names
def test_places_in_a_column_keep_their_order_and_distance() -> None:
    wanted = [10.0, 11.0, 12.0, 80.0, 200.0]
    found = svg.spread(wanted, 14, 5, 205)
    assert all(b - a >= 14 - 1e-9 for a, b in itertools.pairwise(found))
    assert found[3:] == [80.0, 200.0]  # what has room stays where it wants to be
    assert svg.spread([0.0, 1000.0], 10, 50, 100) == [50.0, 100.0]
    assert svg.spread([], 10, 0, 1) == []


def ladder_of(name: str) -> Ablation:
    return pages.recorded()[0] if name == "recorded" else ablation(24)


@lru_cache
def studies() -> dict[str, Ablation]:
    """The recorded studies of this repository."""
    found = {}
    for study in ("attention", "attention_served", "moe", "softmax", "transpose"):
        target = find_recorded(Local(), ROOT, study, None)
        found[study] = judged(target, steps=target.steps([]))[0]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("width", [svg.WIDTH, svg.PHONE])
def test_no_two_names_of_a_roofline_meet_in_any_study(width: float) -> None:
    """Nor two lines to them; text has 11 px on a page that is 390 px wide."""
    for study, found in studies().items():
        for drawing in charts(found):
            inside(drawing, width)
            root = ET.fromstring(drawing.svg(width=width))
            sizes = [float(e.attrib["font-size"]) for e in root.iter() if "font-size" in e.attrib]
            shown = min(ON_A_PHONE, width) if width == svg.PHONE else width
            assert min(sizes) * shown / float(root.attrib["viewBox"].split()[2]) >= 11
        if found.moves_only:
            continue
        level = "L2" if study.startswith("attention") else "DRAM"  # where the inputs fit
        assert f"required FLOP per {level} byte moved" in texts("roofline", found)
        drawn = pages.elements(chart("roofline", found), "path", width)
        leaders = [e.points for e in drawn if e["stroke-width"] == 0.6]
        assert len(leaders) >= 6, study
        for (start, end, _), (begin, stop, _) in itertools.combinations(leaders, 2):
            assert not pages.cross((start, end), (begin, stop)), study
        named = pages.texts(chart("roofline", found))
        wanted = [found.rows[0], not_none(found.best), *found.references]
        for row in wanted:
            assert any(t.split()[0] == row.variant for t in named) == bool(row.roofline), study


@pytest.mark.parametrize("name", ["recorded", "long"])
def test_names_overlap_no_name_and_lead_to_their_marks(name: str) -> None:
    drawing = chart("roofline", ladder_of(name))
    inside(drawing)
    leaders = [e.points for e in pages.elements(drawing, "path") if e["stroke-width"] == 0.6]
    names = [e for e in pages.elements(drawing, "text") if e["font-size"] == svg.TEXT]
    places = {mark.words: pages.middle(mark) for mark in marks(drawing)}
    assert len(leaders) > 7
    for start, _, (x, y) in leaders:
        (named,) = (n for n in names if abs(n["x"] - x - 3) < 0.2 and abs(n["y"] - y - 4.2) < 0.2)
        assert start == pytest.approx(places[named.words], abs=0.2)
    for (start, end, _), (begin, stop, _) in itertools.combinations(leaders, 2):
        assert not pages.cross((start, end), (begin, stop))


def test_names_of_roofs_stand_clear_of_the_marks_and_the_slope() -> None:
    drawing = chart("roofline", pages.recorded()[0])
    (slope,) = filter(rises, pages.elements(drawing, "path"))
    (ax, ay), (bx, by) = slope.points
    roofs = [e for e in pages.elements(drawing, "text") if "TFLOP/s" in e.words]
    roofs = [e for e in roofs if " h " in e.attributes["class"]]
    assert len(roofs) == 2
    for roof in roofs:
        assert not any(pages.holds(roof.box, pages.middle(mark)) for mark in marks(drawing))
        box = roof.box
        left, right = (ay + (x - ax) / (bx - ax) * (by - ay) for x in (box.x0, min(box.x1, bx)))
        assert box.y1 < right or box.y0 > left or box.x0 > bx  # over, under, or right of it


def rises(line: pages.Element) -> bool:
    """Whether a solid line of a roof is the slope."""
    solid = line["stroke-width"] == 1.6 and line.attributes.get("fill") == "none"
    return solid and len(line.points) == 2 and line.points[0][1] != line.points[1][1]
