"""A Dask cluster: a task a job, which takes bytes and gives bytes back. Dask schedules the tasks,
tries them again and notices workers that die.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import workbench
from workbench.errors import EnvironmentLacks, ToolFailed, UsageError, WorkbenchError
from workbench.remote.job import exchange, framed
from workbench.run.protocol import Event
from workbench.words import OWN_EXTRA

ADDRESS = re.compile(r"(?P<protocol>tls|tcp)://(?P<host>\[[\da-fA-F:]+\]|[\w.-]+):\d{1,5}")
LOOPBACK = ("127.0.0.1", "[::1]")
RETRIES = 2
CONNECT_SECONDS, WORKER_SECONDS = 30.0, 600.0
NO_BYTES = "gave something else than bytes: its workers run another workbench"
INSTALL_THERE = (
    f"install workbench {workbench.__version__} there, with its extras gpu and cluster, and start "
    "them again"
)
LISTEN = "0A"  # a state in /proc/net/tcp
WANTED = ("executing", "long-running", "resumed")  # states of a task that has not been cancelled


def run(job: bytes) -> bytes:
    """On a Dask worker: the result of a job, which a process of its own carries out."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def is_wanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state in WANTED

    package = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "workbench.remote.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env={**os.environ, "PYTHONPATH": paths},
            start_new_session=True,
        )
        if result := exchange(process, [framed(job)], is_wanted=is_wanted):
            return result
        said.seek(0)
        tail = said.read()[-2000:].decode(errors="replace").strip()
    raise RuntimeError(f"the worker process ended with exit code {process.returncode}: {tail}")


class DaskCluster:
    """``name`` is the address of its scheduler; the certificates for ``tls://`` are those of Dask's
    own configuration. Raises UsageError for what is no address.
    """

    def __init__(self, name: str, note: Callable[[str], None]) -> None:
        found = ADDRESS.fullmatch(name)
        if found is None:
            raise UsageError(f"--on '{name}' is no address", hint="such as tls://10.0.0.5:8786")
        if found["protocol"] == "tcp" and found["host"] not in LOOPBACK:
            raise UsageError(
                f"{name} is a scheduler on the network without TLS",
                hint="tasks are code: start it with --protocol tls, and use tls://; plain TCP "
                "is for one machine alone, as tcp://127.0.0.1:PORT",
            )
        self.name, self.note = name, note

    def results(
        self, jobs: Sequence[bytes], hear: Callable[[Event], None]
    ) -> Iterator[tuple[int, bytes | WorkbenchError]]:
        """As they come, each by its place among ``jobs``. What is not taken is cancelled."""
        with self.client() as client:
            self.wait(client)
            workers = client.scheduler_info(n_workers=-1)["workers"].values()
            declared = workers and all("GPU" in each["resources"] for each in workers)
            futures = client.map(
                run, jobs, pure=False, retries=RETRIES, resources={"GPU": 1} if declared else None
            )
            yield from self.taken(futures, client.loop)

    def wait(self, client: Any) -> None:
        """Raises EnvironmentLacks where no worker comes, or one lacks the workbench."""
        if not client.scheduler_info(n_workers=-1)["workers"]:
            self.note(f"waiting for the first worker of {self.name}")
        try:
            client.wait_for_workers(1, timeout=WORKER_SECONDS)
        except TimeoutError:
            raise EnvironmentLacks(
                f"{self.name} has no worker after {WORKER_SECONDS:g} s",
                hint="if its queue is full, the same command waits again",
            ) from None
        # Dask ends a worker that cannot import what a task calls, and says nothing.
        found = client.run(find_spec, "workbench", on_error="return")
        lacking = sorted(at for at, spec in found.items() if not isinstance(spec, ModuleSpec))
        if lacking:
            raise EnvironmentLacks(
                f"{len(lacking)} of {len(found)} workers of {self.name} have no workbench: "
                f"{', '.join(lacking)}",
                hint=INSTALL_THERE,
            )

    def taken(
        self, futures: Sequence[Any], loop: Any
    ) -> Iterator[tuple[int, bytes | WorkbenchError]]:
        from distributed import as_completed

        places = {future.key: i for i, future in enumerate(futures)}
        try:
            for done, future in enumerate(as_completed(futures, loop=loop), start=1):
                if future.status == "finished":
                    found = future.result()
                    ours = isinstance(found, bytes)
                    yield (
                        places[future.key],
                        found if ours else ToolFailed(f"{self.name} {NO_BYTES}"),
                    )
                else:
                    yield places[future.key], self.failed(future)
                if len(futures) > 1:
                    self.note(f"{done} of {len(futures)} tasks are done")
        finally:
            for future in futures:
                future.cancel()

    def failed(self, future: Any) -> WorkbenchError:
        if future.status == "cancelled":
            return ToolFailed(f"the connection to {self.name} is lost", hint="is it running?")
        error, hint = future.exception(), "run the same command again: it measures what is missing"
        if isinstance(error.__cause__, ModuleNotFoundError):  # where the scheduler has none
            error, hint = error.__cause__, INSTALL_THERE
        why = str(error).strip() or type(error).__name__
        return ToolFailed(f"a task of {self.name} failed: {why}", hint=hint)

    def client(self) -> Any:
        """Raises EnvironmentLacks where Dask is missing, or no scheduler answers."""
        try:
            from distributed import Client
            from distributed.security import Security
        except ImportError:
            raise EnvironmentLacks(
                f"--on {self.name} needs Dask, which is not installed",
                hint=OWN_EXTRA.format("cluster"),
            ) from None
        if self.name.startswith("tcp:"):
            self.require_own()
        elif Security().get_connection_args("client")["ssl_context"] is None:
            raise EnvironmentLacks(
                f"{self.name} needs certificates, and Dask's configuration names none",
                hint="set distributed.comm.tls.ca-file and .client of Dask's configuration",
            )
        try:
            return Client(self.name, set_as_default=False, timeout=CONNECT_SECONDS)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            raise EnvironmentLacks(
                f"no scheduler answers at {self.name}: {error}",
                hint="is it running, and does Dask's configuration name its certificates?",
            ) from None

    def require_own(self) -> None:
        """Raises UsageError where another user of this machine listens at the address: whoever
        answers as a scheduler runs code as this user.
        """
        port = int(self.name.rpartition(":")[2])
        others = listeners(port) - {0, os.getuid()}
        if others:
            raise UsageError(
                f"{self.name} belongs to the user with the id {min(others)}, not to you",
                hint="start a scheduler of your own, at another port",
            )


def listeners(port: int) -> set[int]:
    """The ids of users that listen on a TCP port of this machine, as far as Linux tells."""
    found = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                _, local, _, state, *_, uid = line.split()[:8]
                if state == LISTEN and int(local.rpartition(":")[2], 16) == port:
                    found.add(int(uid))
    return found
