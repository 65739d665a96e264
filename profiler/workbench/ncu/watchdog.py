"""An end to what ncu_report begins: a damaged report can keep it busy for ever, or crash it.

It is native code that lets no other Python run, so neither threads nor Python's own signal handlers
are heard meanwhile. A handler of the C library is; it can do no more than say so and leave.

Why not a child process that is killed after its time: what ncu_report returns cannot be handed over
from one. A child that only tries a report first would read it twice, and reading is half of what
``show`` of a report takes (0.7 of 1.5 s with 28 launches). Handlers cost nothing, and kept tables
need neither. ``faulthandler`` ends a process, too, but with exit code 1: "the answer is no".
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workbench.errors import BadCapture

LIMIT_S = 30.0  # of this process at work, so that a machine with much else to do is no damage
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT)
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)


@contextmanager
def limited(path: Path) -> Iterator[None]:
    """Ends the process as ``BadCapture`` would where a report crashes or busies its reader."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    slow, broken = _said(path, "comes to no end with"), _said(path, "breaks down over")
    # With as little as can be left to do: memory may be in disorder when it is called.
    handler = _HANDLER(lambda number: _leave(slow if number == signal.SIGPROF else broken))
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.signal.restype = ctypes.c_void_p
    entry = ctypes.cast(handler, ctypes.c_void_p)
    before = {number: libc.signal(number, entry) for number in (signal.SIGPROF, *CRASHES)}
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, previous in before.items():
            libc.signal(number, previous)


def _said(path: Path, what: str) -> bytes:
    return (
        f"error: {ascii(str(path))[1:-1]} is damaged: ncu_report {what} it\n"
        "hint: copy it again from where it was made, or profile again\n"
    ).encode()


def _leave(text: bytes) -> None:
    try:
        os.write(2, text)
    finally:
        os._exit(BadCapture.exit_code)
