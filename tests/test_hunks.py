"""The cost of hunks: no time is counted twice, and a wait that stays amid changes is theirs."""

from __future__ import annotations

import pytest

import pages
from workbench.derive.diff.alignment import is_wait
from workbench.derive.diff.costs import Cost, LineCosts
from workbench.derive.diff.line_diff import ProfiledSource, SourceDiff
from workbench.derive.diff.source_diff import source_diff


def recorded(variant: str) -> SourceDiff:
    return pages.recorded()[1].diffs[variant]


@pytest.mark.parametrize("variant", ["fix4", "fix5", "fix7", "fix11", "fix13"])
def test_no_time_is_counted_twice_or_lost(variant: str) -> None:
    changes = recorded(variant)
    for side, total in enumerate(changes.totals):
        parts = [(hunk.before, hunk.after)[side] for hunk in changes.hunks]
        parts += [changes.unchanged[side], *(both[side] for both in changes.elsewhere.values())]
        assert sum(part.microseconds or 0.0 for part in parts) == pytest.approx(total.microseconds)


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


def diff(before: str, after: str) -> SourceDiff:
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
    changes = diff(
        kernel(PADDING, "    x[1] = 1;\n    __syncthreads();\n    x[2] = 1;\n"),
        kernel(PADDING, "    y[1] = 7;\n    __syncthreads();\n    z[2] = 8;\n"),
    )
    (only,) = changes.hunks
    assert only.before.microseconds == only.after.microseconds == 3.0
    assert [shift for shift in changes.shifts if "sync" in shift.after.text] == []


def test_comments_around_a_wait_change_nothing() -> None:
    text = kernel("    // one\n    __syncthreads();\n    // two\n")
    (only,) = diff(text, text.replace("one", "1").replace("two", "2")).hunks
    assert only.comments_only
    assert only.before.microseconds is None
