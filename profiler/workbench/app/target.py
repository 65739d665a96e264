"""What a verb works on: the workspace, study, shape and evidence folder its options name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from workbench.app.executor import Executor
from workbench.errors import EnvironmentLacks, UsageError, nearest, unknown
from workbench.evidence.journal import passed_over
from workbench.evidence.store import EvidenceFolder, evidence_folders, gpu_slug, latest
from workbench.load import LadderEvidence, ShapeEvidence, load, load_ladder
from workbench.ncu.catalog import known_figures
from workbench.study.files import CONFIG_FILE, is_plain_name, listed, shown_path
from workbench.study.model import Ladder, Step, Study
from workbench.study.params import Picked, including, profiled_shape
from workbench.study.workspace import PACKAGED_EVIDENCE, Workspace, find_workspace

if TYPE_CHECKING:  # a verb that only reads needs neither
    from workbench.app.executor import Executor


@dataclass
class Target:
    """``live`` says that ``executor`` can measure; otherwise only recorded evidence is read.

    ``part`` has the steps that were asked for where they are not all of the ladder.
    """

    executor: Executor
    workspace: Workspace
    study: Study
    shape: str
    folder: EvidenceFolder
    live: bool
    part: tuple[str, ...] = ()

    def reports(self, shape: str) -> Path:
        """The folder of its report: for what is recorded of another GPU than the workspace shows,
        one below, so that the report of that stays.
        """
        folder = self.workspace.reports(self.study, shape, self.part)
        shown = gpu_slug(self.workspace.config.gpu)
        is_another = not self.live and shown and self.folder.gpu != shown
        return folder / self.folder.gpu if is_another else folder

    def load(
        self, variants: Iterable[str] | None = None, *, captures: bool = False
    ) -> ShapeEvidence:
        """The evidence of some variants, or of all of the study, at the shape."""
        names = self.study.variants if variants is None else variants
        opened = [self.shape] if captures else []
        return load(self.study, self.folder, {self.shape: names}, captures=opened)[self.shape]

    def load_ladder(
        self,
        steps: Sequence[Step] | None = None,
        *,
        only: Sequence[str] = (),
        sources: bool = False,
    ) -> LadderEvidence:
        """The evidence of some steps, or of the whole ladder: see ``load.load_ladder``."""
        return load_ladder(
            self.study,
            self.folder,
            self.shape,
            self.study.ladder.chain([]) if steps is None else steps,
            only=only,
            sources=sources,
        )

    @property
    def options(self) -> str:
        """The options that another verb needs to be about the same, after a space."""
        alone = len(self.workspace.studies()) == 1 or self.workspace.config.study == self.study.name
        is_default = self.shape == self.study.default_shape
        return ("" if alone else f" --study {quote(self.study.name)}") + (
            "" if is_default else f" --shape {quote(self.shape)}"
        )

    def variants(self, names: list[str]) -> list[str]:
        """The names as the study has them; all where none is named. Raises UsageError."""
        self.study, full = including(self.study, names)
        return full or list(self.study.variants)

    def steps(self, fixes: list[str]) -> list[Step]:
        """The chain through the named fixes. Raises UsageError for what is no step."""
        steps = [s.variant for s in self.study.ladder.steps]
        self.study, fixes = including(self.study, fixes)
        for name in fixes:
            require_step(self.study, name)
        chain = self.study.ladder.chain(fixes)
        if [step.variant for step in chain] != steps:
            self.part = tuple(s.variant for s in self.study.ladder.steps if s.variant in fixes)
        return chain


def require_step(study: Study, name: str) -> None:
    """Raises UsageError for what is no step of the ladder."""
    steps = [step.variant for step in study.ladder.steps]
    if name in study.variants and study.ladder.step(name) is None:
        raise UsageError(
            f"'{name}' is a reference, not a step of the ladder",
            hint=f"steps: {', '.join(steps)}",
        )
    if study.ladder.step(name) is None:
        raise unknown("step", name, steps)


def require_arch(arch: str) -> None:
    """Raises UsageError for what is no name of an architecture."""
    if re.fullmatch(r"sm_\d+[af]?", arch) is None:
        raise UsageError(f"--arch '{arch}' is no architecture", hint="such as sm_90a or sm_80")


def find_target(
    executor: Executor,
    project: Path | None,
    study: str | None,
    shape: str | None,
    *,
    names: Sequence[str] = (),
    where_judged: bool = False,
) -> Target:
    """``where_judged``: without a ``shape``, at the one where the step that is named first is.
    Raises UsageError for unknown names, ``names`` of variants among them, and EnvironmentLacks
    with neither GPU nor evidence.
    """
    workspace, chosen = find_study(executor, project, study)
    whole, full = including(chosen, list(names))
    if where_judged:
        chosen, planned = whole, whole.ladder.step(full[0])
        shape = shape or (planned.shape if planned else None)
    return target_at(executor, workspace, profiled_shape(chosen, shape))


def find_study(
    executor: Executor, project: Path | None, study: str | None
) -> tuple[Workspace, Study]:
    """The built-in workspace is noted. Raises UsageError for unknown names, and what is wrong in
    the files of the study.
    """
    workspace = find_workspace(project)
    chosen = workspace.study(study)
    if workspace.packaged:
        tell_packaged(executor, [chosen.name])
    check_figures(chosen.ladder)
    return workspace, chosen


def tell_packaged(executor: Executor, studies: list[str]) -> None:
    """Nothing here says which study is meant, so that it is none of the reader's own."""
    names = f"stud{'y' if len(studies) == 1 else 'ies'} {', '.join(studies)}"
    files = f"; what is measured goes to {PACKAGED_EVIDENCE}" if executor.gpu else ""
    executor.note_once(f"no {CONFIG_FILE} here: built-in {names}{files}")


def check_figures(ladder: Ladder) -> None:
    """Raises UsageError for a prediction of a figure that there is none of."""
    figures = known_figures()
    for step in ladder.steps:
        for prediction in step.predictions:
            if prediction.figure not in figures:
                raise UsageError(
                    f"{ladder.path}: step '{step.variant}' predicts '{prediction.figure}', "
                    "which is no figure",
                    hint=nearest(prediction.figure, figures),
                )


def targets_of_study(executor: Executor, project: Path | None, study: str | None) -> list[Target]:
    """A target at every profiled shape: the study's own comes last, since its report is about all
    of them. Shapes without evidence are noted.
    """
    workspace, chosen = find_study(executor, project, study)
    names = [name for name, shape in chosen.shapes.items() if shape.profiled]
    targets: list[Target] = []
    lacking: list[str] = []
    for name in sorted(names, key=lambda name: name == chosen.default_shape):
        try:
            targets.append(target_at(executor, workspace, Picked(chosen, name)))
        except EnvironmentLacks:
            if name == chosen.default_shape:
                raise
            lacking.append(name)
    if lacking:
        executor.note(f"no evidence is recorded at {', '.join(lacking)}")
    return of_one_gpu(targets, targets[-1].folder)


def find_recorded(
    executor: Executor,
    project: Path | None,
    study: str | None,
    shape: str | None,
    *,
    gpu: str | None = None,
    names: Sequence[str] = (),
) -> Target:
    """Find the target of a verb that measures nothing: what is recorded of ``gpu``, of which
    there has to be something; by default of this machine's, else of the workspace's, which is
    noted, or the newest.
    """
    target = find_target(executor, project, study, shape, names=names)
    if gpu is not None:
        return replace(target, folder=folder_of(target, gpu), live=False)
    if not target.live or latest([target.folder], target.shape) is not None:
        return target
    folder = latest(recorded(target), target.shape, target.workspace.config.gpu)
    if folder is None:
        return target
    executor.note(
        f"nothing of {target.study.name} at {target.shape} is recorded on {target.folder.gpu}: "
        f"this is of {folder.gpu} (`workbench ablate` measures here)"
    )
    return replace(target, folder=folder, live=False)


def folder_of(target: Target, gpu: str) -> EvidenceFolder:
    """Raises UsageError for a GPU that nothing of the study is recorded on, and EnvironmentLacks
    where it is nothing at the shape.
    """
    every = {each.gpu: each for each in recorded(target)}
    folder = every.get(gpu_slug(gpu))
    if folder is None:
        raise unknown("GPU", gpu, every)
    if latest([folder], target.shape) is None:
        raise EnvironmentLacks(
            f"nothing of {target.study.name} at {target.shape} is recorded on {folder.gpu}",
            hint="`workbench list` says what is",
        )
    return folder


def of_one_gpu(targets: Sequence[Target], folder: EvidenceFolder | None = None) -> list[Target]:
    """Keep those of several shapes that a table of them may be made of: recorded in that folder,
    else in the one that has the most of them. What is left out is noted.
    """
    if not targets or targets[0].live:
        return list(targets)

    def held(folder: EvidenceFolder) -> int:
        return sum(latest([folder], target.shape) is not None for target in targets)

    of = folder or max([targets[0].folder, *recorded(targets[0])], key=held)
    kept: list[Target] = []
    for target in targets:
        if latest([of], target.shape) is not None:
            kept.append(replace(target, folder=of))
        else:
            target.executor.note(
                f"{target.shape}: left out, since nothing of it is recorded on {of.gpu}"
            )
    return kept


def recorded(target: Target) -> list[EvidenceFolder]:
    """Return the evidence folders of the study on every GPU, that of the target among them."""
    others = evidence_folders(target.workspace.ablations, target.study.name)
    return [target.folder, *(each for each in others if each != target.folder)]


def target_at(executor: Executor, workspace: Workspace, picked: Picked) -> Target:
    """Raises EnvironmentLacks with neither a GPU nor evidence at that shape."""
    study, name = picked.study, picked.name
    gpu = executor.gpu
    if gpu is not None:
        base = workspace.evidence_base(study.name)
        return Target(executor, workspace, study, name, EvidenceFolder(base / gpu.slug), True)
    folders = evidence_folders(workspace.ablations, study.name)
    folder = latest(folders, name, workspace.config.gpu)
    if folder is None:
        from workbench.run import machine

        lacks = machine.why_not_measuring()
        shapes = [each for each in study.shapes if latest(folders, each)]
        raise EnvironmentLacks(
            f"no evidence is recorded for {study.name} at {name}, and nothing can be measured "
            f"here: {lacks.message}",
            hint=f"recorded shapes: {', '.join(shapes)}"
            if shapes
            else "measure it where there is a GPU and ncu, or `--on HOST`; see `workbench doctor`",
        )
    return Target(executor, workspace, study, name, folder, False)


def workspace_to_keep(project: Path | None, name: str) -> Workspace:
    """The one that ``--keep`` makes a study in. Raises UsageError without one, or a good name."""
    workspace = find_workspace(project)
    if workspace.packaged:
        raise UsageError(
            f"--keep {name} needs a workspace, and there is no {CONFIG_FILE} here or above",
            hint=f"an empty {CONFIG_FILE} makes this folder one: touch {CONFIG_FILE}",
        )
    if not (is_plain_name(name) and name.isidentifier()):
        raise UsageError(f"'{name}' is no name of a study", hint="letters, digits and '_'")
    return workspace


def tell_passed_over(executor: Executor, workspace: Workspace, studies: Sequence[str]) -> None:
    """Report lines of journals that cannot be read: a newer version may have written them."""
    for folder in (folder for study in studies for folder in folders(workspace, study)):
        if notes := passed_over(folder):
            more = f" (and {len(notes) - 1} more)" if notes[1:] else ""
            executor.note(f"{shown_path(folder.root)}: {notes[0]}{more}")


def folders(workspace: Workspace, study: str) -> list[EvidenceFolder]:
    every = evidence_folders(workspace.ablations, study)
    if workspace.packaged:
        base = workspace.evidence_base(study)
        every += [EvidenceFolder(p) for p in listed(base) if p.is_dir()]
    return every
