"""Nothing is lost: killed writers leave whole files, unreadable folders are not empty ones."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from answers import Capsys, Patch, error_of, not_none
from faults.programs import program
from property_cases import examples
from workbench.errors import EnvironmentLacks, UsageError
from workbench.evidence import journal, store
from workbench.evidence.records import Timing, VariantRecord
from workbench.evidence.store import EvidenceFolder
from workbench.run.recording import remove_superseded, remove_unused
from workbench.study.files import is_there, listed, write_bytes
from workspaces import EVIDENCE, FIXTURE, contents, copy_of_fixture

BUILD = EVIDENCE / "variants" / "fix10.json"
SHAPE = "b4h16s2048d128-causal"

KILLED = examples(4, many=150)


@pytest.mark.parametrize("number", range(KILLED))
def test_a_killed_writer_leaves_whole_files_and_its_successor_sweeps(
    number: int, tmp_path: Path
) -> None:
    target = tmp_path / "variants" / "fix10.json"
    child = subprocess.Popen(
        [sys.executable, "-c", program("writer"), BUILD, target], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(random.Random(number).uniform(0.0, 0.05))
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    if target.exists():
        assert not_none(store.read_record(target, VariantRecord).build).error.strip("x") == ""
    left = list(target.parent.glob(".*")) if target.parent.exists() else []
    for path in left:
        os.utime(path, (0, 0))
    store.write(target, store.read_record(BUILD, VariantRecord))
    assert target.read_bytes() == BUILD.read_bytes()
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_a_living_writer_and_the_files_of_users_are_left_alone(tmp_path: Path) -> None:
    left = ".fix10.json.abcd1234.part"
    kept = {
        *(".other.json.zst.abc_1234.part", ".fix10.json.abcd1234", ".report.md.original"),
        *(".fix10.json.bak", "fix10.json.abcd1234", ".gitignore"),
    }
    for name in (left, *kept):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / ".fix10.json.young123.part").touch()
    write_bytes(tmp_path / "fix10.json", b"{}")
    there = {path.name for path in tmp_path.iterdir()}
    assert there == kept | {"fix10.json", ".fix10.json.young123.part"}


def evidence(workspace: Path) -> EvidenceFolder:
    return EvidenceFolder(workspace / EVIDENCE.relative_to(FIXTURE))


def lock(monkeypatch: Patch, locked: Path) -> None:
    """A folder that may not be listed, whoever runs the tests."""

    def refusing(look: Callable[[str], object]) -> Callable[..., object]:
        def refuse(path: object = ".") -> object:
            if Path(str(path)) == locked:
                raise PermissionError(13, "Permission denied", str(locked))
            return look(str(path))

        return refuse

    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))


@pytest.mark.parametrize("verb", ["ablate", "list", "report"])
def test_an_unreadable_timings_folder_is_an_error_and_nothing_is_written(
    verb: str, workspace: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    report = workspace / "reports" / "attention" / "OPTIMIZATION_REPORT.md"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text("of yesterday")
    lock(monkeypatch, evidence(workspace).timings("b2h8s512d64"))
    err = error_of(capsys, verb, project=workspace, code=3)
    assert f"{evidence(workspace).timings('b2h8s512d64')} cannot be read" in err
    assert "hint:" in err
    assert report.read_text() == "of yesterday"


def test_whether_a_file_is_there_can_be_unknown(tmp_path: Path) -> None:
    """A file where a folder belongs, and a link in a loop."""
    (tmp_path / "timings").touch()
    with pytest.raises(EnvironmentLacks, match="cannot be read"):
        listed(tmp_path / "timings")
    assert listed(tmp_path / "none") == []
    (loop := tmp_path / "loop.json").symlink_to(loop)
    with pytest.raises(EnvironmentLacks, match=r"loop\.json cannot be read"):
        is_there(loop)
    assert not is_there(tmp_path / "none.json")
    assert not is_there(tmp_path)


def test_a_damaged_entry_deletes_no_report(tmp_path: Path) -> None:
    workspace = copy_of_fixture(tmp_path)
    folder = evidence(workspace)
    before = sorted(folder.reports.iterdir())
    path = folder.captures(SHAPE)
    path.write_text(path.read_text()[:100])
    remove_unused(folder)
    assert sorted(folder.reports.iterdir()) == before


def test_a_damaged_session_stays_and_stops_no_other(tmp_path: Path) -> None:
    session = min((EVIDENCE / SHAPE / "timings").iterdir())
    folder = EvidenceFolder(tmp_path / "evidence" / "gpu")
    timings = folder.timings(SHAPE)
    timings.mkdir(parents=True)
    for name in ("1.json.zst", "2.json.zst", "3.json.zst"):
        (timings / name).write_bytes(session.read_bytes())
    (timings / "1.json.zst").write_text("{")
    timed = set(store.read_record(session, Timing).fingerprints)
    remove_superseded(folder, SHAPE, "3.json", timed)
    assert [path.name for path in folder.timing_files(SHAPE)] == ["1.json.zst", "3.json.zst"]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    """As root, a file in the place of /dev/stdout would be everybody's."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_bytes(pipe, b"told")
        assert os.read(reader, 10) == b"told"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    whole, link = tmp_path / "whole", tmp_path / "stdout"
    with whole.open("wb") as file:
        link.symlink_to(f"/proc/self/fd/{file.fileno()}")
        write_bytes(link, b"told")
    assert link.is_symlink()
    assert whole.read_bytes() == b"told"


def test_only_reports_that_the_journal_has_are_deleted(tmp_path: Path) -> None:
    """A report of the user's own beside them stays, and what a link names."""
    workspace = copy_of_fixture(tmp_path)
    folder = evidence(workspace)
    index = store.captures_at(folder, SHAPE)["fix10"]
    mine = [folder.reports / "mine.ncu-rep", folder.reports / "mine.ncu-repz"]
    outside = tmp_path / "outside.ncu-repz"
    for path in (*mine, outside):
        path.write_bytes(b"mine")
    old, linked = (f"{SHAPE}-2026010{day}T000000Z.ncu-repz" for day in (1, 2))
    (folder.reports / old).write_bytes(b"written here")
    (folder.reports / linked).symlink_to(outside)
    for name in (old, linked):
        journal.append(folder, journal.capture_entry(structs.replace(index, report=name)))
    remove_unused(folder)
    assert not (folder.reports / old).exists()
    assert all(path.read_bytes() == b"mine" for path in (*mine, outside, folder.reports / linked))


@pytest.mark.parametrize("link", ["reports", "reports/attention", "ablations/attention/evidence"])
def test_no_write_leaves_the_workspace_through_a_link(
    link: str, tmp_path: Path, capsys: Capsys
) -> None:
    workspace, outside = copy_of_fixture(tmp_path / "inside", "attention"), tmp_path / "outside"
    path = workspace / link
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        path.rename(outside)
    outside.mkdir(exist_ok=True)
    path.symlink_to(outside)
    before = contents(outside)
    if link.startswith("reports"):
        assert "leads out of the workspace" in error_of(capsys, "report", project=workspace)
    else:
        record = store.variant_record(evidence(workspace), "fix10")
        for write, to in ((store.write, "variants/fix11.json"), (store.append, "journal.jsonl")):
            with pytest.raises(UsageError, match="leads out of the workspace"):
                write(evidence(workspace).root / to, record)
    assert contents(outside) == before


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_the_umask_decides_who_may_read(mask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        write_bytes(tmp_path / "whole", b"{}")
        store.append(tmp_path / "lines", store.read_record(BUILD, VariantRecord))
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {mode}
    (tmp_path / "whole").chmod(0o640)
    write_bytes(tmp_path / "whole", b"[]")
    assert (tmp_path / "whole").stat().st_mode & 0o777 == 0o640
