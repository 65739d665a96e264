"""The CI files that a user copies, those of this repository, and histories as people make them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from answers import Capsys, Patch, error_of, not_none, ran
from app.test_gate import CU
from git_repository import IDENTITY, Repository, repository
from workbench.cli.main import command, main
from workbench.errors import WorkbenchError
from workbench.run.repository import repository_of
from workbench.study.workspace import find_workspace
from workspaces import GOOD, ROOT, copy_of_fixture, make

CI = ROOT / "docs" / "ci"
yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")


def read(name: str) -> Any:
    return yaml.safe_load((CI / name).read_text())


def test_the_composite_action() -> None:
    """As actionlint has it: steps with a shell, inputs that exist, none of them in a script."""
    action = read("github/action.yml")
    assert {"name", "description", "inputs", "runs"} == set(action)
    assert action["runs"]["using"] == "composite"
    for step in action["runs"]["steps"]:
        assert ("run" in step) != ("uses" in step)
        if "run" in step:
            assert step["shell"] == "bash"
            assert "${{" not in step["run"]  # an input would be run as code
        else:
            assert "@" in step["uses"]
        for value in [*step.get("env", {}).values(), *step.get("with", {}).values()]:
            named = str(value).split("inputs.")[1:]
            assert {part.split("}")[0].split("'")[0].split()[0].strip() for part in named} <= set(
                action["inputs"]
            )
    for name, given in action["inputs"].items():
        assert given["description"], name
        assert ("default" in given) != given.get("required", False)
    environment = action["runs"]["steps"][3]["env"]
    assert set(environment) - {"ACTION"} <= variables_of_the_script()


def test_the_workflow_that_keeps_the_page(tmp_path: Path) -> None:
    """It uploads what ``report --html`` writes, and links that in the comment."""
    workflow = read("github/report.yml")
    assert workflow[True] == "pull_request"  # YAML reads the key ``on`` as true
    (job,) = workflow["jobs"].values()
    write, upload, comment = job["steps"][2:]
    assert "${{" not in write["run"] + comment["run"]  # it would be run as code
    assert comment["env"]["PAGES"] == f"${{{{ steps.{upload['id']}.outputs.artifact-url }}}}"
    assert "$PAGES" in comment["run"]
    root = copy_of_fixture(tmp_path, "transpose")
    (line,) = [each for each in write["run"].splitlines() if "workbench" in each]
    verb = line.split("workbench ")[1].split(";")[0].replace('"$study"', "transpose").split()
    assert main([*verb, "--project", str(root)]) == 0
    assert [*root.glob(upload["with"]["path"])] == [root / "reports/transpose/report.html"]


def test_the_gitlab_template() -> None:
    job = read("gitlab.yml")[".workbench-gate"]
    assert job["allow_failure"] == {"exit_codes": 5}
    assert set(job["variables"]) - {"GIT_DEPTH"} <= variables_of_the_script()
    assert "$CI_MERGE_REQUEST_IID" in job["cache"]["key"]
    assert all(isinstance(value, str) for value in job["variables"].values())
    assert job["script"][-1].endswith("/gate.sh")


def test_this_repository_runs_its_tests_and_its_hooks_without_a_package_of_others() -> None:
    (job,) = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"].values()
    (script,) = [step["run"] for step in job["steps"] if "run" in step]
    assert os.access(ROOT / script, os.X_OK)
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for hook in local["hooks"]:
        program, *options = hook["entry"].split()
        tool = program.removeprefix(".venv/bin/")
        assert any(re.match(rf"{tool}\b", needed) for needed in extra["test"])
        if hook.get("pass_filenames", True):
            command = [sys.executable, "-m", tool, *options, __file__]
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def test_a_bug_report_asks_for_the_json_of_doctor() -> None:
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/bug.yml").read_text())
    asked = {field["id"]: field["attributes"]["description"] for field in form["body"]}
    verb, option = re.findall(r"`workbench (\w+) (\S+)`", asked["doctor"])[0]
    assert option in [name for each in command().commands[verb].params for name in each.opts]


def variables_of_the_script() -> set[str]:
    text = (CI / "gate.sh").read_text()
    known = {"BASE", "HEAD", "PROJECT", "TIER", "ARCH", "CUBINS", "REPORTS", "STRICT"}
    assert all(f"${{{name}" in text for name in known)
    return known


@pytest.fixture
def made(tmp_path: Path) -> Repository:
    """In a folder with a blank and a letter that is not ASCII."""
    make(tmp_path / "repo" / "gpü x", {"baseline": GOOD})
    return repository(tmp_path / "repo", "gpü x")


def script(made: Repository, tmp_path: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """With the workbench of this checkout on PATH."""
    bin_ = tmp_path / "bin"
    bin_.mkdir(exist_ok=True)
    (bin_ / "workbench").write_text(f'#!/bin/sh\nexec {sys.executable} -m workbench "$@"\n')
    (bin_ / "workbench").chmod(0o755)
    own = {"PATH": f"{bin_}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "profiler")}
    own |= {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), "TIER": "0"}
    return ran("bash", CI / "gate.sh", cwd=made.workspace, **{**IDENTITY, **own, **given})


@pytest.mark.parametrize(
    ("new", "strict", "code"),
    [("x[i] / 3", "false", 0), ("x[i] / 3", "", 5), ("y[i]", "false", 1)],
)
def test_the_script(made: Repository, tmp_path: Path, new: str, strict: str, code: int) -> None:
    made.edit(CU, "2 * x[i]", new)
    done = script(made, tmp_path, BASE="HEAD~1", STRICT=strict, CUBINS=str(tmp_path / "cubins"))
    assert done.returncode == code, done.stderr
    summary = (tmp_path / "summary.md").read_text()
    assert summary == done.stdout
    assert "baseline" in summary
    assert ("warning: cannot tell" in done.stderr) == (new == "x[i] / 3" and code == 0)
    reports = made.workspace / "gate-reports"
    assert {p.name for p in reports.iterdir()} == {"gate.md"}


def test_the_script_says_what_it_needs(made: Repository, tmp_path: Path) -> None:
    done = script(made, tmp_path)
    assert done.returncode != 0
    assert "the commit to compare with" in done.stderr


# ---- histories
HOLDS = """
import sys, time
from pathlib import Path
from workbench.run.repository import repository_of
from workbench.study.workspace import find_workspace

found = repository_of(find_workspace(Path(sys.argv[1])))
with found.worktrees() as folder, found.workspace_at(found.commit("HEAD"), folder):
    print("there", flush=True)
    time.sleep(600)
"""


def worktrees(made: Repository) -> int:
    return made.git("worktree", "list").count("\n") + 1


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
    own = {**IDENTITY, "PYTHONPATH": str(ROOT / "profiler")}
    done = ran("git", "commit", "--message", "hooked", cwd=made.top, **own)
    assert done.returncode == 0, done.stderr
    assert "1 same" in done.stdout + done.stderr
    assert made.git("log", "--format=%s", "-1") == "hooked"


def test_what_a_killed_run_left_goes_with_its_folder(made: Repository, tmp_path: Path) -> None:
    """The next run takes it out of git's list, and not what another one holds."""

    def holding(name: str) -> subprocess.Popen[str]:
        (folder := tmp_path / name).mkdir()
        own = {"PYTHONPATH": str(ROOT / "profiler"), "TMPDIR": str(folder)}
        command = [sys.executable, "-c", HOLDS, str(made.workspace)]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, env={**os.environ, **own}, text=True
        )

    with holding("killed") as killed, holding("running") as running:
        try:
            for each in (killed, running):
                assert not_none(each.stdout).readline() == "there\n"
            assert worktrees(made) == 3
            killed.kill()
            killed.wait()
            shutil.rmtree(tmp_path / "killed")
            assert main(["gate", "HEAD", "HEAD", "--project", str(made.workspace)]) == 0
            assert worktrees(made) == 2
        finally:
            for each in (killed, running):
                each.kill()


def test_errors_name_the_commit_and_not_a_scratch_folder(made: Repository) -> None:
    found = repository_of(find_workspace(made.workspace))
    made.edit("workbench.toml", "study", "sudty")
    commit = found.commit("HEAD")
    with found.worktrees() as folder, pytest.raises(WorkbenchError) as error:
        found.workspace_at(commit, folder).__enter__()
    assert f"{commit.short}:gpü x/workbench.toml" in error.value.message


@pytest.mark.parametrize("part", ["--depth=1", "--single-branch"])
def test_the_hint_of_a_clone_of_one_branch_brings_the_base(
    part: str, made: Repository, tmp_path: Path, capsys: Capsys
) -> None:
    made.git("branch", "base")
    made.edit(CU, "extern", "// one\nextern")
    clone = tmp_path / "clone"
    made.git("clone", "--quiet", part, f"file://{made.top}", str(clone))
    gate = ("gate", "--project", str(clone / "gpü x"))
    command = not_none(re.search("`(git fetch .*)`", error_of(capsys, *gate, "base")))[1]
    subprocess.run(shlex.split(command), cwd=clone, check=True, capture_output=True)
    assert "hint: name the remote's branch: origin/base" in error_of(capsys, *gate, "base")
    assert main([*gate, "origin/base"]) in (0, 1, 5)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another user")
def test_a_repository_of_another_user_says_how_to_trust_it(
    made: Repository, capsys: Capsys, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for path in (made.top, made.top / ".git"):
        os.chown(path, 12345, 12345)
    assert "safe.directory" in error_of(capsys, "gate", "HEAD", project=made.workspace, code=3)
