"""Numbers, tables of named columns and their Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter
from typing import Any

import pytest
from markdown_it import MarkdownIt

from answers import not_none
from made_ladder import ablation, not_current, ratio, with_row
from workbench.derive.speedup import Ratio
from workbench.judge.ladder import Ablation
from workbench.render import doc, markdown
from workbench.render.doc import (
    Field,
    Paragraph,
    Span,
    Table,
    authored,
    code,
    first_sentence,
    line,
    only,
    strong,
    table,
)
from workbench.render.document.printed_ladder import ladder_table


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


def ladder(found: Ablation) -> str:
    return markdown.table(ladder_table(found))


def simple(header: list[str], rows: list[list[str]]) -> Table:
    fields: list[Field[list[str]]] = [
        Field(name, name, itemgetter(at), is_number=bool(at)) for at, name in enumerate(header)
    ]
    return table("simple", fields, rows)


def cells(found: Ablation, variant: str) -> dict[str, str]:
    header, *rows = parse(ladder(found))
    return next(dict(zip(header, row, strict=True)) for row in rows if row[0] == variant)


def millions(value: float) -> str:
    return doc.quantity(value, "M")


NUMBERS: list[tuple[Callable[..., str], Any, str]] = [
    (doc.number, 638.832, "639"),
    (doc.number, 1026.8, "1027"),
    (doc.number, 10.3616, "10.4"),
    (doc.number, 0.12, "0.120"),
    (doc.number, 0.0646, "0.0646"),
    (doc.number, 0.000229, "0.000229"),
    (doc.number, 0.0, "0"),
    (doc.number, 9.996, "10.0"),
    (doc.number, -3.14159, "-3.14"),
    (doc.number, 100.0, "100"),
    (doc.number, 2025203.0, "2,025,203"),
    (doc.number, 3.2e-7, "3.20e-07"),
    (doc.number, None, "not collected"),
    (doc.number, math.nan, "not collected"),
    (doc.number, math.inf, "not collected"),
    (doc.percent, 0.000646, "0.065 %"),  # something is never shown as nothing
    (doc.percent, 0.7527, "75 %"),
    (doc.percent, 0.0, "0.0 %"),
    (doc.percent, None, "not collected"),
    (doc.ratio, Ratio(2.912, 2.88, 2.951), "2.91x"),
    (doc.ratio, None, "not collected"),
    (doc.ratio, ratio(1.013), "1.013x"),  # near one the decimals decide
    (doc.ratio, ratio(0.0162), "0.0162x"),
    (doc.interval, Ratio(2.912, 2.88, 2.951), "2.91x [2.88, 2.95]"),
    (doc.interval, Ratio(1.0343, 1.0287, 1.0999), "1.034x [1.029, 1.100]"),
    (doc.interval, Ratio(1.0, 0.987, 1.104), "1.00x [0.987, 1.10]"),
    (doc.interval, None, "not collected"),
    (millions, 5.6e-5, "56"),  # counts carry their own unit
    (millions, 0.0, "0"),
    (millions, 0.0056, "5,600"),
    (millions, 0.418, "418 k"),
    (millions, 2.025203, "2.03 M"),
    (millions, 4100.0, "4.10 G"),
    (millions, 2.5e-7, "0.250"),
    (millions, math.nan, "not collected"),
]


@pytest.mark.parametrize(("write", "value", "shown"), NUMBERS)
def test_numbers_are_shown_with_the_digits_that_decide(
    write: Callable[..., str], value: Any, shown: str
) -> None:
    assert write(value) == shown


def test_a_unit_stands_in_a_head_but_for_counts() -> None:
    assert doc.with_unit("Bank conflicts", "M") == "Bank conflicts"
    assert doc.with_unit("Time", "µs") == "Time (µs)"


def test_a_table_is_gfm_without_padding() -> None:
    text = markdown.table(simple(["name", "µs"], [["a", "1.5"], ["longer", "100"]]))
    assert text.splitlines() == [
        "| name | µs |",
        "| --- | --: |",
        "| a | 1.5 |",
        "| longer | 100 |",
    ]
    assert parse(text) == [["name", "µs"], ["a", "1.5"], ["longer", "100"]]


def test_table_cells_cannot_break_the_table() -> None:
    text = markdown.table(simple(["a", "b"], [["x|y\nz", "p\r\n| q |"], ["", "<b>`m|n`"]]))
    assert parse(text)[1:] == [["x|y z", "p | q |"], ["", "&lt;b&gt;`m|n`"]]


def test_a_table_can_be_narrowed_to_columns_in_another_order() -> None:
    shown = only(simple(["a", "b", "c"], [["1", "2", "3"]]), ["c", "a", "none"])
    assert parse(markdown.table(shown)) == [["c", "a"], ["3", "1"]]


def test_ablation_table_has_the_columns_in_ladder_order() -> None:
    header, *rows = parse(ladder(ablation(3)))
    assert " | ".join(header) == (
        "variant | time (µs) | vs baseline | vs parent [95 % interval] | vs parent in cycles | "
        "vs sdpa | vs sdpa [95 % interval] | error ÷ sdpa's | cold (µs) | "
        "memory % of peak (GB/s) | occupancy % | top stall | verdict | what changed"
    )
    names = ["baseline", "fix1", "fix2", "fix3"]
    references = ["sdpa", "sdpa_flash", "sdpa_cudnn", "sdpa_efficient"]
    assert [row[0] for row in rows] == names + references
    assert [row[-2] for row in rows] == ["baseline", "kept", "slower", "kept", *["reference"] * 4]


def test_row_shows_its_figures() -> None:
    shown = cells(ablation(3), "fix1")
    assert (
        shown.items()
        >= {
            "time (µs)": "337",
            "cold (µs)": "505",
            "error ÷ sdpa's": "1.25x",
            "vs baseline": "1.90x",
            "vs parent [95 % interval]": "1.90x [1.88, 1.92]",
            "memory % of peak (GB/s)": "0.1 % of DRAM (6.99 GB/s)",
            "top stall": "long scoreboard 44 %",
        }.items()
    )
    fast = cells(ablation(6), "fix4")["vs sdpa [95 % interval]"]
    assert fast == "0.111x [0.110, 0.113]"
    assert cells(ablation(3), "sdpa")["what changed"] == "Reference sdpa"


def test_issuing_is_never_the_top_stall() -> None:
    found = with_row(ablation(1), "fix1", stalls={"selected": 0.9, "wait": 0.1})
    assert cells(found, "fix1")["top stall"] == "wait 10 %"
    found = with_row(found, "fix1", stalls={"selected": 1.0})
    assert cells(found, "fix1")["top stall"] == "not collected"


def test_what_is_absent_is_not_zero() -> None:
    absent: dict[str, Any] = {
        "regimes": {},
        "figures": {},
        "stalls": {},
        "accuracy": None,
        "roofline": None,
    }
    row = cells(with_row(ablation(1), "fix1", **absent), "fix1")
    empty = [column for column, shown in row.items() if shown == "not collected"]
    assert " | ".join(empty) == (
        "time (µs) | vs baseline | vs sdpa | vs sdpa [95 % interval] | error ÷ sdpa's | "
        "cold (µs) | memory % of peak (GB/s) | occupancy % | top stall"
    )


@pytest.mark.parametrize(
    ("status", "problem", "shown"),
    [
        ("stale", "its sources changed since", "stale"),
        ("missing", "not measured", "not measured"),
        ("failed", "wrong: max error 3", "wrong"),
    ],
)
def test_row_without_current_evidence_says_why(status: str, problem: str, shown: str) -> None:
    row = list(cells(not_current(ablation(3), "fix2", status, problem), "fix2").values())
    assert row[1:12] == ["—"] * 11
    assert row[-2] == shown


@pytest.mark.parametrize(
    "text",
    [
        "# title",
        "- item",
        "> quote",
        "1. one",
        "```",
        "* * *",
        "a `b` *c*",
        "&lt; <a> \\",
        "a_b _c_",
    ],
)
def test_text_stands_for_itself(text: str) -> None:
    html = MarkdownIt("commonmark").render(markdown.paragraph(line(text)))
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert html == f"<p>{plain}</p>\n"


@pytest.mark.parametrize(
    "text", ["fix2[warps=12]", "2.00x [1.99, 2.01]", "[a](b)", "[x] y", "[^1]"]
)
def test_brackets_are_escaped_only_where_they_would_be_more(text: str) -> None:
    html = MarkdownIt("commonmark").render(markdown.paragraph(line(text)))
    assert html == f"<p>{text}</p>\n"
    assert ("\\" in markdown.paragraph(line(text))) == (text in ("[a](b)", "[x] y", "[^1]"))


@pytest.mark.parametrize("text", ["plain", "a`b", "``", "`", "a ``b`` c", "x | y"])
def test_code_span_holds_any_backticks(text: str) -> None:
    html = MarkdownIt("commonmark").renderInline(markdown.spans(code(text)))
    assert html == f"<code>{text}</code>"


def test_marks_stand_against_the_words() -> None:
    text = line(
        strong("a "), strong("b"), " c ", (Span("d", em=True),), (Span("e", href="http://x"),)
    )
    assert markdown.spans(text) == "**a b** c *d*[e](http://x)"
    assert markdown.blocks([Paragraph(line(strong("Kept"), ": it"))]) == "**Kept**: it"


def test_fence_cannot_be_closed_from_inside() -> None:
    html = MarkdownIt("commonmark").render(markdown.fenced("a\n````\nb\n```", "diff") + "\n\nend")
    assert "a\n````\nb\n```\n</code>" in html
    assert html.endswith("<p>end</p>\n")


def test_what_authors_write_becomes_spans_once() -> None:
    assert authored("a `b  c` **d *e*** [f](https://g) \\* <i>") == (
        Span("a "),
        Span("b c", code=True),
        Span(" "),
        Span("d ", strong=True),
        Span("e", strong=True, em=True),
        Span(" "),
        Span("f", href="https://g"),
        Span(" * <i>"),
    )
    assert authored("2 * 3 * 4 and a_b_c") == line("2 * 3 * 4 and a_b_c")
    assert first_sentence("In `a. b` it is 1.2x. The rest.\n\nMore.") == line(
        "In ", code("a. b"), " it is 1.2x."
    )


def test_memory_is_of_the_level_nearest_to_its_peak() -> None:
    known = not_none(ablation(1).row("fix1").roofline)
    l2 = replace(known.levels[1], share_of_bandwidth=0.2, bytes_per_second=2e12)
    l1 = replace(known.levels[2], share_of_bandwidth=1)
    busy = replace(known, levels=(known.levels[0], l2, l1))
    row = cells(with_row(ablation(1), "fix1", roofline=busy), "fix1")
    assert row["memory % of peak (GB/s)"] == "20 % of L2 (2000 GB/s)"
