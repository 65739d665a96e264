"""``workbench new``."""

from __future__ import annotations

from workbench.app.executor import Local
from workbench.app.new import new_step
from workbench.app.target import find_study
from workbench.cli.options import NewOptions
from workbench.cli.streams import show
from workbench.errors import UsageError


def run(options: NewOptions) -> None:
    workspace, study = find_study(Local(), options.project, options.study)
    if workspace.packaged:
        raise UsageError(
            "there is no workspace here to add a variant to",
            hint="`workbench init` makes one; or go to a folder with a workbench.toml",
        )
    asked = (options.name, options.parent, options.change or "", options.predict or [])
    made = new_step(study, *asked, by_name=options.study is not None)
    show(options, made)
