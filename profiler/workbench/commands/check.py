"""``workbench check``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from workbench.commands import executor
from workbench.commands.measuring import collectable, settled, task
from workbench.commands.options import CheckOptions
from workbench.commands.printing import Output, show_json
from workbench.commands.streams import note
from workbench.commands.target import (
    Target,
    find_study,
    in_place,
    of_one_gpu,
    profiled_shapes,
    target_at,
)
from workbench.errors import UsageError
from workbench.evidence.recorded import Evidence
from workbench.render.document import checks as document
from workbench.render.document.blocks import Block, Paragraph, words
from workbench.render.document.checks import Checked
from workbench.run.plan import Plan
from workbench.study.model import tolerance_at
from workbench.study.workspace import including
from workbench.words import ABSENT, CheckResult, Origin, Status


def measure(
    target: Target, names: list[str], *, everywhere: bool = False, here: bool = False
) -> dict[str, str]:
    """What failed without a record, by variant. ``here``: only at the
    target's shape, and not at those where everything always is checked.

    Ctrl-C leaves with 130.
    """
    names = collectable(target.study, names)
    plan = Plan(target.shape, checked=tuple(names), everywhere=everywhere, here=here)
    (measured,) = executor.carry_out([task(target, plan)])
    evidence = target.evidence()
    return {v: why for v, why in measured.failures.items() if not settled(evidence, v)}


def results(target: Target, names: list[str], *, alone: bool = False) -> Iterator[Checked]:
    """Every variant at every shape, or at the target's ``alone``."""
    evidence = target.evidence()
    for name in names:
        for shape in [target.shape] if alone else target.study.shapes:
            yield result(evidence, name, shape)


def result(evidence: Evidence, name: str, shape: str) -> Checked:
    build, entry = evidence.build(name).current, evidence.check(name, shape)
    check = entry.current
    status: str = Status.STALE if entry.state == Status.STALE else ABSENT
    why = ""
    told_hint: object = None
    if check is not None:
        status, why, told_hint = check.status, check.why, check.hint
    if build is not None and build.error:
        status, why, check, told_hint = CheckResult.FAILED, build.error, None, build.hint
    bound = tolerance_at(evidence.study.tolerance, evidence.study.shapes[shape])
    return Checked(
        variant=name,
        shape=shape,
        status=status,
        why=why,
        max_abs=check.max_abs if check else None,
        relative=check.relative if check else None,
        bound=bound.absolute,
        relative_bound=bound.relative,
        times_reference=check.times_reference if check else None,
        kind=check.kind if check else "",
        varies=check.varies if check else False,
        output=str(check.output) if check and check.output else "",
        hint=str(told_hint) if told_hint else "",
    )


def as_data(target: Target, checks: list[Checked]) -> dict[str, Any]:
    bound = tolerance_at(target.study.tolerance, target.study.shapes[target.shape])
    keys = (
        *("variant", "shape", "status", "why", "max_abs", "relative"),
        *("times_reference", "kind", "varies"),
    )
    return {
        "study": target.study.name,
        "gpu": target.folder.gpu,
        "evidence": Origin.MEASURED if target.live else Origin.RECORDED,
        "tolerance": {"max_abs": bound.absolute, "relative": bound.relative},
        "checks": [_fields(check, keys) for check in checks],
    }


def _fields(check: Checked, keys: tuple[str, ...]) -> dict[str, Any]:
    """With what not every check has."""
    told = {key: getattr(check, key) for key in ("output", "hint") if getattr(check, key)}
    return {key: getattr(check, key) for key in keys} | told


@executor.on_target
def run(options: CheckOptions) -> None:
    if options.all_shapes and options.shape:
        raise UsageError("--shape and --all-shapes exclude each other")
    workspace, study = find_study(options.project, options.study)
    including(study, options.variants or [])
    targets = of_one_gpu(
        [target_at(workspace, each) for each in profiled_shapes(study, options.shape)]
    )
    checks: list[Checked] = []
    lost: dict[str, str] = {}
    checked: set[str] = set()  # at the shapes where every variant always is
    for target in targets:
        names = target.variants(options.variants or [])
        if target.live:
            here = set(names) <= checked
            lost |= measure(target, names, everywhere=options.all_shapes, here=here)
            checked |= set(names) - lost.keys()
        checks += results(target, names, alone=len(targets) > 1)
    if options.json:
        show_json(as_data(target, checks))
    else:
        told: list[Block] = [document.checks(checks, wide=options.wide)]
        if not target.live:
            text = f"recorded evidence ({target.folder.gpu}): no GPU here to check on"
            told.insert(0, Paragraph(words(text)))
        Output(options.wide, options.markdown).show(*told)
    bad = list(dict.fromkeys(check.variant for check in checks if check.wrong))
    for name in bad:
        for why in document.reasons([check for check in checks if check.variant == name]):
            note(f"error: {name}: {in_place(why, target.study)}")
        for hint in dict.fromkeys(check.hint for check in checks if check.variant == name):
            if hint:
                note(f"hint: {in_place(hint, target.study)}")
    for name, why in lost.items():
        note(f"error: {name}: {in_place(why, study)}")
    if bad:
        note("hint: a variant that is wrong is not timed; mend it before anything else")
    if bad or lost:
        raise typer.Exit(1)
