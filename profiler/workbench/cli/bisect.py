"""``workbench bisect``."""

from __future__ import annotations

from workbench.app.bisect import bisect
from workbench.cli.options import BisectOptions
from workbench.cli.printing import show
from workbench.cli.streams import executor
from workbench.errors import CannotTell
from workbench.study.workspace import find_workspace


def run(options: BisectOptions) -> None:
    """Raises CannotTell where commits before the first bad one could not be tested."""
    name = options.variant
    result = bisect(
        executor(options.on),
        find_workspace(options.project),
        name,
        options.good,
        options.bad,
        arch=options.arch,
        study=options.study,
        shape=options.shape,
    )
    bad = result.first_bad
    show(options, result)
    if result.skipped:
        raise CannotTell(
            f"{name} became worse in {bad.short} or in a commit before it that could not be "
            f"tested: {', '.join(commit.short for commit in result.skipped)}",
            hint="the lines above say why not; `workbench gate` compares two commits in full",
        )
