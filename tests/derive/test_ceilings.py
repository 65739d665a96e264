"""Measured ceilings: what is on file, what is derived and shown of it. The numbers are made up."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import convert

import pages
from answers import Capsys, both_of, error_of, not_none
from derive.test_roofline import LEVELS, ROOF, WGMMA
from made_ladder import ablation, with_row
from made_records import ceiling_of, metrics
from workbench.derive.rooflines import (
    MeasuredCeilings,
    Peaks,
    Point,
    measured_ceilings,
    peaks,
    point,
)
from workbench.errors import UsageError
from workbench.evidence.records import CeilingsFile
from workbench.evidence.store import EvidenceFolder, load_calibration
from workbench.judge.ladder import Ablation
from workbench.ncu.capture import ColumnTable
from workbench.render import answers, markdown
from workbench.render.as_json import dumps, plain_data
from workbench.render.chart.charts import chart
from workbench.render.chart.svg import Box
from workbench.reporters import calibrate
from workspaces import copy_of_fixture

MADE_UP = {
    "dram": ("byte/s", 1.8e12),
    "l2": ("byte/s", 2.5e12),
    "l1": ("byte/s", 9e12),
    "fp32": ("FLOP/s", 1.9e13),
    "half": ("FLOP/s", 3.8e13),
    "tensor fp16": ("FLOP/s", 4e14),
}


def entry(unit: str, value: float, clock: float | None = 1000.0) -> dict[str, Any]:
    made = msgspec.to_builtins(ceiling_of(1.0))
    return {**made, "unit": unit, "value": value, "best": 1.01 * value, "sm_clock_mhz": clock}


def on_file(**changes: Any) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "ceilings": {name: entry(*found) for name, found in MADE_UP.items()},
        "not_collected": {"fp64": "made up to be absent"},
        "provenance": {"gpu": "NVIDIA H200", "date": "2026-01-02T03:04:05Z"},
        **changes,
    }


def put(folder: EvidenceFolder, text: str) -> EvidenceFolder:
    folder.root.mkdir(parents=True, exist_ok=True)
    folder.ceilings.write_text(text)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> EvidenceFolder:
    return EvidenceFolder(tmp_path / "nvidia-h200")


def calibration(**clocks: float) -> CeilingsFile:
    found = {
        name: {**entry(*made_up), "sm_clock_mhz": clocks.get(name, 1000.0)}
        for name, made_up in MADE_UP.items()
    }
    return convert(on_file(ceilings=found, not_collected={"fp64": "it | broke"}), CeilingsFile)


def test_what_was_written_is_read(folder: EvidenceFolder) -> None:
    assert load_calibration(folder) is None
    found = not_none(load_calibration(put(folder, json.dumps(on_file()))))
    assert found.values == {name: value for name, (_, value) in MADE_UP.items()}
    assert found.ceilings["dram"].sm_clock_mhz == 1000
    assert found.ceilings["dram"].memory_clock_mhz is None
    assert found.not_collected == {"fp64": "made up to be absent"}


def without(key: str) -> dict[str, Any]:
    broken = entry("FLOP/s", 1e13)
    del broken[key]
    return on_file(ceilings={"fp32": broken})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("{", "cannot be read"),
        ("{}", "has no schema_version"),
        (on_file(schema_version=99), "is of schema 99"),
        (on_file(provenance={"gpu": "NVIDIA H200"}), "`date` - at `$.provenance`"),
        (on_file(ceilings=[]), "is damaged"),
        (without("sm_clock_mhz"), "field `sm_clock_mhz` - at `$.ceilings[...]`"),
        (without("ran"), "field `ran` - at `$.ceilings[...]`"),
        (on_file(ceilings={"fp32": entry("FLOP/s", 0.0)}), "is 0 FLOP/s - at `$.ceilings[...]`"),
        (
            on_file(ceilings={"fp32": entry("TFLOP/s", 60.0)}),
            "is 60 TFLOP/s - at `$.ceilings[...]`",
        ),
        (on_file(provenance={"gpu": "NVIDIA A100", "date": ""}), "is of another GPU: NVIDIA A100"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_a_hint(
    folder: EvidenceFolder, data: Any, said: str
) -> None:
    text = data if isinstance(data, str) else json.dumps(data)
    with pytest.raises(UsageError, match=r"ceilings\.json") as caught:
        load_calibration(put(folder, text))
    assert said in caught.value.message
    assert caught.value.hint


def found_point(table: ColumnTable) -> Point:
    found = not_none(point(table, calibration().values))
    return found


def test_a_point_has_its_shares_of_the_measured_roofs_by_hand() -> None:
    found = found_point(metrics({**ROOF, **LEVELS}))
    # 1e12 FLOP/s of 1.9e13; 1000 bytes in 1 µs of 1.8e12; 1e12 of 2.5e12; 4e12 of 9e12
    assert found.share_of_measured == pytest.approx(1 / 19)
    shares = [level.share_of_measured for level in found.levels]
    assert shares == pytest.approx([1e9 / 1.8e12, 0.4, 4 / 9])
    assert found.sm_clock_hz == pytest.approx(1e9)
    # The theoretical ones are as they were.
    plain = not_none(point(metrics({**ROOF, **LEVELS})))
    assert plain.share_of_arithmetic_peak == found.share_of_arithmetic_peak
    assert math.isnan(plain.share_of_measured)
    assert all(math.isnan(level.share_of_measured) for level in plain.levels)


def test_the_measured_share_is_of_the_arithmetic_that_ran() -> None:
    found = found_point(metrics({**ROOF, f"{WGMMA}.sum": 9e7}))
    assert found.share_of_measured == pytest.approx(9e13 / 4e14)


def test_without_its_ceiling_a_share_is_not_known() -> None:
    found = not_none(point(metrics(ROOF), {"fp64": 1e13}))
    assert math.isnan(found.share_of_measured)


def test_theory_is_taken_at_the_clock_of_the_benchmark() -> None:
    """Twice the clock is twice the arithmetic and L1, and the same L2 and DRAM."""
    table = not_none(peaks(metrics({**ROOF, **LEVELS})))
    assert table.sm_clock == 1e9
    found = measured_ceilings(calibration(fp32=2000.0, l1=2000.0, l2=2000.0, dram=2000.0), table)
    theory = {name: roof.theoretical for name, roof in found.ceilings.items()}
    assert theory["fp32"] == pytest.approx(4e13)
    assert theory["l1"] == pytest.approx(2e13)
    assert theory["l2"] == pytest.approx(4e12)
    assert theory["dram"] == pytest.approx(2e12)
    assert theory["tensor fp16"] == pytest.approx(5e14)
    assert theory["half"] is None  # this capture has no peak of it
    assert not found.wrong


def test_above_theory_is_an_error_in_the_data() -> None:
    low = measured_ceilings(
        calibration(), Peaks(1e9, {"fp32": 1.9e13 / 1.04, "dram": 1.8e12 / 1.06})
    )
    assert [roof.id for roof in low.wrong] == ["dram"]
    assert "above theory: an error in the data" in markdown.table(calibrate.ceilings(low))
    assert not measured_ceilings(calibration(), None).wrong


def measured() -> MeasuredCeilings:
    return measured_ceilings(calibration(), Peaks(1e9, {"fp32": 2e13}))


def calibrated() -> Ablation:
    """A ladder whose first step has shares of measured ceilings; the others have none."""
    found = ablation(measured=measured())
    plain = not_none(found.row("baseline").roofline)
    levels = tuple(dataclasses.replace(level, share_of_measured=0.25) for level in plain.levels)
    known = dataclasses.replace(plain, share_of_measured=0.5, levels=levels, sm_clock_hz=1.1e9)
    return with_row(found, "baseline", roofline=known)


def cells(table: str, variant: str) -> list[str]:
    line = next(line for line in table.splitlines() if line.split()[1] == variant)
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_table_of_ceilings_has_both_and_the_clock() -> None:
    table = markdown.table(calibrate.ceilings(measured()))
    assert cells(table, "FP32")[1:5] == ["19.0 TFLOP/s", "20.0 TFLOP/s", "95 %", "1000"]
    assert cells(table, "DRAM")[1:4] == ["1.80 TB/s", "not collected", "not collected"]
    assert cells(table, "FP64")[1] == "not collected"
    assert table.splitlines()[-1].rstrip("| ").endswith("it \\| broke")


def test_the_roofline_draws_them_only_where_the_card_was_calibrated() -> None:
    with_them, plain = (chart("roofline", one).svg() for one in (calibrated(), ablation()))
    assert "measured on this GPU (in brackets)" in with_them
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


def test_json_has_them_only_where_the_card_was_calibrated() -> None:
    made = calibrated()
    known = json.loads(dumps(plain_data(not_none(made.measured))))
    assert known["ceilings"]["fp32"]["share_of_theoretical"] == 0.95
    assert known["not_collected"] == {"fp64": "it | broke"}
    found = json.loads(dumps(answers.ablation(made, full=["baseline", "fix1"])))
    first, second = (version["roofline"] for version in found["variants"])
    assert first["share_of_measured"] == 0.5
    shares = {level["name"]: level["share_of_measured"] for level in first["levels"]}
    assert shares == {"dram": 0.25, "l2": 0.25, "l1": 0.25}
    assert second["share_of_measured"] is None
    plain = json.loads(dumps(answers.ablation(ablation(), full=["baseline"])))
    assert plain["variants"][0]["roofline"]["share_of_measured"] is None


def test_a_recorded_workspace_that_is_calibrated_reports_it(tmp_path: Path, capsys: Capsys) -> None:
    root = copy_of_fixture(tmp_path)
    data = on_file(ceilings={"fp32": entry("FLOP/s", 9e13, 1980.0)})  # 134 % of theory
    (folder,) = (root / "ablations" / "attention" / "evidence").iterdir()
    put(EvidenceFolder(folder), json.dumps(data))
    both_of(capsys, "report", "--html", project=root)
    out = root / "reports" / "attention"
    text = (out / "OPTIMIZATION_REPORT.md").read_text()
    page = (out / "report.html").read_text()
    assert "measured on this GPU" in page
    for said in (text, page):
        assert "the measured fp32 ceiling is 13" in said
    put(EvidenceFolder(folder), "{")
    assert "ceilings.json cannot be read" in error_of(capsys, "report", project=root)
