"""The draws of public kernel files are counted apart."""

import json
from dataclasses import asdict
from itertools import chain
from pathlib import Path

from benchmarks.strangers import Stranger, Tried, page, strangers


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
