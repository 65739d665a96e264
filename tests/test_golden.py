"""The report of a study of the fixture, to the character: look at what changed.

``WORKBENCH_REWRITE=1 pytest tests/test_golden.py`` writes it again.
"""

from __future__ import annotations

import os
from pathlib import Path

from answers import Patch
from workbench.cli.main import main
from workspaces import FIXTURE, ROOT

GOLDEN = ROOT / "tests" / "recorded" / "transpose-report.md"


def test_the_report_of_the_transpose_is_as_before(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("workbench.study.workspace.Workspace.reports", lambda *_: tmp_path)
    assert main(["report", "--study", "transpose", "--project", str(FIXTURE)]) == 0
    text = (tmp_path / "OPTIMIZATION_REPORT.md").read_text(encoding="utf-8")
    if os.environ.get("WORKBENCH_REWRITE"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
