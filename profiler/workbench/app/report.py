"""``workbench report``: the report, its charts and the page from judged evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from shlex import quote

from workbench.app.ablate import judged
from workbench.app.target import Target
from workbench.errors import EnvironmentLacks, UsageError
from workbench.judge.ladder import Ablation
from workbench.judge.line_costs import ladder_sources
from workbench.study.files import alone, listed, shown_path, write_bytes
from workbench.study.workspace import Workspace
from workbench.words import Origin

REPORT = "OPTIMIZATION_REPORT.md"
PAGE = "report.html"
MARK = ".workbench"  # outside of a workspace: all that is in this folder, the workbench wrote


def report_if_due(target: Target, fixes: list[str], ladder: Ablation) -> Iterator[str]:
    """Write the report unless it is up to date; yields what was done, and what to do next. Outside
    of a workspace there is no report but that of ``workbench report``.
    """
    folder, packaged = target.reports(ladder.shape), target.workspace.packaged
    due = not packaged and is_due(folder, target)
    for path in reported(target, fixes, source=ladder.source) if due else ():
        yield f"wrote {shown_path(path)}"
    if packaged:
        yield f"no report outside of a workspace; `workbench report` writes {shown_path(folder)}"
        return
    if ladder.best is not None and ladder.best.advice:
        yield f"next: `workbench advise {quote(ladder.best.variant)}{target.options}`"


def is_due(folder: Path, target: Target) -> bool:
    """Whether there is no report yet, or what it is about has changed since it was written."""
    workspace, study = target.workspace, target.study
    about = [*listed(study.folder), *listed(workspace.ablations / study.name)]
    about.append(target.folder.journal)
    with suppress(OSError):
        written = (folder / REPORT).stat().st_mtime_ns
        return any(path.stat().st_mtime_ns > written for path in about if path.is_file())
    return True


def reported(
    target: Target, fixes: list[str], *, page: bool = False, source: Origin = Origin.RECORDED
) -> list[Path]:
    """Judge the ladder, and write its report and charts, and the page where it is wanted or already
    there: a page of yesterday would have other figures. Returns the paths of the two. Raises as
    ``write_files``.
    """
    from workbench.render import markdown
    from workbench.render.chart.charts import chart_files
    from workbench.render.document.ladder_report import report, summary

    steps = target.steps(fixes)
    ladder, evidence = judged(target, steps=steps, source=source, sources=True)
    workspace = target.workspace
    folder = target.reports(ladder.shape)
    is_paged = page or (folder / PAGE).is_file()
    sources = ladder_sources(evidence, ladder, None if is_paged else ladder.path)
    files = {REPORT: markdown.document(summary(ladder, sources.diffs))}
    if is_paged:
        from workbench.render.page import render_page

        files[PAGE] = render_page(report(ladder, sources.diffs), ladder, sources)
    write_files(workspace, folder, {**chart_files(ladder), **files})
    if target.part:
        target.executor.note(
            f"{', '.join(target.part)}: a part of the ladder; its report has a folder of its own"
        )
    return [folder / name for name in files]


def write_files(workspace: Workspace, folder: Path, texts: Mapping[str, str]) -> None:
    """Raises EnvironmentLacks where they cannot be written, UsageError where they would replace
    files that are not the workbench's.
    """
    try:
        with alone(folder):
            if workspace.packaged:
                if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).is_file():
                    raise UsageError(
                        f"{folder} was not written by the workbench",
                        hint="move it away, or run the same command in another folder",
                    )
                write_bytes(folder / MARK, b"")
            for name, text in texts.items():
                write_bytes(folder / name, text.encode(errors="replace"))
    except OSError as error:
        raise EnvironmentLacks(
            f"no report could be written to {shown_path(folder)}: {error.strerror or error}",
            hint="fix that; `workbench report` with the same arguments then measures nothing again",
        ) from None
