"""``workbench keep``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import workbench
from workbench.commands.options import KeepOptions
from workbench.commands.printing import say, show_json
from workbench.commands.progress import note
from workbench.errors import GateFailed, UsageError, WorkbenchError
from workbench.evidence import journal, store
from workbench.evidence.layout import EvidenceFolder, evidence_folders, is_there
from workbench.evidence.recorded import Evidence
from workbench.evidence.records import KeptEntry
from workbench.judge.gates import HARMLESS
from workbench.run.commits import repository_of
from workbench.run.origin import now
from workbench.study.model import Study
from workbench.study.sources import Fingerprints, source_files
from workbench.study.workspace import Workspace, find_workspace, including


@dataclass(frozen=True)
class Departed:
    """A variant that was kept, and is not what it was then: its files that are others."""

    variant: str
    kept: KeptEntry
    files: tuple[str, ...]

    @property
    def words(self) -> str:
        """In a line."""
        if not self.files:
            return f"{self.variant} is as it was kept on {self.kept.date[:10]}"
        commit = f" (commit {self.kept.commit[:10]})" if self.kept.commit else ""
        return (
            f"{self.variant} has departed from what was kept on {self.kept.date[:10]}{commit}: "
            f"{', '.join(self.files)}"
        )


def kept(workspace: Workspace, study: Study) -> dict[str, KeptEntry]:
    """The newest entry of each variant; lines that are damaged are told, and passed over."""
    entries, told = store.read_lines(workspace.kept(study.name), KeptEntry)
    for line in told:
        note(line)
    return {entry.variant: entry for entry in entries}


def departures(workspace: Workspace, study: Study) -> list[Departed]:
    """One a kept variant; those without files are as they were."""
    return [
        Departed(name, entry, tuple(_others(study, entry)))
        for name, entry in kept(workspace, study).items()
    ]


def _others(study: Study, entry: KeptEntry) -> Iterator[str]:
    try:
        found, (name,) = including(study, [entry.variant])
    except WorkbenchError:
        yield "it is not there any more"
        return
    here = sources_of(found, name)
    for file in sorted({*here, *entry.sources}):
        if file not in here:
            yield f"{file} is gone"
        elif here[file] != entry.sources.get(file):
            yield f"{file} is {'changed' if file in entry.sources else 'new'}"


def sources_of(study: Study, name: str) -> dict[str, str]:
    """File to sha256."""
    files = source_files(study, study.variants[name])
    return {
        path.relative_to(study.folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(files)
    }


def _bears_out(evidence: Evidence, name: str) -> Iterator[Path]:
    """The files of a GPU that say of these sources what they are worth, at one shape."""
    folder = evidence.folder
    if evidence.build(name).current is not None:
        yield folder.build(name)
    if evidence.check(name).current is not None:
        yield folder.check(name)
    if (file := evidence.timing([name])) is not None:
        yield folder.timings(evidence.shape) / file.name
    if (index := evidence.capture_index(name).current) is not None:
        yield folder.capture_index(evidence.shape, name)
        yield evidence.report_path(index)


def _every(study: Study, folders: Sequence[EvidenceFolder]) -> Iterator[Evidence]:
    for folder in folders:
        first = Evidence(study, study.default_shape, folder)
        yield from (first.at(shape) for shape in study.shapes)


def entry_of(workspace: Workspace, study: Study, name: str, note: str) -> KeptEntry:
    """Raises GateFailed for what is wrong, or was not checked as it is."""
    folders = evidence_folders(workspace.ablations, study.name)
    every = list(_every(study, folders))
    checks = [(e.shape, c) for e in every if (c := e.check(name).current) is not None]
    bad = next(
        (f"{c.status} at {shape}: {c.why}" for shape, c in checks if c.status not in HARMLESS), ""
    )
    if bad or not checks:
        raise GateFailed(
            f"'{name}' is no known good version: {bad or 'it was not checked as it is'}",
            hint="`workbench check` where there is a GPU, then keep it",
        )
    paths = dict.fromkeys(path for e in every for path in _bears_out(e, name))
    top = workspace.ablations / study.name / "evidence"
    times = {
        f"{e.folder.gpu}/{e.shape}": journal.medians(file.timing)[name]
        for e in every
        if (file := e.timing([name])) is not None and name in journal.medians(file.timing)
    }
    return KeptEntry(
        date=now(),
        variant=name,
        fingerprint=Fingerprints(study).of_sources(name),
        sources=sources_of(study, name),
        evidence={
            path.relative_to(top).as_posix(): store.digest_of(path)
            for path in paths
            if is_there(path)
        },
        times=times,
        commit=commit_of(workspace),
        note=note,
        workbench=workbench.__version__,
    )


def commit_of(workspace: Workspace) -> str:
    """The one that is checked out where the kernels are as they are there; "" is not collected."""
    try:
        repository = repository_of(workspace)
        return "" if repository.is_dirty else repository.commit("HEAD").sha
    except WorkbenchError:
        return ""


def run(options: KeepOptions) -> None:
    workspace = find_workspace(options.project)
    if workspace.packaged:
        raise UsageError(
            "the built-in workspace keeps nothing", hint="go into a workspace of your own"
        )
    study, (name,) = including(workspace.study(options.study), [options.variant])
    entry = entry_of(workspace, study, name, options.note)
    path = workspace.kept(study.name)
    store.append(path, entry)
    if options.json:
        show_json(store.content(entry))
        return
    files, evidence = len(entry.sources), len(entry.evidence)
    say(f"kept {name}: {files} sources and {evidence} files of evidence, by hash, in {path.name}")
