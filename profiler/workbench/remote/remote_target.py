"""A remote target: what it has, measuring on it, and recording what came back of a job.

Every file is decoded as the record that its path says, and belongs to the variants and the shape of
the job, and to the sources that were sent; otherwise nothing of the result is recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import Protocol, TypeVar

from workbench.app.doctor import Diagnosis
from workbench.app.executor import Executor, Hear, Reporter, Task
from workbench.errors import EnvironmentLacks, Interrupted, ToolFailed, UsageError, WorkbenchError
from workbench.evidence import journal, store
from workbench.evidence.journal import JournalEntry, SessionEntry
from workbench.evidence.layout import gpu_slug
from workbench.evidence.records import CaptureIndex, Captures, CeilingsFile, Record, VariantRecord
from workbench.evidence.timing import Timing
from workbench.judge.open_verdicts import Deciding
from workbench.remote.job import (
    About,
    AboutJob,
    RemoteJob,
    Result,
    digest,
    normalised,
    own_code,
    pack,
    sources_of,
    unpack,
)
from workbench.run.gpu import Gpu
from workbench.run.plan import MeasuredPlan
from workbench.run.protocol import ErrorText
from workbench.run.recording import Recorder, typed, write_captures
from workbench.study.params import parameters_of_derived

R = TypeVar("R", bound=Record)
JOURNAL, CEILINGS = "journal.jsonl", "ceilings.json"
OF_GPU = re.compile(r"variants/[^/]+\.json|reports/[^/]+\.ncu-repz|journal\.jsonl")
OF_SHAPE = re.compile(r"(shape|captures)\.json|timings/[^/]+\.json\.zst")
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
        variants = dict(self.records("variants/*.json", VariantRecord))
        timings = list(dict(self.records(f"{self.shape}/timings/*", Timing)).values())
        indexes = dict(self.records(f"{self.shape}/captures.json", Captures)).values()
        captures = [index for each in indexes for index in each.captures.values()]
        ceilings = list(dict(self.records(CEILINGS, CeilingsFile)).values())
        expected = self.recorder.expected
        for name, record in variants.items():
            self.require(name, record.variant, name)
            if build := record.build:
                self.require(name, build.fingerprint, self.recorder.of_sources(build.variant))
            for shape, check in record.checks.items():
                self.require(name, check.fingerprint, expected(name, shape))
        for timing in timings:
            if (timing.study, timing.shape) != (self.recorder.study.name, self.shape):
                raise refused("a timing is of another study or shape")
            if not DATE.fullmatch(timing.provenance.date):
                raise refused("a timing has no date")
            for variant, found in timing.fingerprints.items():
                self.require(variant, found, expected(variant, self.shape))
        for index in captures:
            self.require(index.variant, index.fingerprint, expected(index.variant, self.shape))
            report = self.files.get(f"reports/{index.report}")
            if report is None or index.shape != self.shape or digest(report) != index.sha256:
                raise refused(f"the capture of {index.variant} has another report or shape")
        for name, record in variants.items():
            if record.build:
                self.recorder.add_build(record.build)
            if record.checks and record.checked:
                self.recorder.add_checks(name, record.checks, record.checked)
        for timing in timings:
            self.timing(timing)
        self.cut_short()
        self.captured(captures)
        for one in ceilings:
            store.write(self.folder.ceilings, one)

    def records(self, pattern: str, kind: type[R]) -> Iterator[tuple[str, R]]:
        """The records of the files of a pattern, by the name of the file without its end."""
        for name in sorted(self.files):
            if PurePosixPath(name).match(pattern):
                try:
                    record = store.decode(self.folder.root / name, self.files[name], kind)
                    yield PurePosixPath(name).name.removesuffix(".json"), record
                except UsageError as error:
                    raise refused(error.message) from None

    def require(self, variant: str, found: str, wanted: str | None) -> None:
        if found != wanted:
            raise refused(f"{variant} was measured with other sources")

    def timing(self, timing: Timing) -> None:
        self.recorder.note_timing(self.recorder.new_timing(timing), timing)

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
            write_captures(self.folder, name, self.files[f"reports/{name}"], mine)


def refused(why: str) -> ToolFailed:
    return ToolFailed(f"what came back is not recorded: {why}", hint=AGAIN)


class Carrier(Protocol):
    """What brings jobs there: see ``SshHost`` and ``DaskCluster``."""

    name: str

    def results(
        self, jobs: Sequence[bytes], hear: Hear
    ) -> Iterator[tuple[int, bytes | WorkbenchError]]: ...


class Remote(Executor):
    at_once = True

    def __init__(self, verb: str, reporter: Reporter, carrier: Carrier) -> None:
        super().__init__(verb, reporter)
        self.carrier, self.place = carrier, carrier.name

    @cached_property
    def about(self) -> About:
        """Raises EnvironmentLacks where it cannot measure."""
        found = self.look()
        if found.lacks is not None:
            raise self.error(found.lacks)
        return found

    @property
    def gpu(self) -> Gpu:
        assert self.about.gpu is not None
        return self.about.gpu

    def require_gpu(self) -> Gpu:
        return self.gpu

    def package_version(self, name: str) -> str | None:
        return self.about.packages.get(normalised(name))

    def doctor(self) -> Diagnosis:
        about = self.look(doctor=True)
        assert about.doctor is not None
        return replace(about.doctor, host=about.host)

    def look(self, *, doctor: bool = False) -> About:
        job = pack(RemoteJob(code=own_code(), instead=AboutJob(doctor=doctor)))
        ((_, result),) = self.results([job], lambda event: None)
        if result.about is None:
            raise ToolFailed(f"{self.place} does not say what it has", hint="run it again")
        return result.about

    def perform(self, tasks: Sequence[Task], hear: Hear) -> list[MeasuredPlan]:
        """Records each result when it arrives. Errors as ``results``."""
        runs = [self.begin(task, self.gpu.name) for task in tasks]
        for task in tasks:
            if task.instead is None:
                self.recorder(task).note_derived(task.plan.others or ())
        recorders = [self.recorder(task) for task in tasks]  # each knows the shapes of all
        for task, recorder in zip(tasks, recorders, strict=True):
            if task.instead is None:
                recorder.predictions()
        found = [MeasuredPlan() for _ in tasks]
        for i, result in self.results([self.job(task) for task in tasks], hear, recorders):
            found[i] = result.measured
            self.charge(tasks[i], runs[i], result.seconds)
        if any(each.interrupted for each in found):
            raise Interrupted
        return found

    def recorder(self, task: Task) -> Recorder:
        return Recorder(task.study, task.plan.shape, task.folder, task.plan.variants)

    def job(self, task: Task) -> bytes:
        sources = sources_of(task.study)
        job = RemoteJob(
            code=own_code(),
            gpu=self.gpu.name,
            study=task.study.name,
            plan=task.plan,
            derived=parameters_of_derived(task.study),
            sources={name: digest(data) for name, data in sources.items()},
            config=task.config,
            deciding=task.deciding or Deciding(),
            command=tuple(typed()),
            instead=task.instead,
        )
        return pack(job, sources.values())

    def results(
        self, jobs: Sequence[bytes], hear: Hear, recorders: Sequence[Recorder] = ()
    ) -> Iterator[tuple[int, Result]]:
        """As they come, recorded by ``recorders``. Raises, after all others, the first error of a
        job that failed.
        """
        errors: list[WorkbenchError] = []
        for i, answer in self.carrier.results(jobs, hear):
            try:
                if isinstance(answer, WorkbenchError):
                    raise answer
                result, contents = unpack(answer, Result)
                if result.error is not None:
                    raise self.error(result.error)
                if recorders:
                    Intake(recorders[i], result, contents).record()
            except WorkbenchError as error:
                errors.append(error)
            else:
                yield i, result
        if errors:
            raise errors[0]

    def error(self, text: ErrorText) -> WorkbenchError:
        """As it was raised there: of that machine, and not of this one."""
        found = text.error()
        if not isinstance(found, EnvironmentLacks | ToolFailed):
            return found
        hint = found.hint.replace("`workbench doctor`", f"`workbench doctor --on {self.place}`")
        return type(found)(f"on {self.place}: {found.message}", hint=hint)


def remote_of(name: str, verb: str, reporter: Reporter) -> Remote:
    """Of what ``--on`` names. Raises UsageError."""
    from workbench.remote.cluster import DaskCluster
    from workbench.remote.ssh import SshHost

    carrier = DaskCluster if "://" in name else SshHost
    return Remote(verb, reporter, carrier(name, reporter.note))
