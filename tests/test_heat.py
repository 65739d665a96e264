"""Stall shares by line, and two texts side by side."""

from __future__ import annotations

import pandas as pd
import pytest

from workbench.derive.heat import heat
from workbench.derive.sides import paired_files, side_by_side
from workbench.load.capture import LINE_COLUMNS, load_capture
from workspaces import ROOT

REPORTS = ROOT / "ablations" / "attention" / "evidence" / "nvidia-h200" / "reports"
FILE = "/workbench/kernels/s/a.cu"


def lines(*rows: tuple[str, int, str, float]) -> pd.DataFrame:
    return pd.DataFrame([(0, "k", *row) for row in rows], columns=LINE_COLUMNS)


def test_shares_are_of_all_stall_samples_and_issuing_is_none() -> None:
    found = heat(lines(
        (FILE, 3, "wait", 30), (FILE, 3, "barrier", 10), (FILE, 4, "wait", 40),
        (FILE, 4, "selected", 900), ("", 0, "wait", 20), (FILE, 3, "instructions", 5),
        (FILE, 9, "instructions", 15),
    ))  # fmt: skip
    assert found is not None
    assert list(found.files) == [FILE]
    three, four, nine = (found.files[FILE][n] for n in (3, 4, 9))
    assert three.share == pytest.approx(0.4)
    assert list(three.stalls) == ["wait", "barrier"]
    assert four.stalls == pytest.approx({"wait": 0.4})
    assert nine.share == 0
    assert (three.counters["instructions"], nine.counters["instructions"]) == (0.25, 0.75)
    assert found.unknown == pytest.approx(0.2)
    assert found.share(FILE) == pytest.approx(0.8)


def test_kernels_of_a_variant_are_added_up() -> None:
    table = lines((FILE, 3, "wait", 30), (FILE, 3, "wait", 10))
    table["launch"] = [0, 1]
    found = heat(table)
    assert found is not None
    assert found.files[FILE][3].stalls == {"wait": 1.0}


def test_without_samples_by_line_nothing_is_known() -> None:
    assert heat(lines((FILE, 3, "instructions", 30), (FILE, 3, "selected", 30))) is None
    assert heat(lines()) is None


def test_recorded_lines_add_up_to_all_samples() -> None:
    path = next(REPORTS.glob("b2h8s512d64-*.ncu-repz"))
    capture = load_capture(path, "workbench:attention/fix3/b2h8s512d64")
    found = heat(capture.lines)
    assert found is not None
    assert found.unknown == pytest.approx(0)
    (file,) = found.files
    assert file.endswith("/fix3.cu")
    assert found.share(file) == pytest.approx(1)
    text = (ROOT / "kernels" / "attention" / "fix3.cu").read_text().splitlines()
    assert max(found.files[file]) <= len(text)


BEFORE = ["a", "float x = k[0];", "sum += x;", "}", "end"]
AFTER = ["a", "// a tile", "half2 x = k[0];", "sum += x;", "}", "tail", "end"]


def test_lines_that_are_alike_stand_side_by_side() -> None:
    blocks = side_by_side(BEFORE, AFTER)
    assert [b.equal for b in blocks] == [True, False, True, False, True]
    assert blocks[1].pairs == ((None, 1, False), (1, 2, True))
    assert blocks[3].pairs == ((None, 5, False),)


def test_every_line_stands_once_and_in_order() -> None:
    folder = ROOT / "kernels" / "attention"
    before = (folder / "fix3.cu").read_text().splitlines()
    after = (folder / "fix4.cu").read_text().splitlines()
    old: list[int] = []
    new: list[int] = []
    for block in side_by_side(before, after):
        if block.equal:
            assert before[slice(*block.before)] == after[slice(*block.after)]
            old += range(*block.before)
            new += range(*block.after)
        else:
            old += [i for i, _, _ in block.pairs if i is not None]
            new += [j for _, j, _ in block.pairs if j is not None]
    assert old == list(range(len(before)))
    assert new == list(range(len(after)))


def test_texts_that_share_nothing_are_not_paired() -> None:
    (block,) = side_by_side(["alpha = one"], ["q(w);"])
    assert block.pairs == ((0, 0, False),)
    (block,) = side_by_side([], ["q(w);"])
    assert block.pairs == ((None, 0, False),)
    assert side_by_side([], []) == []


def test_a_rewritten_block_too_large_to_search_is_still_whole() -> None:
    (block,) = side_by_side([f"old{i}" for i in range(200)], [f"new {i}" for i in range(200)])
    assert len(block.pairs) == 200


def test_files_are_paired_by_name_then_by_suffix() -> None:
    found = paired_files(["a.py", "a.cu", "gone.cu", "same.cuh"], ["b.py", "same.cuh", "b.cu"])
    assert found == [
        ("a.py", "b.py"),
        ("same.cuh", "same.cuh"),
        ("a.cu", "b.cu"),
        ("gone.cu", None),
    ]
    assert paired_files([], ["b.py"]) == [(None, "b.py")]
