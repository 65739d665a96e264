"""Workers on hosts that SSH reaches, behind a scheduler in this process.

Dask's own ``SSHCluster`` starts the scheduler on a host and speaks with it over the open network,
without TLS, and reads only a part of ``~/.ssh/config``. So the scheduler is a ``LocalCluster``
without workers, which listens on the loopback; every host gets a tunnel to it, and every worker one
from it. Other users of either machine reach these ports too: certificates made for this cluster
alone, and sent over SSH, keep them out.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Any
from urllib.parse import urlsplit

import msgspec

from workbench.errors import EnvironmentLacks, ToolFailed, WorkbenchError
from workbench.places.connection import Connection, answer, end, free_port
from workbench.places.installing import look
from workbench.places.keeper import BEAT_SECONDS, Hello, Wanted
from workbench.places.opened import Opened, Tell
from workbench.places.scheduler import local_scheduler
from workbench.places.workers import own_code
from workbench.study.places import SshPlace

AGAIN_SECONDS = (2.0, 10.0, 30.0, 60.0)  # after which a host that was lost is tried again
END_SECONDS = 60.0
START_SECONDS = 120.0  # from a cold disk to the first word of a worker
LOOK_SECONDS = 0.2
LINES_KEPT = 20  # of what a host says


@contextmanager
def open_cluster(place: SshPlace, tell: Tell) -> Iterator[Opened]:
    """Until the end of it, hosts that are lost are tried again. ``tell`` hears of those that cannot
    be used. Raises what was wrong with the first of them where none can.
    """
    with ExitStack() as stack:
        cluster = stack.enter_context(local_scheduler())
        hosts = [Host(place, name, cluster, tell) for name in place.hosts]
        for host in hosts:
            stack.callback(host.end)
            host.start()
        for host in hosts:
            host.tried.wait()
        if not any(host.workers for host in hosts):
            raise next(host.error for host in hosts if host.error is not None)
        for host in hosts:
            if host.error is not None:
                tell(f"goes on without {host.host}: {host.error.message}")
        yield Opened(cluster.scheduler_address, cluster.security, sum(h.workers for h in hosts))


class Host(threading.Thread):
    """A host, and its connection while there is one; ``tried`` is set when the first one has
    ``workers``, or an ``error``.
    """

    def __init__(self, place: SshPlace, name: str, cluster: Any, tell: Tell) -> None:
        super().__init__(daemon=True, name=f"ssh {name}")
        self.place, self.host, self.cluster, self.tell = place, name, cluster, tell
        self.tried, self.over = threading.Event(), threading.Event()
        self.workers = 0
        self.error: WorkbenchError | None = None

    def run(self) -> None:
        lost = 0
        while not self.over.is_set():
            try:
                self.serve()
                lost = 0
            except (WorkbenchError, OSError, RuntimeError, ValueError) as broke:
                error = broke if isinstance(broke, WorkbenchError) else ToolFailed(str(broke))
                if not self.tried.is_set():
                    self.error = error
                    self.tried.set()
                    return
                self.tell(f"{self.host} is lost, and tried again: {error.message}")
            if self.over.wait(AGAIN_SECONDS[min(lost, len(AGAIN_SECONDS) - 1)]):
                return
            lost += 1

    def end(self) -> None:
        """When the remote processes have ended, or do not answer."""
        self.over.set()
        if self.is_alive():
            self.join(END_SECONDS)

    def serve(self) -> None:
        """One connection, to its end. Raises WorkbenchError for one that does not come about."""
        with Connection(self.place, self.host) as connection:
            folder = look(connection)
            if folder.marker is None or not folder.marker.get("complete"):
                raise self.set_up_first("is not set up")
            command = folder.command("-m", "workbench.places.keeper", str(folder.folder))
            keeper = connection.start([*command, str(self.place.workers)])
            said: deque[str] = deque(maxlen=LINES_KEPT)
            reader = threading.Thread(target=read, args=(keeper.stderr, said), daemon=True)
            reader.start()
            try:
                self.command(connection, keeper, said)
            finally:
                end(keeper, END_SECONDS)
                reader.join()

    def command(
        self, connection: Connection, keeper: subprocess.Popen[str], said: deque[str]
    ) -> None:
        """Tell the keeper what to start, and until the end of it that it is wanted."""
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        line = answer(keeper.stdout)
        try:
            found = msgspec.json.decode(line, type=Hello)
        except msgspec.DecodeError:
            raise self.set_up_first(
                f"starts no workers: {said[-1] if said else 'it says nothing'}"
            ) from None
        if found.code != own_code():
            raise self.set_up_first("has another workbench than this machine")
        if not found.ports:
            raise EnvironmentLacks(
                f"{self.host} has no GPU: NVML lists none",
                hint=f"`workbench doctor --on {self.place.name}` says more",
            )
        with suppress(OSError):  # it says why
            keeper.stdin.write(self.wanted(connection, found) + "\n")
            keeper.stdin.flush()
        self.await_workers(keeper, said, len(found.ports))
        self.workers = len(found.ports)
        self.tried.set()
        beat = time.monotonic()
        while keeper.poll() is None and not self.over.wait(LOOK_SECONDS):
            if time.monotonic() - beat > BEAT_SECONDS:
                beat = time.monotonic()
                with suppress(OSError):
                    keeper.stdin.write("\n")
                    keeper.stdin.flush()
        if not self.over.is_set():
            raise ToolFailed(f"its workers ended: {said[-1] if said else 'without a word'}")

    def wanted(self, connection: Connection, found: Hello) -> str:
        """With a tunnel to the scheduler, and one to each worker."""
        port = urlsplit(self.cluster.scheduler_address).port
        assert port is not None
        contacts = []
        for theirs in found.ports:
            mine = free_port()
            connection.forward_from_here(mine, theirs)
            contacts.append(f"tls://127.0.0.1:{mine}")
        secured = self.cluster.security
        wanted = Wanted(
            scheduler=f"tls://127.0.0.1:{connection.forward_to_here(port)}",
            name=self.host,
            contacts=tuple(contacts),
            ca=secured.tls_ca_file,
            cert=secured.tls_worker_cert,
            key=secured.tls_worker_key,
        )
        return msgspec.json.encode(wanted).decode()

    def await_workers(self, keeper: subprocess.Popen[str], said: deque[str], count: int) -> None:
        """Until so many of this host are at the scheduler. Raises ToolFailed where they do not
        come.
        """
        last = time.monotonic() + START_SECONDS
        while self.arrived() < count:
            if self.over.wait(LOOK_SECONDS):
                return
            if keeper.poll() is not None or time.monotonic() > last:
                raise ToolFailed(
                    f"{self.host}: its workers do not start",
                    hint=f"`workbench setup --on {self.place.name}` makes its environment anew",
                    ran=said[-1] if said else "",
                )

    def arrived(self) -> int:
        """How many workers of this host the scheduler has."""
        known = self.cluster.scheduler_info.get("workers", {}).values()
        return sum(str(one["name"]).rpartition("-")[0] == self.host for one in known)

    def set_up_first(self, why: str) -> EnvironmentLacks:
        return EnvironmentLacks(
            f"{self.host} {why}", hint=f"run `workbench setup --on {self.place.name}`"
        )


def read(lines: IO[str], said: deque[str]) -> None:
    """What a host says, until it ends."""
    with lines:
        said.extend(text for line in lines if (text := line.strip()))
