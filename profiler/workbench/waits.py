"""The one place where children are waited for. ``remote/bootstrap.py`` also runs where there is no
workbench, and waits by itself.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

POLL_SECONDS = 0.02


def exit_code(process: subprocess.Popen[bytes], seconds: float | None = None) -> int | None:
    """Wait for a child, ``seconds`` at most; None if it still runs.

    Every child is waited for here, with any number of interrupts: Popen's own lock stays locked
    where a signal comes after it was taken, and the next wait takes for ever.
    """
    until = None if seconds is None else time.monotonic() + seconds
    pause = POLL_SECONDS / 32
    while process.returncode is None:
        pid, status = process.pid, 0
        with suppress(ChildProcessError):  # an interrupted call has waited for it
            pid, status = os.waitpid(process.pid, 0 if until is None else os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
        elif until is not None and time.monotonic() >= until:
            return None
        else:
            time.sleep(pause := min(2 * pause, POLL_SECONDS))
    return process.returncode


def ended(command: Sequence[str], seconds: float, **settings: Any) -> int | None:
    """Run a command without input, and return its exit code; None where it takes longer, and is
    killed. ``settings`` are those of Popen. Raises OSError where it does not start.
    """
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **settings)
    try:
        return exit_code(process, seconds)
    finally:
        if process.returncode is None:
            process.kill()
            exit_code(process)
