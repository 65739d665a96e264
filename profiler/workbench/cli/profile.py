"""``workbench profile``."""

from __future__ import annotations

from workbench.app.judge import profile
from workbench.app.outcomes import VariantResult
from workbench.app.target import find_target, require_current, stale_of
from workbench.cli.options import ProfileOptions
from workbench.cli.printing import show
from workbench.cli.streams import executor, note, note_failures
from workbench.reporters.profile import problem
from workbench.words import Status


def run(options: ProfileOptions) -> int:
    given = (options.project, options.study, options.shape)
    target = find_target(executor("profile", options.on), *given, names=options.variants)
    names = target.variants(options.variants)
    found, failures = profile(target, names, fresh=options.fresh)
    rows = [found.row(name) for name in names]
    show(options, VariantResult(found, tuple(rows)))
    failed = [row for row in rows if row.status == Status.FAILED or row.variant in failures]
    why = {row.variant: failures.get(row.variant) or problem(row) for row in failed}
    note_failures(why, target.study)
    target.executor.require_profiled()
    if failed:
        note("hint: everything else that was measured is kept")
        return 1
    require_current(stale_of(found, names))
    return 0
