"""Evidence of the layout before November 2026 is refused with a command that converts it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from answers import Capsys, error_of
from workbench.evidence import store
from workbench.evidence.store import EvidenceFolder
from workspaces import EVIDENCE, FIXTURE, copy_of_fixture


def in_old_layout(folder: EvidenceFolder) -> None:
    """A file for each build, check and capture, as they were."""
    for path in sorted((folder.root / "variants").iterdir()):
        record = json.loads(path.read_text())
        build, checks = record.get("build"), record.get("checks")
        if build:
            write(folder.root / "builds" / path.name, build)
        if checks:
            old = {"variant": path.stem, "shapes": checks, "provenance": record["checked"]}
            write(folder.root / "checks" / path.name, old)
        path.unlink()
    (folder.root / "variants").rmdir()
    for path in folder.capture_files():
        for name, index in json.loads(path.read_text())["captures"].items():
            write(path.parent / "captures" / f"{name}.json", index)
        path.unlink()


def write(path: Path, record: dict[str, object]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"schema_version": 1, **record}))


def test_the_command_of_the_hint_converts_old_evidence(tmp_path: Path, capsys: Capsys) -> None:
    workspace = copy_of_fixture(tmp_path, "attention")
    folder = EvidenceFolder(workspace / EVIDENCE.relative_to(FIXTURE))
    before = {path: path.read_bytes() for path in folder.root.rglob("*.json")}
    in_old_layout(folder)
    told = error_of(capsys, "ablate", project=workspace)
    assert "layout before November 2026" in told
    command = told.partition("hint: `")[2].partition("`")[0].split()
    assert command[:3] == ["python", "-m", "workbench.evidence.convert"]
    subprocess.run([sys.executable, *command[1:]], check=True)
    assert {path: path.read_bytes() for path in folder.root.rglob("*.json")} == before


def test_damaged_old_evidence_stays_as_it_is(tmp_path: Path) -> None:
    workspace = copy_of_fixture(tmp_path, "attention")
    folder = EvidenceFolder(workspace / EVIDENCE.relative_to(FIXTURE))
    in_old_layout(folder)
    broken = folder.root / "builds" / "fix10.json"
    broken.write_text("{")
    command = [sys.executable, "-m", "workbench.evidence.convert", str(folder.root)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "fix10.json" in done.stderr
    assert broken.exists()
    assert store.variant_record(folder, "fix10").build is None
