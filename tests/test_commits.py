"""Histories as people make them, and what a run leaves in the repository, be it killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from answers import Capsys, Patch, error_of, not_none
from commits import IDENTITY, Repository, repository
from workbench.cli.main import main
from workbench.errors import WorkbenchError
from workbench.run.repository import repository_of
from workbench.study.workspace import find_workspace
from workspaces import GOOD, ROOT, make

CU = "kernels/scale/baseline.cu"
HOLDS = """
import sys, time
from pathlib import Path
from workbench.run.repository import repository_of
from workbench.study.workspace import find_workspace

found = repository_of(find_workspace(Path(sys.argv[1])))
with found.worktrees() as trees, trees.at(found.commit("HEAD")):
    print("there", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def made(tmp_path: Path) -> Repository:
    """In a folder with a blank and a letter that is not ASCII."""
    make(tmp_path / "repo" / "gpü x", {"baseline": GOOD})
    return repository(tmp_path / "repo", "gpü x")


def worktrees(made: Repository) -> int:
    return made.git("worktree", "list").count("\n") + 1


@pytest.mark.parametrize("subject", ["", "a\x0cb", "a\u2028b", "a\x1cb \x85", "größe"])
def test_a_range_is_read_whatever_its_subjects_say(made: Repository, subject: str) -> None:
    shas = [made.git("rev-parse", "HEAD")]
    for word in (subject, "plain", subject):
        made.git("commit", "--quiet", "--allow-empty", "--allow-empty-message", "-m", word)
        shas.append(made.git("rev-parse", "HEAD"))
    found = repository_of(find_workspace(made.workspace))
    between = found.between(found.commit(shas[0]), found.commit("HEAD"))
    assert [one.sha for one in between] == shas
    assert between[2].subject == "plain"


def test_a_hook_of_git_can_run_it(made: Repository) -> None:
    """Git gives its hooks an index and a repository that are not those of a worktree."""
    made.edit(CU, "extern", "// one\nextern")
    hook = made.top / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    gate = f"exec {sys.executable} -m workbench gate HEAD~1 HEAD --tier 0"
    hook.write_text(f"#!/bin/sh\ncd 'gpü x' && {gate}\n")
    hook.chmod(0o755)
    (made.top / "readme").write_text("x")
    made.git("add", "--all")
    done = subprocess.run(
        ["git", "commit", "--message", "hooked"],
        cwd=made.top,
        env={**os.environ, **IDENTITY, "PYTHONPATH": str(ROOT / "profiler")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "1 same" in done.stdout + done.stderr
    assert made.git("log", "--format=%s", "-1") == "hooked"


def test_what_a_killed_run_left_goes_with_its_folder(made: Repository, tmp_path: Path) -> None:
    """The next run takes it out of git's list, and not what another one holds."""
    command = [sys.executable, "-c", HOLDS, str(made.workspace)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "profiler")}
    folders = [tmp_path / "killed", tmp_path / "running"]
    running = []
    for folder in folders:
        folder.mkdir()
        one = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            env={**environment, "TMPDIR": str(folder)},
            text=True,
        )
        running.append(one)
    try:
        for one in running:
            assert not_none(one.stdout).readline() == "there\n"
        assert worktrees(made) == 3
        running[0].send_signal(signal.SIGKILL)
        running[0].wait()
        shutil.rmtree(folders[0])
        assert main(["gate", "HEAD", "HEAD", "--project", str(made.workspace)]) == 0
        assert worktrees(made) == 2
    finally:
        for one in running:
            one.kill()
            one.communicate()


def test_a_worktree_is_moved_and_nothing_of_its_first_commit_stays(made: Repository) -> None:
    made.edit(CU, "extern", "// one\nextern")
    (made.top / ".gitignore").write_text("*.pyc\n")
    made.commit("ignored")
    found = repository_of(find_workspace(made.workspace))
    with found.worktrees() as trees:
        with trees.at(found.commit("HEAD")) as newer:
            left = newer.root / "kernels" / "scale" / "left.pyc"
            left.touch()
            (newer.root / CU).write_text("edited")
        with trees.at(found.commit("HEAD~2")) as older, trees.at(found.commit("HEAD")) as beside:
            assert older.root == newer.root != beside.root
            assert not left.exists()
            assert "// one" not in (older.root / CU).read_text()
            assert "// one" in (beside.root / CU).read_text()
    assert worktrees(made) == 1
    assert not older.root.exists()


def test_errors_name_the_commit_and_not_a_scratch_folder(made: Repository) -> None:
    found = repository_of(find_workspace(made.workspace))
    made.edit("workbench.toml", "study", "sudty")
    commit = found.commit("HEAD")
    with found.worktrees() as trees, pytest.raises(WorkbenchError) as error, trees.at(commit):
        pass
    assert f"{commit.short}:gpü x/workbench.toml" in error.value.message


def test_a_shallow_clone_says_so(made: Repository, tmp_path: Path, capsys: Capsys) -> None:
    made.edit(CU, "extern", "// one\nextern")
    made.git("clone", "--quiet", "--depth=1", f"file://{made.top}", str(tmp_path / "shallow"))
    assert main(["gate", "HEAD~1", "--project", str(tmp_path / "shallow" / "gpü x")]) == 2
    assert "git fetch --unshallow" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another user")
def test_a_repository_of_another_user_says_how_to_trust_it(
    made: Repository, capsys: Capsys, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for path in (made.top, made.top / ".git"):
        os.chown(path, 12345, 12345)
    assert "safe.directory" in error_of(capsys, "gate", "HEAD", project=made.workspace, code=3)
