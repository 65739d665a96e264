"""On a machine whose GPU is not that of the evidence, what is on record is told all the same."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import workbench
from answers import Capsys, Patch, both_of
from workbench.app.executor import Local
from workbench.app.target import Target, find_recorded, of_one_gpu
from workbench.cli.main import main
from workbench.cli.streams import Stderr
from workbench.evidence.layout import EvidenceFolder
from workbench.run import machine
from workbench.run.gpu import Gpu
from workbench.study.workspace import find_workspace
from workspaces import FIXTURE, copy_of_fixture

HERE = ["--study", "transpose", "--project", str(FIXTURE)]
OTHER = Gpu("NVIDIA B200", "580", "10.0")
TOLD = "nothing of transpose at 8192x8192 is recorded on nvidia-b200: this is of nvidia-h200"


@pytest.fixture
def other(monkeypatch: Patch) -> None:
    monkeypatch.setattr(machine, "find_gpu", lambda: OTHER)
    monkeypatch.setattr(machine, "can_measure", lambda: True)


@pytest.mark.parametrize("verb", ["show padded", "diff tiled padded", "advise padded"])
def test_a_verb_that_only_reads_tells_what_is_on_record(
    verb: str, request: pytest.FixtureRequest, capsys: Capsys
) -> None:
    without, err = both_of(capsys, *verb.split(), *HERE)
    assert TOLD not in err
    request.getfixturevalue("other")
    out, err = both_of(capsys, *verb.split(), *HERE)
    assert out == without
    assert TOLD in err


def test_a_report_is_not_emptied(request: pytest.FixtureRequest, capsys: Capsys) -> None:
    def report() -> tuple[str, str]:
        out, err = both_of(capsys, "report", *HERE)
        (written,) = re.findall(r"wrote (\S+\.md)", out + err)
        return Path(written).read_text(), err

    before, _ = report()
    request.getfixturevalue("other")
    after, err = report()
    assert after == before
    assert TOLD in err


def test_a_package_is_made_from_what_is_on_record(
    other: None, tmp_path: Path, capsys: Capsys
) -> None:
    to = tmp_path / "package"
    assert main(["ship", "padded", "--as", "padded", "--to", str(to), *HERE]) == 0
    assert TOLD in capsys.readouterr().err
    assert "NVIDIA H200" in (to / "README.md").read_text()


def test_the_library_reads_it_too(other: None) -> None:
    found = workbench.study("transpose", project=FIXTURE).evidence()
    assert found.folder.gpu == "nvidia-h200"


def of_two(root: Path, study: str) -> Path:
    """A workspace whose study has evidence of two GPUs, of the second without captures."""
    evidence = copy_of_fixture(root, study) / "ablations" / study / "evidence"
    shutil.copytree(evidence / "nvidia-h200", evidence / "nvidia-b200")
    (evidence / "nvidia-b200" / "ceilings.json").unlink(missing_ok=True)
    for path in (evidence / "nvidia-b200").rglob("*.ncu-repz"):
        path.unlink()
    return evidence


@pytest.fixture
def two(tmp_path: Path) -> list[str]:
    of_two(tmp_path / "ws", "transpose")
    return ["--project", str(tmp_path / "ws")]


def test_of_several_gpus_one_is_named_and_its_own_comes_first(
    two: list[str], request: pytest.FixtureRequest, capsys: Capsys
) -> None:
    def gpu(named: str | None = None) -> str:
        found = find_recorded(Local(), Path(two[1]), "transpose", None, gpu=named).folder.gpu
        assert "is recorded on" not in capsys.readouterr().err
        return found

    for named in ("nvidia-b200", "NVIDIA H200"):
        assert gpu(named) == named.lower().replace(" ", "-")
    request.getfixturevalue("other")
    assert gpu() == "nvidia-b200"
    assert gpu("nvidia-h200") == "nvidia-h200"


def test_without_a_gpu_tables_over_shapes_are_of_one(tmp_path: Path, capsys: Capsys) -> None:
    """Of that which the study's own shape is told of, the one that was measured last."""
    evidence = of_two(tmp_path, "softmax")
    only, both = "65536x1024-bf16", "32x131072-bf16"
    shutil.rmtree(evidence / "nvidia-b200" / only)
    command = ["ablate", "online", "--project", str(tmp_path)]
    (path,) = (evidence / "nvidia-b200" / "4096x8192" / "timings").glob("*")
    path.rename(path.with_name(f"2030{path.name[4:]}"))
    out, err = both_of(capsys, *command, "--all-shapes", "--json")
    shapes = [table["shape"]["name"] for table in json.loads(out)["tables"]]
    assert (only in shapes, both in shapes) == (False, True)
    assert f"{only}: left out, since nothing of it is recorded on nvidia-b200" in err
    assert both not in err


def test_sizes_are_of_the_gpu_that_has_the_most_of_them(tmp_path: Path, capsys: Capsys) -> None:
    evidence = of_two(tmp_path, "softmax")
    study = find_workspace(tmp_path).study("softmax")
    folders = [EvidenceFolder(evidence / f"nvidia-{name}") for name in ("b200", "h200")]
    here, workspace = Local("ablate", Stderr()), find_workspace(tmp_path)
    names = ["4096x8192", "32x131072-bf16", "65536x1024-bf16"]
    targets = [Target(here, workspace, study, name, folders[0], False) for name in names]
    shutil.rmtree(folders[0].root / names[1])
    found = of_one_gpu(targets)
    assert [(each.shape, each.folder.gpu) for each in found] == [(n, "nvidia-h200") for n in names]
    assert capsys.readouterr().err == ""
    live = [replace(target, live=True) for target in targets]
    assert of_one_gpu(live) == live


def test_a_gpu_of_which_nothing_is_known_is_an_error(two: list[str], capsys: Capsys) -> None:
    assert main(["show", "padded", "--gpu", "nvidia-h100", *two]) == 2
    assert "unknown GPU 'nvidia-h100'" in capsys.readouterr().err
    shutil.rmtree(Path(two[1], "ablations/transpose/evidence/nvidia-b200/8192x8192"))
    assert main(["show", "padded", "--gpu", "nvidia-b200", *two]) == 3
    assert "nothing of transpose at 8192x8192 is recorded on nvidia-b200" in capsys.readouterr().err
