"""The track record of the whole workspace: what came of advice on every ladder of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from workbench.commands.target import Target, latest
from workbench.errors import WorkbenchError
from workbench.evidence.layout import EvidenceFolder, evidence_folders
from workbench.evidence.recorded import Evidence
from workbench.judge.advice.record import Trial, record
from workbench.judge.ladder import trials_in
from workbench.judge.rows import Ablation
from workbench.judge.snapshot import snapshot
from workbench.study.model import Study
from workbench.study.workspace import Workspace

Stamp = frozenset[tuple[str, int, int]]
MOST_REMEMBERED = 16

_remembered: dict[tuple[str, str, str, Stamp], Sequence[Trial]] = {}


def with_record(judged: Ablation, target: Target) -> Ablation:
    """With the record of all ladders at their studies' own shapes, as far as they can be read."""
    own = target.study.name
    others = (name for name in target.workspace.studies() if name != own)
    found = {own: _own(judged, target), **{name: _others(target, name) for name in others}}
    return replace(judged, record=record(found))


def _own(judged: Ablation, target: Target) -> Sequence[Trial]:
    """Of the whole ladder, of which a table may show a part, or another shape."""
    study = target.study
    whole = [row.variant for row in judged.rows] == [step.variant for step in study.ladder.steps]
    if whole and judged.shape == study.default_shape:
        return judged.trials
    return _judged(target, study, target.folder)


def _others(target: Target, name: str) -> Sequence[Trial]:
    """None of a study whose files cannot be read: that is for its own verbs to say."""
    try:
        study = target.workspace.study(name)
        folders = evidence_folders(target.workspace.ablations, name)
        folder = latest(folders, study.default_shape)
        return _judged(target, study, folder) if folder else ()
    except WorkbenchError:
        return ()


def _judged(target: Target, study: Study, folder: EvidenceFolder) -> Sequence[Trial]:
    """Of files that are as they were, what this process found in them before: a ladder takes a
    second, and a table of each of several shapes wants all ladders.
    """
    config = target.workspace.config
    key = study.name, folder.gpu, repr(config), stamp(target.workspace, study, folder)
    if key not in _remembered:
        if len(_remembered) >= MOST_REMEMBERED:
            _remembered.clear()
        evidence = Evidence(study, study.default_shape, folder)
        seen = snapshot(evidence, study.ladder.chain([]), timed=(), ranged=False)
        _remembered[key] = trials_in(seen, config)
    return _remembered[key]


def stamp(workspace: Workspace, study: Study, folder: EvidenceFolder) -> Stamp:
    """Of all that a verdict may depend on: files by their path in there, with size and time. A
    variant may take its sources from the kernels of another study, and nothing else of that.
    """
    tops = {workspace.kernels, workspace.ablations / study.name, folder.root}
    return frozenset(each for top in tops for each in _files(top, top.name))


def _files(folder: Path, name: str) -> Iterator[tuple[str, int, int]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:  # it is not there, or may not be read: whoever needs it says so
        return
    for entry in entries:
        inside = f"{name}/{entry.name}"
        if entry.is_dir():
            yield from _files(Path(entry.path), inside)
        else:
            with suppress(OSError):
                facts = entry.stat()
                yield inside, facts.st_size, facts.st_mtime_ns
