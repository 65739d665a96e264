"""The draws of public kernel files are counted apart."""

import json
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path

from benchmarks.strangers import Stranger, Tried, page, record, recorded, row, strangers, write


def result(stranger: Stranger, *, is_right: bool) -> str:
    refused = next((e for e in stranger.expected if e.startswith("refused: ")), "")
    said = refused.removeprefix("refused: ").replace("; hint: ", "\nhint: ")
    verdict = "broken" if not is_right else "refused" if refused else stranger.expected[0]
    microseconds = 2.0 if verdict == "correct" else None
    tried = Tried(stranger.label, verdict, microseconds, 40.0, 3.0, said, stranger.needs_gpu)
    return json.dumps(asdict(tried)) + "\n"


def test_each_draw_has_totals_of_its_own(tmp_path: Path) -> None:
    first, second, third = ([s for s in strangers(draw) if s.needs_gpu] for draw in (1, 2, 3))
    draws = [[*strangers(draw)] for draw in (1, 2, 3)]
    assert [*strangers()] == list(chain(*draws))
    repositories = [{s.repository for s in draw} for draw in draws]
    assert sum(map(len, repositories)) == len(set().union(*repositories))
    assert [len(first), len(third)] == [79, 92]
    simple = next(s for s in first if s.expected == ("correct",))
    file = tmp_path / "results.jsonl"
    lines = [result(simple, is_right=True), result(second[0], is_right=False)]
    lines += [result(s, is_right=False) for s in third[:2]]
    refused = next(s for s in strangers(2) if not s.needs_gpu and "hint" in s.expected[0])
    file.write_text("".join([*lines, result(refused, is_right=True)]), encoding="utf-8")
    assert page([file]).splitlines()[:5] == [
        "1 of 1 as expected on a GPU",
        "1 with a time ran alone: median 40 s, slowest quarter from 40 s, longest silence 3 s",
        "1 of 1 as expected without a GPU, draw 2",
        "0 of 1 as expected on a GPU, draw 2",
        "0 of 2 as expected on a GPU, draw 3",
    ]


def test_a_line_has_what_came_of_an_unexpected_file() -> None:
    file = Stranger("owner/name", "0", "a/b.cu", "--vs 'torch.add(a, b)'", ("wrong",))
    right = Tried(file.label, "correct", 1.23456, 12.3, 3.0, "", gpu=True)
    assert row(file, right) == "     1.235   12 a/b.cu: not wrong"
    failed = replace(right, verdict="failed", microseconds=None, said="b.cu:k fails\nhint: fix it")
    assert row(file, failed) == "    failed   12 a/b.cu: fails"


def test_a_recording_is_short_and_its_table_keeps_what_came_first(tmp_path: Path) -> None:
    file = next(s for s in strangers(1) if s.expected == ("correct",))
    results, recording, document = (tmp_path / name for name in ("a.jsonl", "b.jsonl", "c.md"))
    results.write_text(result(file, is_right=False))
    record([results], recording)
    head = "| 79 files with inputs and a reference |"
    document.write_text(f"{head} not run yet | |\n\n```text\n```\n")
    write([recording], document)
    assert f"{head} 0 of 1 |  |\n" in document.read_text()
    unexpected = row(file, recorded(recording)[file.label])
    assert document.read_text().endswith(f"\n{file.repository}\n{unexpected}\n```\n")
    results.write_text(result(file, is_right=True))
    record([results], recording)
    assert [*recorded(recording)] == [file.label]
    write([recording], document)
    assert f"{head} 0 of 1 | 1 of 1 |\n" in document.read_text()
    assert file.repository not in document.read_text()
