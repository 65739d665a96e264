"""The table of docs/other-cards.md: made from what was timed on another card, and nothing else."""

from __future__ import annotations

import math

import msgspec
import pytest
from benchmarks import other_card
from benchmarks.last_at import shapes_at
from benchmarks.other_card import (
    PAGE,
    AtShape,
    Recording,
    fastest_of,
    load,
    page,
    ratio_at,
    references_of,
    table,
    told,
)
from benchmarks.sizes import BASE, point_at

from workbench.commands.target import target_at
from workbench.derive.intervals import time_interval
from workbench.render.numbers import fine
from workbench.study.workspace import find_workspace
from workspaces import ROOT

REFERENCES = ["sdpa", "fa4"]


def test_the_page_is_as_it_is_written() -> None:
    text = PAGE.read_text("utf-8")
    assert page(text, find_workspace(ROOT)) == text


def test_a_ratio_is_over_the_fastest_reference_with_an_interval_over_sessions() -> None:
    ours = [[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]]
    at = AtShape(3, {"fix": ours, "fa4": [[2.0], [4.2], [8.0]], "sdpa": [[3.0], [6.0], [12.0]]})
    found = told(at, "fix", REFERENCES, set())
    assert found is not None
    assert found.ratio is not None
    assert (found.fastest, found.ratio.sessions) == ("fa4", 3)
    assert found.time == pytest.approx(2.0)
    assert found.ratio.ratio == pytest.approx(2.1 ** (1 / 3) * 2 ** (2 / 3))
    spread = math.log(2.1 / 2) / math.sqrt(3)  # deviation of one of three that is apart
    half = 4.3027 * spread / math.sqrt(3)
    assert found.ratio.high is not None
    assert math.log(found.ratio.high / found.ratio.ratio) == pytest.approx(half, rel=1e-3)
    assert "µs, 2.03x [" in found.words


def test_more_sessions_than_were_planned_have_been_looked_at_before() -> None:
    times = {"fix": [[1.0], [1.1], [1.0], [1.1]], "fa4": [[2.0], [2.0], [2.1], [2.0]]}
    once, again = (told(AtShape(n, times), "fix", REFERENCES, set()) for n in (4, 2))
    assert once is not None
    assert again is not None
    assert once.ratio is not None
    assert again.ratio is not None
    assert again.ratio.level > once.ratio.level


def test_without_the_reference_that_leads_elsewhere_there_is_no_ratio() -> None:
    at = AtShape(1, {"fix": [[1.0]], "sdpa": [[2.0]]})
    alone, without = (told(at, "fix", REFERENCES, leaders) for leaders in ({"sdpa"}, {"fa4"}))
    assert alone is not None
    assert without is not None
    assert "2.00x" in alone.words
    assert without.words == "1.00 µs, not collected"


def test_what_was_not_timed_is_not_collected() -> None:
    assert told(AtShape(1, {"fix": [[1.0]]}), "fix", REFERENCES, set()) is None
    assert told(AtShape(1, {"fa4": [[1.0]]}), "fix", REFERENCES, set()) is None


def test_times_of_other_sources_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, known = find_workspace(ROOT), load("attention")
    study = workspace.study("attention")
    assert known is not None
    last = next(iter(known.sources))
    assert f"`{last}`" in table(study, workspace, known)
    changed: Recording = msgspec.structs.replace(known, sources={**known.sources, last: "0" * 64})
    assert f"`{last}`" not in table(study, workspace, changed)
    none = msgspec.structs.replace(known, sources=dict.fromkeys(known.sources, "0" * 64))
    assert table(study, workspace, none) == table(study, workspace, None) == "Not collected."


def test_a_shape_that_was_not_timed_there_has_no_part_in_the_mean() -> None:
    workspace, known = find_workspace(ROOT), load("attention")
    study = workspace.study("attention")
    assert known is not None
    (first, at), *_ = known.shapes.items()
    one = msgspec.structs.replace(known, shapes={first: at})
    told_of = other_card.table(study, workspace, one)
    assert told_of.count("of 1 shapes; in the geometric mean over the 1 ") == 3
    assert [row for row in known.shapes if f"| {row} |" in told_of] == [first]


def test_what_is_told_elsewhere_of_the_other_card_is_as_it_was_timed() -> None:
    workspace = find_workspace(ROOT)
    notes = " ".join((ROOT / "docs" / "attention-notes.md").read_text("utf-8").split())
    known = load("attention")
    assert known is not None
    few, causal = (known.shapes[n] for n in ("b4h16s256d128", f"{BASE},S=512,D=128,causal=1"))
    before = [fine(ratio_at(at, "fix25", "fix27").ratio) for at in (few, causal)]
    said = f"{before[0]} of `fix25` at 4,16,256,128 and {before[1]} with 512 causal keys"
    assert said in notes
    for study, number in (("attention", 14), ("moe", 7)):
        found = load(study)
        assert found is not None
        references = references_of(workspace.study(study))
        last = next(iter(found.sources))
        shapes = [at for name, at in found.shapes.items() if name in workspace.study(study).shapes]
        lows = [ratio_at(at, fastest_of(at, references), last).low for at in shapes]
        assert len(lows) == number
        assert min(low for low in lows if low is not None) > 1


def test_how_much_longer_few_tokens_take_is_as_it_was_timed() -> None:
    workspace, known = find_workspace(ROOT), load("moe")
    assert known is not None
    study = workspace.study("moe")
    longer = []
    for name in (name for name in known.shapes if int(study.shapes[name].parameters["T"]) <= 128):
        (picked,) = shapes_at(study, [name])
        for variant in known.sources:
            point = point_at(target_at(workspace, picked).evidence(), variant)
            here = time_interval(known.shapes[name].times[variant]).value
            longer += [here / point.time.value] if point else []
    assert len(longer) == 7
    said = f"{min(longer):.2f} to {max(longer):.2f} times as long with up to 128 of them"
    assert said in " ".join(PAGE.read_text("utf-8").split())
