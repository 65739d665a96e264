"""Keeps the Dask workers of a host: ``python -m workbench.places.keeper FOLDER WORKERS``.

Started over SSH. Its first line on stdout says what is there (``Hello``); the first line on stdin
says what to start (``Wanted``), and the lines behind it that somebody still wants it. Where they
stop, it ends, and all that it started with it: nothing goes on measuring for nobody.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from workbench.places.scheduler import FOR_WORKERS
from workbench.places.there import ANSWER, environment
from workbench.places.workers import own_code
from workbench.run.cards import cards

BEAT_SECONDS = 10.0
SILENCE_SECONDS = 60.0  # without a beat
POLL_SECONDS = 0.2
STOP_SECONDS = 40.0  # for what measures to end in order: ncu writes its report
QUICK_SECONDS = 20.0  # a worker that ends sooner did not get anywhere
TRIES = 3
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """``code`` is of the workbench there; ``ports`` are free ones, one for each worker."""

    code: str
    ports: tuple[int, ...]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """``scheduler`` is where it is reached from here, ``contacts`` where the workers are reached
    from there, by the order of the ports. Certificates and keys as PEM.
    """

    scheduler: str
    name: str
    contacts: tuple[str, ...]
    ca: str
    cert: str
    key: str


@dataclass
class Kept:
    """One worker, started again when it ends."""

    command: Sequence[str]
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    began: float = 0.0
    quick: int = field(default=0)

    def look(self) -> bool:
        """Start it where it does not run; False where it ended quickly time and again."""
        if self.process is not None:
            if self.process.poll() is None:
                return True
            lived = time.monotonic() - self.began
            self.quick = self.quick + 1 if lived < QUICK_SECONDS else 0
            if self.quick >= TRIES:
                return False
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            self.command, env=self.environment, stdin=subprocess.DEVNULL, stdout=sys.stderr
        )
        return True


def hello(workers: int) -> Hello:
    return Hello(code=own_code(), ports=free_ports(workers or len(cards())))


def free_ports(count: int) -> tuple[int, ...]:
    """Of the loopback, all different."""
    with ExitStack() as stack:
        tried = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in tried:
            one.bind(("127.0.0.1", 0))
        return tuple(int(one.getsockname()[1]) for one in tried)


def workers(wanted: Wanted, ports: Sequence[int], folder: Path, secrets: Path) -> Iterator[Kept]:
    """``secrets`` is a folder of this user's alone, where the certificates are put."""
    files = {"ca-file": wanted.ca, "cert": wanted.cert, "key": wanted.key}
    for name, text in files.items():
        (secrets / name).touch(mode=0o600)
        (secrets / name).write_text(text)
    given = {**os.environ, **environment(folder), **FOR_WORKERS}
    for number, (port, contact) in enumerate(zip(ports, wanted.contacts, strict=True)):
        command = [
            *(sys.executable, "-m", "distributed.cli.dask_worker", wanted.scheduler),
            *("--name", f"{wanted.name}-{number}", "--nthreads", "1", "--resources", "GPU=1"),
            *("--no-nanny", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"),
            *("--listen-address", f"tls://127.0.0.1:{port}", "--contact-address", contact),
            *("--memory-limit", "0", "--death-timeout", "60"),
            *("--local-directory", str(folder / "tmp")),
            *(part for name in files for part in (f"--tls-{name}", str(secrets / name))),
        ]
        yield Kept(command, given)


class Beats:
    """Reads stdin; ``are_over`` when it ended, or nothing came for long."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        self.ended = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for _ in sys.stdin:
            self.last = time.monotonic()
        self.ended.set()

    @property
    def are_over(self) -> bool:
        return self.ended.is_set() or time.monotonic() - self.last > SILENCE_SECONDS


def adopt_orphans() -> None:
    """What loses its parent becomes a child of this process, which ends it at last."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants() -> list[int]:
    """Processes that this one started, and that these did."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                if stat[0] != "Z":
                    parents[int(entry.name)] = int(stat[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {os.getpid()})


def end_all(kept: Sequence[Kept]) -> None:
    """The workers at once, for their scheduler may be gone and they would wait for it; what they
    started as Ctrl-C does, so that a capture is closed, and then for certain.
    """
    for each in kept:
        if each.process is not None:
            each.process.kill()
            each.process.wait()
    signalled: set[int] = set()
    began = time.monotonic()
    while left := descendants():
        is_late = time.monotonic() - began > STOP_SECONDS
        for pid in left:
            if is_late or pid not in signalled:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if is_late else signal.SIGINT)
        signalled |= set(left)
        time.sleep(POLL_SECONDS)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def keep(folder: Path, count: int) -> int:
    """Exit code: 0 when nobody wanted the workers any more, 1 where they do not stay."""
    adopt_orphans()
    found = hello(count)
    print(ANSWER + msgspec.json.encode(found).decode(), flush=True)
    if not (line := sys.stdin.readline()):
        return 0
    wanted = msgspec.json.decode(line, type=Wanted)
    beats = Beats()
    secrets = Path(tempfile.mkdtemp(prefix="run-", dir=folder / "tmp"))
    kept: list[Kept] = []
    try:
        kept += workers(wanted, found.ports, folder, secrets)
        while not beats.are_over:
            if not all(each.look() for each in kept):
                return 1
            time.sleep(POLL_SECONDS)
        return 0
    finally:
        end_all(kept)
        shutil.rmtree(secrets, ignore_errors=True)


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    folder = Path(sys.argv[1])
    with (folder / "running").open("a") as running:
        fcntl.flock(running, fcntl.LOCK_SH)
        with suppress(KeyboardInterrupt):
            return keep(folder, int(sys.argv[2]))
    return 130


if __name__ == "__main__":
    sys.exit(main())
