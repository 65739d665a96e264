"""A column of the ladder stands in one place and appears in every output."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence

import pytest
from rich.console import Console

from answers import Patch
from synthetic import ablation
from workbench.judge.rows import Ablation, Row
from workbench.render import answers, markdown, terminal
from workbench.render.as_json import dumps
from workbench.render.document import ladder_table
from workbench.render.document.blocks import Field, field, figure_cell
from workbench.render.document.phrases import figure
from workbench.render.html import Writer


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
