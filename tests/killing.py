"""Kills a verb at one of the instants at which it changes a file or starts a process.

Verbs run in a fork of the tests, and those of a server in a fork of its own.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = ("os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.link", "os.symlink", "os.truncate")
STARTS = ("subprocess.Popen", "fcntl.flock", "shutil.move", "shutil.copyfile")
VICTIMS = ("waiting", "supervisor", "verb", "group")
LATER_SECONDS = 0.003  # after an instant, at most: the file is half written, or already is


def arm(counts: Path, instant: int, victim: str) -> None:
    """From now on count instants of the verb whose waiting process this is; ``instant`` 0 kills
    nobody. ``victim`` is one of VICTIMS or the id of a process.
    """
    waiting = os.getpid()
    with counts.open("r+b") as file:
        page = mmap.mmap(file.fileno(), 8)

    def hear(event: str, values: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = values
            if not flags & WRITES or str(path).startswith(("/dev/", "/proc/")):
                return
        elif event not in CHANGES and event not in STARTS:
            return
        if os.getpid() == waiting or os.getppid() == waiting:  # the supervisor's
            return
        number = int.from_bytes(page, "little") + 1
        page[:] = number.to_bytes(8, "little")
        if number == instant:
            kill()

    def kill() -> None:
        ids = {"waiting": waiting, "supervisor": os.getppid(), "verb": os.getpid()}
        if victim == "group":
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os.kill(ids[victim] if victim in ids else int(victim), signal.SIGKILL)
        time.sleep(random.SystemRandom().uniform(0.0, LATER_SECONDS))

    sys.addaudithook(hear)
