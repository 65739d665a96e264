"""docs/library.md: its Python is run as it stands."""

from __future__ import annotations

import inspect
import re
import runpy
from pathlib import Path

import workbench as wb
from answers import Capsys, Patch
from workbench import library
from workspaces import CAUSAL, ROOT, copy_of_fixture, recorded_report

PAGE = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")


def test_its_first_examples_run_on_the_recorded_evidence(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    root = copy_of_fixture(tmp_path)
    (root / "theirs.ncu-repz").symlink_to(recorded_report(CAUSAL, "fix10"))
    monkeypatch.chdir(root)
    script = root / "example.py"
    script.write_text("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)))
    bound = runpy.run_path(str(script))
    assert capsys.readouterr().out.startswith("baseline baseline []\nfix1 kept []\n")
    assert len(bound["lines"])
    assert bound["evidence"].table().shape[1] == 4


def test_every_call_is_in_its_table_with_its_options() -> None:
    calls = dict(re.findall(r"^\| `wb\.(\w+)\((.*?)\)", PAGE, re.MULTILINE))
    assert set(calls) == {name for name in wb.__all__ if name.islower() and name[0] != "_"}
    for name, options in calls.items():
        known = inspect.signature(getattr(wb, name) if name != "study" else library.study)
        assert set(re.findall(r"(\w+)=", options)) <= set(known.parameters), name
