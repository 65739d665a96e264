"""A study at a commit: what its variants are made of, what is recorded of them, what was built."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from workbench.app.executor import Executor, Task
from workbench.app.target import latest, profiled_shape
from workbench.derive.figures import Figure
from workbench.evidence.records import CaptureIndex
from workbench.evidence.store import EvidenceFolder, evidence_folders
from workbench.judge.commits import AtCommit, Rules, TimedPair
from workbench.judge.gates import HARMLESS
from workbench.judge.open_verdicts import Deciding, timed_pair
from workbench.judge.times import Control, timing_facts
from workbench.load import ShapeEvidence, VariantEvidence, fullest_timing, load
from workbench.run.compilation import build_only
from workbench.run.measurement import Plan
from workbench.run.protocol import Built, Event, Failed
from workbench.run.repository import Commit, join, older
from workbench.run.toolchains import WORKERS_OF, Toolchain, even
from workbench.study.files import is_there
from workbench.study.front_ends import is_compiling
from workbench.study.model import Study
from workbench.study.sources import (
    Fingerprints,
    host_digest,
    plain_digest,
    source_files,
    study_digest,
)
from workbench.study.workspace import Workspace, including
from workbench.words import HEADLINE, Status


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
        """All variants of the study; empty without a folder."""
        if self.folder is None:
            return {}
        return at_own_shape(self.study, self.folder, self.study.variants).variants

    def index(self, name: str) -> CaptureIndex | None:
        """The capture of the present sources of a variant."""
        record = self.evidence.get(name)
        return record.index if record else None

    def without_report(self, name: str) -> bool:
        """Whether that capture has tables alone."""
        index, folder = self.index(name), self.folder
        return bool(index and folder and not is_there(folder.reports / index.report))

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
        return AtCommit(
            fingerprint=self.prints.of_sources(name),
            plain=plain_digest(self.study, variant),
            host=host_digest(self.study, variant, {file: file for file in codes}),
            launches=host_digest(self.study, variant, codes),
            method=self.method,
            kernels=kernels,
            warnings=event.warnings if isinstance(event, Built) else (),
            error="" if lacks else failed,
            lacks=failed if lacks else "",
            wrong=wrong_in(self.evidence.get(name)),
            figures=self.figures(name) if counters else {},
            index=self.index(name),
            without_report=self.without_report(name),
            packages=self.toolchain.versions if self.toolchain else None,
        )

    def figures(self, name: str) -> Mapping[str, Figure]:
        """Return those of a report: tables without one do not count. Empty without a capture."""
        if self.folder is None:
            return {}
        return at_own_shape(self.study, self.folder, [name], captures=True).variants[name].figures

    @cached_property
    def rules(self) -> Rules:
        return Rules(self.study, self.workspace.config, study_digest(self.study, shapes=False))

    @cached_property
    def method(self) -> str:
        return study_digest(self.study)


def at_own_shape(
    study: Study, folder: EvidenceFolder, names: Iterable[str], *, captures: bool = False
) -> ShapeEvidence:
    """Evidence at the study's own shape, with figures of reports alone."""
    shape = study.default_shape
    opened = [shape] if captures else []
    every = load(study, folder, {shape: names}, captures=opened, from_tables=False, samples=False)
    return every[shape]


def wrong_in(evidence: VariantEvidence | None) -> str:
    """Return what is wrong by its current checks; "" where they found nothing, or are none."""
    checks = evidence.checks if evidence else {}
    bad = {shape: c for shape, c in checks.items() if c.status not in HARMLESS}
    return next((f"{c.status} at {shape}: {c.why}" for shape, c in bad.items()), "")


def toolchains_of(*sides: Side) -> list[Toolchain]:
    return [side.toolchain for side in sides if side.toolchain]


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


@dataclass(frozen=True)
class Measuring:
    """What is measured of two sides: ``variants`` that both have and that are not known to be the
    ``same``, counters alone or ``times`` as well. ``shape`` is as the user gave it.
    """

    variants: Sequence[str]
    shape: str | None
    times: bool
    same: Sequence[str]


def measure_together(
    executor: Executor, base: Side, head: Side, wanted: Measuring, folder: Path
) -> Together:
    """Settings are those of the older commit. Raises Interrupted."""
    gpu, variants = executor.gpu, wanted.variants
    assert gpu is not None
    if head.toolchain is None:
        control = control_of(base, head)
        workspace = join(folder, base.study, head.study, base.workspace.root, variants, control)
        checked = [each for variant in variants for each in (older(variant), variant)]
        beside = [control]
    else:
        control, workspace, checked = next(iter(wanted.same), ""), head.workspace, list(variants)
        beside = [head.study.ladder.primary_reference or "", control]
    picked = profiled_shape(workspace.study(head.study.name), wanted.shape)
    study, name = picked.study, picked.name
    timed = list(filter(None, dict.fromkeys([*beside, *checked]))) if wanted.times else []
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


def control_of(base: Side, head: Side) -> str:
    """The first step that is the same at both commits; "" where every one changed."""
    for step in head.study.ladder.steps:
        name = step.variant
        if name in base.names and base.prints.of_sources(name) == head.prints.of_sources(name):
            return name
    return ""
