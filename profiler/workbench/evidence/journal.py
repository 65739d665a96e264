"""Keep a line for each recording, which nothing that comes later takes away."""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from workbench.errors import UsageError, WorkbenchError
from workbench.evidence import store
from workbench.evidence.records import (
    CaptureIndex,
    Captures,
    Number,
    Provenance,
    Record,
    Timing,
    timing_name,
)
from workbench.evidence.store import EvidenceFolder
from workbench.words import HEADLINE, Known, grouped


class JournalRecord(Record, frozen=True, kw_only=True, omit_defaults=True, tag_field="entry"):
    """A line of the journal: ``date`` in UTC, the workbench's version; else as ``Environment``."""

    repair: ClassVar[str] = "the other lines of the journal count; this one can be deleted"

    date: str
    workbench: str | None = None
    gpu_uuid: str | None = None
    host: str | None = None


class SessionEntry(JournalRecord, frozen=True, kw_only=True, tag="session"):
    """A timing run: what is left of it where its file was superseded.

    ``file`` stands in the shape's ``timings``, ``sessions`` is the number of processes that timed,
    ``medians`` are those of the variants in ``regime``, in microseconds of one call. ``cut_short``:
    it ended before it had the sessions that were planned, or was begun again without a variant
    that broke it, and its samples were not kept. ``found``: nobody had noted it when another one
    superseded it.
    """

    shape: str
    file: str
    sessions: int
    regime: str
    fingerprints: dict[str, str]
    medians: dict[str, Number]
    cut_short: bool = False
    found: bool = False


class CaptureEntry(JournalRecord, frozen=True, kw_only=True, tag="capture"):
    """A capture of a variant in a report."""

    shape: str
    report: str
    variant: str
    fingerprint: str


class PredictionEntry(JournalRecord, frozen=True, kw_only=True, tag="prediction"):
    """A step's predictions before a run measured anything, by their digests (``Step.digest``), and
    what was ``known`` of the step then, on any GPU and at any shape.
    """

    variant: str
    parent: str | None
    predictions: tuple[str, ...]
    known: Known


JournalEntry = SessionEntry | CaptureEntry | PredictionEntry


@dataclass(frozen=True)
class Journal:
    """The entries of one GPU as written, but ``predictions`` of all GPUs, oldest first, and
    ``measured``, the dates of each variant's first timing or capture on any: what one GPU showed is
    known on all. ``notes`` says which lines were passed over, and why.
    """

    sessions: tuple[SessionEntry, ...] = ()
    captures: tuple[CaptureEntry, ...] = ()
    predictions: tuple[PredictionEntry, ...] = ()
    measured: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def load_journal(folder: EvidenceFolder) -> Journal:
    """Empty without a file. Raises EnvironmentLacks for one that cannot be read."""
    entries, text = _entries(folder)
    others = [one for one in folder.every_gpu if one != folder]
    everywhere = [*entries, *(entry for other in others for entry in _entries(other)[0])]
    noted = [entry for entry in everywhere if isinstance(entry, PredictionEntry)]
    first: dict[str, str] = {}
    for entry in everywhere:
        names: Iterable[str] = ()
        if isinstance(entry, CaptureEntry):
            names = [entry.variant]
        elif isinstance(entry, SessionEntry) and not entry.found:
            names = entry.fingerprints  # one found may be older: `known_of` tells of it
        first |= {name: min(entry.date, first.get(name, entry.date)) for name in names}
    return Journal(
        sessions=tuple(entry for entry in entries if isinstance(entry, SessionEntry)),
        captures=tuple(entry for entry in entries if isinstance(entry, CaptureEntry)),
        predictions=tuple(sorted(noted, key=lambda entry: entry.date)),
        measured=first,
        notes=tuple(text),
    )


@cache
def known_between(gpu: str) -> tuple[float, str]:
    """Return by how much a ratio varies between recordings on GPUs of a model, and that model.

    It is the standard deviation of the ratio's logarithm beside that of its sessions. ``gpu`` is
    the name of the model's folder; if nothing is known of it, the model with the largest stands in.
    """
    text = Path(__file__).with_name("between.toml").read_text(encoding="utf-8")
    deviations = {model: float(entry["deviation"]) for model, entry in tomllib.loads(text).items()}
    model = gpu if gpu in deviations else max(deviations, key=deviations.__getitem__)
    return deviations[model], model


def append(folder: EvidenceFolder, *entries: JournalRecord) -> None:
    store.append(folder.journal, *entries)


def passed_over(folder: EvidenceFolder) -> list[str]:
    """List what is wrong with lines of the journal that count for nothing."""
    try:
        return _entries(folder)[1]
    except WorkbenchError as error:
        return [error.message]


def _entries(folder: EvidenceFolder) -> tuple[list[JournalEntry], list[str]]:
    return store.read_lines(folder.journal, JournalEntry)


def _origin(provenance: Provenance) -> Mapping[str, Any]:
    return {name: getattr(provenance, name) for name in JournalRecord.__struct_fields__}


def timing_entry(
    file: str, timing: Timing, *, cut_short: bool = False, found: bool = False
) -> SessionEntry:
    """A timing in a line; ``file`` is the name of its samples, which may be gone."""
    return SessionEntry(
        **_origin(timing.provenance),
        shape=timing.shape,
        file=file,
        sessions=len(timing.together),
        regime=HEADLINE,
        fingerprints=timing.fingerprints,
        medians=medians(timing),
        cut_short=cut_short,
        found=found,
    )


def note_found(folder: EvidenceFolder, shape: str, path: Path) -> None:
    """Note a timing file that goes, unless the journal has it: a run that was killed could not.
    Raises UsageError for a file that is no timing.
    """
    noted = {(entry.shape, entry.file) for entry in load_journal(folder).sessions}
    if (shape, name := timing_name(path.name)) not in noted:
        timing = store.read_record(path, Timing)
        entry = timing_entry(name, timing, cut_short=not timing.is_complete, found=True)
        append(folder, entry)


def capture_entry(index: CaptureIndex) -> CaptureEntry:
    return CaptureEntry(
        **_origin(index.provenance),
        shape=index.shape,
        report=index.report,
        variant=index.variant,
        fingerprint=index.fingerprint,
    )


def medians(timing: Timing) -> dict[str, float]:
    """Variant to chained µs of a call: the median over instances of medians over rounds."""
    times = grouped(
        (series.variant, statistics.median(series.added))
        for session in timing.together
        for series in session.series
        if series.regime == HEADLINE and not series.control
    )
    return {variant: round(statistics.median(samples), 4) for variant, samples in times.items()}


def known_of(folder: EvidenceFolder) -> Mapping[str, Known]:
    """Variant to what is recorded of it, on any GPU and at any shape; "" stands for all others."""
    states: dict[str, Known] = {"": Known.NOTHING}
    for gpu_folder in folder.every_gpu or [folder]:
        entries, text = _entries(gpu_folder)
        if text:
            states[""] = Known.UNKNOWN
        captured = [e for e in entries if isinstance(e, CaptureEntry)]
        names = [
            name
            for path in gpu_folder.capture_files()
            for name in store.read_record(path, Captures).captures
        ]
        names += [entry.variant for entry in captured]
        states |= {name: Known.CAPTURED for name in names if states.get(name) != Known.TIMED}
        timed = [e.fingerprints for e in entries if isinstance(e, SessionEntry)]
        for path in (
            path for shape in gpu_folder.shapes for path in gpu_folder.timing_files(shape.name)
        ):
            try:
                timed.append(store.read_record(path, Timing).fingerprints)
            except UsageError:
                states[""] = Known.UNKNOWN
        states |= {name: Known.TIMED for prints in timed for name in prints}
    return states
