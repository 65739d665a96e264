"""A hunk that replaces a wait, or puts code behind a call, is shown with what it costs elsewhere.

README's showpiece, then hunk 9 of fix4 to fix5, promised 6.72 to 0.451 µs: it left out the new
wait's line and the function that now does the loading.
"""

from __future__ import annotations

import pytest

import pages
from workbench.derive.diff.alignment import is_wait
from workbench.derive.diff.costs import Cost, LineCosts
from workbench.derive.diff.line_diff import Hunk, ProfiledSource, SourceDiff
from workbench.derive.diff.source_diff import source_diff
from workbench.render.as_json import plain_data as as_json
from workbench.render.document.blocks import plain
from workbench.render.document.hunks import costliest_lines, costs


def recorded(variant: str) -> SourceDiff:
    return pages.recorded()[1].diffs[variant]


def microseconds(found: Hunk) -> list[float]:
    return [cost.microseconds or 0.0 for cost in found.together]


def test_a_hunk_tells_what_belongs_to_it() -> None:
    changes = recorded("fix5")
    changed = changes.hunks[8]
    assert changed.span(1) == (101, 105)
    assert changed.tied == (6, 8)  # copy_async, and fetch, which it calls
    assert microseconds(changed) == pytest.approx([3.73, 2.52], abs=0.01)
    waits = [row.after.line for row in changed.rows if row.waits and row.after]
    assert waits == [102]
    told = plain(costliest_lines(changes)[0])
    assert told.endswith("with 6, 8: 3.73 µs → 2.52 µs")
    assert "; with 6, 8: " in costs(changed)[0]
    assert as_json(changed)["tied"] == [6, 8]


def test_the_showpiece_tells_the_function_that_is_gone() -> None:
    """README's: the copy engine in place of ``copy_tile``, which the hunk called until then."""
    changed = recorded("fix7").hunks[8]
    assert changed.tied == (8,)
    gone = recorded("fix7").hunks[7]
    both = (changed.before.microseconds or 0.0) + (gone.before.microseconds or 0.0)
    assert microseconds(changed)[0] == pytest.approx(both)
    assert both > 6 * (changed.before.microseconds or 0.0)


@pytest.mark.parametrize("variant", ["fix4", "fix5", "fix7", "fix11", "fix13"])
def test_no_time_is_counted_twice_or_lost(variant: str) -> None:
    changes = recorded(variant)
    for side, total in enumerate(changes.totals):
        parts = [(hunk.before, hunk.after)[side] for hunk in changes.hunks]
        parts += [changes.unchanged[side], *(both[side] for both in changes.elsewhere.values())]
        assert sum(part.microseconds or 0.0 for part in parts) == pytest.approx(total.microseconds)


def test_a_moved_wait_is_tied_to_where_it_went() -> None:
    """fix7 to fix8: the wait for an empty stage goes from the consumers to the producer."""
    changes = recorded("fix8")
    gone = next(
        h for h in changes.hunks if (h.before.microseconds or 0.0) > 5 and not h.comments_only
    )
    assert gone.tied
    before, after = microseconds(gone)
    assert after > (gone.after.microseconds or 0.0)
    assert before >= (gone.before.microseconds or 0.0)


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
FIRST = PADDING.replace("step", "first")


def kernel(*body: str) -> str:
    return "__global__ void work(float* x) {\n" + "".join(body) + "}\n"


def test_what_calls_a_new_function_is_told_with_it() -> None:
    helper = "__device__ void load(float* x) {\n    x[0] = 1;\n}\n"
    changes = diff(
        kernel(FIRST, "    x[0] = 1;\n", PADDING, "    x[1] = 1;\n"),
        helper + kernel(FIRST, "    load(x);\n", PADDING, "    x[1] = 2;\n"),
    )
    made, calling, other = (hunk for hunk in changes.hunks if not hunk.comments_only)
    assert (calling.tied, made.tied, other.tied) == ((made.number,), (), ())
    assert microseconds(calling) == [1.0, 4.0]


def test_a_wait_that_goes_elsewhere_in_the_function_is_no_gain() -> None:
    changes = diff(
        kernel("    __syncthreads();\n", PADDING, "    x[1] = 1;\n"),
        kernel(PADDING, "    pipeline_wait();\n    x[1] = 1;\n"),
    )
    gone, come = changes.hunks
    assert (gone.tied, come.tied) == ((come.number,), (gone.number,))
    assert microseconds(gone) == microseconds(come) == [1.0, 1.0]


def test_a_wait_that_stays_amid_changes_is_part_of_the_hunk() -> None:
    changes = diff(
        kernel(PADDING, "    x[1] = 1;\n    __syncthreads();\n    x[2] = 1;\n"),
        kernel(PADDING, "    y[1] = 7;\n    __syncthreads();\n    z[2] = 8;\n"),
    )
    (only,) = changes.hunks
    assert only.before.microseconds == only.after.microseconds == 3.0
    assert not only.tied
    assert [shift for shift in changes.shifts if "sync" in shift.after.text] == []


def test_comments_around_a_wait_change_nothing() -> None:
    text = kernel("    // one\n    __syncthreads();\n    // two\n")
    (only,) = diff(text, text.replace("one", "1").replace("two", "2")).hunks
    assert only.comments_only
    assert only.before.microseconds is None
