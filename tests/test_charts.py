"""Charts: the same bytes each time, and true to the data."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from synthetic import CEILINGS, ablation, not_current, point, with_row
from workbench.judge.rows import Ablation
from workbench.render.canvas import DARK, LIGHT, swap
from workbench.render.charts import CHARTS, FILES, chart, chart_files
from workbench.render.labels import Anchor, Box, place
from workbench.render.stall_chart import COLOURS, ISSUING_FILL, OTHER_FILL, on

HERE = Path(__file__).parent


def texts(svg: str) -> list[str]:
    """The words of a chart; reading them also proves that it is well-formed XML."""
    return [
        "".join(e.itertext()).strip() for e in ET.fromstring(svg).iter() if e.tag.endswith("}text")
    ]


def test_two_renders_are_equal() -> None:
    assert chart_files(ablation(3)) == chart_files(ablation(3))
    assert tuple(chart_files(ablation(1))) == FILES


def test_bytes_do_not_depend_on_the_hash_seed_or_the_users_settings(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("font.size: 20\nsvg.fonttype: path\n")
    script = (
        "import hashlib; from synthetic import ablation; "
        "from workbench.render.charts import chart_files; "
        "print(hashlib.sha256(repr(chart_files(ablation(3))).encode()).hexdigest())"
    )
    digests = set()
    for seed, folder in (("1", HERE), ("2", tmp_path)):
        source = os.pathsep.join([str(HERE), str(HERE.parent / "profiler")])
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": source}
        done = subprocess.run(
            [sys.executable, "-c", script], env=env, cwd=folder, capture_output=True, check=True
        )
        digests.add(done.stdout)
    assert len(digests) == 1


@pytest.mark.parametrize("dark", [False, True])
def test_direct_and_batch_agree(dark: bool) -> None:
    files = chart_files(ablation(2))
    for name in CHARTS:
        light = chart(name, ablation(2))
        assert files[f"{name}-dark.svg" if dark else f"{name}-light.svg"] == (
            swap(light) if dark else light
        )


def test_importing_the_charts_does_not_import_matplotlib() -> None:
    script = "import sys, workbench.render.charts, workbench.render.report; "
    script += "assert not {'matplotlib', 'numpy', 'jinja2'} & set(sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(HERE.parent / "profiler")}
    subprocess.run([sys.executable, "-c", script], env=env, check=True)


def test_ceilings_carry_value_and_unit() -> None:
    said = texts(chart("roofline", ablation(1)))
    assert "DRAM: 4.81 TB/s" in said
    assert "FP32: 67.0 TFLOP/s" in said
    assert "Tensor, dense FP16: 1073 TFLOP/s" in said
    assert "ridge: 13.9 FLOP/B" in said


def test_every_variant_is_named_on_the_roofline_of_a_short_ladder() -> None:
    said = " ".join(texts(chart("roofline", ablation(6))))
    for row in ablation(6).everything:
        assert row.variant in said
    assert "fix2 (rejected)" in said
    assert "without a name" not in said


def test_a_long_ladder_names_its_ends_and_says_that_points_go_without() -> None:
    found = ablation(24)
    said = " ".join(texts(chart("roofline", found)))
    assert found.best is not None
    for name in (found.rows[0].variant, found.best.variant, found.reference):
        assert f"{name} " in said
    assert "crowded points without a name" in said


def test_point_above_its_roof_is_marked() -> None:
    word = "error in the data"
    assert word not in " ".join(texts(chart("roofline", ablation(1))))
    found = with_row(ablation(1), "fix1", point=point(5.0, 2.0))
    row = found.row("fix1")
    assert row.point is not None
    assert row.point.above_roof
    said = texts(chart("roofline", found))
    assert "above its roof: an error in the data" in said
    assert any(text.startswith("fix1 (error in the data") for text in said)


def test_rows_without_a_capture_are_named() -> None:
    found = not_current(ablation(3), "fix2", "stale", "sources changed")
    for svg in chart_files(found).values():
        said = texts(svg)
        assert "not collected: fix2 (stale)" in said
        assert not any(text.startswith("fix2") for text in said)


def test_no_ceilings_no_tensor_no_captures() -> None:
    assert "ceilings not collected" in texts(chart("roofline", ablation(1, ceilings=None)))
    plain = ablation(1, ceilings=type(CEILINGS)(CEILINGS.dram, CEILINGS.fp32, None))
    assert not any("Tensor" in text for text in texts(chart("roofline", plain)))
    bare: Ablation = ablation(1)
    for row in bare.everything:
        bare = not_current(bare, row.variant, "missing", "not measured")
    assert "stall samples not collected" in texts(chart("stalls", bare))
    assert chart("roofline", bare)


def test_every_level_has_its_panel_with_every_variant() -> None:
    found = ablation(4)
    said = texts(chart("roofline-levels", found))
    for words in ("DRAM", "L2 to the SMs", "L1, global and local loads", "10.3 TB/s", "33.4 TB/s"):
        assert words in said
    for row in found.everything:
        assert said.count(row.variant) == 3


def test_of_many_steps_the_small_charts_name_the_ends() -> None:
    said = texts(chart("roofline-levels", ablation(12)))
    assert (said.count("baseline"), said.count("fix12"), said.count("sdpa_flash")) == (3, 3, 3)
    assert "fix5" not in said
    assert any("the table names the steps between" in text for text in said)


def test_a_level_without_counters_says_so_and_an_error_in_the_data_is_marked() -> None:
    bare = dataclasses.replace(CEILINGS, l1=None)
    assert "not collected" in texts(chart("roofline-levels", ablation(1, ceilings=bare)))
    assert "traffic by level not collected" in texts(
        chart("roofline-levels", ablation(1, ceilings=None))
    )
    word = "above its roof: an error in the data"
    assert word not in texts(chart("roofline-levels", ablation(1)))
    wrong = dataclasses.replace(point(500.0), above_roof=True)
    assert word in texts(chart("roofline-levels", with_row(ablation(1), "fix1", point=wrong)))


def test_the_time_of_each_step_stands_beside_its_parent() -> None:
    said = texts(chart("stall-time", ablation(3)))
    # baseline is the parent of fix1 and of the whole ladder; fix1 of fix2 (rejected) and fix3
    assert said.count("baseline") == 2
    assert said.count("fix1") == 3
    assert "960 µs" in said
    assert "505 µs, 1.90x" in said
    assert "266 µs, 3.61x" in said  # baseline to fix3
    assert "672" in said  # of 960 µs, 70 % in long scoreboard
    nothing = ablation(1, whole=None)
    nothing = with_row(nothing, "fix1", against_parent=None)
    assert "stall samples not collected" in texts(chart("stall-time", nothing))


def test_stall_shares_are_drawn_to_scale() -> None:
    stalls = {"selected": 0.25, "long_scoreboard": 0.5, "odd_reason": 0.25}
    found = with_row(ablation(0, references=0), "baseline", stalls=stalls)
    said = texts(chart("stalls", found))
    assert said.count("50 %") == 2  # the bar and the axis
    assert said.count("25 %") == 3
    assert {"none (issuing)", "long scoreboard", "odd reason"} <= set(said)
    assert "other" not in said


def test_small_reasons_are_summed_as_other() -> None:
    many = {f"reason{i}": 0.1 for i in range(10)}
    said = texts(chart("stalls", with_row(ablation(0, references=0), "baseline", stalls=many)))
    assert "other" in said
    assert "30 %" in said


def test_odd_names_are_text() -> None:
    found = ablation(1, gpu="A <b> & $x_1$", shape="a|b")
    for svg in chart_files(found).values():
        assert any("A <b> & $x_1$" in text for text in texts(svg))


def test_dark_swaps_every_colour_of_the_palette_and_no_other() -> None:
    light = vars(LIGHT).values()
    assert len(set(light)) == len(light)
    own = {*COLOURS.values(), OTHER_FILL}
    assert not own & set(light)
    assert LIGHT.faint == ISSUING_FILL
    dark = swap(chart("roofline", ablation(3)))
    assert not any(colour in dark for colour in light)
    assert DARK.ink in dark


def test_number_on_a_bar_is_readable() -> None:
    assert on("#0072b2") == "#ffffff"
    assert on("#f0e442") == "#000000"


def test_labels_do_not_overlap() -> None:
    anchors = [Anchor((200.0 + 3 * (i % 4), 60.0 + 11 * i), 90.0, 13.0) for i in range(16)]
    page = Box(0, 0, 500, 400)
    spots = place(anchors, [], [], page)
    boxes = []
    for anchor, spot in zip(anchors, spots, strict=True):
        left = {"left": 0.0, "right": anchor.width, "center": anchor.width / 2}[spot.side]
        x, y = spot.at[0] - left, spot.at[1] - anchor.height / 2
        boxes.append(Box(x, y, x + anchor.width, y + anchor.height))
    assert all(box.within(page) for box in boxes)
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[i + 1 :])


def test_segment_crosses_box() -> None:
    box = Box(0, 0, 10, 10)
    assert box.crossed_by(((-5, 5), (15, 5)))
    assert box.crossed_by(((5, 5), (6, 6)))
    assert not box.crossed_by(((-5, 2), (5, 22)))
    assert not box.crossed_by(((-5, 12), (15, 12)))
