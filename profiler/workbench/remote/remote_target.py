"""A remote target: it says what it has, measures there, and records the results here."""

from __future__ import annotations

import hashlib
import re
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import workbench
from workbench.app.doctor import Diagnosis
from workbench.app.executor import Executor, Hear, Reporter, Task
from workbench.errors import EnvironmentLacks, Interrupted, ToolFailed, UsageError, WorkbenchError
from workbench.evidence import journal, store
from workbench.evidence.journal import JournalEntry, SessionEntry
from workbench.evidence.records import Captures, CeilingsFile, Record, Timing, VariantRecord
from workbench.evidence.store import gpu_slug
from workbench.judge.open_verdicts import Deciding
from workbench.remote import bootstrap, worker
from workbench.remote.worker import RemoteJob, Result
from workbench.run.gpu import Gpu
from workbench.run.measurement import MeasuredPlan
from workbench.run.protocol import ErrorText
from workbench.run.recording import Recorder, typed, write_captures
from workbench.study.params import parameters_of_derived

AGAIN = "run the same command again: it measures what is missing"
JOURNAL, REPORTS = "journal.jsonl", "reports/"
OTHERS = re.compile(r"journal\.jsonl|reports/[^/]+\.ncu-repz|tables/[^/]+|[^/]+/shape\.json")
DATE = re.compile(r"[\dTZ:-]+")  # a file is named after it
Answers = Iterator[tuple[int, bytes | WorkbenchError]]  # each with the number of its job


class Remote(Executor):
    """``name`` is the remote target as ``--on`` has it."""

    at_once = True

    def __init__(self, name: str, verb: str, reporter: Reporter) -> None:
        super().__init__(verb, reporter)
        self.place = name

    @abstractmethod
    def carry(self, jobs: Sequence[bytes], hear: Hear) -> Answers:
        """Carry out framed jobs there, and yield the results as they come."""

    @cached_property
    def machine(self) -> Result:
        """Raises EnvironmentLacks where it cannot measure."""
        return self.ask("about")

    @property
    def gpu(self) -> Gpu:
        assert self.machine.gpu is not None
        return self.machine.gpu

    def require_gpu(self) -> Gpu:
        return self.gpu

    def package_version(self, name: str) -> str | None:
        return self.machine.packages.get(name.lower().replace("_", "-"))

    def doctor(self) -> Diagnosis:
        answer = self.ask("doctor").doctor
        assert answer is not None
        return answer

    def ask(self, question: Literal["about", "doctor"]) -> Result:
        job = worker.pack(RemoteJob(question=question))
        ((_, answer),) = self.results([job], lambda event: None)
        return answer

    def perform(self, tasks: Sequence[Task], hear: Hear) -> list[MeasuredPlan]:
        """Record each result when it arrives. Raises as ``results``."""
        runs = [self.begin(task, self.gpu.name) for task in tasks]
        for task in tasks:
            if task.instead is None:
                recorder_of(task).note_derived(task.plan.others or ())
                recorder_of(task).predictions()
        recorders = [recorder_of(task) for task in tasks]  # now that each has the shapes of all
        plans = [MeasuredPlan() for _ in tasks]
        for number, result in self.results([self.job(task) for task in tasks], hear, recorders):
            plans[number] = result.measured
            self.charge(tasks[number], runs[number], result.seconds)
        if any(plan.interrupted for plan in plans):
            raise Interrupted
        return plans

    def job(self, task: Task) -> bytes:
        job = RemoteJob(
            gpu=self.gpu.name,
            study=task.study.name,
            plan=task.plan,
            derived=parameters_of_derived(task.study),
            config=task.config,
            deciding=task.deciding or Deciding(),
            command=tuple(typed()),
            instead=task.instead,
        )
        files = worker.files_below(task.study.folder, f"kernels/{task.study.name}/")
        ladder = task.study.ladder.path.read_bytes()
        return worker.pack(job, {**files, f"ablations/{task.study.name}/ablation.toml": ladder})

    def results(
        self, jobs: Sequence[bytes], hear: Hear, recorders: Sequence[Recorder] = ()
    ) -> Iterator[tuple[int, Result]]:
        """Yield the results as they come, recorded, each with the number of its job. Raises the
        first error of a job that failed, after all others have come.
        """
        errors: list[WorkbenchError] = []
        for number, answer in self.carry([b"%d\n%s" % (len(job), job) for job in jobs], hear):
            try:
                if isinstance(answer, WorkbenchError):
                    raise answer
                result, files = worker.unpack(answer, Result)
                if result.error is not None:
                    raise self.error(result.error)
                if recorders:
                    record(recorders[number], result, files)
            except WorkbenchError as error:
                errors.append(error)
            else:
                yield number, result
        if errors:
            raise errors[0]

    def error(self, text: ErrorText) -> WorkbenchError:
        """Return the error that was raised there, with the name of the remote target."""
        error = text.error()
        if not isinstance(error, EnvironmentLacks | ToolFailed):
            return error
        hint = error.hint.replace("`workbench doctor`", f"`workbench doctor --on {self.place}`")
        return type(error)(f"on {self.place}: {error.message}", hint=hint)


@cache
def packed_code() -> bytes:
    """Return this package as a zip, without the studies in a wheel."""
    files = worker.files_below(Path(workbench.__file__).parent, "workbench/")
    return worker.zipped({n: data for n, data in files.items() if "/_content/" not in n})


def program() -> str:
    """Return a program that becomes a worker. It reads ``packed_code`` and a framed job."""
    text = Path(bootstrap.__file__).read_text(encoding="utf-8")
    return f"{text}\nmain({len(packed_code())}, {requirements()!r})\n"


def requirements() -> list[str]:
    """Return those of the distribution and its extra ``gpu``. If the workbench is not installed
    here, there are none, and the remote Python must have the packages.
    """
    try:
        halves = [text.partition(";") for text in metadata.requires("kernel-workbench") or []]
    except metadata.PackageNotFoundError:
        return []
    return [name.strip() for name, _, when in halves if "extra" not in when or "gpu" in when]


def recorder_of(task: Task) -> Recorder:
    return Recorder(task.study, task.plan.shape, task.folder, task.plan.variants)


def record(recorder: Recorder, result: Result, files: Mapping[str, bytes]) -> None:
    """Record the files of a result, or none of them. ``recorder`` was made when the job was. Raises
    ToolFailed for a file that is no evidence of the job's GPU, shape, variants and sources.
    """
    folder, shape = recorder.folder, recorder.shape
    gpu = result.gpu.full_name if result.gpu else "no GPU"
    if files and gpu_slug(gpu) != folder.gpu:
        raise refused(f"it was measured on {gpu}, not on {folder.gpu}")
    records = decoded(recorder, files)
    lines, _ = store.decode_lines(folder.journal, files.get(JOURNAL, b""), JournalEntry)
    for record in records[VariantRecord]:
        if record.build:
            recorder.add_build(record.build)
        if record.checks and record.checked:
            recorder.add_checks(record.variant, record.checks, record.checked)
    for timing in records[Timing]:
        recorder.note_timing(recorder.new_timing(timing), timing)
    for entry in lines:  # a timing that ended early left only a line
        if isinstance(entry, SessionEntry) and entry.cut_short and entry.shape == shape:
            journal.append(folder, entry)
    indexes = [index for record in records[Captures] for index in record.captures.values()]
    for name in dict.fromkeys(index.report for index in indexes):
        same = [index for index in indexes if index.report == name]
        write_captures(folder, name, files[REPORTS + name], same)
    for ceilings in records[CeilingsFile]:
        store.write(folder.ceilings, ceilings)


def decoded(recorder: Recorder, files: Mapping[str, bytes]) -> Mapping[type[Record], list[Any]]:
    """Return the records by kind. Raises ToolFailed for what is no evidence of the job."""
    kinds: dict[str, type[Record]] = {
        "variants/": VariantRecord,
        f"{recorder.shape}/timings/": Timing,
        f"{recorder.shape}/captures.json": Captures,
        "ceilings.json": CeilingsFile,
    }
    records: dict[type[Record], list[Any]] = defaultdict(list)
    for name, data in files.items():
        if kind := kinds.get(name) or kinds.get(name[: name.rfind("/") + 1]):
            try:
                records[kind].append(store.decode(recorder.folder.root / name, data, kind))
            except UsageError as error:
                raise refused(error.message) from None
        elif not OTHERS.fullmatch(name):
            raise refused(f"{name!r} is no file of its evidence")
    for record in records[VariantRecord]:
        if record.build:
            require(recorder, record.build.variant, None, record.build.fingerprint)
        for shape, check in record.checks.items():
            require(recorder, record.variant, shape, check.fingerprint)
    for timing in records[Timing]:
        if timing.shape != recorder.shape or not DATE.fullmatch(timing.provenance.date):
            raise refused("a timing is of another shape, or has no date")
        for variant, fingerprint in timing.fingerprints.items():
            require(recorder, variant, recorder.shape, fingerprint)
    for index in (index for record in records[Captures] for index in record.captures.values()):
        require(recorder, index.variant, recorder.shape, index.fingerprint)
        report = hashlib.sha256(files.get(REPORTS + index.report, b"")).hexdigest()
        if (index.shape, index.sha256) != (recorder.shape, report):
            raise refused(f"the capture of {index.variant} has another report or shape")
    return records


def require(recorder: Recorder, variant: str, shape: str | None, fingerprint: str) -> None:
    if fingerprint != recorder.expected(variant, shape):
        raise refused(f"{variant} was measured with other sources")


def refused(why: str) -> ToolFailed:
    return ToolFailed(f"what came back is not recorded: {why}", hint=AGAIN)
