"""What was learned: steps by kind, with every place where they were timed, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from snapshots import snapshot, step
from workbench.cli import main
from workbench.commands import lessons as command
from workbench.errors import UsageError
from workbench.judge.ladder import judge
from workbench.judge.lessons import Lesson, lessons, matching, techniques
from workbench.render import markdown
from workbench.render.as_json import lessons as as_json
from workbench.render.document.lessons import page
from workbench.study.config import Config
from workbench.study.workspace import find_workspace
from workbench.words import Change, Regime, Status, Verdict
from workspaces import GOOD, ROOT, copy_of_repository, make

HERE = ["--project", str(ROOT)]
TIMES = {
    "small": {"base": 20.0, "tiled": 10.0, "warps": 10.5, "early": 10.0},
    "large": {"base": 200.0, "tiled": 220.0, "warps": 150.0},
}


def learned() -> tuple[Lesson, ...]:
    """Tiles that help at one shape alone, a step for the other, and one of no kind."""
    steps = [
        step("base", None),
        replace(step("tiled", "base"), kind=Change.TILE_SHARED, lesson="Banks *matter*."),
        replace(step("warps", "tiled", shape="large"), kind=Change.WARPS),
        step("early", "tiled"),
    ]
    known = snapshot(steps, TIMES)
    return lessons(known, judge(known, Config()), Config())


def by_name(found: tuple[Lesson, ...], name: str) -> Lesson:
    return next(lesson for lesson in found if lesson.row.variant == name)


def test_a_step_is_learned_from_wherever_it_was_timed_with_its_parent() -> None:
    found = learned()
    tiled, warps, early = (by_name(found, name) for name in ("tiled", "warps", "early"))
    assert [each.row.variant for each in found] == ["tiled", "warps", "early"]
    assert {(p.shape, p.regime) for p in tiled.places} == {
        *(("small", regime) for regime in Regime),
        ("large", Regime.CHAINED),
    }
    assert tiled.deciding is not None
    assert tiled.deciding.ratio.ratio == pytest.approx(2.0, rel=0.01)
    assert [p.shape for p in tiled.where(Verdict.KEPT)] == ["small"]
    assert [p.shape for p in tiled.where(Verdict.REJECTED)] == ["large"]
    assert warps.shape == "large"
    assert warps.row.verdict == Verdict.KEPT
    assert [p.shape for p in warps.where(Verdict.REJECTED)] == ["small"]
    assert {p.shape for p in early.places} == {"small"}


def test_a_step_without_current_evidence_is_left_out() -> None:
    found = learned()
    stale = replace(found[0], row=replace(found[0].row, status=Status.STALE))
    assert [each.is_known for each in (stale, *found)] == [False, True, True, True]
    told = markdown.document(page(techniques(found[1:]), (stale,), whole=True))
    assert "Left out, without current evidence: `tiled` (stale)." in told
    assert "### `tiled`" not in told
    assert "### `warps` over `tiled`: what warps changes" in told
    assert as_json.techniques((), (stale,))["left_out"] == [
        {"study": "made", "variant": "tiled", "status": "stale"}
    ]


def test_a_step_is_told_with_its_study_where_there_are_several() -> None:
    found = learned()
    own = markdown.document(page(techniques(found), whole=True))
    assert "### `warps` over `tiled`: what" in own
    others = tuple(replace(each, study="another") for each in found)
    both = markdown.document(page(techniques((*found, *others)), whole=True))
    assert "### `warps` over `tiled` (made): what" in both
    assert "### `warps` over `tiled` (another): what" in both
    stale = replace(others[0], row=replace(others[0].row, status=Status.STALE))
    left = markdown.document(page(techniques(found), (stale,), whole=False))
    assert "Left out, without current evidence: `tiled` of another (stale)." in left


def test_techniques_have_their_steps_and_none_is_without() -> None:
    found = techniques(learned())
    assert [each.change for each in found] == [Change.TILE_SHARED, Change.WARPS, None]
    assert [[s.row.variant for s in each.lessons] for each in found] == [
        ["tiled"],
        ["warps"],
        ["early"],
    ]


@pytest.mark.parametrize(
    ("word", "steps"),
    [
        ("tiled", ["tiled"]),
        ("tile-shared", ["tiled"]),
        ("more warps", ["warps"]),
        ("MATTER", ["tiled"]),
        ("what", ["tiled", "warps", "early"]),  # of every key change
    ],
)
def test_a_word_is_a_step_a_kind_or_stands_in_the_texts(word: str, steps: list[str]) -> None:
    assert [each.row.variant for each in matching(learned(), word)] == steps


def test_its_page_in_the_docs_is_what_the_verb_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lessons", *HERE]) == 0
    printed = capsys.readouterr().out
    page = (ROOT / "docs" / "lessons.md").read_text(encoding="utf-8")
    assert page == printed, "`workbench lessons > docs/lessons.md` writes it"
    for lesson in (
        "### `fix5` over `fix4`",
        "- **Did not help:** `fix5` of attention 0.970x",
        "Its lesson:",
    ):
        assert lesson in page


@pytest.fixture(scope="module")
def recorded() -> tuple[Lesson, ...]:
    workspace = find_workspace(ROOT)
    return tuple(command.of_study(workspace, workspace.study("attention")))


@pytest.mark.parametrize(
    ("word", "steps"),
    [
        ("ping-pong", ["fix10[pingpong=1]"]),
        ("fix2", ["fix2", "fix2[warps=12]"]),
        ("early", ["fix11[early=1]", "fix11[stagger=1,early=1,polynomial=3]"]),
        ("stall.dispatch_stall", ["fix14"]),
        ("TMA", ["fix7"]),
    ],
)
def test_what_a_word_finds_of_the_recorded_steps(
    word: str, steps: list[str], recorded: tuple[Lesson, ...]
) -> None:
    assert set(steps) <= {each.row.variant for each in matching(recorded, word)}
    assert len(matching(recorded, word)) < len(recorded) / 2


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("swizle", "'swizzled'"),
        ("fix66", "'fix6'"),
        ("vector", "kinds with steps: tile-shared, "),
        ("qqq", "known: "),
    ],
)
def test_a_word_that_nothing_matches_ends_in_a_hint(
    word: str, hint: str, recorded: tuple[Lesson, ...]
) -> None:
    with pytest.raises(UsageError) as raised:
        matching(recorded, word)
    assert hint in raised.value.hint


def test_json_has_the_account_of_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lessons", "fix11", "--study", "attention", "--json", *HERE]) == 0
    found = json.loads(capsys.readouterr().out)["techniques"]
    told = {each["variant"]: each for kind in found for each in kind["steps"]}
    assert len(told) == 5
    for each in told.values():
        assert each["places"][0]["shape"] == each["shape"]
        assert each["against_parent"]["anatomy"]["ratio"] > 0


def test_a_step_that_was_changed_since_has_nothing_to_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, step = copy_of_repository(tmp_path), "fix16[first=1]"
    source = root / "kernels" / "attention" / "fix16.py"
    source.write_text(source.read_text() + "# changed\n")
    broken = root / "kernels" / "broken" / "study.py"
    broken.parent.mkdir()
    broken.write_text("shapes = 1 / 0\n")
    assert main(["lessons", step, "--project", str(root)]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "broken is left out: " in err  # and costs the others nothing
    assert f"{step}: no current evidence is on record" in err


def test_a_workspace_without_evidence_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, {"baseline": GOOD, "fix1": GOOD})
    assert main(["lessons", "--project", str(tmp_path)]) == 3
    assert "no step here: no current evidence is on record" in capsys.readouterr().err
    assert main(["lessons", "--study", "nothing", "--project", str(tmp_path)]) == 2
    assert "unknown study" in capsys.readouterr().err
