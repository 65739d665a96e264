"""A part of the ladder leaves the report of the whole alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from answers import Capsys, error_of
from workbench.cli.main import main
from workspaces import copy_of_fixture


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_fixture(tmp_path_factory.mktemp("workspace"), "transpose")


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def test_parts_have_folders_of_their_own(workspace: Path, capsys: Capsys) -> None:
    assert main(["report", "--html", "--project", str(workspace)]) == 0
    whole = workspace / "reports" / "transpose"
    before = contents(whole)
    assert "OPTIMIZATION_REPORT.md" in before
    assert "report.html" in before
    capsys.readouterr()
    for verb, names in (("ablate", ["padded", "tiled"]), ("report", ["tma", "tiled"])):
        told = error_of(capsys, verb, *names, project=workspace, code=0)
        part = whole / "+".join(names[::-1])
        assert "a part of the ladder; its report has a folder of its own" in told
        assert f"wrote {part / 'OPTIMIZATION_REPORT.md'}" in told
        assert (part / "OPTIMIZATION_REPORT.md").is_file()
        assert contents(whole) == before


def test_all_steps_by_name_are_the_whole(workspace: Path, capsys: Capsys) -> None:
    from workbench.study.workspace import find_workspace

    steps = [step.variant for step in find_workspace(workspace).study().ladder.steps]
    assert main(["report", *steps, "--project", str(workspace)]) == 0
    path = workspace / "reports" / "transpose" / "OPTIMIZATION_REPORT.md"
    assert capsys.readouterr().err.splitlines()[0] == f"wrote {path}"
