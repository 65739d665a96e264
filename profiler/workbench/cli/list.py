"""``workbench list``."""

from __future__ import annotations

from workbench.app.list import listed_studies, tell_passed_over
from workbench.app.target import check_figures, tell_packaged
from workbench.cli.options import ListOptions
from workbench.cli.streams import executor, show
from workbench.errors import UsageError
from workbench.study.workspace import find_workspace


def run(options: ListOptions) -> None:
    workspace = find_workspace(options.project)
    names = [options.study] if options.study else workspace.studies()
    if not names and not options.json:
        raise UsageError(
            f"there is no study in {workspace.kernels}",
            hint="a study is a folder kernels/NAME with a study.py: `workbench init` makes one",
        )
    studies = [workspace.study(name) for name in names]
    for study in studies:
        check_figures(study.ladder)
    if workspace.packaged:
        tell_packaged(executor(), [study.name for study in studies])
    tell_passed_over(executor(), workspace, [study.name for study in studies])
    show(options, listed_studies(workspace, studies))
