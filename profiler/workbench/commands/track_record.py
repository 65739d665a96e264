"""The track record of the whole workspace: what came of advice on every ladder of it."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import replace

from workbench.commands.target import Target, latest
from workbench.errors import WorkbenchError
from workbench.evidence.layout import EvidenceFolder, evidence_folders
from workbench.evidence.recorded import Evidence
from workbench.judge.advice.record import Trial, record
from workbench.judge.ladder import trials_in
from workbench.judge.rows import Ablation
from workbench.judge.snapshot import snapshot
from workbench.study.model import Study

Known = MutableMapping[str, Sequence[Trial]]


def with_record(judged: Ablation, target: Target, known: Known | None = None) -> Ablation:
    """With the record of all ladders at their studies' own shapes, as far as they can be read.

    ``known`` are their trials by study, of tables of the same evidence: those that it lacks are
    added to it.
    """
    found: Known = {} if known is None else known
    own = target.study.name
    for name in (own, *target.workspace.studies()):
        if name not in found:
            found[name] = _own(judged, target) if name == own else _others(target, name)
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
    evidence = Evidence(study, study.default_shape, folder)
    return trials_in(snapshot(evidence, study.ladder.chain([])), target.workspace.config)
