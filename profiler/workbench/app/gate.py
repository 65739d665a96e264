"""All variants of two commits compared: same, faster, slower, or cannot tell. A ``Side`` is a study
at a commit: what its variants are made of, what is recorded of them, what was built.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from workbench.app.ablate import collectable
from workbench.app.executor import Executor, Task
from workbench.app.show import code_of_builds
from workbench.app.target import require_arch
from workbench.children import temporary_folder
from workbench.errors import EnvironmentLacks, UsageError, WorkbenchError, unknown
from workbench.evidence.records import CaptureIndex
from workbench.evidence.store import EvidenceFolder, evidence_folders, latest
from workbench.judge.commits import (
    AtCommit,
    Rules,
    TimedPair,
    VariantChange,
    changed_packages,
    changed_rules,
    is_same,
    judge_change,
    with_controls,
)
from workbench.judge.findings import finding
from workbench.judge.gates import HARMLESS
from workbench.judge.open_verdicts import Deciding, timed_pair
from workbench.judge.session_checks import Control, timing_facts
from workbench.load import ShapeEvidence, VariantEvidence, fullest_timing, load
from workbench.run import machine
from workbench.run.compilation import build_only
from workbench.run.measurement import Plan
from workbench.run.process import WORKERS_OF, Toolchain, even, named_pythons, toolchain_of
from workbench.run.protocol import Built, Event, Failed
from workbench.run.repository import Commit, Repository, join, older, repository_of
from workbench.study.files import is_there, resolved
from workbench.study.front_ends import LIBRARY, front_ends_of, is_compiling
from workbench.study.model import Study
from workbench.study.params import including, profiled_shape
from workbench.study.sources import (
    Fingerprints,
    host_digest,
    plain_digest,
    source_files,
    study_digest,
)
from workbench.study.workspace import Workspace
from workbench.words import HEADLINE, Cause, Move, Status

TIMES = 2  # the tier that measures times; 0 is compiled code, 1 counters


@dataclass(frozen=True)
class StudyChanges:
    study: str
    changes: tuple[VariantChange, ...]


@dataclass(frozen=True)
class Gated:
    """All variants of two commits or environments, study by study; ``tier`` is how far they were
    compared. ``base`` and ``head`` are the hashes of the commits in full, or the environments'
    names.
    """

    tier: int
    studies: tuple[StudyChanges, ...]
    base: str
    head: str

    @property
    def changes(self) -> list[VariantChange]:
        return [change for each in self.studies for change in each.changes]


@dataclass(frozen=True)
class GateRequest:
    """What is compared and how far: all studies or one, or one ``variant`` of it, at most to
    ``tier``, by default as far as this machine can. ``cache`` is a folder that keeps what is
    compiled.
    """

    arch: str
    tier: int | None = None
    cache: Path | None = None
    study: str | None = None
    variant: str | None = None
    shape: str | None = None


def gate(
    executor: Executor,
    workspace: Workspace,
    commits: Sequence[str],
    asked: GateRequest,
    environments: Sequence[str] = (),
) -> Gated:
    """Compare two commits, or the files of a workspace in two ``environments``, each
    ``NAME=PYTHON``. Raises UsageError for unknown names, and EnvironmentLacks where tier 2 cannot
    be measured or an environment lacks a package.
    """
    require_arch(asked.arch)
    if environments and executor.at_once:
        raise UsageError("--env compares two environments of this machine", hint="leave --on out")
    if asked.tier == TIMES and executor.gpu is None:
        raise machine.why_not_measuring()
    tier = asked.tier if asked.tier is not None else 1 + (executor.gpu is not None)
    study = workspace.study(asked.study).name if asked.variant else asked.study
    asked = replace(asked, tier=tier, study=study)
    with ExitStack() as stack:
        scratch = stack.enter_context(temporary_folder())
        cubins = resolved(asked.cache or scratch / "cubins")
        toolchains = [
            toolchain_of(name, python, scratch / f"links-{name}", cubins / name)
            for name, python in named_pythons(environments).items()
        ]
        if toolchains:
            sides = [Commit(each.name, each.name) for each in toolchains]
            studies = [*paired(None, sides, [workspace, workspace], asked, toolchains)]
        else:
            repository = repository_of(workspace)
            sides = [repository.commit(said) for said in commits]
            if commits[1] == "HEAD" and repository.is_dirty:
                executor.note("there are changes that are in no commit: they are not looked at")
            trees = stack.enter_context(repository.worktrees())
            workspaces = [stack.enter_context(repository.workspace_at(c, trees)) for c in sides]
            studies = [*paired(repository, sides, workspaces, asked)]
        cubins.mkdir(parents=True, exist_ok=True)
        pairs = [each for each in studies if not isinstance(each, StudyChanges)]
        compile_sides(executor, pairs, asked.arch, cubins)
        compared = []
        for each in studies:
            if not isinstance(each, StudyChanges):
                judged = compare(executor, *each, asked, scratch / each[1].study.name)
                told = (with_machine_code(executor, c, each, cubins) for c in judged.changes)
                each = replace(judged, changes=tuple(told))
            compared.append(each)
    return Gated(tier, tuple(compared), *(side.sha for side in sides))


def paired(
    repository: Repository | None,
    commits: Sequence[Commit],
    workspaces: Sequence[Workspace],
    asked: GateRequest,
    toolchains: Sequence[Toolchain | None] = (None, None),
) -> Iterator[tuple[Side, Side] | StudyChanges]:
    """Pair all studies of both commits, those of the newer first, or the one that is asked for; or
    say why one cannot be compared. ``toolchains`` are of environments that stand for commits.
    Raises UsageError where the study, or any, is at neither.
    """
    wanted = asked.study
    older, newer = by_commit = [workspace.studies() for workspace in workspaces]
    names = list(dict.fromkeys([*newer, *older]))
    if wanted and wanted not in names:
        raise unknown("study", wanted, names)
    if not names:
        raise UsageError(
            f"neither {commits[0].said} nor {commits[1].said} has a study",
            hint="a study is a folder kernels/NAME with a study.py",
        )

    def at(place: int, name: str) -> Side | str | None:
        """None where there is no such study, and a text why its files cannot be read."""
        if name not in by_commit[place]:
            return None
        commit, workspace = commits[place], workspaces[place]
        try:
            return side_of(commit, workspace, name, asked.variant, toolchains[place])
        except WorkbenchError as error:
            if asked.variant or repository is None:
                raise
            return repository.worded(error.message, workspace.root, commit)

    for name in [wanted] if wanted else names:
        base, head = at(0, name), at(1, name)
        if isinstance(head, Side) and not isinstance(base, str):
            bare = replace(head.study, variants={})  # a new study is compared with no variants
            yield base or Side(head.commit, head.workspace, bare), head
        else:
            yield unpaired(name, base, head)


def unpaired(name: str, base: Side | str | None, head: Side | str | None) -> StudyChanges:
    """Return what is reported of a study that cannot be compared: once, and not of each variant."""
    if head is None:
        gone = finding("commit.study_gone", "its study is not there any more")
        change = VariantChange(name, Move.GONE, gone)
    elif isinstance(head, str) and not isinstance(base, str):
        broken = finding("commit.study_broken", head, text=head)
        change = VariantChange(name, Move.BROKEN, broken, cause=Cause.SOURCE)
    else:
        why = base if isinstance(base, str) else ""
        message = f"could not be read before: {why or 'not collected'}"
        broken = finding("commit.study_unread", message, text=why)
        change = VariantChange(name, Move.CANNOT_TELL, broken)
    return StudyChanges(name, (change,))


@dataclass(eq=False)
class Side:
    """A study at ``commit``; ``built`` are the variants that were compiled for this comparison, of
    all or of ``only`` one. With a ``toolchain`` it is the same study in another environment.
    """

    commit: Commit
    workspace: Workspace
    study: Study
    built: dict[str, Built | Failed] = field(default_factory=dict)
    only: str = ""
    toolchain: Toolchain | None = None

    @property
    def names(self) -> list[str]:
        return list(self.study.variants)

    @property
    def compared(self) -> list[str]:
        return [self.only] if self.only else self.names

    @cached_property
    def prints(self) -> Fingerprints:
        return Fingerprints(self.study)

    @cached_property
    def folder(self) -> EvidenceFolder | None:
        """The folder of the evidence that the commit shows, at the study's own shape."""
        folders = evidence_folders(self.workspace.ablations, self.study.name)
        return latest(folders, self.study.default_shape, self.workspace.config.gpu)

    @cached_property
    def evidence(self) -> Mapping[str, VariantEvidence]:
        return self.loaded(self.study.variants)

    def loaded(
        self, names: Iterable[str], *, captures: bool = False
    ) -> Mapping[str, VariantEvidence]:
        """Evidence at the study's own shape by variant; ``captures``: with the figures of reports,
        where tables without one do not count. Empty without a folder.
        """
        if self.folder is None:
            return {}
        shape = self.study.default_shape
        wanted, opened = {shape: names}, [shape] if captures else []
        every = load(
            self.study, self.folder, wanted, captures=opened, from_tables=False, samples=False
        )
        return every[shape].variants

    def index(self, name: str) -> CaptureIndex | None:
        """The capture of the present sources of a variant."""
        record = self.evidence.get(name)
        return record.index if record else None

    def without_report(self, name: str) -> bool:
        """Whether that capture has tables alone."""
        index, folder = self.index(name), self.folder
        return bool(index and folder and not is_there(folder.reports / index.report))

    def plain(self, name: str) -> str:
        """The digest of a variant's sources without comments."""
        return plain_digest(self.study, self.study.variants[name])

    def is_stale(self, name: str) -> bool:
        """Whether evidence was recorded of other sources; comments are part of them."""
        record = self.evidence.get(name)
        return record is not None and Status.STALE in record.state.values()

    def at(self, name: str, *, counters: bool) -> AtCommit | None:
        """None where there is no such variant; ``counters``: with the figures of its capture."""
        if name not in self.names:
            return None
        event, variant = self.built.get(name), self.study.variants[name]
        kernels = None
        if isinstance(event, Built):
            kernels = tuple(zip(event.kernels, event.defines, strict=True))
        if self.toolchain and (not kernels or is_compiling(source_files(self.study, variant))):
            kernels = None  # what runs is not all compiled here
        codes: dict[str, str] = {}
        for kernel, _ in kernels or ():
            codes[kernel.source] = f"{codes.get(kernel.source, '')} {kernel.code}"
        failed = event.error.message if isinstance(event, Failed) else ""
        lacks = isinstance(event, Failed) and event.error.kind == ModuleNotFoundError.__name__
        recorded = self.evidence.get(name)
        checks = (recorded.checks if recorded else {}).items()
        bad = (f"{c.status} at {shape}: {c.why}" for shape, c in checks if c.status not in HARMLESS)
        counted = self.loaded([name], captures=True) if counters else {}
        return AtCommit(
            fingerprint=self.prints.of_sources(name),
            plain=self.plain(name),
            host=host_digest(self.study, variant, {file: file for file in codes}),
            launches=host_digest(self.study, variant, codes),
            method=self.method,
            kernels=kernels,
            warnings=event.warnings if isinstance(event, Built) else (),
            error="" if lacks else failed,
            lacks=failed if lacks else "",
            wrong=next(bad, ""),
            figures=counted[name].figures if counted else {},
            index=self.index(name),
            without_report=self.without_report(name),
            packages=self.toolchain.versions if self.toolchain else None,
        )

    @property
    def rules(self) -> Rules:
        return Rules(self.study, self.workspace.config, study_digest(self.study, shapes=False))

    @cached_property
    def method(self) -> str:
        return study_digest(self.study)


def side_of(
    commit: Commit,
    workspace: Workspace,
    study: str,
    only: str | None = None,
    toolchain: Toolchain | None = None,
) -> Side:
    """Raises UsageError where the study has no such variant as ``only``."""
    study_there = workspace.study(study)
    if only:
        study_there = including(study_there, [only])[0]
    return Side(commit, workspace, study_there, only=only or "", toolchain=toolchain)


def toolchains_of(*sides: Side) -> list[Toolchain]:
    return [side.toolchain for side in sides if side.toolchain]


def compile_sides(
    executor: Executor, pairs: Sequence[tuple[Side, Side]], arch: str, cubins: Path
) -> None:
    """Compile what has other sources, and not only other comments, at both commits, or is new; for
    two environments everything.
    """
    wanted: list[tuple[Side, list[str]]] = []
    for base, head in pairs:
        if head.toolchain:
            names = collectable(executor, head.study, head.compared, toolchains_of(base, head))
            wanted += [(base, names), (head, names)]
            continue
        changed = [n for n in changed_sources(base, head) if base.plain(n) != head.plain(n)]
        new = [name for name in head.compared if name not in base.names]
        wanted += [(base, collectable(executor, base.study, changed))]
        wanted += [(head, collectable(executor, head.study, [*changed, *new]))]
    if any(names for _, names in wanted):
        with executor.reporter.progress() as hear:
            build_all([each for each in wanted if each[1]], arch, hear, cubins)


def changed_sources(base: Side, head: Side) -> list[str]:
    shared = [name for name in head.compared if name in base.names]
    return [n for n in shared if base.prints.of_sources(n) != head.prints.of_sources(n)]


def build_all(
    wanted: Sequence[tuple[Side, list[str]]],
    arch: str,
    on_event: Callable[[Event], None],
    cubins: Path,
) -> None:
    """Compile the variants of each side, all sides at once. What is in ``cubins``, or in the folder
    of a toolchain, is not compiled again, and what is compiled is put there.

    Raises as ``build_only``.
    """
    stopped = threading.Event()

    def relay(event: Event) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        on_event(event)

    def build(side: Side, names: list[str]) -> list[Built | Failed]:
        limit = side.workspace.config.limits.seconds_per_step
        builds = side.toolchain.builds if side.toolchain else cubins
        WORKERS_OF.set(side.toolchain)
        return build_only(side.study, names, arch, limit, relay, builds)

    with ThreadPoolExecutor(max(1, len(wanted))) as pool:
        started = [(side, pool.submit(build, side, names)) for side, names in wanted]
        try:
            for side, future in started:
                side.built |= {event.variant: event for event in future.result()}
        except BaseException:
            stopped.set()
            raise


def compare(
    executor: Executor, base: Side, head: Side, asked: GateRequest, folder: Path
) -> StudyChanges:
    """All variants of a study. ``folder`` takes what is measured of it."""
    names = list(dict.fromkeys([*head.compared, *base.compared]))
    counted = [n for n in names if asked.tier and recorded_anew(base, head, n)]
    sides = {n: tuple(s.at(n, counters=n in counted) for s in (base, head)) for n in names}
    open_ = [n for n, (old, new) in sides.items() if old and new and not is_same(old, new)]
    open_ = [n for n in open_ if not any(s.error for s in sides[n] if s)]
    open_ = collectable(executor, head.study, open_, toolchains_of(base, head))
    together: Together | None = None
    if asked.tier and open_ and executor.gpu is not None:
        same = [
            n for n, (old, new) in sides.items() if old and new and is_control(head, n, old, new)
        ]
        together = measure_together(executor, base, head, open_, same, asked, folder)
    changes, changed = [], changed_sources(base, head)
    for name, (old, new) in sides.items():
        timed = None
        if together is not None and name in open_ and old and new:
            old, new = together.both((old, new), name)
            timed = together.timed(name)
        change = judge_change(name, old, new, base.workspace.config, timed)
        if change.verdict == Move.SAME and name in changed:
            change = replace(change, stale=head.is_stale(name))
        changes.append(change)
    unchanged = frozenset(() if head.toolchain else set(names) - set(changed))
    ruled = changed_rules(base.rules, head.rules) if base.names and not head.only else ()
    return StudyChanges(head.study.name, (*ruled, *with_controls(changes, unchanged)))


def is_control(head: Side, name: str, before: AtCommit, after: AtCommit) -> bool:
    """Whether two environments run the same: a reference of torch's own kernels does, too."""
    is_torchs = front_ends_of(source_files(head.study, head.study.variants[name])) == (LIBRARY,)
    is_reference = name == head.study.ladder.primary_reference and is_torchs
    libraries = changed_packages(before, after, Cause.LIBRARY)
    return is_same(before, after) or (is_reference and not libraries)


def recorded_anew(base: Side, head: Side, name: str) -> bool:
    """Whether both commits hold captures of it as it is there, with their reports, and not one and
    the same.
    """
    if name not in base.names or name not in head.names:
        return False
    if base.without_report(name) or head.without_report(name):
        return False
    before, other = base.index(name), head.index(name)
    return bool(before and other and (before.sha256, before.range) != (other.sha256, other.range))


Measured = tuple[ShapeEvidence, Mapping[str, str]]  # and why variants failed


@dataclass(frozen=True)
class Together:
    """The result of both sides: of one joint study, or of the same study in two environments, in
    which the ``control`` runs the same and ``planned`` sessions were timed.
    """

    sides: tuple[Measured, Measured]
    control: str = ""
    planned: int = 0

    def names(self, variant: str) -> tuple[str, str]:
        return (variant if self.planned else older(variant)), variant

    def both(self, commits: tuple[AtCommit, AtCommit], variant: str) -> Iterator[AtCommit]:
        """Add what was measured of a variant on both sides."""
        each = zip(commits, self.names(variant), self.sides, strict=True)
        for commit, name, (measured, failures) in each:
            timing, evidence = fullest_timing(measured, [name]), measured.variants[name]
            why = timing.timing.wrong.get(name, "") if timing else ""
            yield replace(
                commit,
                figures=evidence.figures,
                without_report=False,
                index=evidence.index or commit.index,
                wrong=failures.get(name, "") or (why and f"wrong while it was timed: {why}"),
            )

    def timed(self, variant: str) -> TimedPair | None:
        """The newer over the older; None where they were not timed together."""
        names = self.names(variant)
        old, new = (fullest_timing(measured, names) for measured, _ in self.sides)
        if old is None or new is None:
            return None
        beside = (new.timing, self.planned) if self.planned else ()
        facts, controls = timing_facts(new, ""), []
        if control := beside and timed_pair(old.timing, self.control, self.control, *beside):
            controls = [Control(self.control, HEADLINE, control.ratio)]
        elif facts and not beside:
            controls = [each for each in facts.controls if each.regime == HEADLINE]
        pair = timed_pair(old.timing, *names, *beside)
        return replace(pair, controls=tuple(controls)) if pair else None


def measure_together(
    executor: Executor,
    base: Side,
    head: Side,
    variants: Sequence[str],
    same: Sequence[str],
    asked: GateRequest,
    folder: Path,
) -> Together:
    """Measure ``variants`` that both sides have and that are not known to be the ``same``: counters
    alone, or times as well. Settings are those of the older commit. Raises Interrupted.
    """
    gpu = executor.gpu
    assert gpu is not None
    if head.toolchain is None:
        steps = (step.variant for step in head.study.ladder.steps if step.variant in base.names)
        older_print, newer_print = base.prints.of_sources, head.prints.of_sources
        control = next((name for name in steps if older_print(name) == newer_print(name)), "")
        workspace = join(folder, base.study, head.study, base.workspace.root, variants, control)
        checked = [each for variant in variants for each in (older(variant), variant)]
        beside = [control]
    else:
        control, workspace, checked = next(iter(same), ""), head.workspace, list(variants)
        beside = [head.study.ladder.primary_reference or "", control]
    picked = profiled_shape(workspace.study(head.study.name), asked.shape)
    study, name = picked.study, picked.name
    timed = list(filter(None, dict.fromkeys([*beside, *checked]))) if asked.tier == TIMES else []
    plan = Plan(name, checked=tuple(checked), timed=tuple(timed), captured=tuple(checked))
    target = EvidenceFolder(workspace.evidence_base(study.name) / gpu.slug)
    deciding = Deciding(pairs=tuple((older(variant), variant) for variant in variants))
    task = Task(study, workspace.config, target, plan, deciding)
    tasks = [
        replace(task, toolchain=each, folder=EvidenceFolder(folder / each.name / gpu.slug))
        for each in toolchains_of(base, head)
    ] or [task]
    results = executor.measure(tasks)
    every: list[Measured] = [
        (
            load(study, task.folder, {name: study.variants}, captures=[name])[name],
            {**result.unsupported, **result.failures},
        )
        for task, result in zip(tasks, results, strict=True)
    ]
    planned = even(workspace.config.timing.sessions) if head.toolchain else 0
    return Together((every[0], every[-1]), control, planned)


def with_machine_code(
    executor: Executor, change: VariantChange, sides: tuple[Side, Side], cubins: Path
) -> VariantChange:
    """Add a finding for each kernel whose machine code changed, where nvdisasm is installed."""
    old, new = (side.built.get(change.variant) for side in sides)
    if not (isinstance(old, Built) and isinstance(new, Built)) or codes(old) == codes(new):
        return change
    try:
        kernels = code_of_builds(old, new, cubins, "").kernels
    except (EnvironmentLacks, UsageError) as error:  # no nvdisasm, or no room for binaries
        executor.note_once(f"{error.message}; {error.hint}")
        return change
    texts = (f"{kernel.kernel}: {kernel.sentence()}" for kernel in kernels)
    became = (finding("commit.machine_code", text, text=text) for text in texts)
    return replace(change, also=(*change.also, *became))


def codes(built: Built) -> list[str]:
    return sorted(kernel.code for kernel in built.kernels)
