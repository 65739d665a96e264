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
from workbench.run.worker import CURRENT, EVENTS

POLL_SECONDS = 0.05
STOP_SECONDS = 60.0
Event = dict[str, Any]


@dataclass
class Outcome:
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


def worker_environment(scratch: Path) -> dict[str, str]:
    """The user's own, with this package importable and this Python first on PATH.

    ``python3`` is called by its bare name: ncu writes its command line into every report.
    """
    package = str(Path(__file__).resolve().parents[2])
    paths = [package, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(Path(p).resolve()) for p in paths),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONUNBUFFERED": "1",
        CUBIN_FOLDER: str(scratch),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def run_worker(
    scratch: Path,
    job: dict[str, Any],
    limit_seconds: float,
    on_event: Callable[[Event], None],
    *,
    prefix: list[str] | None = None,
    on_log: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Run one job in ``scratch``, under ``prefix`` (an ncu command line) where given.

    ``limit_seconds`` is the longest silence allowed: no event and no output. Ctrl-C stops the
    worker and lets ncu write what it has; the outcome says ``interrupted``.
    """
    for name in (EVENTS, CURRENT, "log"):
        (scratch / name).unlink(missing_ok=True)
    (scratch / "job.json").write_text(json.dumps(job), encoding="utf-8")
    command = [*(prefix or []), "python3", "-m", "workbench.run.worker", "job.json"]
    events: list[Event] = []
    tail, log = Tail(scratch / EVENTS), Tail(scratch / "log")
    pieces: list[str] = []
    timed_out = interrupted = False
    with (scratch / "log").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=scratch, env=worker_environment(scratch), stdout=output,
            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def drain() -> bool:
        text = log.read()
        pieces.append(text)
        if text:
            on_log(text)
        fresh = [json.loads(line) for line in tail.lines()]
        events.extend(fresh)
        for event in fresh:
            on_event(event)
        return bool(fresh or text)

    last = time.monotonic()
    try:
        while process.poll() is None:
            if drain():
                last = time.monotonic()
            if time.monotonic() - last > limit_seconds:
                timed_out = True
                stop(process, events, signal.SIGKILL)
                break
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        interrupted = True
        stop(process, events, signal.SIGTERM)
    finally:
        stop_group(process)
    drain()
    current = scratch / CURRENT
    name = current.read_text().strip() if current.exists() else ""
    return Outcome(events, process.returncode, timed_out, interrupted, name, "".join(pieces))


def stop(process: subprocess.Popen[bytes], events: list[Event], how: signal.Signals) -> None:
    """Stop the worker itself first, so that an ncu around it can still write its report."""
    pid = next((e["pid"] for e in events if e["event"] == "hello"), None)
    if pid is not None and pid != process.pid:
        with suppress(ProcessLookupError):
            os.kill(pid, how)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)


def stop_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
