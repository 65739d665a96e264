"""Writes what was measured, with its provenance: when, by which command, on what."""

from __future__ import annotations

import datetime
import hashlib
import shlex
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import structs, to_builtins

import workbench
from workbench.cuda.compiler import package_version
from workbench.errors import UsageError
from workbench.evidence import journal, store
from workbench.evidence.journal import PredictionEntry
from workbench.evidence.records import (
    METHOD,
    Build,
    BuiltKernel,
    CapturedKernel,
    CaptureIndex,
    Captures,
    Check,
    DerivedShape,
    Environment,
    Provenance,
    Timeline,
    Timing,
    TracedLaunch,
    Witness,
    other_ways,
    timing_name,
)
from workbench.evidence.store import EvidenceFolder, derived_shapes
from workbench.ncu import command as ncu
from workbench.ncu.command import range_name
from workbench.run import iket
from workbench.run.protocol import TimedSession
from workbench.study.config import Profiler
from workbench.study.files import (
    ZSTD_MAGIC,
    alone,
    compressed,
    delete,
    is_there,
    listed,
    write_bytes,
)
from workbench.study.model import Study
from workbench.study.sources import Fingerprints, source_files
from workbench.words import grouped

REPORT = ".ncu-repz"  # at the end of the name of one that is kept


def write_captures(
    folder: EvidenceFolder, name: str, report: bytes, indexes: Iterable[CaptureIndex]
) -> None:
    """Keep a compressed report, then the indexes that name it, and say so in the journal; drop
    what no index names any more. The report gets another name where there is one of this name.
    """
    with alone(folder.root):  # or the report is nobody's yet when another command cleans up
        if is_there(folder.reports / name):  # two GPUs in one second
            digest = hashlib.sha256(report).hexdigest()[:8]
            name = f"{name.removesuffix(REPORT)}-{digest}{REPORT}"
        write_bytes(folder.reports / name, report)
        renamed = [structs.replace(index, report=name) for index in indexes]
        for shape, here in grouped((index.shape, index) for index in renamed).items():
            captures = {
                **store.captures_at(folder, shape),
                **{index.variant: index for index in here},
            }
            store.write(folder.captures(shape), Captures(captures=captures))
        for index in renamed:
            journal.append(folder, journal.capture_entry(index))
        remove_unused(folder)


def remove_unused(folder: EvidenceFolder) -> None:
    """Delete the reports and tables that the journal has as written here, and that no index entry
    names any more: none while an entry is damaged.
    """
    try:
        every = [store.read_record(path, Captures).captures for path in folder.capture_files()]
    except UsageError:
        return
    used = {index.report for captures in every for index in captures.values()}
    old = {entry.report for entry in journal.load_journal(folder).captures} - used
    kept = {folder.tables(name).name for name in used}
    tables = {folder.tables(name).name for name in old} - kept
    for path in listed(folder.reports):
        delete(path, old)
    for path in listed(folder.root / "tables"):
        delete(path, tables)


def remove_superseded(folder: EvidenceFolder, shape: str, name: str, variants: set[str]) -> None:
    """Delete the timings of a shape whose variants were all timed again in the one of this
    ``name``; the journal has an entry of each.
    """
    for path in folder.timing_files(shape):
        with suppress(UsageError):  # a damaged one is its owner's to repair
            if (
                timing_name(path.name) != name
                and set(store.read_record(path, Timing).fingerprints) <= variants
            ):
                journal.note_found(folder, shape, path)
                delete(path, {path.name})


class Recorder:
    """Writes the evidence of one measurement at a shape, piece by piece.

    It belongs to the sources as they were when the measurement began. ``environment`` is the
    worker's, as soon as that is known.
    """

    def __init__(
        self, study: Study, shape: str, folder: EvidenceFolder, variants: Iterable[str]
    ) -> None:
        self.study = study
        self.shape = shape
        self.folder = folder
        self.environment = Environment()
        self._checks: dict[str, dict[str, Check]] = {}
        self.witnesses: list[Witness] = []  # of the sessions that follow
        self._timing: tuple[Path, Timing] | None = None
        prints = Fingerprints(study)
        self._sources = {name: prints.of_sources(name) for name in variants}
        every = derived_shapes(folder) | {n: s.parameters for n, s in study.shapes.items()}
        self._prints = {
            (name, shape): prints.at_shape(name, parameters)
            for name in self._sources
            for shape, parameters in every.items()
        }

    def predictions(self) -> None:
        """Note the predictions of all steps as they stand, with what is known of each step.

        To be called before anything is measured. What is in the journal already is not noted again:
        its first entry counts.
        """
        with alone(self.folder.root):
            entries = journal.load_journal(self.folder).predictions
            noted = {digest for entry in entries for digest in entry.predictions}
            known_states = journal.known_of(self.folder)
            for step in self.study.ladder.steps:
                new = tuple(d for d in map(step.digest, step.predictions) if d not in noted)
                if new:
                    entry = PredictionEntry(
                        date=now(),
                        workbench=workbench.__version__,
                        variant=step.variant,
                        parent=step.parent,
                        predictions=new,
                        known=known_states.get(step.variant, known_states[""]),
                    )
                    journal.append(self.folder, entry)

    def note_derived(self, others: Iterable[str]) -> None:
        """Note what a shape is that the study does not list, before anything is measured there."""
        for shape in {self.shape, *others} & set(self.study.derived):
            parameters = self.study.shapes[shape].parameters
            store.write(self.folder.shape(shape), DerivedShape(shape=shape, parameters=parameters))

    def expected(self, variant: str, shape: str | None) -> str | None:
        """The fingerprint of evidence of a variant at a shape, or of its build where that is None.
        None where either is not known.
        """
        return self._sources.get(variant) if shape is None else self._prints.get((variant, shape))

    def build(
        self,
        variant: str,
        *,
        arch: str = "",
        kernels: tuple[BuiltKernel, ...] = (),
        warnings: tuple[str, ...] = (),
        error: str = "",
        hint: str = "",
    ) -> Build:
        sources = source_files(self.study, self.study.variants[variant])
        record = Build(
            variant=variant,
            fingerprint=self._sources[variant],
            sources=tuple(path.name for path in sources),
            arch=arch,
            kernels=kernels,
            warnings=warnings,
            error=error,
            hint=hint,
            provenance=provenance(self.environment),
        )
        self.add_build(record)
        return record

    def add_build(self, build: Build) -> None:
        """Write a build beside the checks that are recorded of the variant."""
        with alone(self.folder.root):
            record = store.variant_record(self.folder, build.variant)
            store.write(self.folder.variant(build.variant), structs.replace(record, build=build))

    def check(self, variant: str, shape: str, **outcome: Any) -> None:
        checks = self._checks.setdefault(variant, {})
        checks[shape] = Check(fingerprint=self._prints[variant, shape], **outcome)
        self.add_checks(variant, checks, provenance(self.environment))

    def add_checks(self, variant: str, new: Mapping[str, Check], checked: Provenance) -> None:
        """Write checks beside those that are recorded of these sources at other shapes."""
        with alone(self.folder.root):
            recorded = store.variant_record(self.folder, variant)
            still = {
                shape: check
                for shape, check in recorded.checks.items()
                if check.fingerprint == self.expected(variant, shape)
            }
            record = structs.replace(recorded, checks=still | dict(new), checked=checked)
            store.write(self.folder.variant(variant), record)

    def drop_timing(self) -> None:
        """Delete what this run has timed, but for a line of the journal. A run that was ended
        because its sessions displeased must still count as a recording.
        """
        if self._timing is not None:
            path, timing = self._timing
            with alone(self.folder.root):
                if timing.together:
                    name = timing_name(path.name)
                    journal.append(self.folder, journal.timing_entry(name, timing, cut_short=True))
                path.unlink(missing_ok=True)
        self._timing = None

    def session(self, event: TimedSession, planned: int) -> Timing:
        """Add a session to the file of this run, and return the timing as it is now."""
        path, before = self._timing or (None, None)
        sessions = (*(before.sessions if before else ()), event.session)
        nodes = {**event.nodes, **(before.nodes if before else {})}
        ways = dict(before.ways) if before else {}
        for name, call in event.nodes.items():
            new = call, *event.ways.get(name, ())
            ways[name] = other_ways(nodes[name], *ways.get(name, ()), *new)
        names = {series.variant for session in sessions for series in session.series}
        record = Timing(
            study=self.study.name,
            shape=self.shape,
            fingerprints={name: self._prints[name, self.shape] for name in sorted(names)},
            nodes=nodes,
            method=METHOD,
            stride=1,
            copies=event.copies,
            sessions=sessions,
            provenance=provenance(self.environment),
            planned=planned,
            ways={name: others for name, others in ways.items() if others},
            witnesses=tuple(self.witnesses),
        )
        if path is None:
            path = self.new_timing(record)
        else:
            store.write(path, record)
        self._timing = path, record
        return record

    @property
    def by_referee(self) -> dict[str, float]:
        """Microseconds of a call of each variant that has a witness."""
        times: dict[str, float] = {}
        for seen in self.witnesses:
            if seen.microseconds and seen.anchor_microseconds:
                times |= {seen.anchor: seen.anchor_microseconds, seen.variant: seen.microseconds}
        return times

    def new_timing(self, timing: Timing) -> Path:
        """Write it where no timing of another command, or of before the clock was set back, is."""
        stem, number = stamp(timing.provenance.date), 1
        path = self.folder.timing(self.shape, f"{stem}.json")
        with alone(self.folder.root):
            while is_there(path):
                number += 1  # sorts behind the first
                path = self.folder.timing(self.shape, f"{stem}_{number}.json")
            store.write(path, timing)
        return path

    def end_timing(self) -> None:
        if self._timing is not None:
            self.note_timing(*self._timing)

    def note_timing(self, path: Path, timing: Timing) -> None:
        """Note a timing in the journal. Older timings of its variants alone are deleted."""
        name = timing_name(path.name)
        with alone(self.folder.root):
            journal.append(self.folder, journal.timing_entry(name, timing))
            remove_superseded(self.folder, self.shape, name, set(timing.fingerprints))

    def captures(
        self,
        report: Path,
        launches: Mapping[str, int],
        settings: Profiler,
        version: str,
        resources: Mapping[str, tuple[CapturedKernel, ...]] | None = None,
    ) -> None:
        """Keep a report with the captures of ``launches``, their number by variant, and what it
        says of the kernels of each.
        """
        data = report.read_bytes()
        if not data.startswith(ZSTD_MAGIC):  # what is compressed here has a checksum
            data = compressed(data)
        sha256, flags = hashlib.sha256(data).hexdigest(), tuple(ncu.flags(settings))
        command = shlex.join(ncu.command("ncu", settings))
        origin = provenance(self.environment, ncu_command=command)
        name = f"{self.shape}-{stamp(origin.date)}{REPORT}"
        indexes = [
            CaptureIndex(
                variant=variant,
                shape=self.shape,
                fingerprint=self._prints[variant, self.shape],
                report=name,
                sha256=sha256,
                range=range_name(self.study.name, variant, self.shape),
                launches=number,
                ncu=version,
                ncu_flags=flags,
                provenance=origin,
                resources=(resources or {}).get(variant),
            )
            for variant, number in launches.items()
        ]
        write_captures(self.folder, name, data, indexes)

    def timeline(self, variant: str, launches: tuple[TracedLaunch, ...]) -> None:
        record = Timeline(
            variant=variant,
            shape=self.shape,
            fingerprint=self._prints[variant, self.shape],
            iket=package_version(iket.PACKAGE),
            provenance=provenance(self.environment),
            launches=launches,
        )
        store.write(self.folder.timeline(self.shape, variant), record)


_elsewhere: list[str] = []


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def stamp(date: str) -> str:
    """A date as file names have it."""
    return date.replace(":", "").replace("-", "")


def provenance(
    environment: Environment,
    *,
    command: Iterable[str] | None = None,
    ncu_command: str | None = None,
) -> Provenance:
    """``command`` is the one that evidence came of, in words; ``typed`` where it is not given."""
    words = typed() if command is None else command
    return Provenance(
        **to_builtins(environment),
        workbench=workbench.__version__,
        date=now(),
        command=shlex.join(map(without_folders, words)),
        ncu_command=ncu_command,
    )


def act_for(command: Iterable[str]) -> None:
    """Note that this process measures for a command that was typed elsewhere, from now on."""
    _elsewhere[:] = command


def typed() -> list[str]:
    """The command in words: that of this process, started as `workbench` or as a program that
    imports it, or the one that it acts for.
    """
    if _elsewhere:
        return list(_elsewhere)
    spec, name = getattr(sys.modules["__main__"], "__spec__", None), Path(sys.argv[0]).name
    program = ["python", name] if name == "-c" or name.endswith(".py") else [name or "python"]
    if spec is not None and spec.origin == sys.argv[0]:
        module = spec.name.removesuffix(".__main__")
        program = ["workbench"] if module.startswith("workbench") else ["python", "-m", module]
    return [*program, *sys.argv[1:]]


def without_folders(word: str) -> str:
    """A path of this machine by its last part: evidence travels."""
    option, separator, value = word.rpartition("=")
    return f"{option}{separator}{Path(value).name}" if Path(value).is_absolute() else word
