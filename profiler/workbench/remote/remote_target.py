"""A remote target: it says what it has, measures there, and records the results here. Jobs go over
the user's own ``ssh``, or a task each to a Dask cluster, which schedules them and tries again.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
import signal
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import workbench
from workbench.app.executor import Executor, Hear, Reporter, Task
from workbench.errors import EnvironmentLacks, Interrupted, ToolFailed, UsageError, WorkbenchError
from workbench.evidence import journal, store
from workbench.evidence.journal import JournalEntry, SessionEntry
from workbench.evidence.records import Captures, Record, Timeline, Timing, VariantRecord
from workbench.evidence.store import gpu_slug
from workbench.judge.open_verdicts import Deciding
from workbench.remote import bootstrap, worker
from workbench.remote.bootstrap import exchange
from workbench.remote.worker import RemoteJob, Result
from workbench.run.machine import Gpu
from workbench.run.measurement import MeasuredPlan
from workbench.run.protocol import ErrorText, decode
from workbench.run.recording import Recorder, typed, write_captures
from workbench.study.sources import compiling_variables
from workbench.words import OWN_EXTRA

AGAIN = "run the same command again: it measures what is missing"
JOURNAL, REPORTS = "journal.jsonl", "reports/"
OTHERS = re.compile(r"journal\.jsonl|reports/[^/]+\.ncu-repz|tables/[^/]+|[^/]+/shape\.json")
DATE = re.compile(r"[\dTZ:-]+")  # a file is named after it
Answers = Iterator[tuple[int, bytes | WorkbenchError]]  # each with the number of its job


class Remote(Executor):
    """``name`` is the remote target as ``--on`` has it."""

    at_once = True

    def __init__(self, name: str, reporter: Reporter) -> None:
        super().__init__(reporter)
        self.place = name

    @abstractmethod
    def carry(self, jobs: Sequence[bytes], hear: Hear) -> Answers:
        """Carry out framed jobs there, and yield the results as they come."""

    @cached_property
    def machine(self) -> Result:
        """Raises EnvironmentLacks where it cannot measure."""
        ((_, answer),) = self.results([worker.pack(RemoteJob())], lambda event: None)
        return answer

    @property
    def gpu(self) -> Gpu:
        assert self.machine.gpu is not None
        return self.machine.gpu

    def package_version(self, name: str) -> str | None:
        return self.machine.packages.get(name.lower().replace("_", "-"))

    def perform(self, tasks: Sequence[Task], hear: Hear) -> list[MeasuredPlan]:
        """Record each result when it arrives. Raises as ``results``."""
        for task in tasks:
            if task.instead is None:
                recorder_of(task).note_derived(task.plan.others or ())
                recorder_of(task).predictions()
        recorders = [recorder_of(task) for task in tasks]  # now that each has the shapes of all
        plans = [MeasuredPlan() for _ in tasks]
        for number, result in self.results([self.job(task) for task in tasks], hear, recorders):
            plans[number] = result.measured
        if any(plan.interrupted for plan in plans):
            raise Interrupted
        return plans

    def job(self, task: Task) -> bytes:
        job = RemoteJob(
            gpu=self.gpu.name,
            study=task.study.name,
            plan=task.plan,
            derived=task.study.derived,
            config=task.config,
            deciding=task.deciding or Deciding(),
            command=tuple(typed()),
            variables=compiling_variables(),
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
        return type(error)(f"on {self.place}: {error.message}", hint=error.hint)


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
    for timeline in records[Timeline]:
        store.write(folder.timeline(shape, timeline.variant), timeline)


def decoded(recorder: Recorder, files: Mapping[str, bytes]) -> Mapping[type[Record], list[Any]]:
    """Return the records by kind. Raises ToolFailed for what is no evidence of the job."""
    kinds: dict[str, type[Record]] = {
        "variants/": VariantRecord,
        f"{recorder.shape}/timings/": Timing,
        f"{recorder.shape}/captures.json": Captures,
        f"{recorder.shape}/timelines/": Timeline,
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
    for timeline in records[Timeline]:
        require(recorder, timeline.variant, recorder.shape, timeline.fingerprint)
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


DESTINATION = re.compile(r"(?P<host>[\w][\w.@%-]*)(:(?P<python>~?[\w./+-]+))?")
OPTIONS = (
    "-C",
    "-oBatchMode=yes",
    "-oServerAliveInterval=15",
    "-oServerAliveCountMax=4",
    "-oControlMaster=no",
)
PYTHONS = "python3 python3.14 python3.13 python3.12 python3.11"
NO_PYTHON, NO_CONNECTION = 97, 255


class SshHost(Remote):
    """``name`` is ``[user@]host[:python]``. Raises UsageError for anything else."""

    def __init__(self, name: str, reporter: Reporter) -> None:
        super().__init__(name, reporter)
        words = DESTINATION.fullmatch(name)
        if words is None:
            raise UsageError(
                f"--on '{name}' is no host that ssh takes",
                hint="HOST, USER@HOST, HOST:/path/to/python, or tls://HOST:PORT of a Dask cluster",
            )
        self.host, self.pythons = words["host"], words["python"] or PYTHONS

    def carry(self, jobs: Sequence[bytes], hear: Hear) -> Answers:
        """Carry out one job after the other."""

        def take(line: str) -> bool:
            """Whether it is an event or a note."""
            try:
                hear(decode(line))
            except ToolFailed:
                if not line.startswith(bootstrap.NOTE):
                    return False
                self.note(f"{self.host}: {line.removeprefix(bootstrap.NOTE)}")
            return True

        for number, job in enumerate(jobs):
            command = ["ssh", "-T", *OPTIONS, self.host, remote_command(self.pythons)]
            result, code, said = exchange(command, packed_code() + job, take)
            if not result and code == -signal.SIGKILL:  # by Ctrl-C
                self.note(f"{self.host} sent no result; an installation by pip goes on there")
                raise KeyboardInterrupt
            yield number, result or self.failure(code, said)

    def failure(self, code: int, said: str) -> WorkbenchError:
        """Return why there is no result, by ssh's exit code and the last lines."""
        last, host = said.rpartition("\n")[2] or "it says nothing", self.host
        if code == bootstrap.SILENT:
            last = f"nothing came for {bootstrap.FIRST_SECONDS:g} s"
        if code in (NO_CONNECTION, bootstrap.SILENT):
            hint = f"`ssh {host} true` must work without a question; then {AGAIN}"
            return EnvironmentLacks(f"ssh does not reach {host}, or lost it: {last}", hint=hint)
        if code not in (NO_PYTHON, bootstrap.NO_PACKAGES):
            why = f"the worker on {host} ended with exit code {code}: {last}"
            return ToolFailed(why, hint=AGAIN, ran=said)
        why = f"pip could not install what the workbench needs on {host}: {last}"
        if code == NO_PYTHON:
            why = f"{host} has no Python 3.11 or newer: {self.pythons}"
        hint = f"name a Python that has the packages: --on {host}:/path/to/python"
        return EnvironmentLacks(why, hint=hint)


def remote_command(pythons: str) -> str:
    """Return what the shell there runs: the first Python that is new enough becomes a worker. No
    shell reads anything in it but letters and digits of base64.
    """
    load = (
        f"import base64; exec(base64.b64decode('{base64.b64encode(program().encode()).decode()}'))"
    )
    is_old = "import sys; sys.exit(sys.version_info < (3, 11))"
    loop = (
        f'for p in {pythons}; do if "$p" -c "{is_old}" </dev/null 2>/dev/null; '
        f'then exec "$p" -c "{load}"; fi; done; exit {NO_PYTHON}'
    )
    return f"exec sh -c {shlex.quote(loop)}"


ADDRESS = re.compile(r"tls://(\[[\da-fA-F:]+\]|[\w.-]+):\d{1,5}")
RETRIES = 2
CONNECT_SECONDS, WORKER_SECONDS = 30.0, 600.0
# Text and not a function: no worker needs the workbench, or the same Python.
RUN = "(lambda names: exec(text, names) or names['run'](program, code + job))({})"


class DaskCluster(Remote):
    """``name`` is the address of the scheduler. Dask's own configuration has the certificates.
    Raises UsageError for any other address: whoever answers at it runs code as this user.
    """

    def __init__(self, name: str, reporter: Reporter) -> None:
        super().__init__(name, reporter)
        if ADDRESS.fullmatch(name) is None:
            raise UsageError(
                f"--on '{name}' is no address of a Dask scheduler with TLS",
                hint="start it with --protocol tls, and use its address: tls://10.0.0.5:8786",
            )

    def carry(self, jobs: Sequence[bytes], hear: Hear) -> Answers:
        """Yield results as they come, without events. What nobody waits for is cancelled."""
        text = Path(bootstrap.__file__).read_text(encoding="utf-8")
        names = {"text": text, "program": program(), "code": packed_code()}
        with self.client() as client:
            from distributed import as_completed

            if not client.scheduler_info(n_workers=-1)["workers"]:
                self.note(f"waiting for the first worker of {self.place}")
            try:
                client.wait_for_workers(1, timeout=WORKER_SECONDS)
            except TimeoutError:
                raise EnvironmentLacks(
                    f"{self.place} has no worker after {WORKER_SECONDS:g} s",
                    hint="if its queue is full, the same command waits again",
                ) from None
            workers = client.scheduler_info(n_workers=-1)["workers"].values()
            declared = workers and all("GPU" in worker["resources"] for worker in workers)
            futures = client.map(
                eval,
                [RUN] * len(jobs),
                [{**names, "job": job} for job in jobs],
                pure=False,
                retries=RETRIES,
                resources={"GPU": 1} if declared else None,
            )
            numbers = {future.key: number for number, future in enumerate(futures)}
            try:
                for done, future in enumerate(as_completed(futures, loop=client.loop), start=1):
                    is_done = future.status == "finished"
                    yield numbers[future.key], future.result() if is_done else self.failure(future)
                    if len(futures) > 1:
                        self.note(f"{done} of {len(futures)} tasks are done")
            finally:
                client.cancel(futures)

    def client(self) -> Any:
        """Raises EnvironmentLacks where Dask is missing, or no scheduler answers."""
        try:
            from distributed import Client, Security
        except ImportError:
            raise EnvironmentLacks(
                f"--on {self.place} needs Dask, which is not installed",
                hint=OWN_EXTRA.format("cluster"),
            ) from None
        if Security().get_connection_args("client")["ssl_context"] is None:
            raise EnvironmentLacks(
                f"{self.place} needs certificates, and Dask's configuration names none",
                hint="set distributed.comm.tls.ca-file and .client of Dask's configuration",
            )
        try:
            return Client(self.place, set_as_default=False, timeout=CONNECT_SECONDS)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            raise EnvironmentLacks(
                f"no scheduler answers at {self.place}: {error}",
                hint="is it running, and does Dask's configuration name its certificates?",
            ) from None

    def failure(self, future: Any) -> WorkbenchError:
        if future.status == "cancelled":
            return ToolFailed(f"the connection to {self.place} is lost", hint=AGAIN)
        error = future.exception()
        why = str(error).strip() or type(error).__name__
        return ToolFailed(f"a task of {self.place} failed: {why}", hint=AGAIN)
