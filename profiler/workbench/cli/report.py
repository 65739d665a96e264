"""``workbench report``: the report, its charts and the page from judged evidence."""

from __future__ import annotations

from pathlib import Path

from workbench.app.report import reported
from workbench.app.target import shown_path
from workbench.cli.options import ReportOptions
from workbench.cli.streams import note
from workbench.errors import EnvironmentLacks


def open_page(path: Path) -> None:
    """Raises EnvironmentLacks where no browser could be started."""
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        raise EnvironmentLacks(
            "no browser could be started", hint=f"open {shown_path(path)} in one yourself"
        )


def run(options: ReportOptions) -> None:
    target = options.target()
    written = reported(target, options.fixes or [], page=options.html or options.open_)
    for path in written:
        note(f"wrote {shown_path(path)}")
    if options.open_:
        open_page(written[-1])
