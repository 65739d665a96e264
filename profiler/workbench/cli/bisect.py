"""``workbench bisect``."""

from __future__ import annotations

from workbench.app.bisect import WRONG, Sought, bisect
from workbench.cli.options import BisectOptions
from workbench.cli.printing import say, show_json
from workbench.cli.streams import executor
from workbench.errors import CannotTell
from workbench.study.workspace import find_workspace


def run(options: BisectOptions) -> None:
    """Raises CannotTell where commits before the first bad one could not be tested."""
    name = options.variant
    sought = Sought(name, options.study, options.shape, options.arch)
    here, workspace = executor("bisect", options.on), find_workspace(options.project)
    found = bisect(here, workspace, sought, options.good, options.bad, options.what)
    first, last, untested = found.first_bad, found.last_good, found.not_tested
    verb = "became wrong" if found.what == WRONG else "became slower"
    if options.json:
        show_json(found)
    else:
        one = f"in {first.short} {first.subject}"
        say(
            f"{name} {verb} {'after the last known good' if untested else one}",
            *([f"first known bad: {first.short} {first.subject}"] if untested else []),
            f"last known good: {last.short} {last.subject}",
            f"{found.commits} commits: {found.touching} touch kernels, {found.tested} were tested, "
            f"{found.same} run what another does",
        )
    if untested:
        raise CannotTell(
            f"{name} {verb} in {first.short} or in a commit before it that could not be "
            f"tested: {', '.join(c.short for c in untested)}",
            hint="the lines above say why not; `workbench gate` compares two commits in full",
        )
