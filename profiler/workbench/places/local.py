"""This machine: a scheduler in this process, and a worker process for each of its GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import EnvironmentLacks
from workbench.places.opened import Opened, Tell
from workbench.places.scheduler import local_scheduler
from workbench.run.cards import cards
from workbench.run.gpu import why_none
from workbench.study.places import LocalPlace

SETTINGS: Mapping[str, object] = {
    "distributed.worker.profile.enabled": False,  # it wakes the worker a hundred times a second
    "distributed.scheduler.worker-ttl": "60 s",
    "distributed.scheduler.allowed-failures": 2,
    "distributed.comm.timeouts.connect": "15 s",
    "distributed.admin.low-level-log-length": 100,  # of each of its logs, for its developers
}
PACKAGE = str(Path(__file__).resolve().parents[2])
LOOK_SECONDS = 0.2
START_SECONDS = 30.0  # for all of them; then those that are there begin
LONGEST_SECONDS = 30.0  # for one that ends before it has joined, to be started again
STOP_SECONDS = 5.0


@contextmanager
def open_cluster(place: LocalPlace, tell: Tell) -> Iterator[Opened]:
    """Its processes end with this one. Raises EnvironmentLacks without a GPU."""
    number = place.workers or len(cards())
    if number == 0:
        raise EnvironmentLacks(
            f"no NVIDIA GPU was found ({why_none()})",
            hint="`--on` names a place that has one, from workbench.toml",
        )
    with cluster(number) as opened:
        yield opened


@contextmanager
def cluster(number: int) -> Iterator[Opened]:
    """So many worker processes, and a scheduler that only this user reaches. One that ends is
    started again: Dask's own nannies give up on a worker that is killed while it starts.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="workbench-dask-")))
        import dask

        stack.enter_context(dask.config.set(dict(SETTINGS)))
        found = stack.enter_context(local_scheduler())
        secured = found.security
        files = {
            "ca-file": secured.tls_ca_file,
            "cert": secured.tls_worker_cert,
            "key": secured.tls_worker_key,
        }
        for name, text in files.items():
            (folder / name).touch(mode=0o600)
            (folder / name).write_text(text)
        command = [
            *(sys.executable, "-m", "distributed.cli.dask_worker", found.scheduler_address),
            *("--nthreads", "1", "--resources", "GPU=1", "--memory-limit", "0", "--no-nanny"),
            *("--no-dashboard", "--dashboard-address", "127.0.0.1:0", "--host", "127.0.0.1"),
            *("--protocol", "tls", "--death-timeout", "60", "--local-directory", str(folder)),
            *(part for name in files for part in (f"--tls-{name}", str(folder / name))),
        ]
        given = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([PACKAGE, os.environ.get("PYTHONPATH", "")]),
            "DASK_INTERNAL_INHERIT_CONFIG": dask.config.serialize(dask.config.config),
        }
        kept = {str(n): Kept([*command, "--name", str(n)], given) for n in range(number)}
        stack.enter_context(keeping(kept, lambda: joined(found.scheduler_info)))
        end = time.monotonic() + START_SECONDS
        while len(found.scheduler_info["workers"]) < number and time.monotonic() < end:
            time.sleep(LOOK_SECONDS)
        yield Opened(found.scheduler_address, secured, number, found.loop)


def joined(info: Mapping[str, Any]) -> list[str]:
    """The names of the workers that a scheduler has."""
    return [str(worker["name"]) for worker in list(info["workers"].values())]


@dataclass
class Kept:
    """One worker process, and when it may be started again: at once where it had joined, later each
    time where it ends before.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None
    has_joined: bool = False
    after: float = 0.0
    in_vain: int = 0

    def look(self, *, is_there: bool = False) -> None:
        """Start it where it does not run. ``is_there``: the scheduler has it."""
        now = time.monotonic()
        if self.process is not None and self.process.poll() is not None:
            self.in_vain = 0 if self.has_joined else self.in_vain + 1
            wait = LOOK_SECONDS * 2.0**self.in_vain if self.in_vain else 0.0
            self.after = now + min(LONGEST_SECONDS, wait)
            self.process, self.has_joined = None, False
        elif self.process is not None:
            self.has_joined |= is_there
        if self.process is None and now >= self.after:
            self.process = subprocess.Popen(
                self.command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for this process, which ends them in order
            )

    def end(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                self.process.terminate()
                self.process.wait(STOP_SECONDS)
            self.process.kill()
            self.process.wait()


@contextmanager
def keeping(kept: Mapping[str, Kept], there: Callable[[], Sequence[str]]) -> Iterator[None]:
    """All of them run inside; ``there`` are the names of those that have joined."""
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            names = there()
            for name, one in kept.items():
                one.look(is_there=name in names)
            over.wait(LOOK_SECONDS)

    thread = threading.Thread(target=look, daemon=True, name="workers of this machine")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for one in kept.values():
            one.end()
