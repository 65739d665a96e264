"""Measured ceilings: where they are from, what is derived of them and drawn."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

import pages
from answers import not_none
from derive.test_roofline import LEVELS, ROOF, WGMMA
from made_ladder import ablation, with_row
from made_records import metrics
from workbench.derive.rooflines import Point, point
from workbench.evidence.store import measured_ceilings
from workbench.judge.ladder import Ablation
from workbench.ncu.capture import ColumnTable
from workbench.render import answers
from workbench.render.as_json import dumps
from workbench.render.chart.charts import chart
from workbench.render.chart.svg import Box
from workspaces import ROOT

MADE_UP = {
    "dram": 1.8e12,
    "l2": 2.5e12,
    "l1": 9e12,
    "fp32": 1.9e13,
    "half": 3.8e13,
    "tensor fp16": 4e14,
}


@pytest.mark.parametrize(
    ("gpu", "study"), [("nvidia-h200", "moe"), ("nvidia-h100-80gb-hbm3", "attention")]
)
def test_they_are_what_was_recorded_on_a_gpu_of_the_model(gpu: str, study: str) -> None:
    source = json.loads(
        (ROOT / "ablations" / study / "evidence" / gpu / "ceilings.json").read_text()
    )
    recorded = {name: ceiling["value"] for name, ceiling in source["ceilings"].items()}
    assert measured_ceilings(gpu) == recorded
    assert not measured_ceilings("nvidia-a100")
    assert not measured_ceilings(f"{gpu}-mig-1g-18gb")


def placed(table: ColumnTable) -> Point:
    return not_none(point(table, MADE_UP))


def test_a_point_has_its_shares_of_the_measured_roofs_by_hand() -> None:
    measured = placed(metrics({**ROOF, **LEVELS}))
    # 1e12 FLOP/s of 1.9e13; 1000 bytes in 1 µs of 1.8e12; 1e12 of 2.5e12; 4e12 of 9e12
    assert measured.share_of_measured == pytest.approx(1 / 19)
    shares = [level.share_of_measured for level in measured.levels]
    assert shares == pytest.approx([1e9 / 1.8e12, 0.4, 4 / 9])
    assert measured.sm_clock_hz == pytest.approx(1e9)
    # The theoretical ones are as they were.
    plain = not_none(point(metrics({**ROOF, **LEVELS})))
    assert plain.share_of_arithmetic_peak == measured.share_of_arithmetic_peak
    assert math.isnan(plain.share_of_measured)
    assert all(math.isnan(level.share_of_measured) for level in plain.levels)


def test_the_measured_share_is_of_the_arithmetic_that_ran() -> None:
    of_tensor = placed(metrics({**ROOF, f"{WGMMA}.sum": 9e7}))
    assert of_tensor.share_of_measured == pytest.approx(9e13 / 4e14)


def test_without_its_ceiling_a_share_is_not_known() -> None:
    assert math.isnan(not_none(point(metrics(ROOF), {"fp64": 1e13})).share_of_measured)


def calibrated() -> Ablation:
    """A ladder whose first step has shares of measured ceilings; the others have none."""
    ladder = ablation(measured=MADE_UP)
    plain = not_none(ladder.row("baseline").roofline)
    levels = tuple(dataclasses.replace(level, share_of_measured=0.25) for level in plain.levels)
    shared = dataclasses.replace(plain, share_of_measured=0.5, levels=levels, sm_clock_hz=1.1e9)
    return with_row(ladder, "baseline", roofline=shared)


def test_the_roofline_draws_them_only_where_there_are_any() -> None:
    with_them, plain = (chart("roofline", one).svg() for one in (calibrated(), ablation()))
    assert "measured on this model (in brackets)" in with_them
    assert "4.81 (1.80) TB/s" in with_them
    assert with_them.count('stroke-dasharray="6 3"') > plain.count('stroke-dasharray="6 3"')
    assert "measured" not in plain


def test_a_roofline_has_one_dashed_line_a_measured_ceiling() -> None:
    drawing = chart("roofline", calibrated())
    paths = pages.elements(drawing, "path")
    axis = next(path for path in paths if len(path.points) == 3)
    (left, top), (_, bottom), (right, _) = axis.points
    lines = [path for path in paths if path.attributes.get("stroke-dasharray") == "6 3"]
    ends = [end for line in lines for end in line.points if line["stroke-width"] == 0.9]
    assert len(ends) == 2 * 3 + 2  # the slope, FP32 and the tensor pipe; and the legend's
    assert all(pages.holds(Box(left, top, right, bottom), end, 0.1) for end in ends[:-2])


def test_json_has_shares_of_them_only_where_there_are_any() -> None:
    with_them = json.loads(dumps(answers.ablation(calibrated(), full=["baseline", "fix1"])))
    first, second = (version["roofline"] for version in with_them["variants"])
    assert first["share_of_measured"] == 0.5
    shares = {level["name"]: level["share_of_measured"] for level in first["levels"]}
    assert shares == {"dram": 0.25, "l2": 0.25, "l1": 0.25}
    assert second["share_of_measured"] is None
    plain = json.loads(dumps(answers.ablation(ablation(), full=["baseline"])))
    assert plain["variants"][0]["roofline"]["share_of_measured"] is None
