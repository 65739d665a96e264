"""``workbench ablate``."""

from __future__ import annotations

import json as json_module
import threading
from pathlib import Path

import typer

from workbench.commands.measuring import ensure
from workbench.commands.progress import note
from workbench.commands.reporting import shown_path, write_reports
from workbench.commands.target import find_target
from workbench.judge.ablation import Ablation, judge
from workbench.render import jsonable, terminal
from workbench.render.tables import ablation_table, ratio
from workbench.render.why import equation


def result_sentence(found: Ablation) -> str:
    best = found.best
    if best is None or best.over_baseline is None:
        return "no kept variant has a current time"
    against = f", {ratio(best.over_reference)} of {found.reference}" if best.over_reference else ""
    return f"best: {best.variant}, {ratio(best.over_baseline)} over the baseline{against} (warm)"


def account(found: Ablation) -> list[str]:
    """How the whole ladder multiplies out under ncu, and how its predictions came out."""
    said = []
    if found.whole and found.whole.anatomy:
        said.append(f"{found.whole.before} to {found.whole.after} under ncu: "
                    f"{equation(found.whole.anatomy)}")  # fmt: skip
    if found.score.total:
        score = found.score
        said.append(f"predictions: {score.confirmed} confirmed, {score.refuted} refuted, "
                    f"{score.not_measurable} not measurable")  # fmt: skip
    return said


def load_renderers() -> None:
    """pandas and matplotlib take a second to import, which passes while the GPU is measuring."""
    import matplotlib.figure  # noqa: F401
    import pandas  # noqa: F401


def run(
    project: Path | None, study: str | None, shape: str | None, fixes: list[str], fresh: bool,
    json: bool,
) -> None:  # fmt: skip
    target = find_target(project, study, shape)
    steps = target.steps(fixes)
    names = [s.variant for s in steps] + [r.name for r in target.study.ladder.references]
    if target.live:
        threading.Thread(target=load_renderers, daemon=True).start()
    ensured = ensure(target, names, fresh=fresh)
    evidence = target.evidence()
    found = judge(evidence, target.workspace.config, steps, source=ensured.source)
    written = write_reports(target.workspace, evidence, found, page=False)
    if json:
        print(json_module.dumps(jsonable.ablation(found), indent=1))
    else:
        print(terminal.first_line(found) + "\n")
        print(ablation_table(found))
        for warning in found.warnings:
            print(f"\nwarning: {warning}")
        stale = [row.variant for row in found.everything if row.status == "stale"]
        if stale:
            print(f"\nstale, not shown: {', '.join(stale)} (sources changed since measured)")
        print(f"\n{result_sentence(found)}")
        for line in account(found):
            print(line)
    for path in written:
        note(f"wrote {shown_path(path)}")
    failed = {**ensured.failures}
    failed |= {name: why for name, why in ensured.unsupported.items() if name in fixes}
    for name, why in failed.items():
        note(f"error: {name}: {why}")
    if failed:
        note("hint: everything else that was measured is kept and in the table")
        raise typer.Exit(1)
