"""JSON and CSV for other programs: keys, numbers, and a column in every output."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from benchmarks import reference
from rich.console import Console

from answers import Capsys, Patch, error_of, text_of
from synthetic import ablation
from workbench.judge.rows import Ablation, Row
from workbench.render import answers, markdown, terminal
from workbench.render.as_json import dumps
from workbench.render.as_table import as_csv, safe
from workbench.render.document import ladder_table
from workbench.render.document.blocks import (
    Cell,
    Field,
    Section,
    Table,
    TableColumn,
    TableRow,
    field,
    figure_cell,
    words,
)
from workbench.render.document.phrases import figure
from workbench.render.html import Writer
from workspaces import FIXTURE, ROOT, output_of

DOCS = (ROOT / "docs" / "json.md").read_text()
RECORDS = "".join(reference.records())
MOST = 120
# Objects whose keys are data: regimes, gates, stall reasons, shapes, or what a finding is about.
BY_DATA = ("regimes", "gates", "stalls", "newer", "values", "files")


def names(value: Any, key: str = "") -> set[str]:
    """The keys of all objects that are names of fields."""
    if isinstance(value, list):
        return set().union(*(names(each) for each in value))
    if not isinstance(value, dict):
        return set()
    if key == "shape":  # the rest are the study's parameters
        return {"name"}
    inside = set().union(*(names(each, name) for name, each in value.items()))
    return inside if key in BY_DATA else inside | value.keys()


def keys_of(*verb: str) -> set[str]:
    return names(json.loads(output_of(" ".join([*verb, "--study attention --json"]))))


@pytest.fixture(scope="module")
def found() -> set[str]:
    return keys_of("ablate")


def test_key_names_are_few(found: set[str]) -> None:
    assert 80 < len(found) <= MOST


def unexplained(keys: set[str]) -> set[str]:
    return keys - set(re.findall(r"`([a-z_0-9]+)`", DOCS + RECORDS))


def test_the_docs_explain_every_key(found: set[str]) -> None:
    assert unexplained(found) == set()


@pytest.mark.parametrize("verb", ["show fix9 --source --sass", "advise fix9"])
def test_the_docs_explain_every_key_of_a_variant(verb: str) -> None:
    assert unexplained(keys_of(*verb.split())) == set()


def test_the_links_to_records_lead_to_them() -> None:
    assert set(re.findall(r"reference\.md#(\w+)\)", DOCS)) <= {
        name.lower() for name in re.findall(r"^### `(\w+)`$", RECORDS, re.MULTILINE)
    }


# ---- CSV
Rows = list[dict[str, str]]


def printed(capsys: Capsys, *arguments: str) -> Rows:
    text = text_of(capsys, *arguments, "--csv", project=FIXTURE)
    return list(csv.DictReader(text.splitlines()))


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


def test_lines_are_no_table(capsys: Capsys) -> None:
    error_of(capsys, "show", "tma", "--source", "--csv", "--study", "transpose", project=FIXTURE)


# ---- columns
def on_terminal(found: Ablation) -> str:
    text = io.StringIO()
    out = Console(file=text, width=300, color_system=None)
    terminal.write([ladder_table.ladder_table(found)], out)
    return text.getvalue()


def as_markdown(found: Ablation) -> str:
    return markdown.blocks([ladder_table.ladder_table(found)])


def as_html(found: Ablation) -> str:
    return Writer(charts={}, steps={}).blocks([ladder_table.ladder_table(found)])


def in_json(found: Ablation) -> str:
    return dumps(answers.ablation(found))


OUTPUTS: Mapping[str, tuple[Callable[[Ablation], str], str]] = {
    "terminal": (on_terminal, "registers"),
    "markdown": (as_markdown, "registers"),
    "html": (as_html, "registers"),
    "json": (in_json, "registers_per_thread"),
}


@pytest.mark.parametrize("write", [on_terminal, as_markdown, as_html])
def test_a_column_without_any_value_is_left_out(write: Callable[[Ablation], str]) -> None:
    found = ablation(2)
    assert "÷" in write(found)
    rows, references = (
        tuple(replace(row, accuracy=None) for row in some)
        for some in (found.rows, found.references)
    )
    assert "÷" not in write(replace(found, rows=rows, references=references))


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_column_added_in_one_place_is_in_every_output(output: str, monkeypatch: Patch) -> None:
    write, label = OUTPUTS[output]
    known = ladder_table.fields
    assert label not in write(ablation(1)).split('"figures"')[0]

    def fields(found: Ablation, notes: Sequence[str] = ()) -> list[Field[Row]]:
        registers: Field[Row] = field(
            "registers",
            "registers",
            lambda row: figure_cell(figure(row, "registers")),
            rank=6,
            json="registers_per_thread",
        )
        return [*known(found), registers]

    monkeypatch.setattr(ladder_table, "fields", fields)
    text = write(ablation(1))
    assert label in text
    assert "167" in text
    assert text.count("167") >= 2  # baseline and fix1


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_line_of_a_table_is_wider_than_the_terminal(width: int) -> None:
    text = io.StringIO()
    out = Console(file=text, width=width, color_system=None)
    terminal.write([ladder_table.ladder_table(ablation(12))], out)
    shown, _, _ = text.getvalue().partition("more with --wide")
    lines = shown.splitlines()
    assert max(map(len, lines)) <= width
    # A row a line: nothing wraps.
    assert sum(line.startswith(("fix", "baseline", "sdpa")) for line in lines) == 17


def test_wide_cuts_nothing_whatever_the_terminal() -> None:
    text = io.StringIO()
    out = Console(file=text, width=60, color_system=None)
    terminal.write([ladder_table.ladder_table(ablation(3))], out, wide=True)
    assert "…" not in text.getvalue()
    assert "1.90x [1.88, 1.92]" in text.getvalue()
    assert out.width == 60


def test_what_is_needed_most_stays_where_there_is_little_room() -> None:
    shown = ladder_table.ladder_table(ablation(3))
    narrow = [each.column.key for each in terminal.fitted(shown, 80)]
    assert narrow == ["version", "time", "parent", "fastest", "verdict", "change"]
    wide = [each.column.key for each in terminal.fitted(shown, 250)]
    assert set(wide) == {column.key for column in shown.columns}
    assert all(each.notes for each in terminal.fitted(shown, None))


def test_what_could_steer_a_terminal_is_spelt_out_in_a_table() -> None:
    found = ablation(1, reference="a\x1b[31mb")
    assert "\x1b" not in on_terminal(found)
