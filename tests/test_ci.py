"""The CI files that a user copies: their YAML, what they name, and the script that they run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from commits import IDENTITY, Repository, repository
from test_gate import CU, MODULE
from workspaces import GOOD, ROOT, make

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


def test_the_gitlab_template() -> None:
    job = read("gitlab.yml")[".workbench-gate"]
    assert job["allow_failure"] == {"exit_codes": 5}
    assert set(job["variables"]) - {"GIT_DEPTH"} <= variables_of_the_script()
    assert "$CI_MERGE_REQUEST_IID" in job["cache"]["key"]
    assert all(isinstance(value, str) for value in job["variables"].values())
    assert job["script"][-1].endswith("/gate.sh")
    assert job["artifacts"]["reports"]["junit"] == "gate-reports/gate.xml"


def variables_of_the_script() -> set[str]:
    text = (CI / "gate.sh").read_text()
    known = {"BASE", "HEAD", "PROJECT", "TIER", "ARCH", "CUBINS", "REPORTS", "STRICT"}
    assert all(f"${{{name}" in text for name in known)
    return known


@pytest.fixture
def scale(tmp_path: Path) -> Repository:
    root = make(tmp_path / "repo", {"baseline": GOOD})
    (root / "kernels" / "scale" / "baseline.py").write_text(MODULE.format(name="baseline"))
    return repository(root)


def script(made: Repository, tmp_path: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """With the workbench of this checkout on PATH."""
    bin_ = tmp_path / "bin"
    bin_.mkdir(exist_ok=True)
    (bin_ / "workbench").write_text(f'#!/bin/sh\nexec {sys.executable} -m workbench "$@"\n')
    (bin_ / "workbench").chmod(0o755)
    return subprocess.run(
        ["bash", str(CI / "gate.sh")],
        cwd=made.workspace,
        env={
            **os.environ,
            **IDENTITY,
            "PATH": f"{bin_}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "profiler"),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
            "TIER": "0",
            **given,
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("new", "strict", "code"),
    [("x[i] * 2", "", 0), ("x[i] / 3", "false", 0), ("x[i] / 3", "", 5), ("y[i]", "false", 1)],
)
def test_the_script(scale: Repository, tmp_path: Path, new: str, strict: str, code: int) -> None:
    scale.edit(CU, "2 * x[i]", new)
    done = script(scale, tmp_path, BASE="HEAD~1", STRICT=strict, CUBINS=str(tmp_path / "cubins"))
    assert done.returncode == code, done.stderr
    summary = (tmp_path / "summary.md").read_text()
    assert summary == done.stdout
    assert "baseline" in summary
    assert ("warning: cannot tell" in done.stderr) == (new == "x[i] / 3" and code == 0)
    reports = scale.workspace / "gate-reports"
    assert {p.name for p in reports.iterdir()} == {"gate.md", "gate.xml"}


def test_the_script_says_what_it_needs(scale: Repository, tmp_path: Path) -> None:
    done = script(scale, tmp_path)
    assert done.returncode != 0
    assert "the commit to compare with" in done.stderr
