"""``workbench report``: the report and its charts from judged evidence."""

from __future__ import annotations

import difflib
from pathlib import Path

from workbench.commands.progress import note
from workbench.commands.target import find_target
from workbench.judge.ablation import Ablation, judge
from workbench.study.layout import write_bytes
from workbench.study.model import Step, Study
from workbench.study.sources import source_files
from workbench.study.workspace import Workspace

REPORT = "OPTIMIZATION_REPORT.md"


def diff(study: Study, step: Step) -> str:
    """Unified diff of the step's sources against its parent's, CUDA sources paired by order."""
    if step.parent is None:
        return ""
    before = source_files(study, study.variants[step.parent])
    after = source_files(study, study.variants[step.variant])
    text: list[str] = []
    for old, new in zip(before, after, strict=False):
        if old == new:
            continue
        text += difflib.unified_diff(
            old.read_text(encoding="utf-8").splitlines(),
            new.read_text(encoding="utf-8").splitlines(),
            old.name, new.name, n=3, lineterm="",
        )  # fmt: skip
    for new in after[len(before) :]:
        lines = new.read_text(encoding="utf-8").splitlines()
        text += difflib.unified_diff([], lines, "/dev/null", new.name, lineterm="")
    return "\n".join(text)


def write_report(workspace: Workspace, study: Study, found: Ablation) -> Path:
    """Write the report and its charts; returns the report's path."""
    from workbench.render.charts import chart_files
    from workbench.render.report import render_report, template_environment

    folder = workspace.reports(study.name)
    diffs = {row.variant: diff(study, row.step) for row in found.rows if row.step}
    text = render_report(found, diffs, template_environment(workspace.template_folders))
    for name, svg in chart_files(found).items():
        write_bytes(folder / name, svg.encode())
    write_bytes(folder / REPORT, text.encode())
    return folder / REPORT


def shown_path(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def run(project: Path | None, study: str | None, shape: str | None, fixes: list[str]) -> None:
    target = find_target(project, study, shape)
    found = judge(target.evidence(), target.workspace.config, target.steps(fixes))
    path = write_report(target.workspace, target.study, found)
    note(f"wrote {shown_path(path)}")
