"""Judged ladders, with the track record of the workspace: what came of advice on each of them.

The record stands in one file with an entry a study, which judging that study's whole ladder
updates: no verb judges the ladder of another study for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from workbench.app.target import Target
from workbench.errors import WorkbenchError
from workbench.evidence.recorded import Evidence
from workbench.evidence.store import write_bytes
from workbench.judge.advice.ranking import AdviceRecord, together
from workbench.judge.known_evidence import Snapshot
from workbench.judge.ladder import judge
from workbench.judge.rows import Ablation
from workbench.judge.snapshot import snapshot
from workbench.study import json_text
from workbench.study.config import Config
from workbench.study.model import Step
from workbench.words import Origin


class TrackRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``ablations/advice.json``: the record of each study."""

    schema_version: int
    studies: Mapping[str, AdviceRecord]


def on_record(evidence: Evidence, config: Config) -> Ablation:
    """The whole ladder judged by the evidence as it is, without a track record."""
    return judge(snapshot(evidence, evidence.study.ladder.chain([])), config)


def judged(
    target: Target,
    only: Sequence[str] = (),
    *,
    steps: Sequence[Step] | None = None,
    source: Origin = Origin.RECORDED,
    sources: bool = False,
    everywhere: bool = True,
    keep: bool = False,
) -> tuple[Ablation, Snapshot]:
    """The whole ladder, ``only`` some of it or up to some ``steps``, judged by the evidence as it
    is, ``everywhere`` or at the target's shape alone. ``keep`` as in ``with_record``.
    """
    steps = target.study.ladder.chain([]) if steps is None else list(steps)
    seen = snapshot(target.evidence(), steps, sources=sources, only=only, everywhere=everywhere)
    found = judge(seen, target.workspace.config, source=source)
    return with_record(found, target, keep=keep), seen


def with_record(judged: Ablation, target: Target, *, keep: bool = False) -> Ablation:
    """With the record of all ladders, its own from ``judged`` if that is the whole ladder at the
    study's default shape; ``keep`` writes that into the file.
    """
    study, workspace = target.study, target.workspace
    path = workspace.ablations / "advice.json"
    kept = _read(path)
    known = {name: kept[name] for name in workspace.studies() if name in kept}
    whole = [row.variant for row in judged.rows] == [step.variant for step in study.ladder.steps]
    if whole and judged.shape == study.default_shape:
        known[study.name] = judged.record
        if keep and kept.get(study.name) != judged.record and not workspace.packaged:
            _write(path, {**kept, study.name: judged.record})
    order = sorted(known, key=lambda name: (name != study.name, name))
    return replace(judged, record=together([known[name] for name in order]))


def _read(path: Path) -> Mapping[str, AdviceRecord]:
    """Empty if there is no such file, or none that can be read: the next ``ablate`` writes it."""
    try:
        found: TrackRecord = json_text.as_type(path.read_bytes(), TrackRecord)
        return found.studies
    except (OSError, ValueError, msgspec.DecodeError):
        return {}


def _write(path: Path, known: Mapping[str, AdviceRecord]) -> None:
    """A workspace that takes no files has no record, and everything else."""
    data = msgspec.json.encode(TrackRecord(1, dict(sorted(known.items()))))
    with suppress(WorkbenchError, OSError):
        write_bytes(path, msgspec.json.format(data, indent=1) + b"\n")
