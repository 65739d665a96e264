"""``workbench report``: the report and its charts from judged evidence."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.commands.progress import note
from workbench.commands.target import find_target
from workbench.errors import EnvironmentLacks
from workbench.judge.ablation import Ablation, judge
from workbench.load.evidence import Evidence
from workbench.study.layout import write_bytes
from workbench.study.model import Step, Study
from workbench.study.sources import source_files, virtual_name
from workbench.study.workspace import Workspace

if TYPE_CHECKING:
    from workbench.render.page_sources import Sources

REPORT = "OPTIMIZATION_REPORT.md"
PAGE = "report.html"


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


def page_sources(evidence: Evidence, found: Ablation) -> Sources:
    """The files of every variant as they are now, and the heat of those with a current capture."""
    from workbench.derive.heat import heat
    from workbench.render.page_sources import SourceFile, Sources

    study = evidence.study
    files = {}
    lines = {}
    for row in found.everything:
        files[row.variant] = tuple(
            SourceFile(
                path.name if path.parent == study.folder else f"{path.parent.name}/{path.name}",
                virtual_name(path.parent.name, path.name),
                path.read_text(encoding="utf-8"),
            )
            for path in source_files(study, study.variants[row.variant])
        )
        capture = evidence.capture(row.variant) if row.capture else None
        by_line = heat(capture.lines) if capture else None
        if by_line is not None:
            lines[row.variant] = by_line
    return Sources(files, lines)


def write_page(
    workspace: Workspace, evidence: Evidence, found: Ablation, *, wanted: bool
) -> Path | None:
    """Write the page beside the report; unless it is wanted, only where one is already, which
    would otherwise tell other figures than the report.
    """
    path = workspace.reports(found.study) / PAGE
    if not wanted and not path.is_file():
        return None
    from workbench.render.page import page_environment, render_page

    environment = page_environment(workspace.template_folders)
    text = render_page(found, page_sources(evidence, found), environment)
    write_bytes(path, text.encode())
    return path


def open_page(path: Path) -> None:
    """Raises EnvironmentLacks where no browser could be started."""
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        raise EnvironmentLacks(
            "no browser could be started", hint=f"open {shown_path(path)} in one yourself"
        )


def run(
    project: Path | None, study: str | None, shape: str | None, fixes: list[str], html: bool,
    open_: bool,
) -> None:  # fmt: skip
    target = find_target(project, study, shape)
    evidence = target.evidence()
    found = judge(evidence, target.workspace.config, target.steps(fixes))
    path = write_report(target.workspace, target.study, found)
    note(f"wrote {shown_path(path)}")
    page = write_page(target.workspace, evidence, found, wanted=html or open_)
    if page is not None:
        note(f"wrote {shown_path(page)}")
        if open_:
            open_page(page)
