"""A reference that needs a package: measured where it is installed, and no failure elsewhere."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from answers import Capsys, Patch
from snapshots import snapshot, step
from workbench.app import measure as measuring
from workbench.app.executor import Local
from workbench.cli.main import main
from workbench.cli.streams import Stderr
from workbench.cuda import compiler
from workbench.errors import UsageError
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.recorded import Evidence
from workbench.judge.ladder import judge
from workbench.render.document.phrases import reason, verdict
from workbench.render.document.sentences import sentence, sentences
from workbench.study.config import Config
from workbench.study.model import Study, Variant
from workbench.study.workspace import find_workspace
from workbench.words import Status
from workspaces import GOOD, make

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
    make(tmp_path, {"baseline": GOOD})
    folder = tmp_path / "kernels" / "scale"
    (folder / "library.py").write_text(PLAIN)
    (folder / "theirs.py").write_text(MODULE)
    path = tmp_path / "ablations" / "scale" / "ablation.toml"
    path.write_text(path.read_text() + REFERENCE)
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
    evidence = Evidence(study, "large", EvidenceFolder(study.folder / "none"))
    assert measuring.plan(evidence, ["theirs"], fresh=False).timed == ("theirs",)


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
    assert main(["build", "--json", "--project", str(root)]) == 0
    assert [b["variant"] for b in json.loads(capsys.readouterr().out)["builds"]] == ["baseline"]


def test_a_package_is_named_by_a_string(root: Path) -> None:
    path = root / "ablations" / "scale" / "ablation.toml"
    path.write_text(path.read_text().replace('needs = "no-such-package"', "needs = 3"))
    with pytest.raises(UsageError, match=r"'reference.needs'|needs"):
        find_workspace(root).study()
