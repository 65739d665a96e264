"""Where a worker that was started ahead waits until the parent says which variants."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from workbench.run.protocol import GATE, PARENT, read_gate

POLL_SECONDS = 0.02


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
