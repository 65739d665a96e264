"""``workbench profile``."""

from __future__ import annotations

import json as json_module
from pathlib import Path

import typer

from workbench.commands.measuring import ensure
from workbench.commands.progress import note
from workbench.commands.target import find_target
from workbench.judge.ladder import judge
from workbench.judge.snapshot import snapshot
from workbench.render import jsonable, terminal
from workbench.words import Status


def run(
    project: Path | None,
    study: str | None,
    shape: str | None,
    names: list[str],
    fresh: bool,
    json: bool,
) -> None:
    target = find_target(project, study, shape)
    names = target.variants(names)
    ladder = target.study.ladder
    steps = [s for s in ladder.chain([n for n in names if ladder.step(n)]) if s.variant in names]
    parents = [s.parent for s in steps if s.parent]
    wanted = dict.fromkeys([*names, *parents, ladder.steps[0].variant, ladder.primary_reference])
    wanted_names = [name for name in wanted if name]
    ensured = ensure(target, wanted_names, fresh=fresh, capture=True)
    evidence = snapshot(target.evidence(), ladder.chain([]))
    found = judge(evidence, target.workspace.config, source=ensured.source)
    rows = [found.row(name) for name in names]
    if json:
        data = jsonable.ablation(found, full=True)
        for key in ("versions", "references"):
            data[key] = [item for item in data[key] if item["variant"] in names]
        print(json_module.dumps(data, indent=1))
    else:
        print(terminal.first_line(found))
        for warning in found.warnings:
            print(f"warning: {warning}")
        for row in rows:
            print("\n" + terminal.variant(row, found))
    failed = [row for row in rows if row.status == Status.FAILED]
    failed += [row for row in rows if row.variant in ensured.failures and row not in failed]
    for row in failed:
        note(f"error: {row.variant}: {ensured.failures.get(row.variant, row.problem)}")
    if failed:
        note("hint: everything else that was measured is kept")
        raise typer.Exit(1)
