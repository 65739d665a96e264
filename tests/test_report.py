"""The report: its words, its parts, and what hostile text can do to it."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

import msgspec
import pytest
from markdown_it import MarkdownIt

from synthetic import ablation, bottleneck, not_current, saying, time, with_row
from workbench.derive.speedup import Interval, Ratio
from workbench.judge.findings import NOT_COLLECTED
from workbench.judge.gates import Gate
from workbench.judge.regimes import InRegime
from workbench.judge.rows import Ablation, EvidenceEnvironment
from workbench.render import markdown
from workbench.render.chart.charts import FILES
from workbench.render.document import method, result
from workbench.render.document.blocks import CodeBlock, Text
from workbench.render.document.ladder_table import tree
from workbench.render.document.step import step_section
from workbench.render.templates import render_report, template_environment
from workbench.words import GateState, Origin, Regime, Verdict

TEMPLATES = Path(__file__).parents[1] / "templates"
REPORTS = TEMPLATES.parent / "reports"
ENVIRONMENT = template_environment([TEMPLATES])
NASTY = "a | b `c <script>alert(1)</script>\n\n# heading\n```\n</details>"


def render(found: Ablation) -> str:
    return render_report(found, ENVIRONMENT)


def told(text: Text) -> str:
    return markdown.spans(text)


def headings(text: str) -> list[str]:
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    return [tokens[i + 1].content for i, t in enumerate(tokens) if t.type == "heading_open"]


def test_sections_stand_in_order() -> None:
    assert headings(render(ablation(1))) == [
        "Optimization report: Attention forward",
        "What was learned",
        "Contents",
        "The ladder",
        "Roofline",
        "Why it got faster",
        "Step by step",
        "`baseline`: where it loses its time",
        "`fix1`: key change of fix1",
        "What did not work",
        "What to try next",
        "Method",
        "Environment",
        "Reproduce it",
        "Where each number comes from",
    ]


def test_the_commands_that_reproduce_it_can_be_pasted_into_any_shell() -> None:
    """Zsh takes the brackets of a variant for a pattern."""
    found = dataclasses.replace(ablation(1), study="fix2[warps=12]", shape="it's one")
    (block, _) = method.reproduction(found)
    assert isinstance(block, CodeBlock)
    (line,) = re.findall(r"^workbench ablate .*$", block.text, re.MULTILINE)
    assert "'fix2[warps=12]'" in line
    assert shlex.split(line)[-1] == "it's one"


def test_same_evidence_gives_the_same_bytes() -> None:
    assert render(ablation(5)) == render(ablation(5))


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (Ratio(2.0, None, None), "it is 2.00x [not collected] of `sdpa`"),
        (
            Ratio(2.0, 1.9, 2.1, 5, Interval(2.3, 2.2, 2.4, 5)),
            "it is 2.00x [1.90, 2.10] (2.30x in cycles) faster than `sdpa`",
        ),
        (Ratio(2.0, 1.9, 2.1), "it is 2.00x [1.90, 2.10] faster than `sdpa`"),
        (Ratio(0.5, 0.4, 0.8), "it is 2.00x [1.25, 2.50] slower than `sdpa`"),
        (Ratio(1.0, 0.9, 1.1), "it is as fast as `sdpa` within the interval (1.00x [0.900, 1.10])"),
        (None, "its speed against `sdpa` (10.4 µs) was not collected"),
    ],
)
def test_result_is_honest_about_the_reference(ratio: Ratio | None, words: str) -> None:
    known = InRegime(microseconds=time(337.0), speedup_over_fastest=ratio, fastest="sdpa")
    text = told(result.result(with_row(ablation(1), "fix1", regimes={Regime.CHAINED: known})))
    text = text.replace("the fastest reference, ", "")
    assert words in text.replace("`sdpa` (10.4 µs) within", "`sdpa` within")


def test_result_names_its_basis() -> None:
    text = told(result.result(ablation(3)))
    assert "`fix3` takes 177 µs chained; it is 17.0x [16.9, 17.2] slower than the fastest" in text
    assert "its error is at worst 1.25x that of `sdpa`" in text
    assert "3.61x [3.57, 3.65] over `baseline` (640 µs)" in text
    assert "In other regimes: back to back " in text
    assert "the 95 % interval is over 5 sessions of 4 instances" in text
    assert "recorded evidence of 2026-01-02" in text
    assert "Of 3 steps: 2 kept, 1 slower; of " in text
    measured = told(result.result(dataclasses.replace(ablation(3), source=Origin.MEASURED)))
    assert "measured by this run on 2026-01-02" in measured


def test_result_without_a_step_or_a_time() -> None:
    assert "No step was kept: `baseline` takes 640 µs" in told(result.result(ablation(0)))
    nothing = not_current(ablation(0), "baseline", "missing", "not measured")
    assert "there is no result yet" in told(result.result(nothing))
    assert "not collected" in render(nothing)


def test_stale_step_shows_no_figure() -> None:
    found = not_current(ablation(3), "fix3", "stale", "its sources changed")
    text = render(found)
    assert "177 µs" not in text
    assert "no figures, stale" in text
    assert "`fix3`: no verdict, stale." in text
    assert "`fix1` takes 337 µs" in text


def test_why_a_step_failed_is_told_once_and_not_cut_off_elsewhere() -> None:
    found = not_current(ablation(3), "fix3", "failed", "wrong: with outliers inputs")
    found = with_row(found, "fix3", verdict=Verdict.WRONG)
    told_once = "`fix3`: wrong, failed: wrong: with outliers inputs."
    assert told_once in [told(line) for line in result.failures(found)]
    assert "1 kept, 1 slower, 1 wrong; of " in told(result.result(found))
    assert any(told(line).startswith("`fix3` (wrong): ") for line in result.lessons(found))
    gates = (
        Gate("correct", GateState.FAILED, saying("wrong: with outliers inputs")),
        Gate("compiler", GateState.PASSED, saying("")),
        Gate("work", GateState.OPEN, NOT_COLLECTED),
        Gate("faster", GateState.OPEN, NOT_COLLECTED),
    )
    assert (
        "no figures, failed. Gates failed: correct (wrong: with outliers inputs); "
        "open: work, faster (not collected); 1 passed."
    ) in render(with_row(found, "fix3", gates=gates))


def test_a_step_is_told_by_the_shape_where_it_is_judged() -> None:
    """What it is at the table's shape, which it may not support, is no word on it."""
    found = not_current(ablation(3), "fix3", "failed", "unsupported: at most 128 keys")
    kept = with_row(found, "fix3", verdict=Verdict.KEPT, judged_at="short")
    assert not [line for line in result.failures(kept) if "fix3" in told(line)]
    assert any(told(line).startswith("`fix3` (kept): ") for line in result.lessons(kept))
    assert "fix3  kept at short" in tree(kept).text
    assert "fix3  wrong" in tree(found).text
    gates = (
        Gate("kernels", GateState.OPEN, NOT_COLLECTED),
        Gate("work", GateState.OPEN, NOT_COLLECTED),
        Gate("faster", GateState.FAILED, saying("lower end 1.009x < 1.03x over the parent")),
    )
    judged = with_row(kept, "fix3", verdict=Verdict.INCONCLUSIVE, gates=gates)
    texts = [told(line) for line in result.failures(judged)]
    (text,) = (text for text in texts if text.startswith("`fix3`"))
    assert text.startswith("`fix3` was inconclusive at `short`, ")
    assert ": not collected: kernels, work; lower end 1.009x < 1.03x over" in text


def test_captures_of_another_shape_than_a_step_is_judged_at_are_named_so() -> None:
    found = ablation(3)
    row = dataclasses.replace(found.row("fix3"), judged_at="short")
    assert row.against_parent is not None
    here = step_section(row, None, row, "short", "long")
    assert "under ncu at `long`." in markdown.blocks(here.blocks)
    both = step_section(
        dataclasses.replace(row, against_parent_at="short"), None, row, "short", "long"
    )
    assert "under ncu." in markdown.blocks(both.blocks)


def test_what_did_not_work() -> None:
    said = [told(line) for line in result.failures(ablation(3))]
    assert said[0] == (
        "`fix2` was slower, 0.962x over `fix1`: lower end 0.952x < 1.03x over the parent."
    )
    assert len(said) == 1
    assert "Every step was kept." in render(ablation(1))


def test_warnings_stand_before_everything() -> None:
    text = render(ablation(1, warnings=(saying("captures differ in ncu: 1, 2"),)))
    assert "forward\n\n> [!WARNING]\n> - captures differ in ncu: 1, 2\n\n**`fix1`" in text
    assert "[!WARNING]" not in render(ablation(1))


def test_bottlenecks_of_the_baseline() -> None:
    text = render(ablation(1))
    assert "1. **Long Scoreboard Stalls**: " in text
    assert "NVIDIA estimates 75 % (global); hottest line `baseline.cu:30`, 71 %" in text
    assert "`baseline.cu:30`, 71 % of its long scoreboard samples" in text
    assert "/workbench/kernels" not in text
    local = dataclasses.replace(bottleneck(), scope="local", hot_line=None)
    text = render(with_row(ablation(0), "baseline", bottlenecks=(local,)))
    assert "NVIDIA estimates 75 % (local)" in text
    assert "hottest line" not in text


def test_method_follows_the_recorded_flags() -> None:
    assert "caches left as they were, clocks left alone" in render(ablation(0))
    flags = ("--cache-control", "all", "--clock-control", "base")
    kept = dataclasses.replace(ablation(0).environment, ncu_flags=flags)
    text = render(ablation(0, environment=kept))
    assert "caches flushed before every pass, clock control base" in text
    assert "cache control not collected" in render(ablation(0, environment=EvidenceEnvironment()))


def test_copies_of_constant_inputs_are_told_where_there_were_several() -> None:
    found = ablation()
    assert found.timing is not None
    several = dataclasses.replace(found, timing=dataclasses.replace(found.timing, copies=7))
    assert "such as weights, are held 7 times with other values" in render(several)
    assert "such as weights" not in render(found)


def test_charts_are_linked_light_and_dark() -> None:
    text = render(ablation(1))
    for name in FILES:
        assert f'"{name}"' in text
    assert 'alt="Roofline over DRAM: performance of every version ' in text
    assert "The slope is what DRAM can feed" in text
    assert "{level}" not in text


def test_a_diff_is_on_the_page_and_not_in_the_report() -> None:
    text = render(ablation(12))
    assert "Diff against" not in text
    assert "`workbench report --open --study attention` shows its diff" in text


@pytest.mark.parametrize("study", sorted(path.name for path in REPORTS.iterdir()))
def test_a_committed_report_is_shown_in_full_by_github(study: str) -> None:
    folder = REPORTS / study
    text = (folder / "OPTIMIZATION_REPORT.md").read_text(encoding="utf-8")
    assert len(text.encode()) < 100_000
    pictures = set(re.findall(r'(?:src|srcset)="([^"]+)"', text))
    assert {path.name for path in folder.iterdir()} - {"report.html"} == {
        "OPTIMIZATION_REPORT.md",
        *pictures,
    }
    found = [title for title in headings(text) if not title.startswith(("`", "Over ", "Judged at"))]
    assert [title for title in found[1:] if title not in ("Roofline", "Bandwidth")] == [
        "What was learned",
        "Contents",
        "The ladder",
        "Why it got faster",
        "Step by step",
        "What did not work",
        "What to try next",
        "Method",
        "Environment",
        "Reproduce it",
        "Where each number comes from",
    ]


def test_hostile_text_stays_text() -> None:
    found = ablation(1, warnings=(saying(NASTY),), title=NASTY, gpu="GPU <b>")
    step = found.row("fix1").step
    assert step is not None
    step = msgspec.structs.replace(
        step, key_change=NASTY, bottleneck=NASTY, rationale=NASTY, lesson=NASTY
    )
    bad = dataclasses.replace(bottleneck(), title=NASTY, message=NASTY)
    found = with_row(found, "fix1", step=step, bottlenecks=(bad,), kernels=(NASTY,))
    found = with_row(found, "baseline", bottlenecks=(bad,))
    text = render(found)
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert "<script" not in html
    assert html.count("</details>") == html.count("<details>") == 4
    assert [h for h in headings(text) if h == "heading"] == []
    assert len(headings(text)) == len(headings(render(ablation(1))))
    assert html.count("<table>") == MarkdownIt("commonmark").enable("table").render(
        render(ablation(1))
    ).count("<table>")


def test_nothing_collected_at_all_still_renders() -> None:
    found = ablation(2, ceilings=None, environment=EvidenceEnvironment(), timing_file="", date="")
    for row in found.everything:
        found = not_current(found, row.variant, "missing", "not measured")
    text = render(found)
    assert "not collected" in text
    assert not re.search(r"\bNone\b|\bnan\b|\binf\b", text)


def test_own_template_wins(tmp_path: Path) -> None:
    (tmp_path / "OPTIMIZATION_REPORT.md.j2").write_text(
        "mine: {{ facts.study }}, {{ sections.result }}"
    )
    mine = template_environment([tmp_path, TEMPLATES])
    assert render_report(ablation(0), mine).startswith("mine: attention, **No step was kept")


def prose(text: str) -> list[str]:
    """The words that a reader meets: outside of folds and code, without numbers."""
    text = re.sub(r"^(`{3,})[^\n]*\n.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    fold = re.compile(r"<details>(?:(?!<details>).)*?</details>", re.DOTALL)
    while fold.search(text):
        text = fold.sub("", text)
    text = re.sub(r"`[^`]*`|<[^>]+>|\(#[^)]*\)", " ", text)
    return [word for word in text.split() if re.search(r"[A-Za-z]{2,}", word)]


def test_a_step_of_the_attention_ladder_is_read_in_under_a_minute() -> None:
    """With its part in all around it: 23 steps were 3600 words, a quarter of an hour."""
    text = (REPORTS / "attention" / "OPTIMIZATION_REPORT.md").read_text()
    steps = len(re.findall(r"^### `fix[^`]*`: ", text, flags=re.MULTILINE))
    assert steps > 20
    assert 80 < len(prose(text)) / steps <= 3600 / 23


def test_contents_link_to_the_headings_as_github_names_them() -> None:
    text = render(ablation(2))
    links = dict(re.findall(r"\[([^\]]+)\]\(#([^)]+)\)", text))
    assert links["The ladder"] == "the-ladder"
    slugs = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings(text)}
    assert set(links.values()) <= slugs


def test_every_step_has_its_verdict_its_why_and_its_lesson_in_sight() -> None:
    found = ablation(2)
    step = found.row("fix1").step
    assert step is not None
    step = msgspec.structs.replace(step, lesson="Tiles *pay*. Again and again.")
    text = render(with_row(found, "fix1", step=step))
    assert "- `fix1` (kept): Tiles *pay*.\n" in text
    section = text.split("### `fix1`")[1].split("<details>")[0]
    assert "**Kept**: 337 µs, 1.90x [1.88, 1.92] over `baseline`. 3 gates passed." in section
    assert "**Why.** 1.90x = 1.90x (fewer instructions), " in section
    assert "**Lesson.** Tiles *pay*. Again and again." in section
    section = text.split("### `fix2`")[1].split("<details>")[0]
    assert "Gates failed: faster (lower end 0.952x < 1.03x over the parent); 2 passed." in section
