"""``workbench report``: the report, its charts and the page from judged evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from workbench.commands.options import ReportOptions
from workbench.commands.progress import note
from workbench.commands.sides import ladder_sources
from workbench.commands.target import find_target
from workbench.errors import EnvironmentLacks
from workbench.evidence.recorded import Evidence
from workbench.evidence.store import write_bytes
from workbench.judge.ladder import judge
from workbench.judge.rows import Ablation
from workbench.study.workspace import Workspace

if TYPE_CHECKING:
    from workbench.render.chart.sample_strips import Timings

REPORT = "OPTIMIZATION_REPORT.md"
PAGE = "report.html"


def timings(evidence: Evidence, ladder: Ablation) -> Timings:
    """The samples behind the times of every row, by regime in the order of their rounds."""
    names = {row.variant for row in ladder.everything}
    table = evidence.session(names)
    newest = (*((table,) if table else ()), *reversed(evidence.sessions))
    known: dict[str, dict[str, list[float]]] = {}
    for file in newest:
        wanted = set(evidence.timed(file.session)) & names - known.keys()
        samples = file.session.samples
        columns = (samples.round, samples.variant, samples.mode, samples.microseconds)
        for _, variant, mode, microseconds in sorted(zip(*columns, strict=True)):
            if variant in wanted:
                known.setdefault(variant, {}).setdefault(mode, []).append(float(microseconds))
    return known


def write_reports(
    workspace: Workspace, evidence: Evidence, found: Ablation, *, page: bool
) -> list[Path]:
    """Write the report and its charts, and the page where it is wanted or already there: a page
    of yesterday would tell other figures than the report. Returns the paths of the two.
    """
    from workbench.render.chart.charts import chart_files
    from workbench.render.report import render_report, template_environment

    folder = workspace.reports(evidence.study, found.shape)
    sources = ladder_sources(evidence, found)
    samples = timings(evidence, found)
    environment = template_environment(workspace.template_folders)
    text = render_report(found, sources.diffs, environment)
    files = {REPORT: text}
    if page or (folder / PAGE).is_file():
        from workbench.render.document.report import report
        from workbench.render.page import page_environment, render_page

        document = report(found, sources.diffs)
        environment = page_environment(workspace.template_folders)
        files[PAGE] = render_page(document, found, sources, environment, samples)
    for name, content in {**chart_files(found, samples), **files}.items():
        write_bytes(folder / name, content.encode())
    return [folder / name for name in files]


def open_page(path: Path) -> None:
    """Raises EnvironmentLacks where no browser could be started."""
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        raise EnvironmentLacks(
            "no browser could be started", hint=f"open {shown_path(path)} in one yourself"
        )


def shown_path(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def run(options: ReportOptions) -> None:
    target = find_target(options.project, options.study, options.shape)
    steps = target.steps(options.fixes or [])
    evidence = target.evidence()
    judged = judge(evidence, target.workspace.config, steps)
    page = options.html or options.open_
    written = write_reports(target.workspace, evidence, judged, page=page)
    for path in written:
        note(f"wrote {shown_path(path)}")
    if options.open_:
        open_page(written[-1])
