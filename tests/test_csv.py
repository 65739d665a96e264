"""``--csv``: the table of a verb for other programs, which no spreadsheet runs."""

from __future__ import annotations

import csv

import pytest

from answers import Capsys
from workbench.cli.main import main
from workbench.render.as_table import as_csv, safe
from workbench.render.document.blocks import Cell, Section, Table, TableColumn, TableRow, words
from workspaces import ROOT

FIXTURE = ["--project", str(ROOT / "tests" / "fixture")]
Rows = list[dict[str, str]]


def printed(capsys: Capsys, *arguments: str) -> Rows:
    assert main([*arguments, "--csv", *FIXTURE]) == 0
    return list(csv.DictReader(capsys.readouterr().out.splitlines()))


def test_the_ladder_has_numbers_with_their_intervals(capsys: Capsys) -> None:
    rows = {
        row["variant"]: row for row in printed(capsys, "ablate", "fix1", "--study", "attention")
    }
    assert rows["fix1"]["verdict"] == "kept"
    low, value, high = (
        float(rows["fix1"][f"speedup_over_parent{end}"]) for end in ("_low", "", "_high")
    )
    assert low < value < high
    assert len(rows["fix1"]["microseconds"]) > len("209.786")  # not rounded
    assert rows["baseline"]["speedup_over_parent"] == ""


def test_show_and_profile_have_the_figures(capsys: Capsys) -> None:
    rows = printed(capsys, "show", "tma", "--study", "transpose")
    assert list(rows[0]) == ["figure", "value", "unit", "metric"]
    assert float(rows[0]["value"]) > 1
    both = printed(capsys, "profile", "tma", "padded", "--study", "transpose")
    assert {row["section"] for row in both} == {"tma", "padded"}


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-x", "@sum", "-1+1"])
def test_what_a_spreadsheet_would_run_is_quoted(text: str) -> None:
    assert safe(text) == f"'{text}"
    column = TableColumn("a", "a")
    table = Table("t", (column,), (TableRow({"a": Cell(words(text))}),))
    assert as_csv([Section("s", (), (table,))]) == f"a\n'{text}"


@pytest.mark.parametrize("value", [-1.5, 2, "-3e-4", "plain", True])
def test_numbers_and_words_are_left_alone(value: object) -> None:
    assert safe(value) == (str(value).lower() if value is True else str(value))


def test_lines_are_no_table() -> None:
    assert main(["show", "tma", "--source", "--csv", "--study", "transpose", *FIXTURE]) == 2
