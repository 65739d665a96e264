"""``workbench profile``."""

from __future__ import annotations

from typing import Any

import typer

from workbench.app.executor import on_target
from workbench.app.judge import judged
from workbench.app.measure import Ensured, Wanted, ensure, ensure_each
from workbench.app.target import (
    Target,
    find_study,
    in_place,
    profiled_shapes,
    target_at,
)
from workbench.cli.options import ProfileOptions
from workbench.cli.printing import output, show_json
from workbench.cli.streams import note
from workbench.judge.rows import Ablation, Row
from workbench.render import as_json
from workbench.render.document import variant
from workbench.render.document.blocks import Block, Callout, Paragraph, words
from workbench.render.document.findings import sentence, sentences
from workbench.study.workspace import including
from workbench.words import Status


def captured(target: Target, names: list[str]) -> list[str]:
    """The variants with what their captures are compared with: parents, primary reference."""
    ladder = target.study.ladder
    steps = [s for s in ladder.chain([n for n in names if ladder.step(n)]) if s.variant in names]
    parents = [s.parent for s in steps if s.parent]
    return list(filter(None, dict.fromkeys([*names, *parents, ladder.primary_reference])))


def needed(target: Target, names: list[str]) -> list[str]:
    """With the baseline, whose time is compared and whose capture may take minutes."""
    baseline = target.study.ladder.steps[0].variant
    return list(dict.fromkeys([*captured(target, names), baseline]))


def wanted(target: Target, names: list[str]) -> Wanted:
    return Wanted(target, needed(target, names), capture=captured(target, names))


def blocks(found: Ablation, rows: list[Row]) -> list[Block]:
    told: list[Block] = [Paragraph(variant.origin(found))]
    if found.warnings:
        told.append(Callout("Read this first", tuple(map(words, sentences(found.warnings)))))
    return [*told, *(variant.variant(row, found) for row in rows)]


@on_target
def run(options: ProfileOptions) -> None:
    workspace, study = find_study(options.project, options.study)
    including(study, options.variants)
    picked = profiled_shapes(study, options.shape)
    targets = [target_at(workspace, each) for each in picked]
    every = [wanted(target, target.variants(options.variants)) for target in targets]
    done = zip(targets, ensure_each(every, fresh=options.fresh), strict=True)
    told = [profiled(options, target, ensured) for target, ensured in done]
    if options.json:
        show_json(told[0][0] if len(told) == 1 else {"shapes": [data for data, _ in told]})
    if any(failed for _, failed in told):
        note("hint: everything else that was measured is kept")
        raise typer.Exit(1)


def profiled(
    options: ProfileOptions, target: Target, ensured: Ensured
) -> tuple[dict[str, Any], bool]:
    """One shape: its JSON, and whether a variant failed."""
    names = target.variants(options.variants)
    found, _ = judged(target, names, source=ensured.source)
    rows = [found.row(name) for name in names]
    data: dict[str, Any] = {}
    if options.json:
        data = as_json.ablation(found, full=True)
        for key in ("versions", "references"):
            data[key] = [item for item in data[key] if item["variant"] in names]
    else:
        output(options).show(*blocks(found, rows))
    failed = [row for row in rows if row.status == Status.FAILED]
    failed += [row for row in rows if row.variant in ensured.failures and row not in failed]
    for row in failed:
        why = ensured.failures.get(row.variant) or sentence(row.problem)
        note(f"error: {row.variant}: {in_place(why, target.study)}")
    return data, bool(failed)


def judged_alone(target: Target, name: str, fresh: bool) -> Ablation:
    """One variant, profiled. Ctrl-C leaves with 130."""
    todo = wanted(target, [name])
    ensured = ensure(target, todo.variants, fresh=fresh, capture=todo.capture)
    return judged(target, [name], source=ensured.source)[0]
