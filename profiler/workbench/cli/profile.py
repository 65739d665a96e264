"""``workbench profile``."""

from __future__ import annotations

from workbench.app.judge import profile
from workbench.app.target import find_target, require_current, stale_of
from workbench.cli.options import ProfileOptions
from workbench.cli.printing import tell
from workbench.cli.streams import executor, note, note_failures
from workbench.judge.findings import sentence, sentences
from workbench.judge.rows import Ablation, Row
from workbench.render import answers, brief
from workbench.render.document import variant
from workbench.render.document.blocks import Block, warned
from workbench.words import Status


def blocks(found: Ablation, rows: list[Row]) -> list[Block]:
    each = (variant.variant(row, found) for row in rows)
    return [variant.origin(found), *each, *warned(sentences(found.warnings))]


def run(options: ProfileOptions) -> int:
    given = (options.project, options.study, options.shape)
    target = find_target(executor("profile", options.on), *given, names=options.variants)
    names = target.variants(options.variants)
    found, failures = profile(target, names, fresh=options.fresh)
    rows = [found.row(name) for name in names]
    tell(
        options,
        lambda: answers.ablation(found, full=names),
        lambda: blocks(found, rows),
        lambda: brief.together([brief.step(found, row) for row in rows]),
    )
    failed = [row for row in rows if row.status == Status.FAILED or row.variant in failures]
    why = {row.variant: failures.get(row.variant) or sentence(row.problem) for row in failed}
    note_failures(why, target.study)
    target.executor.require_profiled()
    if failed:
        note("hint: everything else that was measured is kept")
        return 1
    require_current(stale_of(found, names))
    return 0
