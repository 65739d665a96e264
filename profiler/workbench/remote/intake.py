"""Records what came back of a job, like a local measurement.

Every file is decoded as the record that its path says, and belongs to the variants and the shape of
the job, and to the sources that were sent; otherwise nothing of the result is recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import TypeVar

from msgspec import structs

from workbench.errors import ToolFailed, UsageError
from workbench.evidence import journal, store
from workbench.evidence.journal import JournalEntry, SessionEntry
from workbench.evidence.layout import gpu_slug, is_there
from workbench.evidence.records import Build, CaptureIndex, CeilingsFile, Checks, Record
from workbench.evidence.timing import Timing
from workbench.remote.job import Result, digest
from workbench.run.recording import Recorder, stamp, write_captures

R = TypeVar("R", bound=Record)
JOURNAL, CEILINGS = "journal.jsonl", "ceilings.json"
OF_GPU = re.compile(r"(builds|checks)/[^/]+\.json|reports/[^/]+\.ncu-repz|journal\.jsonl")
OF_SHAPE = re.compile(r"shape\.json|captures/[^/]+\.json|timings/[^/]+\.json\.zst")
DATE = re.compile(r"[\dTZ:-]+")  # files are named after it
AGAIN = "run the same command again: it measures what is missing"


class Intake:
    """Of a result for the evidence folder and the variants of ``recorder``, which was made when the
    job was. Raises ToolFailed for what is no result of that job.
    """

    def __init__(self, recorder: Recorder, result: Result, contents: Mapping[str, bytes]) -> None:
        self.recorder, self.folder, self.shape = recorder, recorder.folder, recorder.shape
        if result.files and gpu_slug(result.gpu) != self.folder.gpu:
            raise refused(f"it was measured on {result.gpu}, not on {self.folder.gpu}")
        self.files: dict[str, bytes] = {}
        for name, sha256 in result.files.items():
            rest = name.removeprefix(f"{self.shape}/")
            of_shape = rest != name and OF_SHAPE.fullmatch(rest)
            if not (of_shape or OF_GPU.fullmatch(name) or name == CEILINGS):
                raise refused(f"{name!r} is no file of its evidence")
            if sha256 not in contents:
                raise refused(f"the content of {name} is missing")
            self.files[name] = contents[sha256]

    def record(self) -> None:
        builds = list(self.records("builds", Build))
        checks = list(self.records("checks", Checks))
        timings = list(self.records(f"{self.shape}/timings", Timing))
        captures = list(self.records(f"{self.shape}/captures", CaptureIndex))
        ceilings = list(self.records(".", CeilingsFile))
        for build in builds:
            self.require(build.variant, build.fingerprint, self.recorder.of_sources(build.variant))
        for each in checks:
            for shape, check in each.shapes.items():
                self.require(each.variant, check.fingerprint, self.expected(each.variant, shape))
        for timing in timings:
            if (timing.study, timing.shape) != (self.recorder.study.name, self.shape):
                raise refused("a timing is of another study or shape")
            if not DATE.fullmatch(timing.provenance.date):
                raise refused("a timing has no date")
            for variant, found in timing.fingerprints.items():
                self.require(variant, found, self.expected(variant, self.shape))
        for index in captures:
            self.require(index.variant, index.fingerprint, self.expected(index.variant, self.shape))
            report = self.files.get(f"reports/{index.report}")
            if report is None or index.shape != self.shape or digest(report) != index.sha256:
                raise refused(f"the capture of {index.variant} has another report or shape")
        for build in builds:
            store.write(self.folder.build(build.variant), build)
        for each in checks:
            self.recorder.add_checks(each)
        for timing in timings:
            self.timing(timing)
        self.cut_short()
        self.captured(captures)
        for one in ceilings:
            store.write(self.folder.ceilings, one)

    def records(self, folder: str, kind: type[R]) -> Iterator[R]:
        """Those of a folder; "." has the ceilings alone."""
        for name in sorted(self.files):
            if PurePosixPath(name).parent == PurePosixPath(folder) and name != JOURNAL:
                try:
                    yield store.decode(self.folder.root / name, self.files[name], kind)
                except UsageError as error:
                    raise refused(error.message) from None

    def expected(self, variant: str, shape: str) -> str | None:
        return self.recorder.expected(variant, shape)

    def require(self, variant: str, found: str, wanted: str | None) -> None:
        if found != wanted:
            raise refused(f"{variant} was measured with other sources")

    def timing(self, timing: Timing) -> None:
        path = self.recorder.free(stamp(timing.provenance.date))
        store.write(path, timing)
        self.recorder.note_timing(path, timing)

    def cut_short(self) -> None:
        """Timings that ended early left only a line."""
        lines = self.files.get(JOURNAL, b"")
        entries, _ = store.decode_lines(self.folder.journal, lines, JournalEntry)
        for entry in entries:
            if isinstance(entry, SessionEntry) and entry.cut_short and entry.shape == self.shape:
                journal.append(self.folder, entry)

    def captured(self, indexes: list[CaptureIndex]) -> None:
        for name in dict.fromkeys(index.report for index in indexes):
            mine = [index for index in indexes if index.report == name]
            report, kept = self.files[f"reports/{name}"], name
            if is_there(self.folder.reports / name):  # two GPUs in one second
                kept = f"{name.removesuffix('.ncu-repz')}-{digest(report)[:8]}.ncu-repz"
            new = [structs.replace(index, report=kept) for index in mine]
            write_captures(self.folder, kept, report, new)


def refused(why: str) -> ToolFailed:
    return ToolFailed(f"what came back is not recorded: {why}", hint=AGAIN)
