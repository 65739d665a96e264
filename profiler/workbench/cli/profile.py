"""``workbench profile``."""

from __future__ import annotations

from typing import Any

from workbench.app.judge import judged
from workbench.app.measure import Ensured, ensure_each, profiled_with
from workbench.app.target import (
    Target,
    find_study,
    profiled_shapes,
    require_current,
    stale_of,
    target_at,
)
from workbench.cli.options import ProfileOptions
from workbench.cli.printing import output, show_brief, show_json
from workbench.cli.streams import executor, note, note_failures
from workbench.judge.rows import Ablation, Row
from workbench.render import as_json, brief
from workbench.render.document import variant
from workbench.render.document.blocks import Block, Paragraph, warned
from workbench.render.document.sentences import sentence, sentences
from workbench.study.workspace import including
from workbench.words import Status


def blocks(found: Ablation, rows: list[Row]) -> list[Block]:
    each = (variant.variant(row, found) for row in rows)
    return [Paragraph(variant.origin(found)), *each, *warned(sentences(found.warnings))]


def run(options: ProfileOptions) -> int:
    here = executor("profile", options.on)
    workspace, study = find_study(here, options.project, options.study)
    including(study, options.variants)
    picked = profiled_shapes(study, options.shape)
    targets = [target_at(here, workspace, each) for each in picked]
    every = [profiled_with(target, target.variants(options.variants)) for target in targets]
    done = zip(targets, ensure_each(every, fresh=options.fresh), strict=True)
    parts = [profiled(options, target, ensured) for target, ensured in done]
    if options.brief:
        show_brief(brief.together([step for data, *_ in parts for step in data]))
    elif options.json:
        whole = [shape for data, *_ in parts for shape in data]
        show_json(whole[0] if len(whole) == 1 else {"shapes": whole})
    here.require_profiled()
    if any(failed for _, failed, _ in parts):
        note("hint: everything else that was measured is kept")
        return 1
    require_current([name for *_, stale in parts for name in stale])
    return 0


def profiled(
    options: ProfileOptions, target: Target, ensured: Ensured
) -> tuple[list[Any], bool, list[str]]:
    """One shape: its JSON, brief by variant; whether one failed; names of stale evidence alone."""
    names = target.variants(options.variants)
    found, _ = judged(target, names, source=ensured.source)
    rows = [found.row(name) for name in names]
    data: list[Any] = []
    if options.brief:
        data = [brief.step(found, row) for row in rows]
    elif options.json:
        data = [as_json.ablation(found, full=names)]
    else:
        output(options).show(*blocks(found, rows))
    failed = [row for row in rows if row.status == Status.FAILED]
    failed += [row for row in rows if row.variant in ensured.failures and row not in failed]
    for row in failed:
        why = ensured.failures.get(row.variant) or sentence(row.problem)
        note_failures({row.variant: why}, target.study)
    return data, bool(failed), stale_of(found, names)
