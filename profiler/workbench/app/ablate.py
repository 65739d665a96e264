"""Ladders measured where they can be, and judged; one step in two stages, a quick verdict first.

What is missing or stale of a target's evidence is measured, where this machine can.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from workbench.app.executor import Executor, Task
from workbench.app.target import Target
from workbench.derive.source_diff import SourceDiff
from workbench.errors import CannotTell, WorkbenchError
from workbench.judge.findings import Finding
from workbench.judge.gates import FASTER, UNSEEN
from workbench.judge.ladder import Ablation, VariantPair, judge, judge_pair
from workbench.judge.line_costs import pair_sources
from workbench.judge.open_verdicts import Deciding
from workbench.judge.provenance import file_warnings
from workbench.judge.rows import Row
from workbench.load import LadderEvidence, ShapeEvidence, VariantEvidence, fullest_timing
from workbench.run.measurement import Plan
from workbench.run.process import Toolchain
from workbench.study.front_ends import is_compiling
from workbench.study.model import Step, Study
from workbench.study.params import unseen_shapes
from workbench.study.sources import source_files
from workbench.words import CheckResult, GateState, Origin, Status, Verdict

NEAR = 1.1  # times the best step's time: nothing slower is worth a profile
SETTLED = (Verdict.WRONG, Verdict.INACCURATE, Verdict.UNSEEN_SHAPE)
SEVERAL = 2  # sessions, from which on a time has an interval
FIRST_SESSIONS, FIRST_INSTANCES = 3, 2  # of a first look


def ablate(
    targets: Sequence[Target],
    fixes: list[str],
    *,
    fresh: bool,
    everywhere: bool = True,
    profile: bool = True,
) -> Iterator[tuple[Ablation, dict[str, str]]]:
    """The ladder up to ``fixes``, measured and judged at the shape of each target, and what failed
    of it. ``everywhere``: judged at the other shapes as well. Without ``profile`` nothing is
    captured, and what was before counts.
    """
    every = [Wanted(target, named(target, fixes), profile=profile) for target in targets]
    for target, done in zip(targets, ensure_each(every, fresh=fresh), strict=True):
        steps = target.steps(fixes)  # as they are after measuring
        ladder, _ = judged(target, steps=steps, source=done.source, everywhere=everywhere)
        if target.live and (due := open_unseen(ladder.rows)):
            done.failures.update(measure_unseen(target, due))
            steps = target.steps(fixes)
            ladder, _ = judged(target, steps=steps, source=done.source, everywhere=everywhere)
        asked = {name: why for name, why in done.unsupported.items() if name in fixes}
        yield ladder, {**done.failures, **asked}


def named(target: Target, fixes: list[str]) -> list[str]:
    """The steps up to the fixes, as far as they are measured at the shape, what a fix chooses
    among, which says whether it chooses the fastest, and the references.
    """
    ladder = target.study.ladder
    steps = [s.variant for s in ladder.measured_at(target.shape, target.steps(fixes))]
    every = dict.fromkeys([*steps, *ladder.chosen_among(fixes)])
    return [*every, *(r.name for r in ladder.references)]


@dataclass(frozen=True)
class JudgedStep:
    """``provisional``: by the first sessions alone. ``seconds`` went by until the first verdict."""

    ladder: Ablation
    row: Row
    provisional: bool
    failures: dict[str, str] = field(default_factory=dict)
    seconds: float | None = None
    unprofiled: WorkbenchError | None = None

    @property
    def exit_code(self) -> int:
        """0 where it is kept, 1 where it is not, 5 where that is not certain."""
        verdict = self.row.verdict
        if self.failures or verdict not in (Verdict.KEPT, Verdict.BASELINE, Verdict.INCONCLUSIVE):
            return 1
        certain = verdict == Verdict.BASELINE or (verdict == Verdict.KEPT and not self.provisional)
        return 0 if certain else CannotTell.exit_code


def step(target: Target, fix: str, *, fresh: bool, quick: bool, profile: bool) -> JudgedStep:
    """Raises UsageError for what is no step."""
    began = time.monotonic()
    (fix,) = target.variants([fix])
    target.steps([fix])
    planned = target.study.ladder.step(fix)
    names = [planned.parent, fix] if planned and planned.parent else [fix]
    least = target.workspace.config.timing.sessions
    whole = replace(profiled_with(target, [fix]), profile=profile, least=least, again=False)
    first = ensure(Wanted(first_look(target), names, timed=True, again=False), fresh=fresh)
    stepped = judged_step(target, fix, first, provisional=True)
    stepped = replace(stepped, seconds=time.monotonic() - began)
    if quick or first.failures or not target.live or not is_near(target, stepped.row):
        return stepped
    # One that is right at the listed shapes alone is to be told so, with a gain or without.
    failed = measure_unseen(target, open_unseen([stepped.row], but=FASTER))
    again = judged_step(target, fix, first, provisional=True)
    if not failed and again.row.verdict not in SETTLED:
        done = ensure(whole)
        again, failed = judged_step(target, fix, done, provisional=False), done.failures
        if due := open_unseen([again.row]):  # the first sessions had no gain
            failed |= measure_unseen(target, due)
            again = judged_step(target, fix, done, provisional=False)
    return replace(again, failures={**again.failures, **failed}, seconds=stepped.seconds)


def profiled_with(target: Target, names: list[str], *, timeline: bool = False) -> Wanted:
    """The variants, profiled, and what they are compared with: parents and the primary reference,
    and the baseline, whose time alone is wanted, since its capture may take minutes. ``timeline``:
    they and their parents are traced, too.
    """
    ladder = target.study.ladder
    steps = [s for s in ladder.chain([n for n in names if ladder.step(n)]) if s.variant in names]
    parents = [s.parent for s in steps if s.parent]
    beside = [*names, *parents, ladder.primary_reference]
    captured = [name for name in dict.fromkeys(beside) if name]
    traced = [step.parent for step in map(ladder.step, names) if step]
    return Wanted(
        target,
        list(dict.fromkeys([*captured, ladder.steps[0].variant])),
        capture=captured,
        traced=[*names, *filter(None, traced)] if timeline else (),
    )


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


def judged_step(target: Target, fix: str, ensured: Ensured, *, provisional: bool) -> JudgedStep:
    """A step by the evidence as it is; ``provisional``: by the gates that have some."""
    ladder, _ = judged(target, [fix], source=ensured.source)
    row = ladder.row(fix)
    provisional = provisional and row.verdict not in SETTLED and target.live
    if provisional and row.step and row.step.parent:
        row = replace(row, verdict=row.provisional(target.workspace.config.gates))
    failures = {**ensured.failures, **ensured.unsupported}
    return JudgedStep(ladder, row, provisional, failures)


def is_near(target: Target, row: Row) -> bool:
    """Whether the step is right, and no slower than the best one by more than ``NEAR``."""
    if row.time is None or row.status == Status.FAILED or row.verdict in SETTLED:
        return False
    ladder, _ = judged(target, everywhere=False)
    best = ladder.best
    return best is None or best.time is None or row.time.value <= NEAR * best.time.value


def open_unseen(rows: Iterable[Row], but: str = "") -> list[str]:
    """Steps that no gate speaks against, ``but`` for one, that were not checked at drawn shapes."""
    states = {row.variant: {gate.name: gate.state for gate in row.gates} for row in rows}
    return [
        variant
        for variant, gates in states.items()
        if gates.get(UNSEEN) == GateState.OPEN
        and GateState.FAILED not in {state for name, state in gates.items() if name != but}
    ]


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


def profile(
    target: Target, names: list[str], *, fresh: bool, timeline: bool = False
) -> tuple[Ablation, dict[str, str]]:
    """Variants measured and judged with what they are compared with, and what failed of it."""
    done = ensure(profiled_with(target, names, timeline=timeline), fresh=fresh)
    return judged(target, names, source=done.source)[0], done.failures


@dataclass(frozen=True)
class VariantResult:
    """Rows of a ladder that were asked for; ``damaged`` says which evidence cannot be read."""

    ladder: Ablation
    rows: tuple[Row, ...]
    damaged: tuple[Finding, ...] = ()

    @property
    def row(self) -> Row:
        return self.rows[0]


@dataclass(frozen=True)
class PairResult:
    """Two variants of a ladder side by side; ``paths`` are those of the second one's files."""

    ladder: Ablation
    pair: VariantPair
    changes: SourceDiff
    paths: Mapping[str, str]


def judged(
    target: Target,
    only: Sequence[str] = (),
    *,
    steps: Sequence[Step] | None = None,
    source: Origin = Origin.RECORDED,
    sources: bool = False,
    everywhere: bool = True,
) -> tuple[Ablation, LadderEvidence]:
    """The whole ladder, ``only`` some of it or up to some ``steps``, judged by the evidence as it
    is, ``everywhere`` or at the target's shape alone.
    """
    evidence = target.load_ladder(steps, sources=sources, only=only)
    config = target.workspace.config
    return judge(evidence, config, source=source, everywhere=everywhere), evidence


def judged_variant(target: Target, name: str) -> VariantResult:
    """One variant by the evidence as it is, and which of that cannot be read."""
    ladder, evidence = judged(target, [name])
    return VariantResult(ladder, (ladder.row(name),), tuple(file_warnings(evidence, [name])))


def compared(target: Target, names: Sequence[str]) -> PairResult:
    """Two variants side by side, with the diff of their sources."""
    ladder, evidence = judged(target, names, sources=True)
    pair = judge_pair(evidence, target.workspace.config, *map(ladder.row, names))
    changes = pair_sources(evidence, *names)
    paths = {file.after: target.study.in_place(file.after) for file in changes.files if file.after}
    return PairResult(ladder, pair, changes, paths)


@dataclass(frozen=True)
class Ensured:
    """``source`` is ``measured`` where anything was measured just now, else ``recorded``; ``timed``
    are the variants that were, here.
    """

    source: Origin
    timed: tuple[str, ...] = ()
    failures: dict[str, str] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)


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
    """Measure what each plan has, in one run of an executor."""
    todo = [(wanted, todo) for wanted, todo in every if todo.variants]
    tasks = [
        Task(target.study, target.workspace.config, target.folder, todo, wanted.deciding)
        for wanted, todo in todo
        for target in [wanted.target]
    ]
    results = iter(todo[0][0].target.executor.measure(tasks, showing=True) if todo else ())
    done = []
    for wanted, planned in every:
        if not planned.variants:
            done.append(Ensured(Origin.RECORDED))
            continue
        result, study, shape = next(results), wanted.target.study, wanted.target.shape
        failed = wanted.target.load(name for name in result.failures if name in study.variants)
        failures = {}
        for name in result.failures:
            evidence, step = failed.variants.get(name), study.ladder.step(name)
            # A step that the ladder keeps as a wrong example fails a check, as it should.
            is_example = step is not None and bool(step.expected)
            if not (is_example and evidence and is_wrong_at(study, evidence, shape)):
                failures[name] = result.why(name)
        done.append(Ensured(Origin.MEASURED, planned.timed, failures, result.unsupported))
    return done


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
    judged_here = [step for step in study.ladder.steps if step.shape == shape]
    wanted = {name for step in judged_here for name in (step.variant, step.parent)} | set(capture)
    captured = [
        v
        for v in usable
        if (study.shapes[shape].captured or v in wanted) and (fresh or not every[v].was_profiled)
    ]
    return Plan(shape, timed=tuple(timed), captured=tuple(captured))


def settled(study: Study, shape: str, evidence: VariantEvidence) -> bool:
    """The present sources are known to fail: measuring again would give the same."""
    check, build = evidence.checks.get(shape), evidence.build
    wrong = check is not None and check.status != CheckResult.CORRECT
    failed = build is not None and bool(build.error)
    return wrong or failed or is_wrong_at(study, evidence, shape)


def is_wrong_at(study: Study, evidence: VariantEvidence, shape: str) -> bool:
    """Whether a variant is wrong at a shape, or at one where all always are checked: it is not
    timed then.
    """
    checks = [evidence.checks.get(name) for name in (shape, *_always_checked(study))]
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
