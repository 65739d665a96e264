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
from pathlib import Path
from typing import Any

from workbench.errors import EnvironmentLacks, ToolFailed, UsageError, WorkbenchError
from workbench.remote.pipe import exchange, framed
from workbench.run.protocol import WorkerEvent

ADDRESS = re.compile(r"(?P<protocol>tls|tcp)://(?P<host>\[[\da-fA-F:]+\]|[\w.-]+):\d{1,5}")
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
RETRIES = 2
CONNECT_SECONDS, WORKER_SECONDS = 30.0, 600.0
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
                hint="tasks are code: start it with --protocol tls, and use tls://: docs/remote.md",
            )
        self.name, self.note = name, note

    def results(
        self, jobs: Sequence[bytes], hear: Callable[[WorkerEvent], None]
    ) -> Iterator[tuple[int, bytes | WorkbenchError]]:
        """As they come, each by its place among ``jobs``. What is not taken is cancelled."""
        with self.client() as client:
            self.wait(client)
            workers = client.scheduler_info(n_workers=-1)["workers"].values()
            declared = workers and all("GPU" in each["resources"] for each in workers)
            futures = client.map(
                run,
                jobs,
                pure=False,
                retries=RETRIES,
                resources={"GPU": 1} if declared else None,
            )
            yield from self.taken(futures, client.loop)

    def wait(self, client: Any) -> None:
        """Raises EnvironmentLacks where no worker comes."""
        if not client.scheduler_info(n_workers=-1)["workers"]:
            self.note(f"waiting for the first worker of {self.name}")
        try:
            client.wait_for_workers(1, timeout=WORKER_SECONDS)
        except TimeoutError:
            raise EnvironmentLacks(
                f"{self.name} has no worker after {WORKER_SECONDS:g} s",
                hint="if its queue is full, the same command waits again",
            ) from None

    def taken(
        self, futures: Sequence[Any], loop: Any
    ) -> Iterator[tuple[int, bytes | WorkbenchError]]:
        from distributed import as_completed

        places = {future.key: i for i, future in enumerate(futures)}
        try:
            for done, future in enumerate(as_completed(futures, loop=loop), start=1):
                if future.status == "finished":
                    yield places[future.key], future.result()
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
        error = future.exception()
        return ToolFailed(
            f"a task of {self.name} failed: {str(error).strip() or type(error).__name__}",
            hint="its workers need the workbench as it is installed here: docs/remote.md",
        )

    def client(self) -> Any:
        """Raises EnvironmentLacks where Dask is missing, or no scheduler answers."""
        try:
            from distributed import Client
        except ImportError:
            raise EnvironmentLacks(
                f"--on {self.name} needs Dask, which is not installed",
                hint="pip install -e '.[cluster]'",
            ) from None
        try:
            return Client(self.name, set_as_default=False, timeout=CONNECT_SECONDS)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            raise EnvironmentLacks(
                f"no scheduler answers at {self.name}: {error}",
                hint="is it running, and does Dask's configuration name its certificates?",
            ) from None
