"""Says on stderr what a command waits for, while nothing else is said."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from workbench.render.text import printable_lines

SILENT_S, LOOK_S = 8.0, 0.5  # after which a command says what it waits for


@dataclass
class Waiting:
    """Holds what a command waits for, and since when."""

    what: str
    since: float = field(default_factory=time.monotonic)


@contextmanager
def telling(what: str) -> Iterator[Waiting]:
    """Inside, say from time to time what is still waited for, ``what`` at first."""
    done, waiting = threading.Event(), Waiting(what)

    def tell() -> None:
        told = waiting.since
        while not done.wait(LOOK_S):
            now = time.monotonic()
            if now - max(told, waiting.since) >= SILENT_S:
                silence = f"{waiting.what} ({now - waiting.since:.0f} s)"
                print(printable_lines(silence), file=sys.stderr)
                told = now

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield waiting
    finally:
        done.set()
        thread.join()
