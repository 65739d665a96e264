"""Where a worker that was started ahead waits until the parent says which variants."""

from __future__ import annotations

import os
import time
from pathlib import Path

from workbench.run.protocol import GATE, read_gate

POLL_SECONDS = 0.02


def wait_at_gate() -> tuple[str, ...]:
    """Off the GPU; ends the process with the parent's. The next time it waits again."""
    folder, parent = Path.cwd(), os.getppid()
    while not (folder / GATE).is_file():
        if os.getppid() != parent:
            raise SystemExit(1)
        time.sleep(POLL_SECONDS)
    variants = read_gate(folder)
    (folder / GATE).unlink()
    return variants
