"""Exported tables: the columns that are promised, the numbers on record, nothing rounded."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.cli import main
from workbench.commands import export
from workbench.commands.target import find_target
from workbench.ncu.captures import Captures
from workbench.render.as_table import TABLES, WHOSE, Flat, as_csv
from workspaces import EVIDENCE, ROOT, copy_of_repository, told_in

SHOWN = "b2h8s512d64"
Exported = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def exported(capsys: pytest.CaptureFixture[str]) -> Exported:
    def rows(*arguments: str) -> list[dict[str, Any]]:
        assert main(["export", *arguments, "--json"]) == 0
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
        return found

    return rows


def test_the_documented_columns_are_those_of_every_table() -> None:
    text = (ROOT / "docs" / "export.md").read_text()
    documented = {
        name: (meaning, re.findall(r"`(\w+)`", columns))
        for name, meaning, columns in re.findall(r"^\| `(\w+)` \| (.*?) \| (.*) \|$", text, re.M)
    }
    assert documented == {name: (kind.meaning, list(kind.columns)) for name, kind in TABLES.items()}


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_its_columns_in_their_order(table: str, exported: Exported) -> None:
    rows = exported(table, "fix6", "fix7")
    assert {row["variant"] for row in rows} == {"fix6", "fix7"}
    assert all(list(row) == [*WHOSE, *TABLES[table].columns] for row in rows)
    assert {row["gpu"] for row in rows} == {"nvidia-h200"}


def test_timings_are_every_sample_on_record(exported: Exported) -> None:
    rows = exported("timings", "fix7")
    paths = (EVIDENCE / SHOWN / "timings").glob("*.json.bz2")
    wanted = Counter(
        (session["number"], series["regime"], series["instance"], value)
        for path in paths
        for session in told_in(path)["sessions"]
        for series in session["series"]
        if series["variant"] == "fix7"
        for value in series["microseconds"]
    )
    found = Counter((r["session"], r["mode"], r["instance"], r["microseconds"]) for r in rows)
    assert found == wanted


def test_metrics_and_lines_are_those_of_the_capture(exported: Exported) -> None:
    capture = Captures(find_target(ROOT, None, None).evidence()).of("fix7")
    assert capture is not None
    rows = exported("metrics", "fix7")
    assert [(r["metric"], r["value"]) for r in rows] == list(
        zip(capture.metrics["metric"], capture.metrics["value"], strict=True)
    )
    assert len(exported("lines", "fix7")) == len(capture.lines)
    assert all(json.loads(row["focus"]) is not None for row in exported("rules", "fix7"))


def test_the_ladder_is_the_one_that_is_judged(
    exported: Exported, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {row["variant"]: row for row in exported("ladder")}
    assert main(["ablate", "--json"]) == 0
    judged = json.loads(capsys.readouterr().out)
    for version in [*judged["versions"], *judged["references"]]:
        row, time = rows[version["variant"]], version["microseconds"]
        assert row["microseconds"] == (time["value"] if time else None)
        assert row["verdict"] == version["verdict"]
        over = version["speedup_over_baseline"]
        assert row["speedup_over_baseline_low"] == (over["low"] if over else None)
        assert row["reference"] == (version in judged["references"])


def test_all_shapes_are_one_table(exported: Exported) -> None:
    shapes = {row["shape"] for row in exported("checks", "fix7", "--all-shapes")}
    assert {SHOWN, "b4h16s2048d128"} <= shapes


def test_csv_reads_back_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "sass", "fix7"]) == 0
    text = capsys.readouterr().out
    rows = list(csv.DictReader(io.StringIO(text)))
    assert main(["export", "sass", "fix7", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == len(data)
    for row, other in zip(rows, data, strict=True):
        assert row["sass"] == other["sass"]
        assert (float(row["share"]) if row["share"] else None) == other["share"]


def test_what_is_missing_is_empty_and_no_text_breaks_a_line() -> None:
    columns = {"a": "text", "b": "number", "c": "flag"}
    table = Flat("t", columns, (('x, "y"\nz', None, True), ("", 0.1 + 0.2, False)))
    text = as_csv(table)
    assert text == 'a,b,c\n"x, ""y""\nz",,true\n,0.30000000000000004,false\n'


def test_a_file_gets_the_format_of_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, starts in (("a.csv", "study,variant"), ("a.json", "{")):
        assert main(["export", "builds", "fix7", "-o", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_text().startswith(starts)
    told = capsys.readouterr()
    assert told.out == ""
    assert "a.csv: 4 rows" in told.err


def test_stale_evidence_is_in_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = copy_of_repository(tmp_path)
    with (root / "kernels" / "attention" / "fix7.cu").open("a") as file:
        file.write("// changed\n")
    assert main(["export", "metrics", "fix6", "fix7", "--project", str(root)]) == 0
    told = capsys.readouterr()
    assert {row["variant"] for row in csv.DictReader(io.StringIO(told.out))} == {"fix6"}
    assert f"no current capture at {SHOWN}: fix7" in told.err


def test_nothing_in_a_table_steers_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(export, "as_csv", lambda table: "a\n\x1b[2Jb\n")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["export", "builds", "fix7"]) == 0
    assert capsys.readouterr().out == "a\n\\x1b[2Jb\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["metric"], "did you mean 'metrics'?"),
        (["metrics", "--csv", "--json"], "exclude each other"),
        (["metrics", "-o", "x.xlsx"], "name it .csv, .json or .parquet"),
        (["metrics", "fix99"], "hint: "),
        (["metrics", "--all-shapes", "--shape", SHOWN], "exclude each other"),
    ],
)
def test_mistakes(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_parquet_without_its_package_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    file = tmp_path / "a.parquet"
    assert main(["export", "builds", "-o", str(file)]) == 3
    assert "pip install pyarrow" in capsys.readouterr().err
    assert not file.exists()


def test_parquet_has_the_same_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], exported: Exported
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for table in TABLES:
        file = tmp_path / f"{table}.parquet"
        assert main(["export", table, "fix7", "sdpa", "-o", str(file)]) == 0
        capsys.readouterr()
        assert parquet.read_table(file).to_pylist() == exported(table, "fix7", "sdpa")
