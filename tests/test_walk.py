"""How far a reader of ``ablate`` walks."""

from tools.walk import Code, stays, walk


def test_a_reader_of_ablate_seldom_returns_to_a_file() -> None:
    files = stays(walk(Code()))
    assert len(files) <= 75
    assert len(files) - len(set(files)) <= 30


def test_the_way_leads_through_every_stage() -> None:
    read = {f"{each.file}:{each.name}" for _, each in walk(Code())}
    assert {
        "app/target.py:find_target",
        "app/ablate.py:ensure_each",
        "judge/ladder.py:judge",
        "judge/gates.py:verdict",
        "judge/rows.py:row_of",
        "app/report.py:reported",
    } <= read
