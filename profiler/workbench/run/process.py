"""Starts the worker, watches it, and stops it when it hangs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.cuda import CUBIN_FOLDER
from workbench.run import machine
from workbench.run.worker.main import CURRENT, EVENTS, GATE

POLL_SECONDS = 0.05
STOP_SECONDS = 60.0
Event = dict[str, Any]


@dataclass
class WorkerEnd:
    """How a worker ended: its events, and who had the GPU when it did not end by itself."""

    events: list[Event]
    returncode: int
    timed_out: bool
    interrupted: bool
    current: str
    log: str

    @property
    def finished(self) -> bool:
        return any(event["event"] == "done" for event in self.events)


@dataclass
class Tail:
    """New text of a growing file, read as it comes."""

    path: Path
    position: int = 0
    rest: str = field(default="")

    def read(self) -> str:
        if not self.path.exists():
            return ""
        with self.path.open("rb") as file:
            file.seek(self.position)
            data = file.read()
        self.position += len(data)
        return data.decode("utf-8", "replace")

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
        "PYTHONPATH": os.pathsep.join(str(Path(p).resolve()) for p in paths),
        "PATH": os.pathsep.join(
            [str(Path(sys.executable).parent), os.environ.get("PATH", ""), *ncu]
        ),
        "PYTHONUNBUFFERED": "1",
        CUBIN_FOLDER: str(cubins),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


class Worker:
    """A worker process in ``scratch``, under ``prefix`` (an ncu command line) where given.

    Workers that share ``cubins`` compile each kernel once.
    """

    def __init__(
        self,
        scratch: Path,
        job: dict[str, Any],
        prefix: list[str] | None = None,
        cubins: Path | None = None,
        module: str = "workbench.run.worker.main",
    ) -> None:
        for name in (EVENTS, CURRENT, GATE, "log"):
            (scratch / name).unlink(missing_ok=True)
        (scratch / "job.json").write_text(json.dumps(job), encoding="utf-8")
        command = [*(prefix or []), "python3", "-m", module, "job.json"]
        self.scratch = scratch
        self.events: list[Event] = []
        self.pieces: list[str] = []
        self.tail, self.log = Tail(scratch / EVENTS), Tail(scratch / "log")
        with (scratch / "log").open("wb") as output:
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
        text = json.dumps(variants)
        (self.scratch / f".{GATE}").write_text(text, encoding="utf-8")
        (self.scratch / f".{GATE}").rename(self.scratch / GATE)

    def drain(self, on_event: Callable[[Event], None], on_log: Callable[[str], None]) -> bool:
        text = self.log.read()
        self.pieces.append(text)
        if text:
            on_log(text)
        fresh = [json.loads(line) for line in self.tail.lines()]
        self.events.extend(fresh)
        for event in fresh:
            on_event(event)
        return bool(fresh or text)

    def watch(
        self,
        limit_seconds: float,
        on_event: Callable[[Event], None],
        on_log: Callable[[str], None] = lambda text: None,
    ) -> WorkerEnd:
        """Wait for its end.

        ``limit_seconds`` is the longest silence allowed: no event and no output. Ctrl-C stops the
        worker and lets ncu write what it has; the outcome says ``interrupted``.
        """
        timed_out = interrupted = False
        last = time.monotonic()
        try:
            while self.process.poll() is None:
                if self.drain(on_event, on_log):
                    last = time.monotonic()
                if time.monotonic() - last > limit_seconds:
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
        code = self.process.returncode
        return WorkerEnd(self.events, code, timed_out, interrupted, name, "".join(self.pieces))

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def run_worker(
    scratch: Path,
    job: dict[str, Any],
    limit_seconds: float,
    on_event: Callable[[Event], None],
) -> WorkerEnd:
    return Worker(scratch, job).watch(limit_seconds, on_event)


def stop(process: subprocess.Popen[bytes], events: list[Event], how: signal.Signals) -> None:
    """Stop the worker itself first, so that an ncu around it can still write its report."""
    pid = next((e["pid"] for e in events if e["event"] == "hello"), None)
    if pid is not None and pid != process.pid:
        with suppress(ProcessLookupError):
            os.kill(pid, how)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
