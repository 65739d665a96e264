"""docs/library.md: its Python is run as it stands."""

from __future__ import annotations

import inspect
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import guide
import workbench as wb
from workbench import library
from workbench.cli.main import main
from workbench.study.workspace import find_workspace
from workspaces import CAUSAL, ROOT, copy_of_fixture, recorded_report

PAGE = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")


def python(section: str) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL))


def test_its_first_examples_run_on_the_recorded_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = copy_of_fixture(tmp_path)
    (root / "theirs.ncu-repz").symlink_to(recorded_report(CAUSAL, "fix10"))
    monkeypatch.chdir(root)
    script = root / "example.py"
    script.write_text(python(PAGE.split("\n## ")[0]))
    bound = runpy.run_path(str(script))
    assert capsys.readouterr().out.startswith("baseline baseline []\nfix1 kept []\n")
    assert len(bound["lines"])
    assert bound["evidence"].table().shape[1] == 4


def test_its_function_becomes_a_variant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "rows"
    assert main(["init", str(root), "--template", "torch"]) == 0
    monkeypatch.chdir(root)
    (root / "demo.py").write_text(python(PAGE.split("\n## ")[1]))
    runpy.run_path("demo.py", run_name="demo")
    assert [s.variant for s in find_workspace().study().ladder.steps][-1] == "fused"


@pytest.mark.gpu
def test_on_a_gpu_its_function_is_measured(tmp_path: Path) -> None:
    root = tmp_path / "rows"
    assert main(["init", str(root), "--template", "torch"]) == 0
    (root / "demo.py").write_text(python(PAGE.split("\n## ")[1]))
    subprocess.run(
        [sys.executable, "demo.py"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": guide.paths()},
        check=True,
    )
    row = wb.study("rmsnorm", project=root).evidence().row("fused")
    assert (row.status, row.verdict) == ("current", "kept")


def test_every_call_is_in_its_table_with_its_options() -> None:
    calls = dict(re.findall(r"^\| `@?wb\.(\w+)\((.*?)\)", PAGE, re.MULTILINE))
    assert set(calls) == {name for name in wb.__all__ if name.islower() and name[0] != "_"}
    for name, options in calls.items():
        known = inspect.signature(getattr(wb, name) if name != "study" else library.study)
        assert set(re.findall(r"(\w+)=", options)) <= set(known.parameters), name
