"""Measures what is missing or stale of a target's evidence, where this machine can; and compares
variants with the float64 reference.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from workbench.app.executor import Executor, Task
from workbench.app.target import Target
from workbench.errors import EnvironmentLacks, with_hint
from workbench.evidence.records import CheckOutcome
from workbench.judge.open_verdicts import Deciding
from workbench.load import ShapeEvidence, VariantEvidence, fullest_timing
from workbench.run.measurement import Plan
from workbench.run.toolchains import Toolchain
from workbench.study.front_ends import is_compiling
from workbench.study.model import Study
from workbench.study.params import unseen_shapes
from workbench.study.sources import compiling_variables, source_files
from workbench.study.values import Tolerance, tolerance_at
from workbench.words import ABSENT, CheckResult, Origin, Status

SEVERAL = 2  # sessions, from which on a time has an interval
FIRST_SESSIONS, FIRST_INSTANCES = 3, 2  # of a first look


@dataclass(frozen=True)
class Ensured:
    """``source`` is ``measured`` where anything was measured just now, else ``recorded``; ``timed``
    are the variants that were, here.
    """

    source: Origin
    timed: tuple[str, ...] = ()
    failures: dict[str, str] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)


def settled(study: Study, shape: str, evidence: VariantEvidence) -> bool:
    """The present sources are known to fail: measuring again would give the same."""
    check, build = evidence.checks.get(shape), evidence.build
    wrong = check is not None and check.status != CheckResult.CORRECT
    failed = build is not None and bool(build.error)
    return wrong or failed or wrong_at(study, evidence, _always_checked(study))


def wrong_as_declared(study: Study, shape: str, evidence: VariantEvidence) -> bool:
    """Whether a step that the ladder keeps as a wrong example fails a check, as it should."""
    step = study.ladder.step(evidence.variant)
    expected = step is not None and bool(step.expected)
    return expected and wrong_at(study, evidence, [shape, *_always_checked(study)])


def wrong_at(study: Study, evidence: VariantEvidence, shapes: Iterable[str]) -> bool:
    """Whether a variant is wrong at one of these shapes: it is not timed then."""
    checks = [evidence.checks.get(name) for name in shapes]
    return any(check is not None and check.status == CheckResult.WRONG for check in checks)


def _always_checked(study: Study) -> list[str]:
    return [name for name, shape in study.shapes.items() if shape.always_checked]


def is_checked(study: Study, shape: str, evidence: VariantEvidence) -> bool:
    """Whether it was checked as it is now, at this shape and at those where it always is; nothing
    compiles at a call.
    """
    here = shape in evidence.checks and is_checked_elsewhere(study, shape, evidence)
    return here and not is_compiling(source_files(study, study.variants[evidence.variant]))


def is_checked_elsewhere(study: Study, shape: str, evidence: VariantEvidence) -> bool:
    """Whether it was checked as it is now, at all other shapes where every variant always is."""
    return all(name in evidence.checks for name in _always_checked(study) if name != shape)


def first_look(target: Target) -> Target:
    """Time in few sessions, without references alone or a referee."""
    config = target.workspace.config
    timing = structs.replace(
        config.timing,
        sessions=FIRST_SESSIONS,
        max_sessions=FIRST_SESSIONS,
        instances=min(FIRST_INSTANCES, config.timing.instances),
        references_alone=False,
        referee=False,
    )
    workspace = replace(target.workspace, config=structs.replace(config, timing=timing))
    return replace(target, workspace=workspace)


def judged_at(study: Study, shape: str) -> set[str]:
    """The steps that are judged at a shape other than the study's own, and their parents."""
    steps = [step for step in study.ladder.steps if step.shape == shape]
    return {name for step in steps for name in (step.variant, step.parent) if name}


def collectable(
    executor: Executor, study: Study, variants: list[str], toolchains: Sequence[Toolchain] = ()
) -> list[str]:
    """Return those whose packages are all installed, in each of ``toolchains`` where these measure;
    others are reported, once.
    """
    names = []
    for name in variants:
        needs = study.variants[name].needs
        here = not toolchains and needs and executor.package_version(needs)
        if needs and not (here or (toolchains and all(needs in t.versions for t in toolchains))):
            executor.note_once(f"{name} is not collected: {needs} is not installed here")
        else:
            names.append(name)
    return names


def plan(
    study: Study,
    evidence: ShapeEvidence,
    variants: list[str],
    *,
    fresh: bool,
    capture: Collection[str] = (),
    least: int = 1,
) -> Plan:
    """All variants are timed together when any lacks a current chained time beside the others, in
    ``least`` sessions.

    At a shape that is not captured alone, nothing is profiled but ``capture``, the steps that
    are judged there, and their parents.
    """
    shape, every = evidence.shape, evidence.variants
    usable = [v for v in variants if fresh or not settled(study, shape, every[v])]
    timing = fullest_timing(evidence, usable)
    enough = timing is not None and len(timing.timing.together) >= least
    held = timing.chained if timing and enough else frozenset()
    checked = all(shape in every[v].checks and every[v].build for v in usable)
    timed = usable if fresh or not checked or not held >= set(usable) else []
    wanted = judged_at(study, shape) | set(capture)
    captured = [
        v
        for v in usable
        if (study.shapes[shape].captured or v in wanted) and (fresh or not every[v].was_profiled)
    ]
    return Plan(shape, timed=tuple(timed), captured=tuple(captured))


@dataclass(frozen=True)
class Wanted:
    """Variants of a target that are to be measured, and which of them to ``capture``.

    ``timed``: they are built, checked and timed, and nothing is profiled. ``refusing``: what the
    compiler gate does not let pass is only built. Without ``profile`` nothing is profiled either.
    Those to be ``traced`` are, where that is not recorded.
    ``least`` sessions are held to be enough; 0: two, or as many as a run has. Unless ``again``,
    what was checked of the present sources is timed without another check.
    """

    target: Target
    variants: list[str]
    capture: Collection[str] = ()
    timed: bool = False
    refusing: bool = False
    profile: bool = True
    least: int = 0
    again: bool = True
    traced: Collection[str] = ()

    @property
    def deciding(self) -> Deciding:
        return Deciding(steps=not self.timed, refusing=self.refusing)

    def plan(self, *, fresh: bool, checked: Collection[str] = ()) -> Plan:
        """Plan what is missing. What is timed and was ``checked``, by this command or in current
        evidence, is checked again at this shape alone.
        """
        target, study, shape = self.target, self.target.study, self.target.shape
        config = target.workspace.config
        names = collectable(target.executor, study, self.variants)
        evidence = target.load(names)
        every, refused = evidence.variants, self.deciding.refused(config)
        if refused is not None and not fresh:
            builds = {name: every[name].build for name in names}
            names = [name for name, build in builds.items() if build is None or not refused(build)]
        least = self.least or min(SEVERAL, config.timing.sessions)
        todo = plan(study, evidence, names, fresh=fresh, capture=self.capture, least=least)
        due = set(todo.timed) - set(checked)
        if not fresh:
            due = {name for name in due if not is_checked_elsewhere(study, shape, every[name])}
        again = todo.timed if self.again or fresh else ()
        already_checked = [
            n for n in todo.timed if n not in again and is_checked(study, shape, every[n])
        ]
        untraced = [
            name
            for name in names
            if fresh or (every[name].timeline is None and not settled(study, shape, every[name]))
        ]
        return replace(
            todo,
            captured=() if self.timed or not self.profile else todo.captured,
            known=tuple(already_checked),
            others=todo.others if due else (),
            traced=tuple(name for name in untraced if name in self.traced),
        )


def captured(target: Target, names: list[str]) -> list[str]:
    """The variants with what their captures are compared with: parents, primary reference."""
    ladder = target.study.ladder
    steps = [s for s in ladder.chain([n for n in names if ladder.step(n)]) if s.variant in names]
    parents = [s.parent for s in steps if s.parent]
    return list(filter(None, dict.fromkeys([*names, *parents, ladder.primary_reference])))


def needed(target: Target, names: list[str]) -> list[str]:
    """Add the baseline, whose time is compared and whose capture may take minutes."""
    baseline = target.study.ladder.steps[0].variant
    return list(dict.fromkeys([*captured(target, names), baseline]))


def profiled_with(target: Target, names: list[str], *, timeline: bool = False) -> Wanted:
    """The variants, profiled, and what they are compared with; ``timeline``: traced too, with their
    parents.
    """
    parents = [step.parent for step in map(target.study.ladder.step, names) if step]
    return Wanted(
        target,
        needed(target, names),
        capture=captured(target, names),
        traced=[*names, *filter(None, parents)] if timeline else (),
    )


def ensure(wanted: Wanted, *, fresh: bool = False) -> Ensured:
    """Measure what is needed. Without a GPU, nothing. Ctrl-C keeps what was finished. Raises
    Interrupted.
    """
    (done,) = ensure_each([wanted], fresh=fresh)
    return done


def ensure_each(every: Sequence[Wanted], *, fresh: bool) -> Iterator[Ensured]:
    """Measure what is missing of each in its turn; on a remote target all of them together, before
    the first.
    """
    if every and every[0].target.executor.at_once:
        yield from _carried_out([(wanted, wanted.plan(fresh=fresh)) for wanted in every])
        return
    checked: set[str] = set()  # at the shapes where every variant always is
    for wanted in every:
        if wanted.target.live:
            (done,) = _carried_out([(wanted, wanted.plan(fresh=fresh, checked=checked))])
            checked |= set(done.timed) - done.failures.keys()
            yield done
            continue
        if fresh:
            wanted.target.executor.note(
                "nothing is measured here: no GPU or no ncu; showing the recorded evidence"
            )
        yield Ensured(Origin.RECORDED)


def _carried_out(every: Sequence[tuple[Wanted, Plan]]) -> list[Ensured]:
    todo = [(wanted, plan) for wanted, plan in every if plan.variants]
    tasks = [task(wanted.target, plan, wanted.deciding) for wanted, plan in todo]
    for name, value in compiling_variables().items() if todo else ():
        todo[0][0].target.executor.note(
            f"{name}={value}: evidence of what nvcc compiles belongs to it"
        )
    results = iter(todo[0][0].target.executor.measure(tasks, showing=True) if todo else ())
    done = []
    for wanted, plan in every:
        if not plan.variants:
            done.append(Ensured(Origin.RECORDED))
            continue
        result = next(results)
        study, shape = wanted.target.study, wanted.target.shape
        failed = wanted.target.load(name for name in result.failures if name in study.variants)
        failures = {
            name: with_hint(why, result.hints.get(name, ""))
            for name, why in result.failures.items()
            if name not in failed.variants
            or not wrong_as_declared(study, shape, failed.variants[name])
        }
        done.append(Ensured(Origin.MEASURED, plan.timed, failures, result.unsupported))
    return done


def task(target: Target, todo: Plan, deciding: Deciding | None = None) -> Task:
    workspace = target.workspace
    return Task(target.study, workspace.config, target.folder, todo, deciding)


def measure_unseen(target: Target, names: Iterable[str]) -> dict[str, str]:
    """Check steps and their parents at the shapes that are drawn for each, and time them at the
    first. What failed, by variant.
    """
    failed: dict[str, str] = {}
    for name in names:
        step, drawn = target.study.ladder.step(name), unseen_shapes(target.study, name)
        beside = (step.parent, name) if step and step.parent else (name,)
        if drawn.names:
            there = replace(target, study=drawn.study, shape=drawn.names[0])
            todo = Plan(there.shape, timed=beside, others=drawn.names[1:])
            failures = _carried_out([(Wanted(there, list(beside), timed=True), todo)])[0].failures
            if step and step.corrects:  # its parent may fail
                failures = {who: why for who, why in failures.items() if who == name}
            failed |= failures
    return failed


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
    """``status`` is that of one that was not ``found``."""
    row = CheckRow(name, shape, status, tolerance_at(study.tolerance, study.shapes[shape]).absolute)
    fields = CheckOutcome.__struct_fields__ if outcome else ()
    return replace(row, **{field: getattr(outcome, field) for field in fields})


def check_on_cpu(executor: Executor, study: Study, variants: list[str]) -> CheckedStudy:
    """Check what can be called without a GPU, where there is no evidence; ``lost`` are the others.

    Raises EnvironmentLacks where that is no step.
    """
    from workbench.run.side_jobs import check_on_cpu as called

    names = collectable(executor, study, variants or list(study.variants))
    with executor.reporter.progress() as hear:
        outcomes, failed = called(study, names, hear)
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
            (done,) = target.executor.measure([task(target, todo)])
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
