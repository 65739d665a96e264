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


class Parent:
    """The process for which this one works: where it is gone nothing goes on, on a card that
    somebody else may take.
    """

    def __init__(self) -> None:
        self.pid = int(os.environ.get(PARENT) or 0)
        self.made_our_group = False
        with suppress(ProcessLookupError):
            self.made_our_group = os.getpgid(self.pid) != os.getpgrp()

    def require(self) -> None:
        """Where it is gone this process is killed, and with it an ncu around it and a session
        inside of it.
        """
        if not self.pid or is_alive(self.pid):
            return
        if self.made_our_group:
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def end_with_parent() -> None:
    """Look for it from now on, in a thread: not for a process that forks."""
    threading.Thread(target=_look, args=(Parent(),), daemon=True).start()


def _look(parent: Parent) -> None:
    while parent.pid:
        parent.require()
        time.sleep(LOOK_SECONDS)


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
