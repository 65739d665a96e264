"""workbench.toml and ablation.toml: what is wrong is named; and references that need a package."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from answers import Capsys, Patch, error_of, json_of, not_none, refused
from made_evidence import snapshot, step
from workbench.app import ablate as measuring
from workbench.app.executor import Local
from workbench.cli.streams import Stderr
from workbench.cuda import compiler
from workbench.errors import UsageError
from workbench.evidence.store import EvidenceFolder
from workbench.judge.findings import sentence, sentences
from workbench.judge.ladder import judge
from workbench.load import load
from workbench.render.document.printed_ladder import reason, verdict
from workbench.study.config import Config, read_config
from workbench.study.model import Study, Variant, base_name
from workbench.study.workspace import find_workspace
from workbench.words import Status
from workspaces import GOOD, ROOT, make, rewrite
from workspaces import step as step_text


def test_an_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "workbench.toml").write_text("")
    assert read_config(tmp_path / "workbench.toml") == Config()


def test_the_workspace_is_found_from_a_folder_below(tmp_path: Path, monkeypatch: Patch) -> None:
    root = make(tmp_path, {"baseline": GOOD})
    monkeypatch.chdir(root / "kernels" / "scale")
    assert find_workspace().root == root


def test_outside_any_workspace_the_built_in_one_reports_below_the_current_folder(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    workspace = find_workspace()
    assert workspace.packaged
    assert "attention" in workspace.studies()
    top, study = tmp_path / "workbench-reports" / "attention", workspace.study("attention")
    assert workspace.reports(study, "b2h8s512d64") == top
    assert workspace.reports(study, "other") == top / "other"
    assert workspace.reports(study, "other", ["fix1", "fix2"]) == top / "other" / "fix1+fix2"
    assert workspace.evidence_base("attention").is_relative_to(tmp_path)


def test_project_must_be_a_workspace(tmp_path: Path, capsys: Capsys) -> None:
    words = ["no workbench.toml in", "hint: --project"]
    refused(capsys, "list", words=words, project=tmp_path)


KEY = 'key_change = "b"'
TIME = '[[step.prediction]]\nfigure = "time"\n'


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("key_change =", "key_chnge =", ["'step 'b'.key_chnge'", "'key_change'"]),
        ('key_change = "b"\n', "", ["step 'b' has no 'key_change'"]),
        ('parent = "baseline"', 'parent = "basline"', ["'basline'", "'baseline'"]),
        ('variant = "b"', 'variant = "baseline"', ["'baseline' is listed twice"]),
        (f"{KEY}\n", f"{KEY}\n{TIME}", ["needs either 'factor' or 'range'"]),
        ('variant = "b"', 'variant = "c"', ["names 'c'", "c.py"]),
        (KEY, f'{KEY}\nchooses = ["b"]', ["step 'b' chooses 'b', no other step"]),
        (KEY, f'{KEY}\nchooses = "baseline"', ["'step 'b'.chooses': expected a list, got `str`"]),
        (KEY, f"{KEY}\ncorrects = true", ["'step 'b'.corrects': expected `str`, got `bool`"]),
        ('variant = "b"', "variant = 3", ["'step 2.variant': expected `str`", "hint: write vari"]),
        (
            'variant = "baseline"\n',
            'variant = "baseline"\ncorrects = "it"\n',
            ["step 'baseline' corrects something and has no 'parent'"],
        ),
    ],
)
def test_a_wrong_ladder_is_named(
    old: str, new: str, words: list[str], tmp_path: Path, capsys: Capsys
) -> None:
    make(tmp_path, {"baseline": GOOD, "b": GOOD})
    path = tmp_path / "ablations" / "scale" / "ablation.toml"
    head, found, tail = path.read_text().rpartition(old)
    assert found
    path.write_text(head + new + tail)
    said = error_of(capsys, "list", project=tmp_path)
    assert [word for word in ("error: ", "ablation.toml", *words) if word not in said] == []


def test_of_several_studies_one_must_be_named(tmp_path: Path) -> None:
    """The only one goes without saying."""
    root = make(tmp_path / "ws", {"baseline": GOOD})
    (root / "workbench.toml").write_text("")
    assert find_workspace(root).study().name == "scale"
    shutil.copytree(root / "kernels" / "scale", root / "kernels" / "other")
    with pytest.raises(UsageError, match="does not say which study") as caught:
        find_workspace(root).study()
    assert caught.value.hint == 'write study = "other" there, or use --study: other, scale'


def test_an_empty_workspace_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "workbench.toml").write_text("")
    with pytest.raises(UsageError, match="there is no study") as caught:
        find_workspace(tmp_path).study()
    assert "study.py" in caught.value.hint


def test_a_step_that_chooses_names_the_steps_it_chooses_among() -> None:
    step = not_none(find_workspace(ROOT).study("attention").ladder.step("fix30"))
    text = (ROOT / "kernels" / "attention" / "fix30.py").read_text()
    assert {*map(base_name, step.chooses)} == {*re.findall(r'cuda\.variant\("(\w+)"', text)}
    assert len(step.chooses) == text.count("cuda.variant(")


def test_more_sessions_to_begin_with_than_there_may_be_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "workbench.toml"
    path.write_text("[timing]\nsessions = 20\n")
    with pytest.raises(UsageError, match=r"'timing\.sessions' is 20, above"):
        read_config(path)


# ---- references
REFERENCE = """
[[reference]]
variant = "library"
primary = true

[[reference]]
variant = "theirs"
title = "somebody's kernel"
needs = "no-such-package"
"""
MODULE = "import no_such_package\n\n\ndef run(x):\n    return no_such_package.run(x)\n"
PLAIN = "def run(x):\n    return 2 * x\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make(tmp_path, {"baseline": GOOD}, {"library": PLAIN, "theirs": MODULE})
    path = tmp_path / "ablations" / "scale" / "ablation.toml"
    path.write_text(f"schema_version = 1\n{step_text('baseline', None)}{REFERENCE}")
    return tmp_path


@pytest.fixture
def study(root: Path) -> Study:
    return find_workspace(root).study()


def test_what_is_not_installed_is_told_once_and_not_measured(study: Study, capsys: Capsys) -> None:
    assert study.variants["theirs"].needs == "no-such-package"
    here = Local(reporter=Stderr())
    for _ in range(2):
        assert measuring.collectable(here, study, ["baseline", "library", "theirs"]) == [
            "baseline",
            "library",
        ]
    told = "theirs is not collected: no-such-package is not installed here"
    assert capsys.readouterr().err.count(told) == 1


def test_what_is_installed_is_measured(study: Study, monkeypatch: Patch) -> None:
    monkeypatch.setattr(compiler, "package_version", lambda name: "1.0")
    assert measuring.collectable(Local(), study, ["baseline", "theirs"]) == ["baseline", "theirs"]
    folder = EvidenceFolder(study.folder / "none")
    evidence = load(study, folder, {"large": ["theirs"]})["large"]
    assert measuring.plan(study, evidence, ["theirs"], fresh=False).timed == ("theirs",)


def test_versions_are_those_of_installed_distributions() -> None:
    assert compiler.package_version("pytest") == pytest.__version__
    assert compiler.package_version("no-such-package") == ""


def test_its_row_says_that_it_was_not_collected_and_the_ladder_goes_on() -> None:
    found = snapshot(
        [step("baseline", None), step("fix1", "baseline")],
        {"s": {"baseline": 4.0, "fix1": 1.0, "library": 2.0}},
    )
    shape = found.shapes["s"]
    missing = dict.fromkeys(("build", "check", "timing", "capture"), Status.MISSING)
    theirs = type(shape.variants["fix1"])("theirs", "theirs", missing, False)
    ladder = dataclasses.replace(
        found.ladder,
        references=(*found.ladder.references, Variant("theirs", Path(), needs="their-package")),
    )
    shape = dataclasses.replace(shape, variants={**shape.variants, "theirs": theirs})
    found = dataclasses.replace(found, ladder=ladder, shapes={"s": shape})
    judged = judge(found, Config())
    row = judged.row("theirs")
    assert (row.status, sentence(row.problem)) == (
        Status.MISSING,
        "not collected: it needs their-package",
    )
    assert (verdict(row), reason(row)) == ("not collected", "needs their-package")
    assert judged.row("fix1").over_reference is not None
    assert not any("theirs" in warning for warning in sentences(judged.warnings))


def test_a_build_of_the_ladder_does_not_ask_for_it(root: Path, capsys: Capsys) -> None:
    builds = json_of(capsys, "build", project=root)["builds"]
    assert [build["variant"] for build in builds] == ["baseline"]


def test_a_package_is_named_by_a_string(root: Path) -> None:
    rewrite(root / "ablations/scale/ablation.toml", 'needs = "no-such-package"', "needs = 3")
    with pytest.raises(UsageError, match=r"'reference.needs'|needs"):
        find_workspace(root).study()
