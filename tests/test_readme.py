"""README says what the product says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from workbench.cli import main
from workbench.study.params import base_name
from workbench.study.workspace import find_workspace
from workspaces import copy_of_repository

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_its_table_is_the_one_that_ablate_prints(capsys: pytest.CaptureFixture[str]) -> None:
    shown = README.split("<!-- table: workbench ablate -->\n")[1].split("\n<!-- /table -->")[0]
    assert main(["ablate", "--project", str(ROOT)]) == 0
    assert shown in capsys.readouterr().out


OUTPUTS = re.findall(r"<!-- output: workbench (.*?) -->\n```text\n(.*?)\n```", README, re.DOTALL)
CAPTURED = re.findall(r"```toml\n(\[\[reference\]\].*?)```", README, re.DOTALL)


@pytest.mark.parametrize(("command", "shown"), OUTPUTS, ids=[o[0].split()[0] for o in OUTPUTS])
def test_its_outputs_are_what_the_commands_print(
    command: str,
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = copy_of_repository(tmp_path)
    ladder = root / "ablations" / "attention" / "ablation.toml"
    ladder.write_text("\n".join([ladder.read_text(), *CAPTURED]))
    monkeypatch.chdir(root)
    assert main(command.split()) == 0
    said = capsys.readouterr().out
    for part in shown.split("\n...\n"):
        assert f"{part}\n" in said
        said = said.split(part, 1)[1]


def test_it_shows_what_the_newer_verbs_print() -> None:
    assert [command.split()[0] for command, _ in OUTPUTS] == ["diff", "show", "adopt"]


def test_ci_runs_its_second_command() -> None:
    commands = re.findall(r"```sh\n(.*?)\n```", README, re.DOTALL)
    script = (ROOT / ".ci" / "run").read_text().replace("install -q", "install").splitlines()
    places = [script.index(command) for command in commands[1].split(" && ")]
    assert places == sorted(places)


def test_the_files_of_a_study_are_the_variants_of_its_ladder() -> None:
    workspace = find_workspace(ROOT)
    for name in workspace.studies():
        study = workspace.study(name)
        modules = {p.stem for p in study.folder.glob("*.py")} - {"study"}
        assert modules == set(map(base_name, study.variants))


def test_recorded_evidence_is_current() -> None:
    from workbench.evidence.layout import evidence_folders
    from workbench.evidence.recorded import Evidence

    workspace = find_workspace(ROOT)
    study = workspace.study()
    folder = evidence_folders(workspace.ablations, study.name)[0]
    evidence = Evidence(study, study.default_shape, folder)
    for variant in study.variants:
        assert set(evidence.state(variant).values()) == {"current"}, variant


@pytest.mark.parametrize(
    "name",
    [
        "OPTIMIZATION_REPORT.md",
        "report.html",
        "roofline-light.svg",
        "stalls-dark.svg",
        "roofline-levels-dark.svg",
        "stall-time-light.svg",
    ],
)
def test_the_committed_report_is_what_the_evidence_gives(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.study.workspace.Workspace.reports", lambda *_: tmp_path)
    assert main(["report", "--html", "--project", str(ROOT)]) == 0
    committed = ROOT / "reports" / "attention" / name
    assert (tmp_path / name).read_bytes() == committed.read_bytes()
