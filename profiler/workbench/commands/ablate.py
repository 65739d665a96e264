"""``workbench ablate``."""

from __future__ import annotations

import json as json_module
import threading
from pathlib import Path

import typer

from workbench.commands.measuring import ensure
from workbench.commands.progress import note
from workbench.commands.report import shown_path, write_reports
from workbench.commands.target import Target, find_study, find_target
from workbench.errors import EnvironmentLacks, UsageError
from workbench.evidence.evidence import Evidence
from workbench.judge.ladder import judge
from workbench.judge.rows import Ablation
from workbench.render import jsonable, narrative, terminal
from workbench.render.sections import across
from workbench.render.tables import ablation_table, ratio
from workbench.render.why import equation
from workbench.words import SCHEMA_VERSION


def result_sentence(found: Ablation) -> str:
    best = found.best
    if best is None or best.over_baseline is None:
        return "no kept variant has a current time"
    against = f", {ratio(best.over_reference)} of {found.reference}" if best.over_reference else ""
    return f"best: {best.variant}, {ratio(best.over_baseline)} over the baseline{against} (warm)"


def account(found: Ablation) -> list[str]:
    """How the whole ladder multiplies out under ncu, and how its predictions came out."""
    said = []
    if found.whole and found.whole.factors:
        said.append(
            f"{found.whole.before} to {found.whole.after} under ncu: "
            f"{equation(found.whole.factors)}"
        )
    if found.score.total:
        score = found.score
        said.append(
            f"predictions: {score.confirmed} confirmed, {score.refuted} refuted, "
            f"{score.not_measurable} not measurable"
        )
    return said


def load_pandas() -> None:
    """It takes a quarter of a second to import, which passes while the GPU is measuring."""
    import pandas  # noqa: F401


def print_table(found: Ablation) -> None:
    print(terminal.first_line(found) + "\n")
    print(ablation_table(found))
    for warning in found.warnings:
        print(f"\nwarning: {warning}")
    stale = [row.variant for row in found.everything if row.status == "stale"]
    if stale:
        print(f"\nstale, not shown: {', '.join(stale)} (sources changed since measured)")


def measured(
    target: Target, fixes: list[str], fresh: bool
) -> tuple[Ablation, Evidence, dict[str, str]]:
    """The ladder at the target's shape, the evidence it was judged on, and what failed of it.

    Ctrl-C leaves with 130.
    """
    steps = target.steps(fixes)
    names = [s.variant for s in steps] + [r.name for r in target.study.ladder.references]
    if target.live:
        threading.Thread(target=load_pandas, daemon=True).start()
    ensured = ensure(target, names, fresh=fresh)
    evidence = target.evidence()  # as it is after measuring
    found = judge(evidence, target.workspace.config, steps, source=ensured.source)
    named = {name: why for name, why in ensured.unsupported.items() if name in fixes}
    return found, evidence, {**ensured.failures, **named}


def finish(written: list[Path], failed: dict[str, str]) -> None:
    for path in written:
        note(f"wrote {shown_path(path)}")
    for name, why in failed.items():
        note(f"error: {name}: {why}")
    if failed:
        note("hint: everything else that was measured is kept and in the table")
        raise typer.Exit(1)


def run(
    project: Path | None,
    study: str | None,
    shape: str | None,
    fixes: list[str],
    fresh: bool,
    json: bool,
) -> None:
    target = find_target(project, study, shape)
    found, evidence, failed = measured(target, fixes, fresh)
    written = write_reports(target.workspace, evidence, found, page=False)
    if json:
        print(json_module.dumps(jsonable.ablation(found), indent=1))
    else:
        print_table(found)
        print(f"\n{result_sentence(found)}")
        for line in account(found):
            print(line)
    finish(written, failed)


def run_all(
    project: Path | None,
    study: str | None,
    shape: str | None,
    fixes: list[str],
    fresh: bool,
    json: bool,
) -> None:
    """Every profiled shape; the study's own comes last, since its report is about all of them."""
    if shape is not None:
        raise UsageError("--shape and --all-shapes exclude each other")
    _, known = find_study(project, study)
    names = [name for name, s in known.shapes.items() if s.profiled]
    names.sort(key=lambda name: name == known.default_shape)
    tables: list[Ablation] = []
    failed: dict[str, str] = {}
    for name in names:
        try:
            target = find_target(project, study, name)
        except EnvironmentLacks as error:
            if name == known.default_shape:
                raise
            note(f"{name}: {error.message}")
            continue
        found, evidence, failures = measured(target, fixes, fresh)
        failed |= {f"{variant} at {name}": why for variant, why in failures.items()}
        tables.append(found)
        if not json:
            print_table(found)
            print()
    written = write_reports(target.workspace, evidence, found, page=False)
    if json:
        data = {"schema_version": SCHEMA_VERSION, "tables": [jsonable.ablation(t) for t in tables]}
        print(json_module.dumps(data, indent=1))
    elif found.across:
        print(f"{found.across.variant} at all shapes:\n\n{across(found)}\n")
        print(narrative.across(found).replace("`", ""))
    finish(written, failed)
