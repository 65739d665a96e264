"""Costs of lines, the alignment of rewritten sources, and hunks. Pure: tables made up here."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Iterable
from itertools import chain

import pytest
from rich.cells import cell_len
from rich.console import Console

from workbench.derive.figures import DURATION
from workbench.derive.source_diff import (
    COUNTERS,
    Cost,
    DiffRow,
    FileDiff,
    ProfiledSource,
    SourceDiff,
    add,
    align,
    line_costs,
    pair_changed,
    pair_files,
    signed,
    source,
    source_diff,
    with_context,
)
from workbench.ncu.capture import LINE_COLUMNS, METRIC_COLUMNS, ColumnTable
from workbench.render.doc import LinesBlock, plain
from workbench.render.document import hunks
from workbench.render.document.hunks import (
    absences,
    costliest,
    costliest_lines,
    costs,
    shifts,
    shown_shifts,
)
from workbench.render.terminal import write
from workbench.render.text import clip, printable
from workbench.words import LineKind

# ---- made-up sources
FILE = "/workbench/kernels/s/{}.cu"
ALL = {*COUNTERS, "samples"}


def lines_table(*rows: tuple[int, str, int, str, float]) -> ColumnTable:
    """Rows of (launch, file, line, counter, value)."""
    return ColumnTable([(r[0], "k", *r[1:]) for r in rows], columns=LINE_COLUMNS)


def durations(*nanoseconds: float) -> ColumnTable:
    rows = [(i, "k", DURATION, value, "ns") for i, value in enumerate(nanoseconds)]
    return ColumnTable(rows, columns=METRIC_COLUMNS)


def costed(text: str, name: str, samples: dict[int, float], total: float = 100) -> ProfiledSource:
    """A source of 100 µs whose lines have these stall samples out of ``total``."""
    file = FILE.format(name)
    rows = [(0, file, line, "wait", float(n)) for line, n in samples.items()]
    rows.append((0, file, 1, "selected", total - sum(samples.values())))
    costs = line_costs(lines_table(*rows), durations(100_000), ALL)
    return ProfiledSource({file: text}, costs)


def changes(rows: Iterable[DiffRow]) -> list[str]:
    """The lines of rows that differ, removed ones first, as hunks show them."""
    return [sign + line.text for sign, line in signed(list(rows)) if sign != " "]


def assert_whole(file: FileDiff, before: str, after: str) -> None:
    """Its rows are both texts, and what differs is shown in a hunk, once."""
    for side, text in (("before", before), ("after", after)):
        rows = [row for each in file.rows if (row := getattr(each, side))]
        assert [row.text for row in rows] == [row.text for row in source(text)]
        assert [row.line for row in rows] == list(range(1, len(rows) + 1))
    differing = [row for row in file.rows if row.kind != LineKind.SAME]
    expected = Counter("-" + row.before.text for row in differing if row.before)
    expected.update("+" + row.after.text for row in differing if row.after)
    in_hunks = (changes(with_context(file, hunk)) for hunk in file.hunks)
    assert Counter(chain.from_iterable(in_hunks)) == expected


def test_samples_of_launches_weigh_as_much_as_their_durations() -> None:
    table = lines_table((0, "a.cu", 1, "wait", 1000), (1, "a.cu", 2, "wait", 10))
    costs = line_costs(table, durations(1000, 9000), ALL)
    assert costs.of("a.cu", 1).microseconds == pytest.approx(1.0)
    assert costs.of("a.cu", 2).microseconds == pytest.approx(9.0)
    assert costs.of("a.cu", 2).share == pytest.approx(0.9)


def test_a_counter_that_was_not_collected_is_none_and_one_at_zero_is_zero() -> None:
    table = lines_table((0, "a.cu", 1, "wait", 10))
    costs = line_costs(table, durations(1000), {"samples", "instructions"})
    assert costs.of("a.cu", 1).instructions == 0
    assert costs.of("a.cu", 1).excess_global_sectors is None
    assert costs.of("a.cu", 99).samples == 0
    nothing = line_costs(lines_table(), durations(1000), set())
    assert nothing.of("a.cu", 1) == Cost()
    assert not nothing.lines


def test_without_a_duration_there_are_shares_and_no_microseconds() -> None:
    table = lines_table((0, "a.cu", 1, "wait", 30), (0, "a.cu", 2, "wait", 10))
    costs = line_costs(table, durations(), ALL)
    assert costs.of("a.cu", 1).share == pytest.approx(0.75)
    assert costs.of("a.cu", 1).microseconds is None
    assert costs.duration is None


def test_sums_keep_what_one_part_has_and_are_none_where_none_has() -> None:
    both = add([Cost(samples=1), Cost(instructions=2, samples=2)])
    assert (both.samples, both.instructions, both.share) == (3, 2, None)
    assert add([]) == Cost()


def pairs(before: str, after: str) -> list[tuple[int, int]]:
    return align(source(before), source(after))


def test_comments_and_indentation_do_not_make_a_line_another() -> None:
    before = "int a;  // one\nint b;\nint c;"
    after = "int a;  // two\nif (x) {\n    int b; /* deeper */\n}\nint c;"
    assert pairs(before, after) == [(0, 0), (1, 2), (2, 4)]


def test_a_comment_marker_inside_a_string_is_no_comment() -> None:
    one, other = source('f("// a");'), source('f("// b");')
    assert one[0].code != other[0].code
    assert align(one, other) == []


def test_braces_do_not_hold_rewritten_regions_together() -> None:
    before = "start();\none(1);\n}\ntwo(2);\nend();"
    after = "start();\nred(3);\n}\nblue(4);\nend();"
    assert pairs(before, after) == [(0, 0), (4, 4)]


def test_the_outline_of_a_function_is_held_where_its_body_moved_into_a_block() -> None:
    before = (
        "void f() {\n    int a = 1;\n    for (;;) {\n        load(x);\n        copy(y);\n    }\n}"
    )
    after = (
        "void f() {\n    auto fetch = [&] {\n        load(x);\n        copy(y);\n    };\n"
        "    int a = 1;\n    for (;;) {\n        fetch();\n    }\n}"
    )
    found = dict(pairs(before, after))
    assert found[1] == 5
    assert found[2] == 6
    assert 3 not in found


def test_lines_belong_to_their_function() -> None:
    text = (
        "#define CHECK(x) do { \\\n    x; } while (0)\n"
        'extern "C" __global__ void __launch_bounds__(128)\nkernel(int n) {\n'
        '    if (n) { g("}"); }\n'
        "}\nnamespace a {\ntemplate <int N>\n__device__ int helper(int x) { return x; }\n}\nint z;"
    )
    names = [row.function for row in source(text)]
    assert names == ["", "", *["kernel"] * 4, *["helper"] * 4, ""]
    python = '"""Doc."""\nx = 1\ndef run(a):\n    return a\n\nclass Z:\n    y = 2\ny = 3'
    names = [row.function for row in source(python, python=True)]
    assert names == ["", "", *["run"] * 3, *["Z"] * 2, ""]


def test_a_python_docstring_is_a_comment_and_a_string_is_not() -> None:
    found = source('"""Says\nwhat."""\nx = "# no comment"  # one\n', python=True)
    assert [row.code for row in found] == ["", "", 'x = "# no comment"']


def test_rewritten_lines_are_paired_by_their_tokens_in_order() -> None:
    before = ["float x = a * b;", "unrelated(1, 2, 3);"]
    after = ["setup();", "float x = a * b + c;"]
    assert pair_changed(before, after) == [(0, 1)]


def test_files_pair_by_name_then_suffix_and_the_rest_stand_alone() -> None:
    before = ["k/one.py", "k/one.cu", "k/tools.cuh"]
    after = ["k/two.py", "k/two.cu", "k/tools.cuh", "k/extra.cuh"]
    assert pair_files(before, after) == [
        ("k/one.py", "k/two.py"),
        ("k/one.cu", "k/two.cu"),
        ("k/tools.cuh", "k/tools.cuh"),
        ("", "k/extra.cuh"),
    ]
    assert pair_files(["k/gone.cuh"], []) == [("k/gone.cuh", "")]


OPENING = "void k() {\n    a();\n    b();\n    c();\n    d();\n"
BEFORE = f"// the first\n{OPENING}    slow(x);\n    e();\n}}"
AFTER = f"// the second\n{OPENING}    quick(x, y);\n    z();\n    e();\n}}"


def sample_diff() -> SourceDiff:
    before = costed(BEFORE, "one", {3: 10, 7: 60})
    return source_diff(before, costed(AFTER, "two", {3: 30, 7: 5, 8: 5}))


def test_a_hunk_has_the_cost_of_its_lines_and_the_rest_is_outside() -> None:
    found = sample_diff()
    comment, hunk = found.hunks
    assert comment.comments_only
    assert comment.before == Cost()
    assert (hunk.span(0), hunk.span(1), hunk.function) == ((7, 7), (7, 8), "k")
    assert hunk.before.microseconds == pytest.approx(60)
    assert hunk.after.microseconds == pytest.approx(10)
    assert [c.microseconds for c in found.unchanged] == pytest.approx([10, 30])
    assert [c.microseconds for c in found.totals] == pytest.approx([70, 40])
    (shift,) = found.shifts
    assert (shift.before.line, shift.after.line) == (3, 3)
    assert shift.change_microseconds == pytest.approx(20)


def test_a_changed_comment_on_a_line_leaves_its_cost_outside_of_the_hunks() -> None:
    before = costed("int a; // x\nint b;", "one", {1: 50})
    found = source_diff(before, costed("int a; // y\nint b;", "two", {1: 40}))
    (hunk,) = found.hunks
    assert hunk.comments_only
    assert found.unchanged[0].microseconds == pytest.approx(50)
    assert changes(hunk.rows) == ["-int a; // x", "+int a; // y"]


def test_code_in_headers_and_without_a_line_is_told_apart() -> None:
    file = FILE.format("one")
    table = lines_table(
        (0, file, 1, "wait", 50), (0, "/usr/include/h.h", 9, "wait", 30), (0, "", 0, "wait", 20)
    )
    side = ProfiledSource({file: "int a;"}, line_costs(table, durations(1000), ALL))
    found = source_diff(side, side)
    assert found.elsewhere["/usr/include/h.h"][0].share == pytest.approx(0.3)
    assert found.elsewhere[""][1].share == pytest.approx(0.2)
    assert found.unchanged[0].share == pytest.approx(0.5)


def test_two_kernels_of_one_file_are_aligned_with_each_other() -> None:
    text = "void one() {\n    load(x);\n    f(1);\n}\nvoid two() {\n    load(x);\n    f(2);\n}\n"
    sides = [costed(text, "k", {2: 10, 3: 80}), costed(text, "k", {6: 70, 7: 5})]
    file = FILE.format("k")
    before = ProfiledSource({file: text}, sides[0].costs, skipped="two")
    after = ProfiledSource({file: text}, sides[1].costs, skipped="one")
    (shift,) = source_diff(before, after).shifts
    assert (shift.before.line, shift.after.line) == (2, 6)
    assert shift.change_microseconds == pytest.approx(60)


def test_lines_are_counted_as_compilers_do() -> None:
    rows = source("a;\fb;\r\nc;\u2028d;\n")
    assert [row.text for row in rows] == ["a;\fb;", "c;\u2028d;"]


@pytest.mark.parametrize("seed", range(40))
def test_any_diff_is_whole(seed: int) -> None:
    draw = random.Random(seed)
    words = ["a();", "b();", "}", "", "for (;;) {", "    x += 1;  // up", "c(2);", "// note"]
    before = [draw.choice(words) for _ in range(draw.randrange(40))]
    after = list(before)
    for _ in range(draw.randrange(12)):
        at = draw.randrange(len(after) + 1)
        if draw.random() < 0.5:
            after.insert(at, draw.choice(words))
        elif after:
            del after[min(at, len(after) - 1)]
    one, other = "\n".join(before), "\n".join(after)
    found = source_diff(ProfiledSource({"a.cu": one}), ProfiledSource({"b.cu": other}))
    assert_whole(found.files[0], one, other)


def test_context_is_shown_once_and_never_from_another_hunk() -> None:
    before = "\n".join(f"line{i}();" for i in range(12))
    after = before.replace("line2()", "red()").replace("line6()", "blue()")
    (file,) = source_diff(ProfiledSource({"a.cu": before}), ProfiledSource({"b.cu": after})).files
    shown = [
        line.text
        for hunk in file.hunks
        for sign, line in signed(with_context(file, hunk))
        if sign == " "
    ]
    assert len(shown) == len(set(shown))
    assert "line2();" not in shown


def test_a_shift_within_the_error_of_its_samples_is_not_told() -> None:
    text = "a();\nb();\nc();"
    few = source_diff(costed(text, "one", {1: 9}), costed(text, "two", {1: 16}))
    assert len(few.shifts) == 1
    assert few.shifts[0].noise == pytest.approx(5)
    assert shown_shifts(few) == []
    many = source_diff(
        costed(text, "one", {1: 900}, total=10_000), costed(text, "two", {1: 1600}, total=10_000)
    )
    assert many.shifts[0].change_microseconds == pytest.approx(few.shifts[0].change_microseconds)
    assert len(shown_shifts(many)) == 1


def test_a_side_without_lines_says_why_and_the_diff_stays() -> None:
    found = source_diff(
        costed(BEFORE, "one", {7: 60}),
        ProfiledSource({FILE.format("two"): AFTER}, None, "no_capture"),
    )
    assert not found.has_costs
    assert absences(found, ("one", "two")) == ("Costs by line are not collected (two: no capture).")
    assert found.hunks[1].after == Cost()
    assert "+    quick(x, y);" in changes(found.files[0].rows)
    assert shown_shifts(found) == []


def test_unchanged_lines_tell_both_times_and_a_dash_stands_for_a_side_without_lines() -> None:
    (line,) = shifts(sample_diff())
    assert plain(line).startswith("one.cu:3 → two.cu:3, a();: 10.0 µs (10 %), wait → 30.0 µs")
    added = source_diff(costed("a();", "one", {}), costed("a();\nb();\nc();", "two", {2: 50}))
    assert "— → 50.0 µs (50 %)" in costs(added.hunks[0])[0]


def test_the_costliest_hunks_come_first() -> None:
    before = "a();\nb();\nc();\nd();\ne();\nf();\ng();"
    after = before.replace("a", "x").replace("g", "y")
    found = source_diff(costed(before, "one", {1: 10}), costed(after, "two", {1: 20, 7: 60}))
    assert [hunk.number for hunk in costliest(found)] == [2, 1]
    assert [plain(line)[:6] for line in costliest_lines(found)] == ["hunk 2", "hunk 1"]
    shown = "\n".join(texts(found, 10_000))
    assert shown.index("hunk 2: ") < shown.index("hunk 1: ")


def texts(found: SourceDiff, width: int) -> list[str]:
    """The lines of a terminal that is so wide."""
    shown = io.StringIO()
    block = LinesBlock(list(hunks.diff(found, ("one", "two"))))
    write([block], Console(file=shown, width=width, color_system=None))
    return shown.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    long = AFTER.replace("quick(x, y)", "quick(" + "数, " * 80 + "y)")
    found = source_diff(costed(BEFORE, "one", {3: 10, 7: 60}), costed(long, "two", {7: 50}))
    shown = texts(found, width)
    assert max(map(cell_len, shown)) <= width
    assert any("…" in line for line in shown)
    assert any("60.0 %" in line and "- " in line for line in shown)
    assert not any("…" in line for line in texts(found, 10_000))


def test_what_could_steer_a_terminal_is_spelt_out() -> None:
    assert printable("a\x1b[31mb\x07\u202ec\td") == "a\\x1b[31mb\\x07\\u202ec    d"
    assert clip("abcdef", 4) == "abc…"
    assert clip("abc", 3) == "abc"
    hostile = source_diff(
        costed("a();", "one", {1: 5}), costed("a();\nb(); // \x1b]0;x\x07", "two", {2: 50})
    )
    assert not any("\x1b" in line for line in texts(hostile, 80))
