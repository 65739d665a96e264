"""Variants compared with the float64 reference, where they can be called; else what is recorded."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from workbench.app.ablate import collectable, settled
from workbench.app.executor import Executor, Task
from workbench.app.target import Target
from workbench.errors import EnvironmentLacks, with_hint
from workbench.evidence.records import CheckOutcome
from workbench.load import VariantEvidence
from workbench.run import side_jobs
from workbench.run.measurement import Plan
from workbench.study.model import Study
from workbench.study.values import Tolerance, tolerance_at
from workbench.words import ABSENT, CheckResult, Origin, Status

FINE = (CheckResult.CORRECT, CheckResult.UNSUPPORTED, ABSENT, Status.STALE)


@dataclass(frozen=True)
class CheckRow:
    """A variant beside the float64 reference at one shape; errors are None where not collected.

    ``bound`` is the largest that the study allows of one element at that shape.
    ``times_reference`` is the error as a multiple of the primary reference's, on inputs of which
    ``kind``; ``varies``: results differ from run to run. ``output`` is the one of several
    that decided, ``hint`` the way out of what is wrong.
    """

    variant: str
    shape: str
    status: str
    bound: float = field(repr=False)
    why: str = ""
    max_abs: float | None = None
    relative: float | None = None
    times_reference: float | None = None
    rounding: bool = field(default=False, repr=False)
    kind: str = ""
    varies: bool = False
    output: str = ""
    hint: str = ""

    @property
    def wrong(self) -> bool:
        return self.status not in FINE

    @property
    def used(self) -> float | None:
        """The part of the bound that the error takes; of no error at all where none is allowed."""
        if self.max_abs is None or self.bound:
            return None if self.max_abs is None else self.max_abs / self.bound
        return math.inf if self.max_abs else 0.0


@dataclass(frozen=True)
class ErrorBound:
    """Errors of a result, or the largest allowed: of one element, and relative in norm."""

    max_abs: float
    relative: float

    @classmethod
    def of(cls, tolerance: Tolerance) -> ErrorBound:
        return cls(tolerance.absolute, tolerance.relative)


@dataclass(frozen=True)
class CheckedStudy:
    """``tolerance`` is what the study allows at the shape; ``lost`` is what failed without a
    record, by variant.
    """

    study: str
    gpu: str
    evidence: Origin
    tolerance: ErrorBound
    checks: tuple[CheckRow, ...]
    lost: dict[str, str] = field(repr=False)
    origin: str = field(default="", repr=False)  # where no GPU here checked them


def result(study: Study, evidence: VariantEvidence, shape: str) -> CheckRow:
    name, build = evidence.variant, evidence.build
    if build is not None and build.error:
        row = check_row(study, name, shape, None)
        return replace(row, status=CheckResult.FAILED, why=build.error, hint=build.hint or "")
    status = Status.STALE if evidence.check_states[shape] == Status.STALE else ABSENT
    return check_row(study, name, shape, evidence.checks.get(shape), status)


def check_row(
    study: Study, name: str, shape: str, outcome: CheckOutcome | None, status: str = ABSENT
) -> CheckRow:
    """Make a row; ``status`` is that of one without an ``outcome``."""
    row = CheckRow(name, shape, status, tolerance_at(study.tolerance, study.shapes[shape]).absolute)
    fields = CheckOutcome.__struct_fields__ if outcome else ()
    return replace(row, **{field: getattr(outcome, field) for field in fields})


def check_on_cpu(executor: Executor, study: Study, variants: list[str]) -> CheckedStudy:
    """Check what can be called without a GPU, where there is no evidence; ``lost`` are the others.

    Raises EnvironmentLacks where that is no step.
    """
    names = collectable(executor, study, variants or list(study.variants))
    with executor.reporter.progress() as hear:
        outcomes, failed = side_jobs.check_on_cpu(study, names, hear)
    steps = {step.variant for step in study.ladder.steps}
    if not any(one.variant in steps for one in outcomes) and failed:
        why = failed[0].error
        raise EnvironmentLacks(f"no step can be checked here: {why.message}", hint=why.hint)
    done = {(one.variant, one.shape): one for one in outcomes}
    every = itertools.product(names, study.shapes)
    rows = [check_row(study, name, shape, done.get((name, shape))) for name, shape in every]
    lost = {one.variant: with_hint(one.error.message, one.error.hint) for one in failed}
    allowed = ErrorBound.of(tolerance_at(study.tolerance, study.shapes[study.default_shape]))
    return CheckedStudy(study.name, "cpu", Origin.MEASURED, allowed, tuple(rows), lost)


def check(targets: Sequence[Target], variants: list[str], *, everywhere: bool) -> CheckedStudy:
    """At the shape of each target, ``everywhere`` at every shape of the study. What can be measured
    is; the rest is read. ``lost`` is what failed without a record. Raises Interrupted.
    """
    checks: list[CheckRow] = []
    lost: dict[str, str] = {}
    checked: set[str] = set()  # at the shapes where every variant always is
    for target in targets:
        names, study, failures = target.variants(variants), target.study, dict[str, str]()
        if target.live:
            names_here = tuple(collectable(target.executor, target.study, names))
            others = () if set(names) <= checked else None
            todo = Plan(target.shape, checked=names_here, everywhere=everywhere, others=others)
            (done,) = target.executor.measure(
                [Task(study, target.workspace.config, target.folder, todo)]
            )
            failures = done.failures
        every = target.load(names).variants
        lost |= {v: w for v, w in failures.items() if not settled(study, target.shape, every[v])}
        if target.live:
            checked |= set(names) - lost.keys()
        shapes = [target.shape] if len(targets) > 1 else study.shapes
        checks += [result(study, every[name], shape) for name in names for shape in shapes]
    allowed = tolerance_at(target.study.tolerance, target.study.shapes[target.shape])
    return CheckedStudy(
        study=target.study.name,
        gpu=target.folder.gpu,
        evidence=Origin.MEASURED if target.live else Origin.RECORDED,
        tolerance=ErrorBound.of(allowed),
        checks=tuple(checks),
        lost=lost,
    )
