"""``workbench report``: the report, its charts and the page from judged evidence."""

from __future__ import annotations

from pathlib import Path

from workbench.commands.options import ReportOptions
from workbench.commands.progress import note
from workbench.commands.target import Target, find_target
from workbench.errors import EnvironmentLacks
from workbench.evidence.store import write_bytes
from workbench.judge.inputs import Snapshot
from workbench.judge.ladder import judge
from workbench.judge.rows import Ablation
from workbench.judge.snapshot import snapshot
from workbench.judge.sources import ladder_sources
from workbench.run.aside import Aside

REPORT = "OPTIMIZATION_REPORT.md"
PAGE = "report.html"


def drawing() -> Aside[dict[str, str]]:
    """Draws the charts of a report in a process that imports matplotlib from now on."""
    from workbench.render.charts import chart_files

    return Aside(chart_files, ("matplotlib.figure", "matplotlib.backends.backend_svg"))


def write_reports(
    target: Target,
    evidence: Snapshot,
    found: Ablation,
    charts: Aside[dict[str, str]],
    *,
    page: bool,
) -> list[Path]:
    """Write the report and its charts, and the page where it is wanted or already there: a page
    of yesterday would tell other figures than the report. Returns the paths of the two.
    """
    from workbench.render.report import render_report, template_environment

    charts.give(found)
    workspace = target.workspace
    folder = workspace.reports(target.study, found.shape)
    sources = ladder_sources(evidence, found)
    environment = template_environment(workspace.template_folders)
    text = render_report(found, sources.diffs, environment)
    files = {REPORT: text}
    if page or (folder / PAGE).is_file():
        from workbench.render.page import page_environment, render_page

        files[PAGE] = render_page(found, sources, page_environment(workspace.template_folders))
    for name, content in {**charts.result(), **files}.items():
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
    page = options.html or options.open_
    with drawing() as charts:
        evidence = snapshot(target.evidence(), steps, sources=True)
        judged = judge(evidence, target.workspace.config)
        written = write_reports(target, evidence, judged, charts, page=page)
    for path in written:
        note(f"wrote {shown_path(path)}")
    if options.open_:
        open_page(written[-1])
