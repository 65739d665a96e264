"""``workbench report``: the report, its charts and the page from judged evidence."""

from __future__ import annotations

from workbench.app.report import reported
from workbench.app.target import shown_path
from workbench.cli.list import tell_passed_over
from workbench.cli.options import ReportOptions
from workbench.cli.streams import note


def run(options: ReportOptions) -> None:
    target = options.target()
    tell_passed_over(target.executor, target.workspace, [target.study.name])
    for path in reported(target, options.fixes or [], page=options.html):
        note(f"wrote {shown_path(path)}")
