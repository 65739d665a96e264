"""What is recorded for a study on a GPU, and whether it still fits the sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from workbench.errors import UsageError
from workbench.evidence import store
from workbench.evidence.layout import EvidenceFolder, gpu_slug, is_there
from workbench.evidence.records import (
    Build,
    CaptureIndex,
    CeilingsFile,
    Check,
    Checks,
    DerivedShape,
    Record,
)
from workbench.evidence.timing import Timing, TimingHead
from workbench.study.model import Study
from workbench.study.sources import Fingerprints
from workbench.words import Parameter, Status

R = TypeVar("R", bound=Record)
S = TypeVar("S", bound=msgspec.Struct)
F = TypeVar("F", Build, Check, CaptureIndex)  # tied to sources by a fingerprint


@dataclass(frozen=True)
class OnRecord(Generic[S]):
    """A record, if any, and whether it is of the present sources; ``why`` one is damaged."""

    state: Status
    record: S | None = None
    why: str = ""

    @property
    def current(self) -> S | None:
        return self.record if self.state == Status.CURRENT else None


@dataclass(frozen=True)
class TimingFile:
    """Variants timed together, and the name of the file, which is its date."""

    name: str
    timing: Timing


class Files:
    """A study's fingerprints and evidence files as first read, with what others ``opened``."""

    def __init__(self, study: Study) -> None:
        self.fingerprints = Fingerprints(study)
        self.opened: dict[str, object] = {}
        self._read: dict[Path, Record | None] = {}
        self._reports: dict[str, str | None] = {}

    def record(self, path: Path, kind: type[R]) -> R | None:
        """None where there is no such file. Raises UsageError for what is no such record."""
        if path not in self._read:
            self._read[path] = store.read(path, kind) if is_there(path) else None
        known = self._read[path]
        assert known is None or isinstance(known, kind)
        return known

    def report_sha256(self, folder: EvidenceFolder, name: str) -> str | None:
        """As ``store`` has it: variants share reports."""
        if name not in self._reports:
            self._reports[name] = store.report_sha256(folder, name)
        return self._reports[name]


@dataclass(frozen=True)
class Evidence:
    """All that is recorded for ``study`` at ``shape`` on one GPU; what has been read is kept."""

    study: Study
    shape: str
    folder: EvidenceFolder
    known: Files | None = field(default=None, repr=False, compare=False)

    def at(self, shape: str) -> Evidence:
        """The same at another shape."""
        return Evidence(self.study, shape, self.folder, self.files)

    @cached_property
    def files(self) -> Files:
        return self.known or Files(self.study)

    def _print(self, variant: str) -> str:
        """Of its present sources; "" of a variant that the study has not."""
        known = variant in self.study.variants
        return self.files.fingerprints.of(variant, self.shape) if known else ""

    def build(self, variant: str) -> OnRecord[Build]:
        record = self.files.record(self.folder.build(variant), Build)
        return _against(record, self.files.fingerprints.of_sources(variant))

    def check(self, variant: str, shape: str | None = None) -> OnRecord[Check]:
        shape = shape or self.shape
        return self.checks(variant, [shape])[shape]

    def checks(self, variant: str, shapes: Iterable[str]) -> dict[str, OnRecord[Check]]:
        record = self.files.record(self.folder.check(variant), Checks)
        known, of = record.shapes if record else {}, self.files.fingerprints.of
        return {shape: _against(known.get(shape), of(variant, shape)) for shape in shapes}

    def capture_index(self, variant: str) -> OnRecord[CaptureIndex]:
        """Missing without its report and tables; damaged where these are of another report."""
        index = self.files.record(self.folder.capture_index(self.shape, variant), CaptureIndex)
        entry = _against(index, self._print(variant))
        if entry.current is None:
            return entry
        name = entry.current.report
        sha256 = self.files.report_sha256(self.folder, name)
        if sha256 is None:
            return OnRecord(Status.MISSING)
        if sha256 != entry.current.sha256:
            return OnRecord(Status.DAMAGED, index, f"{name} {store.EXCHANGED}")
        return entry

    @cached_property
    def calibration(self) -> CeilingsFile | None:
        """The GPU's measured ceilings: of this study, else the newest of another; None without."""
        own = load_calibration(self.folder)
        if own is not None:
            return own
        others = (load_calibration(folder) for folder in self.folder.every_study)
        return max(filter(None, others), key=lambda found: found.provenance.date, default=None)

    @cached_property
    def timings(self) -> tuple[TimingFile, ...]:
        """Oldest first; none that was cut short."""
        paths = self.folder.timing_files(self.shape)
        files = (TimingFile(path.name, store.read(path, Timing)) for path in paths)
        return tuple(file for file in files if file.timing.is_complete)

    @cached_property
    def prints(self) -> Sequence[Mapping[str, str]]:
        """Variant to fingerprint, of each of the same timings; they are not read again."""
        if "timings" in vars(self):
            return [file.timing.fingerprints for file in self.timings]
        heads = (store.read(path, TimingHead) for path in self.folder.timing_files(self.shape))
        return [
            head.fingerprints
            for head in heads
            if sum(not session.alone for session in head.sessions) >= head.planned
        ]

    @property
    def measured(self) -> set[str]:
        """Variants that were timed or captured at this shape, whatever their sources were."""
        timed = (name for prints in self.prints for name in prints)
        return {*timed, *(path.stem for path in self.folder.captured(self.shape))}

    def timed(self, timing: Timing) -> list[str]:
        """Variants of a timing whose sources have not changed since."""
        prints = timing.fingerprints
        return [name for name in prints if self._print(name) == prints[name]]

    def chained(self, timing: Timing) -> list[str]:
        """Those of them that were timed in the regime that decides; none of an older timing."""
        return [name for name in self.timed(timing) if name in timing.chained]

    def timing(self, variants: Iterable[str]) -> TimingFile | None:
        """The newest with the most of ``variants`` chained, of present sources; or None."""
        wanted, best, most = set(variants), None, 0
        for file in self.timings:
            held = len(set(self.chained(file.timing)) & wanted)
            if held and held >= most:
                best, most = file, held
        return best

    def was_timed(self, variant: str) -> bool:
        return any(variant in prints for prints in self.prints)

    def state(self, variant: str) -> dict[str, Status]:
        """current, stale or missing, for each kind of evidence."""
        now = self._print(variant)
        timed = any(now == prints.get(variant) for prints in self.prints)
        late = Status.STALE if self.was_timed(variant) else Status.MISSING
        return {
            "build": self.build(variant).state,
            "check": self.check(variant).state,
            "timing": Status.CURRENT if timed else late,
            "capture": self.capture_index(variant).state,
        }


def _against(record: F | None, fingerprint: str) -> OnRecord[F]:
    """Current where it is of this fingerprint, else stale; missing where there is none."""
    if record is None:
        return OnRecord(Status.MISSING)
    current = record.fingerprint == fingerprint
    return OnRecord(Status.CURRENT if current else Status.STALE, record)


def derived_shapes(folder: EvidenceFolder) -> dict[str, dict[str, Parameter]]:
    """Name to parameters of recorded shapes that the study did not list when measured."""
    paths = (folder.shape(path.name) for path in folder.shapes)
    records = (store.read(path, DerivedShape) for path in paths if is_there(path))
    return {record.shape: record.parameters for record in records}


def load_calibration(folder: EvidenceFolder) -> CeilingsFile | None:
    """The ceilings that ``workbench calibrate`` measured; None without a file. Raises UsageError
    for one that is damaged or of another GPU.
    """
    path = folder.ceilings
    if not is_there(path):
        return None
    file = store.read(path, CeilingsFile)
    gpu = file.provenance.gpu
    if gpu is None:
        why = f"{path} is damaged: its provenance has no `gpu`"
        raise UsageError(why, hint=CeilingsFile.repair)
    if gpu_slug(gpu) != folder.gpu:
        raise UsageError(f"{path} is of another GPU: {gpu}", hint=CeilingsFile.repair)
    return file
