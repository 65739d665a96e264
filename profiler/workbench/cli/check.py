"""``workbench check``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from workbench.app.measure import collectable, settled, task
from workbench.app.target import (
    Target,
    find_study,
    in_place,
    of_one_gpu,
    profiled_shapes,
    require_current,
    target_at,
)
from workbench.cli.options import CheckOptions
from workbench.cli.printing import tell
from workbench.cli.streams import executor, note
from workbench.errors import UsageError
from workbench.evidence.recorded import Evidence
from workbench.render.document import checks as document
from workbench.render.document.blocks import Paragraph, words
from workbench.render.document.checks import CheckRow
from workbench.run.plan import Plan
from workbench.study.model import tolerance_at
from workbench.study.workspace import including
from workbench.words import ABSENT, CheckResult, Origin, Status


def measure(
    target: Target, names: list[str], *, everywhere: bool = False, here: bool = False
) -> dict[str, str]:
    """What failed without a record, by variant. ``here``: only at the
    target's shape, and not at those where everything always is checked.

    Raises Interrupted.
    """
    names = collectable(target.executor, target.study, names)
    plan = Plan(target.shape, checked=tuple(names), everywhere=everywhere, here=here)
    (measured,) = target.executor.measure([task(target, plan)])
    evidence = target.evidence()
    return {v: why for v, why in measured.failures.items() if not settled(evidence, v)}


def results(target: Target, names: list[str], *, alone: bool = False) -> Iterator[CheckRow]:
    """Every variant at every shape, or at the target's ``alone``."""
    evidence = target.evidence()
    for name in names:
        for shape in [target.shape] if alone else target.study.shapes:
            yield result(evidence, name, shape)


def result(evidence: Evidence, name: str, shape: str) -> CheckRow:
    bound = tolerance_at(evidence.study.tolerance, evidence.study.shapes[shape])
    build, entry = evidence.build(name).current, evidence.check(name, shape)
    told = CheckRow(
        variant=name,
        shape=shape,
        status=Status.STALE if entry.state == Status.STALE else ABSENT,
        bound=bound.absolute,
        relative_bound=bound.relative,
    )
    if build is not None and build.error:
        return replace(told, status=CheckResult.FAILED, why=build.error, hint=build.hint or "")
    if (check := entry.current) is None:
        return told
    return replace(
        told,
        status=check.status,
        why=check.why,
        max_abs=check.max_abs,
        relative=check.relative,
        times_reference=check.times_reference,
        kind=check.kind,
        varies=check.varies,
        output=str(check.output or ""),
        hint=check.hint or "",
    )


def as_data(target: Target, checks: list[CheckRow]) -> dict[str, Any]:
    bound = tolerance_at(target.study.tolerance, target.study.shapes[target.shape])
    always = ("variant", "shape", "status", "why", "max_abs", "relative", "times_reference", "kind")
    return {
        "study": target.study.name,
        "gpu": target.folder.gpu,
        "evidence": Origin.MEASURED if target.live else Origin.RECORDED,
        "tolerance": {"max_abs": bound.absolute, "relative": bound.relative},
        "checks": [
            {key: getattr(check, key) for key in (*always, "varies")}
            | {key: getattr(check, key) for key in ("output", "hint") if getattr(check, key)}
            for check in checks
        ],
    }


def run(options: CheckOptions) -> int:
    if options.all_shapes and options.shape:
        raise UsageError("--shape and --all-shapes exclude each other")
    here = executor("check", options.on)
    workspace, study = find_study(here, options.project, options.study)
    including(study, options.variants or [])
    targets = of_one_gpu(
        [target_at(here, workspace, each) for each in profiled_shapes(study, options.shape)]
    )
    checks: list[CheckRow] = []
    lost: dict[str, str] = {}
    checked: set[str] = set()  # at the shapes where every variant always is
    for target in targets:
        names = target.variants(options.variants or [])
        if target.live:
            again = set(names) <= checked
            lost |= measure(target, names, everywhere=options.all_shapes, here=again)
            checked |= set(names) - lost.keys()
        checks += results(target, names, alone=len(targets) > 1)
    text = f"recorded evidence ({target.folder.gpu}): no GPU here to check on"
    head = [] if target.live else [Paragraph(words(text))]
    tell(
        options,
        lambda: as_data(target, checks),
        lambda: [*head, document.checks(checks, wide=options.wide)],
    )
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
    found = {c.variant: {one.status for one in checks if one.variant == c.variant} for c in checks}
    if not (bad or lost):
        require_current([v for v, states in found.items() if {Status.STALE} == states - {ABSENT}])
    return int(bool(bad or lost))
