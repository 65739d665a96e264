"""``workbench status``."""

from __future__ import annotations

from workbench.app.status import spending
from workbench.cli.options import StatusOptions
from workbench.cli.printing import show
from workbench.cli.streams import executor
from workbench.study.workspace import find_workspace


def run(options: StatusOptions) -> None:
    show(options, spending(executor("status"), find_workspace(options.project)))
