"""Input that is too large, too deep or impossible is refused with its file and its limit; what a
killed run left goes.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from answers import Capsys, error_of, text_of
from commits import repository
from workbench.app.executor import Reporter
from workbench.cli.main import main
from workbench.errors import BadCapture, EnvironmentLacks, UsageError
from workbench.evidence import store
from workbench.evidence.journal import JournalEntry
from workbench.remote import cluster
from workbench.run.repository import SCRATCH, repository_of
from workbench.study.files import MOST_FRAMES, check_compressed, compressed, locked, read_toml
from workbench.study.sources import Fingerprints
from workbench.study.workspace import find_workspace
from workspaces import CAUSAL, GOOD, make, recorded_report


@pytest.mark.parametrize(
    "text",
    [".".join(["a"] * 33) + " = 1\n", "[" + ".".join(["a"] * 33) + "]\n", "#" * (5 << 20)],
    ids=["key", "table", "size"],
)
def test_settings_are_neither_deep_nor_large(text: str, tmp_path: Path) -> None:
    """A key of 60,000 parts took 6 GB to read."""
    path = tmp_path / "workbench.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"workbench\.toml is larger than 4 MiB, or has a key"):
        read_toml(path)


def test_prose_has_dots(tmp_path: Path) -> None:
    path = tmp_path / "ablation.toml"
    path.write_text(f'summary = "{"It is 1.5 times as fast. " * 100}{"." * 200}"\n')
    assert str(read_toml(path)["summary"]).count("fast") == 100


def test_a_source_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    root = make(tmp_path, {"baseline": GOOD})
    os.truncate(root / "kernels/scale/baseline.cu", 2 << 30)
    study = find_workspace(root).study()
    with pytest.raises(
        UsageError, match=r"baseline\.cu is a source of 2048 MiB; read are up to 16"
    ):
        Fingerprints(study).of_sources("baseline")


def test_a_journal_of_damage_alone_is_not_read_to_its_end() -> None:
    """Three million such lines took more than a minute."""
    began = time.process_time()
    found, notes = store.decode_lines(Path("journal.jsonl"), b"{}\n" * 500_000, JournalEntry)
    assert time.process_time() - began < 5
    assert (found, len(notes)) == ([], store.MOST_BAD_LINES + 1)
    assert notes[-1] == "journal.jsonl is not read from line 1001 on: too many are damaged"


def test_a_report_of_empty_frames_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.ncu-repz"
    path.write_bytes(compressed(b"") * (MOST_FRAMES + 1))
    with pytest.raises(BadCapture, match="more than 100000 frames"):
        check_compressed(path)


def test_tls_without_certificates_is_refused_at_once() -> None:
    pytest.importorskip("distributed")
    began = time.monotonic()
    with pytest.raises(EnvironmentLacks, match="needs certificates"):
        cluster.DaskCluster("tls://127.0.0.1:1", "check", Reporter()).client()
    assert time.monotonic() - began < 20


def test_worktrees_of_killed_runs_go_and_those_in_use_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scale = repository(make(tmp_path / "ws", {"baseline": GOOD}))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead, live = (tmp_path / f"{SCRATCH}{name}" for name in ("dead", "live"))
    for folder in (dead, live):
        scale.git("worktree", "add", "--detach", str(folder / "0"), "HEAD")
    with locked(live), repository_of(find_workspace(scale.workspace)).worktrees():
        assert not dead.exists()
        assert live.is_dir()
    assert scale.git("worktree", "list").count("\n") == 1
    shutil.rmtree(live)


def test_a_report_whose_path_is_not_utf8_is_read(tmp_path: Path, capsys: Capsys) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff.ncu-repz"))
    shutil.copy(recorded_report(CAUSAL, "fix10"), path)
    assert main(["show", str(path), "--launch", "0", "--source"]) == 0
    assert "udcff.ncu-repz" in capsys.readouterr().out


def test_a_folder_that_was_deleted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setenv("PWD", str(gone))
    gone.rmdir()
    for verb in ("list", "init"):
        assert f"the folder {gone} was deleted" in error_of(capsys, verb, code=3)


def test_init_reports_the_files_for_agents_that_it_left(tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "workbench.toml").write_text("")
    (tmp_path / "AGENTS.md").write_text("mine")
    told = text_of(capsys, "init", str(tmp_path), "--agents")
    assert "left alone, since it was there: AGENTS.md" in told
    assert "wrote .agents/skills/workbench/SKILL.md" in told
