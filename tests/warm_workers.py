"""Workers that are forked of a process which has imported torch: that takes two seconds of CPU.

For tests of what workers do, not of how they start. Each is a process as the engine's own is, and a
child of this one.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.run import process

SERVER = Path(__file__).with_name("warm_server.py")
SET_CHILD_SUBREAPER = 36


class Fork:
    """A worker, with what the engine asks of a Popen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None


class WarmServer:
    """The process that has imported torch."""

    def __init__(self) -> None:
        self.connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, SERVER, str(theirs.fileno())],
                env={**process.ON_CPU, **process.worker_environment(Path.cwd())},
                pass_fds=[theirs.fileno()],
            )

    def start(self, command: list[str], cwd: Path, env: Any, stdout: Any, **settings: Any) -> Fork:
        _, _, module, job = command
        asked = {"folder": str(cwd), "environment": env, "log": stdout.name, "parent": os.getpid()}
        prctl = ctypes.CDLL(None).prctl
        prctl(SET_CHILD_SUBREAPER, 1)  # a fork of a fork becomes a child of this process
        try:
            self.connection.send(json.dumps({**asked, "module": module, "job": job}).encode())
            return Fork(int(self.connection.recv(100)))
        finally:
            prctl(SET_CHILD_SUBREAPER, 0)

    def end(self) -> None:
        self.connection.close()
        self.process.wait()


@pytest.fixture(scope="module")
def warm_server() -> Iterator[WarmServer]:
    server = WarmServer()
    yield server
    server.end()


@pytest.fixture
def warm_workers(warm_server: WarmServer, monkeypatch: pytest.MonkeyPatch) -> None:
    forking = SimpleNamespace(**vars(subprocess) | {"Popen": warm_server.start})
    monkeypatch.setattr(process, "subprocess", forking)
