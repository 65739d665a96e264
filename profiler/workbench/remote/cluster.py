"""A Dask cluster: a task a job, which takes bytes and gives bytes back. Dask schedules the tasks,
tries them again and notices workers that die.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.app.executor import Hear, Reporter
from workbench.errors import EnvironmentLacks, ToolFailed, UsageError, WorkbenchError
from workbench.remote import bootstrap
from workbench.remote.remote_target import AGAIN, Answers, Remote, packed_code, program
from workbench.words import OWN_EXTRA

ADDRESS = re.compile(r"tls://(\[[\da-fA-F:]+\]|[\w.-]+):\d{1,5}")
RETRIES = 2
CONNECT_SECONDS, WORKER_SECONDS = 30.0, 600.0
# Text and not a function: no worker needs the workbench, or the same Python.
RUN = "(lambda names: exec(text, names) or names['run'](program, code + job))({})"


class DaskCluster(Remote):
    """``name`` is the address of the scheduler. Dask's own configuration has the certificates.
    Raises UsageError for any other address: whoever answers at it runs code as this user.
    """

    def __init__(self, name: str, verb: str, reporter: Reporter) -> None:
        super().__init__(name, verb, reporter)
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
