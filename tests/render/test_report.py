"""The report: its words, its parts, and what hostile text can do to it."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

import msgspec
import pytest
from markdown_it import MarkdownIt

from answers import Patch, not_none
from made_ladder import ablation, bottleneck, not_current, saying, time, with_row
from workbench.derive.speedup import Interval, Ratio
from workbench.judge.ladder import Ablation
from workbench.judge.provenance import EvidenceEnvironment
from workbench.judge.rows import InRegime
from workbench.render import markdown
from workbench.render.chart.charts import CHARTS
from workbench.render.doc import CodeBlock, Text
from workbench.render.document import ladder_report
from workbench.render.document.ladder_report import change, report, summary
from workbench.render.document.printed_ladder import answer
from workbench.words import Origin, Regime, Verdict

REPORTS = Path(__file__).parents[2] / "reports"


SECTIONS = [
    "What is possible",
    "Time over size",
    "Time by variant",
    "The changes",
    "What did not work",
    "Limits of the fastest reference",
    "Roofline and stall time",
    "What to try next",
    "Method and limits",
]


def render(found: Ablation) -> str:
    return markdown.document(summary(found))


def told(text: Text) -> str:
    return markdown.spans(text)


def headings(text: str, level: int = 2) -> list[str]:
    """Those down to a level."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    opened = {f"h{n}" for n in range(1, level + 1)}
    starts = [i for i, t in enumerate(tokens) if t.type == "heading_open" and t.tag in opened]
    return [tokens[i + 1].content for i in starts]


def test_sections_stand_in_order() -> None:
    at_one_size = [section for section in SECTIONS if section != "Time over size"]
    assert headings(render(ablation(1))) == ["Attention forward", *at_one_size]


def test_the_command_that_reproduces_it_can_be_pasted_into_any_shell() -> None:
    """Zsh takes the brackets of a variant for a pattern."""
    found = dataclasses.replace(ablation(1), study="fix2[warps=12]", shape="it's one")
    (block, _) = ladder_report.reproduction(found)
    assert isinstance(block, CodeBlock)
    assert "'fix2[warps=12]'" in block.text
    assert shlex.split(block.text)[-1] == "it's one"


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (Ratio(2.0, None, None), "2.00x [not collected] the speed of Reference sdpa (10.4 µs)"),
        (
            Ratio(2.0, 1.9, 2.1, 5, Interval(2.3, 2.2, 2.4, 5)),
            "2.00x [1.90, 2.10] (2.30x in cycles) the speed of Reference sdpa (10.4 µs)",
        ),
        (Ratio(0.5, 0.4, 0.8), "0.500x [0.400, 0.800] the speed of Reference sdpa (10.4 µs)"),
        (None, "its speed relative to Reference sdpa (10.4 µs) is not collected"),
    ],
)
def test_the_answer_is_honest_about_the_reference(ratio: Ratio | None, words: str) -> None:
    known = InRegime(microseconds=time(337.0), speedup_over_fastest=ratio, fastest="sdpa")
    text = told(answer(with_row(ablation(1), "fix1", regimes={Regime.CHAINED: known})))
    assert f"`fix1` takes 337 µs per call: {words}" in text


def test_a_baseline_without_a_time_is_not_in_the_answer() -> None:
    alone = {Regime.CHAINED: InRegime(microseconds=time(177.0))}
    found = with_row(with_row(ablation(3), "fix3", regimes=alone), "baseline", regimes={})
    assert "baseline" not in told(answer(found))


def test_the_answer_names_its_basis() -> None:
    text = told(answer(ablation(3)))
    assert text.startswith("**`fix3` takes 177 µs per call: ")
    assert "3.61x that of baseline (640 µs).**" in text
    assert " Its largest error is 1.25x that of `sdpa`. " in text
    assert text.endswith(" Study `attention` at B=2, NVIDIA H200, recorded 2026-01-02.")
    measured = told(answer(dataclasses.replace(ablation(3), source=Origin.MEASURED)))
    assert "measured 2026-01-02" in measured


def test_result_without_a_step_or_a_time() -> None:
    assert "No step was kept: `baseline` takes 640 µs" in told(answer(ablation(0)))
    nothing = not_current(ablation(0), "baseline", "missing", "not measured")
    assert "there is no result yet" in told(answer(nothing))
    assert "not collected" in render(nothing)


def test_stale_step_shows_no_figure() -> None:
    found = not_current(ablation(3), "fix3", "stale", "its sources changed")
    text = render(found)
    assert "177 µs" not in text
    assert not [line for line in ladder_report.failures(found) if "fix3" in told(line)]
    assert "`fix1` takes 337 µs" in text


def test_why_a_step_failed_stands_in_full_beside_its_lesson() -> None:
    found = not_current(ablation(3), "fix3", "failed", "wrong: with outliers inputs")
    step = not_none(found.row("fix3").step)
    step = msgspec.structs.replace(step, lesson="Check *hard* inputs. Always.")
    found = with_row(found, "fix3", verdict=Verdict.WRONG, step=step)
    (line,) = [told(line) for line in ladder_report.failures(found) if "fix3" in told(line)]
    assert ": wrong: with outliers inputs. Check *hard* inputs." in line


def test_a_step_is_told_by_the_shape_where_it_is_judged() -> None:
    """What it is at the table's shape, which it may not support, is no word on it."""
    found = not_current(ablation(3), "fix3", "failed", "unsupported: at most 128 keys")
    kept = with_row(found, "fix3", verdict=Verdict.KEPT, judged_at="short")
    assert not [line for line in ladder_report.failures(kept) if "fix3" in told(line)]
    over = Ratio(1.009, 1.001, 1.017)
    judged = with_row(kept, "fix3", verdict=Verdict.NO_GAIN, deciding_speedup=over, gates=())
    (text,) = [told(line) for line in ladder_report.failures(judged) if "fix3" in told(line)]
    assert "(no gain at short)" in text
    assert "1.009x [1.001, 1.017] the speed of `fix1`" in text


def test_captures_of_another_shape_than_a_step_is_judged_at_are_named_so() -> None:
    found = ablation(3)
    row = dataclasses.replace(found.row("fix3"), judged_at="short")
    assert row.against_parent is not None
    here = markdown.section(change(row, found, None))
    assert "under ncu, captured at the table's size, not at short." in here
    both = change(dataclasses.replace(row, against_parent_at="short"), found, None)
    assert "under ncu, captured at short." in markdown.section(both)


def test_only_rejected_steps_are_under_what_did_not_work() -> None:
    (said,) = [told(line) for line in ladder_report.failures(ablation(3))]
    assert said.startswith("`fix2` (")
    assert "0.962x [0.952, 0.971] the speed of `fix1`" in said
    assert "No variant was rejected." in render(ablation(1))


def test_of_many_failures_the_others_are_counted(monkeypatch: Patch) -> None:
    monkeypatch.setattr("workbench.render.document.ladder_report.MOST_FAILURES", 0)
    (said,) = [told(line) for line in ladder_report.failures(ablation(3))]
    assert said == "1 more: `workbench ablate --all --study attention`"


def test_warnings_stand_in_the_notes_at_the_end() -> None:
    text = render(ablation(1, warnings=(saying("captures differ in ncu: 1, 2"),)))
    _, notes = text.split("<summary>Notes on the evidence</summary>")
    assert "- captures differ in ncu: 1, 2\n" in notes
    assert "[!WARNING]" not in text


def test_bottlenecks_of_the_baseline_are_on_the_page() -> None:
    def page(found: Ablation) -> str:
        return markdown.blocks(report(found, {}).blocks)

    text = page(ablation(1))
    assert "1. **Long Scoreboard Stalls**: " in text
    assert "NVIDIA estimates 75 % of the runtime; hottest line `baseline.cu:30`, 71 %" in text
    assert "`baseline.cu:30`, 71 % of its long scoreboard samples" in text
    assert "/workbench/kernels" not in text
    local = dataclasses.replace(bottleneck(), scope="local", hot_line=None)
    text = page(with_row(ablation(0), "baseline", bottlenecks=(local,)))
    assert "NVIDIA estimates 75 % of the part that the rule covers" in text
    assert "hottest line" not in text.split("## Limits of the fastest reference")[0]


def test_method_follows_the_recorded_flags() -> None:
    assert "caches left as they were, clocks left alone" in render(ablation(0))
    flags = ("--cache-control", "all", "--clock-control", "base")
    kept = msgspec.structs.replace(ablation(0).environment, ncu_flags=flags)
    text = render(ablation(0, environment=kept))
    assert "caches flushed before every pass, clock control base" in text
    assert "cache control not collected" in render(ablation(0, environment=EvidenceEnvironment()))


def test_copies_of_constant_inputs_are_told_where_there_were_several() -> None:
    found = ablation()
    several = dataclasses.replace(
        found, timing=dataclasses.replace(not_none(found.timing), copies=7)
    )
    assert "such as weights, are held 7 times with other values" in render(several)
    assert "such as weights" not in render(found)


def test_charts_are_linked_and_diffs_are_on_the_page() -> None:
    text = render(ablation(1))
    for name in (f"{name}-light.svg" for name in CHARTS if name != "sizes"):
        assert f'"{name}"' in text
    assert 'alt="Roofline over DRAM: the work that the problem needs' in text
    assert "The slope is what DRAM can feed" in text
    assert "{level}" not in text
    text = render(ablation(12))
    assert "Diff against" not in text
    assert "whole diff: `workbench report --html --study attention`." in text


@pytest.mark.parametrize("study", sorted(path.name for path in REPORTS.iterdir()))
def test_a_committed_report_is_short_and_shown_in_full_by_github(study: str) -> None:
    folder = REPORTS / study
    text = (folder / "OPTIMIZATION_REPORT.md").read_text(encoding="utf-8")
    pictures = set(re.findall(r'(?:src|srcset)="([^"]+)"', text))
    files = {path.name for path in folder.iterdir() if path.is_file()}  # folders are of shapes
    assert files - {"report.html"} == {"OPTIMIZATION_REPORT.md", *pictures}
    assert headings(text)[1:] == SECTIONS
    ladder = text.split("## Time by variant")[1].split("## The changes")[0]
    rows = [line for line in ladder.splitlines() if line.startswith("| ")]
    (winner,) = re.findall(r"^\*\*`([^`]+)` takes ", text, re.MULTILINE)
    assert rows[-1].startswith(f"| {winner} | ")
    assert "  " not in "".join(rows)


def test_nothing_collected_at_all_still_renders() -> None:
    found = ablation(2, ceilings=None, environment=EvidenceEnvironment(), timing_file="", date="")
    for row in found.everything:
        found = not_current(found, row.variant, "missing", "not measured")
    text = render(found)
    assert "not collected" in text
    assert not re.search(r"\bNone\b|\bnan\b|\binf\b", text)
