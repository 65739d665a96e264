"""``workbench report``: the report, its charts and the page from judged evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from workbench.commands.diff import side
from workbench.commands.progress import note
from workbench.commands.target import find_target
from workbench.derive.diff.build import source_diff
from workbench.derive.diff.model import Sources
from workbench.errors import EnvironmentLacks
from workbench.evidence.evidence import Evidence
from workbench.evidence.layout import write_bytes
from workbench.judge.ladder import judge
from workbench.judge.rows import Ablation
from workbench.study.workspace import Workspace

if TYPE_CHECKING:
    from workbench.render.chart.sample_strips import Timings

REPORT = "OPTIMIZATION_REPORT.md"
PAGE = "report.html"
SAMPLE = ("round", "variant", "mode", "microseconds")


def ladder_sources(evidence: Evidence, found: Ablation) -> Sources:
    """The sources of every variant with what their lines cost, and each step's diff, at the shape
    whose captures decide about it.
    """
    sides = {row.variant: side(evidence, row.variant) for row in found.everything}
    diffs, elsewhere = {}, {}
    for row in found.rows:
        if row.step is None or row.step.parent is None:
            continue
        pair = sides[row.step.parent], sides[row.variant]
        if row.compared_at:
            there = evidence.at(row.compared_at)
            pair = side(there, row.step.parent), side(there, row.variant)
            elsewhere[row.variant] = pair
        diffs[row.variant] = source_diff(*pair)
    return Sources(sides, diffs, elsewhere)


def timings(evidence: Evidence, found: Ablation) -> Timings:
    """The samples behind the times of every row, by regime in the order of their rounds."""
    names = [row.variant for row in found.everything]
    table = evidence.session(names)
    newest = [session for _, session in reversed(evidence.sessions)]
    known: dict[str, dict[str, list[float]]] = {}
    for session in [*([table[1]] if table else []), *newest]:
        wanted = set(evidence.timed(session)) & set(names) - known.keys()
        columns = [session["samples"][name] for name in SAMPLE]
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


def run(
    project: Path | None,
    study: str | None,
    shape: str | None,
    fixes: list[str],
    html: bool,
    open_: bool,
) -> None:
    target = find_target(project, study, shape)
    steps = target.steps(fixes)
    evidence = target.evidence()
    found = judge(evidence, target.workspace.config, steps)
    written = write_reports(target.workspace, evidence, found, page=html or open_)
    for path in written:
        note(f"wrote {shown_path(path)}")
    if open_:
        open_page(written[-1])
