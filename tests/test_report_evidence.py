"""The report in a pull request carries its evidence, and every output has the same table."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from markdown_it import MarkdownIt

import workbench as wb
from answers import not_none
from workbench.judge.ladder import Ablation
from workbench.render import answers, as_table, in_short, markdown, page
from workbench.render.as_json import plain_data
from workbench.render.chart import svg
from workbench.render.doc import Section, Table, plain
from workbench.render.document.ladder_report import report
from workbench.render.document.printed_ladder import (
    Where,
    has_figures,
    ladder_table,
    screen,
    verdict_words,
)
from workbench.render.terminal import fitted as columns_of
from workbench.words import Verdict
from workspaces import ROOT

STUDIES = ("attention", "attention_served", "moe", "softmax", "transpose")
MOST_BYTES = 150_000
SHARE = re.compile(r"^[ +-].*(?://|#) [\d.]+ %", re.MULTILINE)
METRIC = re.compile(r"`(?:\w+__\w+)(?:\.\w+)*")


@cache
def ladder_of(study: str) -> Ablation:
    return wb.study(study, project=ROOT).evidence().ladder


@cache
def text_of(study: str) -> str:
    return (ROOT / "reports" / study / "OPTIMIZATION_REPORT.md").read_text(encoding="utf-8")


def blocks_of(study: str) -> dict[str, str]:
    """The block of each change by its variant."""
    changes = text_of(study).split("\n## The changes\n")[1].split("\n## ")[0]
    parts = (part.split("\n", 1) for part in changes.split("\n### ")[1:])
    return {head.replace("\\", "").split(": ")[0]: body for head, body in parts}


def parse(text: str) -> list[list[str]]:
    """The cells of the first table of a Markdown text."""
    rows: list[list[str]] = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "table_close":
            return rows
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and rows:
            rows[-1].append("".join(part.content for part in token.children or ()))
    return rows


@pytest.mark.parametrize("study", STUDIES)
def test_each_kept_variant_on_the_path_has_its_evidence(study: str) -> None:
    blocks = blocks_of(study)
    kept = [row.variant for row in ladder_of(study).path if row.verdict == Verdict.KEPT]
    assert kept
    for variant in kept:
        block = blocks[variant]
        counters = [
            line
            for line in block.splitlines()
            if METRIC.search(line) and not line.startswith("| stall: ")
        ]
        assert len(counters) >= 3, variant
        assert "| stall: " in block, variant
        assert "```diff\n" in block, variant
        assert SHARE.search(block.split("```diff\n")[1].split("```")[0]), variant
        assert "unattributed" in block, variant


@pytest.mark.parametrize("study", STUDIES)
def test_a_factor_that_a_lesson_quotes_is_one_of_its_evidence(study: str) -> None:
    for variant, block in blocks_of(study).items():
        evidence, _, lesson = block.partition("**Lesson.**")
        known = [float(x) for x in re.findall(r"([\d.]*\d)x", evidence.replace(",", ""))]
        for quoted in map(float, re.findall(r"([\d.]*\d)x", lesson)):
            near = (abs(quoted / x - 1) < 0.03 or abs(quoted * x - 1) < 0.03 for x in known if x)
            assert any(near), (variant, quoted)


@pytest.mark.parametrize("study", STUDIES)
def test_the_sizes_stand_under_the_headline_and_the_report_is_small(study: str) -> None:
    text = text_of(study)
    assert len(text.encode()) <= MOST_BYTES
    headline = text.splitlines()[2]
    assert re.search(r"\w+ other sizes?[,:]", headline)
    below = text.split("\n## ")[0]
    sizes = not_none(ladder_of(study).across).shapes
    assert below.count("\n| ") == len(sizes) + 2
    assert "| fastest reference (µs) | vs it [95 % interval] |" in below
    alone = [each for each in sizes if each.claimed is not each.speedup_over_fastest]
    assert below.count(" alone |") == len(alone)
    assert ("Alone: measured without other kernels" in below) == any(each.alone for each in sizes)
    chart = text.split("\n## Time over size\n")[1].split("\n## Time by variant\n")[0]
    assert "sizes-light.svg" in chart
    assert "sizes-phone-light.svg" in chart


@pytest.mark.parametrize("study", STUDIES)
def test_a_change_says_at_which_sizes_it_holds(study: str) -> None:
    found = ladder_of(study)
    for variant, block in blocks_of(study).items():
        row, known = found.row(variant), set(found.over_parents[variant])
        known |= {row.judged_at or found.shape} if row.over_parent else set()
        holds = re.search(r"^\*\*Holds\*\* at \d+ of (\d+) timed sizes", block, re.MULTILINE)
        assert bool(holds) == (len(known) > 1), variant
        assert holds is None or int(holds[1]) == len(known)


@pytest.mark.parametrize("study", STUDIES)
def test_the_table_has_the_columns_of_the_profiler(study: str) -> None:
    section = text_of(study).split("\n## Time by variant\n")[1]
    head, *lines = parse(section)
    places = [head.index(name) for name in ("occupancy %", "top stall")]
    places.append(head.index("memory % of peak (GB/s)"))
    time = head.index("time (µs)")
    profiled = [cells for cells in lines if cells[time] not in ("—", "not collected")]
    assert all(re.search(r"\d", cells[place]) for cells in profiled for place in places)


@pytest.mark.parametrize("study", STUDIES)
def test_the_report_explains_its_stalls_and_names_its_controls(study: str) -> None:
    text = text_of(study)
    timed = set(re.findall(r"^\| stall: (.+?) \(µs\)", text, re.MULTILINE))
    beside_lines = set(
        re.findall(r"(?://|#) [\d.]+ %(?: → [\d.]+ %)? ([a-z ]+)$", text, re.MULTILINE)
    )
    explained = set(re.findall(r"^- ([a-z ]+): ", text, re.MULTILINE))
    assert (timed | beside_lines) - explained - {"issuing, not stalled"} == set()
    assert re.search(r"^- Controls, .* µs alone and .* % \[.*; A/A controls: ", text, re.MULTILINE)
    predicted = re.findall(r"^\*\*Predicted\.\*\* (.*)$", text, re.MULTILINE)
    assert predicted
    assert not re.search(r"\b[a-z](?:[A-Z]{2}|\d to)|\d [kMG] M\b", " ".join(predicted))
    assert not re.search(r"\((?:global|local)\)", text)


@pytest.mark.parametrize("study", STUDIES)
def test_all_outputs_agree_on_variants_verdicts_and_times(study: str) -> None:
    found = ladder_of(study)
    shown = found.table_rows
    expected = [
        [row.variant, verdict_words(row, found), row.time.value if row.time else None]
        for row in shown
    ]

    def three(table: Table) -> list[list[Any]]:
        keys = ("variant", "verdict", "microseconds")
        return [[plain(row.cells[key].text) for key in keys] for row in table.rows]

    terminal, *_ = (block for block in screen(found) if isinstance(block, Table))
    texts = three(terminal)
    assert [text[:2] for text in texts] == [each[:2] for each in expected]
    for width in (60, 80):
        (column,) = (c for c in columns_of(terminal, width)[0] if c.column.key == "verdict")
        assert column.width >= max(len(text[1]) for text in texts)
    in_pipe = parse(markdown.blocks(screen(found)))
    in_report = parse(text_of(study).split("\n## Time by variant\n")[1])
    for head, *lines in (in_pipe, in_report):
        places = [head.index(name) for name in ("variant", "verdict", "time (µs)")]
        assert [[cells[place] for place in places] for cells in lines] == texts

    whole = ladder_table(found, Where.PAGE)
    on_page = {text[0]: text for text in three(whole)}
    assert all(on_page[text[0]] == text for text in texts)
    written = page.Writer({}).blocks([whole])
    assert all(svg.escape(text[1]) in written for text in texts)
    (section,) = (
        b for b in report(found, {}).blocks if isinstance(b, Section) and b.key == "ladder"
    )
    (wide,) = (block for block in section.blocks if isinstance(block, Table))
    assert three(wide) == texts

    data = plain_data(answers.ablation(found))
    in_json = {row["variant"]: row for row in data["variants"]}
    csv = as_table.as_csv(as_table.variants(found)).splitlines()
    short = {row["variant"]: row for row in in_short.ladder(found)["variants"]}  # type: ignore[attr-defined]
    for row in shown:
        known = in_json[row.variant]
        assert known["verdict"] == row.verdict
        (line,) = (
            each for each in csv if each.startswith((f"{row.variant},", f'"{row.variant}",'))
        )
        assert f",{row.verdict}," in line
        if row.time and has_figures(row):
            assert known["microseconds"]["value"] == row.time.value
            assert repr(row.time.value) in line
            if row.variant in short:
                assert short[row.variant]["microseconds"] == pytest.approx(row.time.value, rel=1e-3)
        if row.variant in short:
            assert short[row.variant]["verdict"] == row.verdict
