"""An end to what ncu_report begins: a damaged report can keep it busy, and allocating, for ever.

It is native code that lets no other Python run, so neither threads nor Python's own signal handlers
are heard meanwhile. A handler of the C library is; it can do no more than say so and leave.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workbench.errors import BadCapture

LIMIT_S = 30.0  # for the lines of one launch, which take tens of milliseconds
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)


@contextmanager
def limited(path: Path) -> Iterator[None]:
    """Ends the process as ``BadCapture`` would where what is done with a report takes too long."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    text = (
        f"error: {ascii(str(path))[1:-1]} is damaged: ncu_report comes to no end with it\n"
        "hint: copy it again from where it was made, or profile again\n"
    ).encode()

    def late(_: int) -> None:
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, text)
        os._exit(BadCapture.exit_code)

    handler = _HANDLER(late)
    before = signal.getsignal(signal.SIGALRM)
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = [ctypes.c_int, _HANDLER]
    libc.signal.restype = ctypes.c_void_p
    libc.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before or signal.SIG_DFL)
