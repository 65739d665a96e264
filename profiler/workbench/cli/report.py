"""``workbench report``: the report, its charts and the page from judged evidence."""

from __future__ import annotations

from workbench.app.report import reported
from workbench.app.target import tell_passed_over
from workbench.cli.options import ReportOptions
from workbench.cli.streams import note
from workbench.study.files import shown_path


def run(options: ReportOptions) -> None:
    target = options.target()
    tell_passed_over(target.executor, target.workspace, [target.study.name])
    for path in reported(target, options.fixes or [], page=options.html):
        note(f"wrote {shown_path(path)}")
