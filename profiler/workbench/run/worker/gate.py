"""A worker and its parent: where one that was started ahead waits until the parent says which
variants, and how it ends when the parent is gone.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

from workbench.run.protocol import GATE, PARENT, read_gate

POLL_SECONDS = 0.02
LOOK_SECONDS = 1.0


def end_with_parent() -> None:
    """From now on nothing goes on for nobody, on a card that somebody else may take: where the
    parent is gone this process is killed, and with it an ncu around it and a session inside of it.
    """
    if parent := int(os.environ.get(PARENT) or 0):
        threading.Thread(target=_end_with, args=(parent, _own_group(parent)), daemon=True).start()


def _own_group(parent: int) -> bool:
    """Whether this process is in a group that the parent made for it."""
    try:
        return os.getpgid(parent) != os.getpgrp()
    except ProcessLookupError:
        return False


def _end_with(parent: int, own_group: bool) -> None:
    while is_alive(parent):
        time.sleep(LOOK_SECONDS)
    if own_group:
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def wait_at_gate() -> tuple[str, ...]:
    """Off the GPU; ends the process with the parent's. The next time it waits again.

    The parent may be gone before it waits, and an ncu in between outlives it: so it is looked for
    by its own id.
    """
    folder, parent = Path.cwd(), int(os.environ.get(PARENT) or os.getppid())
    while not (folder / GATE).is_file():
        if not is_alive(parent):
            raise SystemExit(1)
        time.sleep(POLL_SECONDS)
    variants = read_gate(folder)
    (folder / GATE).unlink()
    return variants


def is_alive(pid: int) -> bool:
    """Whether a process runs: one that has ended and that nobody has waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is somebody else's
        pass
    with suppress(OSError, IndexError):
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        return state not in ("Z", "X")
    return True
