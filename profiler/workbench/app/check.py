"""Variants compared with the float64 reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from workbench.app.measure import collectable, settled, task
from workbench.app.target import (
    Target,
)
from workbench.evidence.recorded import Evidence
from workbench.render.document.checks import CheckedStudy, CheckRow, ErrorBound
from workbench.run.plan import Plan
from workbench.study.model import tolerance_at
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


def check(targets: Sequence[Target], variants: list[str], *, everywhere: bool) -> CheckedStudy:
    """At the shape of each target, ``everywhere`` at every shape of the study. What can be measured
    is; the rest is read.
    """
    checks: list[CheckRow] = []
    lost: dict[str, str] = {}
    checked: set[str] = set()  # at the shapes where every variant always is
    for target in targets:
        names = target.variants(variants)
        if target.live:
            again = set(names) <= checked
            lost |= measure(target, names, everywhere=everywhere, here=again)
            checked |= set(names) - lost.keys()
        checks += results(target, names, alone=len(targets) > 1)
    bound = tolerance_at(target.study.tolerance, target.study.shapes[target.shape])
    return CheckedStudy(
        study=target.study.name,
        gpu=target.folder.gpu,
        evidence=Origin.MEASURED if target.live else Origin.RECORDED,
        tolerance=ErrorBound(bound.absolute, bound.relative),
        checks=tuple(checks),
        lost=lost,
    )
