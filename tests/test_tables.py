"""Numbers, escaping and the ablation table."""

from __future__ import annotations

import math

import pytest
from markdown_it import MarkdownIt

from synthetic import ablation, not_current, ratio, with_row
from workbench.derive.speedup import Ratio
from workbench.judge.rows import Ablation
from workbench.render import markdown, tables


def parse(text: str) -> list[list[str]]:
    """Rows of the one table that a Markdown reader finds in ``text``, as rendered HTML."""
    reader = MarkdownIt("commonmark").enable("table")
    tokens = reader.parse(text)
    assert [t.type for t in tokens].count("table_open") == 1
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and rows:
            rows[-1].append(reader.renderInline(token.content))
    return rows


def cells(found: Ablation, variant: str) -> dict[str, str]:
    header, *rows = parse(tables.ablation_table(found))
    return next(dict(zip(header, row, strict=True)) for row in rows if row[0] == variant)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (638.832, "639"),
        (1026.8, "1027"),
        (10.3616, "10.4"),
        (0.12, "0.120"),
        (0.0646, "0.0646"),
        (0.000229, "0.000229"),
        (0.0, "0"),
        (9.996, "10.0"),
        (-3.14159, "-3.14"),
        (100.0, "100"),
        (2025203.0, "2,025,203"),
        (3.2e-7, "3.20e-07"),
        (None, "not collected"),
        (math.nan, "not collected"),
        (math.inf, "not collected"),
    ],
)
def test_number(value: float | None, shown: str) -> None:
    assert tables.number(value) == shown


def test_percent_never_shows_something_as_nothing() -> None:
    assert tables.percent(0.000646) == "0.065 %"
    assert tables.percent(0.7527) == "75 %"
    assert tables.percent(0.0) == "0.0 %"
    assert tables.percent(None) == "not collected"


def test_ratio_and_interval() -> None:
    assert tables.ratio(Ratio(2.912, 2.88, 2.951)) == "2.91x"
    assert tables.interval(Ratio(2.912, 2.88, 2.951)) == "2.91x [2.88, 2.95]"
    assert tables.ratio(None) == tables.interval(None) == "not collected"


def test_table_is_aligned_gfm() -> None:
    text = tables.markdown_table(["name", "µs"], [["a", "1.5"], ["longer", "100"]], "lr")
    assert text.splitlines() == [
        "| name   |  µs |",
        "| ------ | --: |",
        "| a      | 1.5 |",
        "| longer | 100 |",
    ]
    assert parse(text) == [["name", "µs"], ["a", "1.5"], ["longer", "100"]]


def test_table_cells_cannot_break_the_table() -> None:
    text = tables.markdown_table(["a", "b"], [["x|y\nz", "p\r\n| q |"], ["", "`m|n`"]], "ll")
    assert parse(text)[1:] == [["x|y z", "p | q |"], ["", "<code>m|n</code>"]]


def test_table_refuses_ragged_rows() -> None:
    with pytest.raises(ValueError, match="zip"):
        tables.markdown_table(["a", "b"], [["only one"]], "ll")


def test_ablation_table_has_the_columns_in_ladder_order() -> None:
    header, *rows = parse(tables.ablation_table(ablation(3)))
    assert header == [
        "version",
        "time, warm (µs)",
        "vs baseline",
        "vs parent [95 % interval]",
        "vs sdpa",
        "DRAM GB/s (% of peak)",
        "occupancy %",
        "top stall",
        "key change",
        "verdict",
    ]
    names = ["baseline", "fix1", "fix2", "fix3"]
    references = ["sdpa", "sdpa_flash", "sdpa_cudnn", "sdpa_efficient"]
    assert [row[0] for row in rows] == names + references
    assert [row[-1] for row in rows] == [
        "baseline",
        "kept",
        "rejected",
        "kept",
        *["reference"] * 4,
    ]


def test_row_shows_its_figures() -> None:
    found = cells(ablation(3), "fix1")
    assert found["time, warm (µs)"] == "337"
    assert found["vs baseline"] == "1.90x"
    assert found["vs parent [95 % interval]"] == "1.90x [1.88, 1.92]"
    assert found["DRAM GB/s (% of peak)"] == "5.94 (0.1 %)"
    assert found["top stall"] == "long scoreboard 44 %"
    assert cells(ablation(3), "sdpa")["key change"] == "Reference sdpa"


def test_issuing_is_never_the_top_stall() -> None:
    found = with_row(ablation(1), "fix1", stalls={"selected": 0.9, "wait": 0.1})
    assert cells(found, "fix1")["top stall"] == "wait 10 %"
    found = with_row(found, "fix1", stalls={"selected": 1.0})
    assert cells(found, "fix1")["top stall"] == "not collected"


def test_what_is_absent_is_not_zero() -> None:
    found = with_row(ablation(1), "fix1", warm=None, figures={}, stalls={}, over_reference=None)
    row = cells(found, "fix1")
    for column in ("time, warm (µs)", "vs sdpa", "DRAM GB/s (% of peak)", "occupancy %"):
        assert row[column] == "not collected"


@pytest.mark.parametrize(
    ("status", "problem", "shown"),
    [
        ("stale", "its sources changed since", "stale"),
        ("missing", "not measured", "not measured"),
        ("failed", "wrong: max error 3", "failed: wrong: max error 3"),
        ("failed", "x" * 500, "failed: " + "x" * 51 + "…"),
    ],
)
def test_row_without_current_evidence_says_why(status: str, problem: str, shown: str) -> None:
    row = list(cells(not_current(ablation(3), "fix2", status, problem), "fix2").values())
    assert row[1:8] == ["—"] * 7
    assert row[-1] == shown


def test_tools_and_authors_cannot_break_the_table() -> None:
    nasty = "error: `a|b\n<script>alert(1)</script> *x* [y](z)"
    found = not_current(ablation(1), "fix1", "failed", nasty)
    assert cells(found, "fix1")["verdict"].startswith("failed: error: `a|b &lt;script&gt;alert(1)")
    found = with_row(ablation(1), "sdpa", title="uses `vec<T>|x` and <b>more")
    assert (
        cells(found, "sdpa")["key change"] == "uses <code>vec&lt;T&gt;|x</code> and &lt;b&gt;more"
    )


def test_near_one_keeps_the_decimals_that_decide() -> None:
    assert tables.ratio(ratio(1.013)) == "1.01x"
    assert tables.ratio(ratio(0.0162)) == "0.0162x"


@pytest.mark.parametrize(
    "text", ["# title", "- item", "> quote", "1. one", "```", "* * *", "a `b` *c*", "&lt; <a> \\"]
)
def test_literal_text_stands_for_itself(text: str) -> None:
    html = MarkdownIt("commonmark").render(markdown.literal(text))
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert html == f"<p>{plain}</p>\n"


@pytest.mark.parametrize("text", ["plain", "a`b", "``", "`", "a ``b`` c", "x | y"])
def test_code_span_holds_any_backticks(text: str) -> None:
    html = MarkdownIt("commonmark").renderInline(markdown.code(text))
    assert html == f"<code>{text}</code>"


def test_fence_cannot_be_closed_from_inside() -> None:
    html = MarkdownIt("commonmark").render(markdown.fenced("a\n````\nb\n```", "diff") + "\n\nend")
    assert "a\n````\nb\n```\n</code>" in html
    assert html.endswith("<p>end</p>\n")
