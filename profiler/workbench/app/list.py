"""The variants of a study, and what is recorded of each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from workbench.app.executor import Executor
from workbench.app.target import shown_path
from workbench.evidence.journal import passed_over
from workbench.evidence.store import EvidenceFolder, evidence_folders
from workbench.load import load
from workbench.study.files import listed
from workbench.study.model import Study
from workbench.study.sources import Fingerprints
from workbench.study.workspace import Workspace
from workbench.words import Status


@dataclass(frozen=True)
class EvidenceState:
    """The state of a variant's evidence at a shape on a GPU: all kinds in one word, and of each.
    ``why`` says what is wrong with a capture that is damaged.
    """

    gpu: str
    shape: str
    state: str
    build: Status
    check: Status
    timing: Status
    capture: Status
    why: str = ""


@dataclass(frozen=True)
class Listed:
    """A variant as ``list`` shows it."""

    variant: str
    parent: str | None
    key_change: str
    reference: bool
    evidence: tuple[EvidenceState, ...]


@dataclass(frozen=True)
class ListedStudy:
    """A study as ``list`` shows it."""

    study: str
    title: str
    shapes: tuple[str, ...]
    default_shape: str
    variants: tuple[Listed, ...]


@dataclass(frozen=True)
class ListedStudies:
    studies: list[ListedStudy]


def summary(states: Collection[Status]) -> str:
    """One word for all kinds of evidence of a variant; what is measured counts where it is."""
    kinds = set(states)
    for bad in (Status.DAMAGED, Status.STALE):
        if bad in kinds:
            return bad
    return kinds.pop() if len(kinds) == 1 else "partial"


def folders(workspace: Workspace, study: str) -> list[EvidenceFolder]:
    every = evidence_folders(workspace.ablations, study)
    if workspace.packaged:
        base = workspace.evidence_base(study)
        every += [EvidenceFolder(p) for p in listed(base) if p.is_dir()]
    return every


def tell_passed_over(executor: Executor, workspace: Workspace, studies: Sequence[str]) -> None:
    """Report lines of journals that cannot be read: a newer version may have written them."""
    for folder in (folder for study in studies for folder in folders(workspace, study)):
        if notes := passed_over(folder):
            more = f" (and {len(notes) - 1} more)" if notes[1:] else ""
            executor.note(f"{shown_path(folder.root)}: {notes[0]}{more}")


def listed_study(workspace: Workspace, study: Study) -> ListedStudy:
    """The variants with the state of their evidence; a folder is opened once, and read once a
    shape.
    """
    shapes = [name for name, shape in study.shapes.items() if shape.profiled]
    states: dict[str, list[EvidenceState]] = {name: [] for name in study.variants}
    prints = Fingerprints(study)
    for folder in folders(workspace, study.name):
        every = load(study, folder, dict.fromkeys(shapes), samples=False, prints=prints)
        for shape, here in every.items():
            for name, recorded in here.variants.items():
                state = recorded.state
                if {state["timing"], state["capture"]} != {Status.MISSING}:
                    of = folder.gpu, shape, summary(state.values())
                    states[name].append(EvidenceState(*of, **state, why=recorded.damage))
    variants = []
    for name, variant in study.variants.items():
        step = study.ladder.step(name)
        parent = (step.parent if step else None) or None
        change = step.key_change if step else variant.title
        evidence = tuple(states[name])
        variants.append(Listed(name, parent, change, variant.is_reference, evidence))
    title, every_shape = study.ladder.title, tuple(study.shapes)
    return ListedStudy(study.name, title, every_shape, study.default_shape, tuple(variants))
