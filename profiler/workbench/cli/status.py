"""``workbench status``."""

from __future__ import annotations

from workbench.app.list import spending, tell_passed_over
from workbench.cli.options import StatusOptions
from workbench.cli.printing import show
from workbench.cli.streams import executor
from workbench.study.workspace import find_workspace


def run(options: StatusOptions) -> None:
    here, workspace = executor("status"), find_workspace(options.project)
    tell_passed_over(here, workspace, workspace.studies())
    show(options, spending(here, workspace))
