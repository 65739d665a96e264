"""``workbench diff`` of variants on the recorded evidence, and what its hunks cost."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from answers import Capsys, error_of, not_none, text_of
from derive.test_source_diff import assert_whole, changes
from workbench.app.executor import Local
from workbench.app.target import find_target
from workbench.derive.source_diff import (
    COUNTERS,
    Cost,
    LineCosts,
    ProfiledSource,
    SourceDiff,
    is_wait,
    source_diff,
)
from workbench.judge.line_costs import pair_sources
from workbench.load import LadderEvidence
from workspaces import FIXTURE, copy_of_fixture, ladder_steps

HERE = ["--project", str(FIXTURE)]
STEPS = ladder_steps()
ABSENT = {"fix3"}  # it is wrong, and so was not captured
CAPTURED = [pair for pair in STEPS if not ABSENT & set(pair)]


@pytest.fixture(scope="module")
def evidence() -> LadderEvidence:
    target = find_target(Local(), FIXTURE, None, None)
    return target.load_ladder(target.steps([]), sources=True)


def run(capsys: Capsys, *arguments: str) -> str:
    return text_of(capsys, *arguments, *HERE)


def test_every_step_but_a_wrong_one_was_captured(evidence: LadderEvidence) -> None:
    known = evidence.shapes[evidence.shape].variants
    assert {name for name, found in known.items() if found.capture is None} == ABSENT
    found = pair_sources(evidence, "fix2", "fix3")
    assert not found.has_costs
    assert found.why == ("", "missing")
    assert all(hunk.after.samples is None for hunk in found.hunks)
    assert any(hunk.before.samples for hunk in found.hunks)


@pytest.mark.parametrize(("before", "after"), CAPTURED)
def test_hunks_and_the_rest_add_up_to_all_that_was_sampled(
    before: str, after: str, evidence: LadderEvidence
) -> None:
    found = pair_sources(evidence, before, after)
    assert found.has_costs
    for side, variant in enumerate((before, after)):
        capture = not_none(evidence.shapes[evidence.shape].variants[variant].capture)
        by_counter = [*capture.lines.rows("counter", "value")]
        issuing = sum(value for counter, value in by_counter if counter == "selected")
        done = sum(value for counter, value in by_counter if counter == "instructions")
        others = {*COUNTERS, "selected"}
        stalls = sum(value for counter, value in by_counter if counter not in others)
        parts = [(hunk.before, hunk.after)[side] for hunk in found.hunks]
        parts += [found.unchanged[side], *(pair[side] for pair in found.elsewhere.values())]
        assert sum(p.samples or 0 for p in parts) == pytest.approx(stalls)
        assert sum(p.instructions or 0 for p in parts) == pytest.approx(done)
        assert sum(p.microseconds or 0 for p in parts) == pytest.approx(
            found.totals[side].microseconds
        )
        # Another replay pass: a warp that spins on an mbarrier does not count alike in both.
        counted = sum(
            value
            for metric, value in capture.metrics.rows("metric", "value")
            if metric == "smsp__inst_executed.sum"
        )
        assert found.totals[side].instructions == pytest.approx(counted, rel=0.02)
        assert found.totals[side].share == pytest.approx(1 - issuing / (stalls + issuing))


@pytest.mark.parametrize(("before", "after"), STEPS)
def test_the_diff_turns_one_variant_into_the_other(
    before: str, after: str, evidence: LadderEvidence
) -> None:
    known = evidence.shapes[evidence.shape].variants
    found = pair_sources(evidence, before, after)
    old, new = known[before].texts, known[after].texts
    assert {file.before for file in found.files} <= {"", *old}
    for file in found.files:
        assert_whole(file, old.get(file.before, ""), new.get(file.after, ""))
    changed = any(file.hunks for file in found.files)
    assert changed or before.split("[")[0] == after.split("[")[0]


def test_what_the_tiles_changed_is_found_on_the_lines_that_read_k_and_v(
    evidence: LadderEvidence,
) -> None:
    """The reads of K moved from global to shared memory without a change of their line."""
    found = pair_sources(evidence, "baseline", "fix1")
    first = found.shifts[0]
    assert "score += query[d]" in first.after.text
    assert first.before.cost.top_stall == "long_scoreboard"
    assert (
        first.change_microseconds < (211.904 - 659.328) / 2
    )  # more than half of all that was gained
    copies = [h for h in found.hunks if any("uint4" in r.after.text for r in h.rows if r.after)]
    assert len(copies) == 1
    assert copies[0].before.samples == 0
    assert 10 < (copies[0].after.microseconds or 0) < 30


def test_a_included_file_is_part_of_the_diff(tmp_path: Path) -> None:
    root = copy_of_fixture(tmp_path)
    folder = root / "kernels" / "attention"
    (folder / "tools.cuh").write_text("__device__ int tool() { return 1; }\n")
    source = folder / "fix1.cu"
    source.write_text('#include "tools.cuh"\n' + source.read_text())
    target = find_target(Local(), root, None, None)
    evidence = target.load_ladder(target.steps([]), sources=True)
    found = pair_sources(evidence, "baseline", "fix1")
    assert [file.after.rsplit("/")[-1] for file in found.files] == [
        "fix1.py",
        "fix1.cu",
        "tools.cuh",
    ]
    assert "+__device__ int tool() { return 1; }" in changes(found.files[-1].rows)
    assert found.why == ("", "stale")
    assert found.hunks[0].after.samples is None


def test_it_shows_what_moved_and_the_sources_on_demand(capsys: Capsys) -> None:
    short = run(capsys, "diff", "fix1", "fix2")
    text = run(capsys, "diff", "fix1", "fix2", "--source")
    assert "hunk 1: fix1.py:1" not in short
    assert "- hunk 7, `fix1.cu:33-34 → fix2.cu:35-37, attention_forward()`: 3.61 µs" in short
    assert len(short.splitlines()) < 150
    assert text.startswith("recorded evidence: NVIDIA H200")
    assert re.search(r"fix2 over fix1, between two other kernels: [\d.]+x \[", text)
    assert "Against fix1: 2.17x = 0.945x (more instructions) × 1.16x (higher issue rate)" in text
    assert text.index("| Registers per thread") < text.index("hunk 1: fix1.py:1")
    assert "\x1b" not in text
    # Clocks of other variants are not these two's concern.
    assert "sdpa_efficient" not in text


def test_the_own_values_of_parameters_name_the_variant_itself(capsys: Capsys) -> None:
    assert run(capsys, "diff", "fix2[warps=4]", "fix3") == run(capsys, "diff", "fix2", "fix3")


def test_a_variant_without_source_lines_still_compares_its_metrics(capsys: Capsys) -> None:
    text = run(capsys, "diff", "fix5", "sdpa")
    assert "Costs by line are not collected (sdpa: its capture has no source lines)." in text
    assert "| Duration under ncu (µs)" in text
    data = json.loads(run(capsys, "diff", "fix5", "sdpa", "--json"))
    assert data["not_collected"] == {"after": "no_lines"}
    assert all(h["after"] is None or h["after"]["samples"] is None for h in data["hunks"])


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["fix1", "fix1x"], "unknown variant 'fix1x'", "'fix1'"),
        (["fix1", "fix1"], "compared with itself", "two variants"),
        (["fix2", "fix2[warps=4]"], "compared with itself", "two variants"),
        (["fix1", "fix2", "--kernel", "k"], "--kernel is for reports", "together"),
    ],
)
def test_what_cannot_be_compared_is_said(
    arguments: list[str], message: str, hint: str, capsys: Capsys
) -> None:
    err = error_of(capsys, "diff", *arguments, *HERE)
    assert message in err.splitlines()[0]
    assert hint in err.split("hint:")[1]


# ---- hunks
@pytest.mark.parametrize(
    ("code", "waits"),
    [
        ("__syncthreads();", True),
        ("__syncwarp();", True),
        ("barrier_wait(&s.q_full, 0);", True),
        ('asm volatile("cp.async.wait_group %0;" :: "n"(1));', True),
        ("wgmma_wait<0>();", True),
        ("wait_for_values(step + 1);", True),
        ("pipe.consumer_wait();", True),
        ("grid.sync();", True),
        ('asm volatile("bar.sync 1, 128;");', True),
        ("barrier_arrive(&s.empty);", False),
        ("const int await_count = 3;", False),
        ("float x = wgmma(score, a, b);", False),
        ("", False),
    ],
)
def test_what_is_a_wait(code: str, waits: bool) -> None:
    assert is_wait(code) == waits


def diff_of(before: str, after: str) -> SourceDiff:
    """Of two kernels whose every line costs 1 µs."""
    one = Cost(samples=1.0, share=0.1, microseconds=1.0)
    sides = []
    for text in (before, after):
        lines = {("a.cu", n + 1): one for n in range(text.count("\n"))}
        sides.append(ProfiledSource({"a.cu": text}, LineCosts(lines, Cost(), 10.0)))
    return source_diff(*sides)


PADDING = "".join(f"    step{n}();\n" for n in range(4))


def kernel(*body: str) -> str:
    return "__global__ void work(float* x) {\n" + "".join(body) + "}\n"


def test_a_wait_that_stays_amid_changes_is_part_of_the_hunk() -> None:
    changes = diff_of(
        kernel(PADDING, "    x[1] = 1;\n    __syncthreads();\n    x[2] = 1;\n"),
        kernel(PADDING, "    y[1] = 7;\n    __syncthreads();\n    z[2] = 8;\n"),
    )
    (only,) = changes.hunks
    assert only.before.microseconds == only.after.microseconds == 3.0
    assert [shift for shift in changes.shifts if "sync" in shift.after.text] == []


def test_comments_around_a_wait_change_nothing() -> None:
    text = kernel("    // one\n    __syncthreads();\n    // two\n")
    (only,) = diff_of(text, text.replace("one", "1").replace("two", "2")).hunks
    assert only.comments_only
    assert only.before.microseconds is None
