"""Starts the worker, watches it, and stops it when it hangs."""

from __future__ import annotations

import codecs
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from workbench.cuda import CUBIN_FOLDER
from workbench.ncu.command import quoted
from workbench.run import machine
from workbench.run.protocol import (
    CURRENT,
    EVENTS,
    GATE,
    JOB,
    LOG,
    PARENT,
    CeilingsJob,
    Done,
    Event,
    Hello,
    Job,
    SessionsJob,
    ShipJob,
    Start,
    TrialJob,
    WorkerEvent,
    decode,
    write_gate,
    write_job,
)
from workbench.run.scratch import compiler_environment

POLL_SECONDS = 0.05
STOP_SECONDS = 60.0
STARTING_SECONDS = 120.0  # of silence until more than a greeting is heard: it imports
COMPILING_SECONDS = 600.0  # of silence while a front end compiles, or an autotuner chooses
LOG_BYTES = 16 << 20  # of a log that are kept, and its end
MAIN = "workbench.run.worker.job_worker"
MODULES = {
    CeilingsJob: "workbench.run.worker.benchmarks",
    SessionsJob: "workbench.run.worker.session_forks",
    ShipJob: "workbench.run.worker.shipping",
    TrialJob: "workbench.run.worker.trial_call",
}

E = TypeVar("E", bound=WorkerEvent)


@dataclass(frozen=True)
class WorkerEnd:
    """How a worker ended: its events, and who had the GPU when it did not end by itself."""

    events: list[WorkerEvent]
    returncode: int
    timed_out: bool = False
    interrupted: bool = False
    waited: float = 0.0  # the longest silence that was allowed, in seconds
    current: str = ""
    log: str = ""

    @property
    def finished(self) -> bool:
        return any(isinstance(event, Done) for event in self.events)

    def why(self, limit: float, where: str = "") -> str:
        """How it ended, in words, its own last ones among them; ``limit`` is the silence allowed
        where none was noted.
        """
        told = f": {said}" if (said := quoted(self.log)) else ""
        if self.timed_out:
            at = f" ({where})" if where else ""
            return f"hangs: nothing came for {self.waited or limit:g} s{at}{told}"
        at = f"{where}, " if where else ""
        return f"crashed its process ({at}exit {self.returncode}){told}"

    def of(self, kind: type[E]) -> list[E]:
        """Its events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]


@dataclass
class Tail:
    """New text of a growing file, read as it comes, ``at_once`` so many bytes at most."""

    path: Path
    position: int = 0
    at_once: int = -1
    rest: str = field(default="")
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def read(self) -> str:
        if not self.path.exists():
            return ""
        with self.path.open("rb") as file:
            file.seek(self.position)
            data = file.read(self.at_once)
        self.position += len(data)
        return self.decoder.decode(data)  # a letter may be half there

    def lines(self) -> Iterator[str]:
        text = self.rest + self.read()
        *whole, self.rest = text.split("\n")
        yield from whole


def worker_environment(cubins: Path) -> dict[str, str]:
    """The user's own, with this package importable and this Python first on PATH.

    ``python3`` is called by its bare name: ncu writes its command line into every report.
    """
    ncu = [str(Path(tool).parent)] if (tool := machine.find_ncu()) else []
    package = str(Path(__file__).resolve().parents[2])
    paths = [package, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **os.environ,
        **compiler_environment(cubins.resolve(), os.environ),
        "PYTHONPATH": os.pathsep.join(str(Path(p).resolve()) for p in paths),
        "PATH": os.pathsep.join(
            [str(Path(sys.executable).parent), os.environ.get("PATH", ""), *ncu]
        ),
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # as NVML counts
        CUBIN_FOLDER: str(cubins),
        PARENT: str(os.getpid()),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


class Worker:
    """A worker process in ``scratch``, under ``prefix`` (an ncu command line) where given.

    Workers that share ``cubins`` compile each kernel once.
    """

    def __init__(
        self,
        scratch: Path,
        job: Job,
        prefix: list[str] | None = None,
        cubins: Path | None = None,
    ) -> None:
        for name in (EVENTS, CURRENT, GATE, LOG):
            (scratch / name).unlink(missing_ok=True)
        write_job(scratch / JOB, job)
        module = MODULES.get(type(job), MAIN)
        command = [*(prefix or []), "python3", "-m", module, JOB]
        self.scratch = scratch
        # ncu tells how far it is; what a variant prints says nothing of whether it will ever end.
        self.output_counts = prefix is not None or isinstance(job, CeilingsJob)
        self.events: list[WorkerEvent] = []
        self.pieces: list[str] = []
        self.tail, self.log = Tail(scratch / EVENTS), Tail(scratch / LOG, at_once=LOG_BYTES)
        with (scratch / LOG).open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=scratch,
                env=worker_environment(cubins or scratch),
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def open_gate(self, variants: list[str]) -> None:
        """Let a worker that was started ahead go on, with these variants."""
        write_gate(self.scratch, variants)

    def drain(self, on_event: Callable[[Event], None], on_log: Callable[[str], None]) -> bool:
        text = self.log.read()
        if text:
            kept = self.pieces if self.log.position <= LOG_BYTES else self.pieces[:-1]
            self.pieces = [*kept, text]
            on_log(text)
        fresh = [decode(line) for line in self.tail.lines()]
        self.events.extend(fresh)
        for event in fresh:
            on_event(event)
        return bool(fresh or (text and self.output_counts))

    def allowed(self, limit_seconds: float) -> float:
        """Of silence, by what was heard last: ``limit_seconds`` is that of a variant."""
        last = self.events[-1] if self.events else None
        if last is None or isinstance(last, Hello):
            return max(limit_seconds, STARTING_SECONDS)
        is_compiling = isinstance(last, Start) and last.compiling
        return max(limit_seconds, COMPILING_SECONDS if is_compiling else 0.0)

    def watch(
        self,
        limit_seconds: float,
        on_event: Callable[[Event], None],
        on_log: Callable[[str], None] = lambda text: None,
    ) -> WorkerEnd:
        """Wait for its end.

        ``limit_seconds`` is the longest silence allowed: no event, and no output of ncu; a front
        end that compiles at the first call may take longer. Ctrl-C
        stops the worker and lets ncu write what it has; the outcome says ``interrupted``.
        """
        timed_out = interrupted = False
        last, allowed = time.monotonic(), limit_seconds
        try:
            while self.process.poll() is None:
                if self.drain(on_event, on_log):
                    last = time.monotonic()
                allowed = self.allowed(limit_seconds)
                if time.monotonic() - last > allowed:
                    timed_out = True
                    stop(self.process, self.events, signal.SIGKILL)
                    break
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            interrupted = True
            stop(self.process, self.events, signal.SIGTERM)
        finally:
            self.kill()
        self.drain(on_event, on_log)
        current = self.scratch / CURRENT
        name = current.read_text().strip() if current.exists() else ""
        return WorkerEnd(
            events=self.events,
            returncode=self.process.returncode,
            timed_out=timed_out,
            interrupted=interrupted,
            waited=allowed,
            current=name,
            log="".join(self.pieces),
        )

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def run_worker(
    scratch: Path,
    job: Job,
    limit_seconds: float,
    on_event: Callable[[Event], None],
) -> WorkerEnd:
    return Worker(scratch, job).watch(limit_seconds, on_event)


def stop(process: subprocess.Popen[bytes], events: list[WorkerEvent], how: signal.Signals) -> None:
    """Stop the worker itself first, so that an ncu around it can still write its report."""
    pid = next((event.pid for event in events if isinstance(event, Hello)), None)
    if pid is not None and pid != process.pid:
        with suppress(ProcessLookupError):
            os.kill(pid, how)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
