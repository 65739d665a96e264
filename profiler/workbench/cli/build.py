"""``workbench build``."""

from __future__ import annotations

from workbench.app.build import build
from workbench.app.target import find_study
from workbench.cli.options import BuildOptions
from workbench.cli.streams import executor, note, show
from workbench.errors import UsageError, with_hint


def run(options: BuildOptions) -> int:
    here = executor()
    workspace, study = find_study(here, options.project, options.study)
    if workspace.packaged:
        raise UsageError(
            "there is no workspace here to build",
            hint="`workbench init NAME` makes one; --project names one elsewhere",
        )
    builds = build(here, workspace, study, options.variants or [], options.arch)
    if options.json or options.brief or len(builds.failed) < len(builds.builds):
        show(options, builds)
    for each in builds.failed:
        note(f"error: {each.variant}: {with_hint(each.error, each.hint)}")
    if 0 < len(builds.failed) < len(builds.builds):
        note("hint: everything else was built")
    return builds.exit_code
