"""``workbench report``: the report and its charts from judged evidence."""

from __future__ import annotations

from pathlib import Path

from workbench.commands.diffing import lines_between
from workbench.commands.progress import note
from workbench.commands.target import find_target
from workbench.derive.unified import unified
from workbench.judge.ablation import Ablation, judge
from workbench.load.evidence import Evidence
from workbench.study.layout import write_bytes
from workbench.study.workspace import Workspace

REPORT = "OPTIMIZATION_REPORT.md"


def write_report(workspace: Workspace, evidence: Evidence, found: Ablation) -> Path:
    """Write the report and its charts; returns the report's path."""
    from workbench.render.charts import chart_files
    from workbench.render.report import render_report, template_environment

    folder = workspace.reports(evidence.study.name)
    lines = {
        row.variant: lines_between(evidence, row.step.parent, row.variant)
        for row in found.rows
        if row.step and row.step.parent
    }
    diffs = {variant: unified(diff) for variant, diff in lines.items()}
    environment = template_environment(workspace.template_folders)
    text = render_report(found, diffs, environment, lines)
    for name, svg in chart_files(found).items():
        write_bytes(folder / name, svg.encode())
    write_bytes(folder / REPORT, text.encode())
    return folder / REPORT


def shown_path(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def run(project: Path | None, study: str | None, shape: str | None, fixes: list[str]) -> None:
    target = find_target(project, study, shape)
    evidence = target.evidence()
    found = judge(evidence, target.workspace.config, target.steps(fixes))
    path = write_report(target.workspace, evidence, found)
    note(f"wrote {shown_path(path)}")
