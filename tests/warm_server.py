"""Imports torch once, and forks itself for each worker that is asked for: see warm_workers.py."""

from __future__ import annotations

import json
import os
import runpy
import socket
import sys
import time
from pathlib import Path
from typing import Any

import torch.fx.experimental.validator  # noqa: F401  (what a call without values imports)

from workbench.run.worker import checking, process_settings  # noqa: F401


def serve(connection: socket.socket) -> dict[str, Any]:
    """Return what is asked for in the process that is to do it, a child of the one that asked."""
    while request := connection.recv(1 << 17):
        if child := os.fork():
            os.waitpid(child, 0)
        elif os.fork():
            os._exit(0)
        else:
            asked: dict[str, Any] = json.loads(request)
            while os.getppid() != asked["parent"]:
                time.sleep(0.001)
            connection.send(str(os.getpid()).encode())
            connection.close()
            return asked
    sys.exit()


def work(asked: dict[str, Any]) -> None:
    """Do as ``python3 -m`` does, in a session of its own."""
    os.setsid()
    with Path(asked["log"]).open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.path[0] = asked["folder"]
    sys.argv = [asked["module"], asked["job"]]
    runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    work(serve(socket.socket(fileno=int(sys.argv[1]))))
