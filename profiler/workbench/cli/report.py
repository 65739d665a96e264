"""``workbench report``: the report, its charts and the page from judged evidence."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from workbench.app.list import tell_passed_over
from workbench.app.report import reported
from workbench.app.target import shown_path
from workbench.cli.options import ReportOptions
from workbench.cli.streams import note


def open_page(path: Path) -> None:
    """Open a page in a browser; where nobody would see one, over ssh and without a display, print
    its path.
    """
    import webbrowser

    screen = sys.platform != "linux" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
    if "SSH_CONNECTION" in os.environ or not screen or not webbrowser.open(path.resolve().as_uri()):
        print(path.resolve())


def run(options: ReportOptions) -> None:
    target = options.target()
    tell_passed_over(target.executor, target.workspace, [target.study.name])
    written = reported(target, options.fixes or [], page=options.html or options.open_)
    for path in written:
        note(f"wrote {shown_path(path)}")
    if options.open_:
        open_page(written[-1])
