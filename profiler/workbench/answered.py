"""What the process of a verb shares with the one that waits for it (``__main__``): its exit code,
and the user's file whose code is running, since that code may end the process.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SERVER = "WORKBENCH_SERVER"  # the process for which a verb was started, and with which it ends
_PR_SET_PDEATHSIG = 1
_shared = mmap.mmap(-1, mmap.PAGESIZE)  # forks see the same bytes
_CODE, _LENGTH, _PATH = 1, 2, 4  # where they begin, behind whether there is an answer


def answer(code: int) -> None:
    """From here on nothing changes the exit code."""
    _shared[_CODE] = code & 0xFF
    _shared[0] = 1


def exit_code() -> int | None:
    """None where there was no answer."""
    return _shared[_CODE] if _shared[0] else None


def running() -> bytes:
    """The user's file whose code is running; b"" for none."""
    length = int.from_bytes(_shared[_LENGTH:_PATH], "little")
    return _shared[_PATH : _PATH + length]


@contextmanager
def runs(path: Path) -> Iterator[None]:
    before = running()
    _note(os.fsencode(path))
    try:
        yield
    finally:
        _note(before)


def _note(path: bytes) -> None:
    path = path[: len(_shared) - _PATH]
    _shared[_PATH : _PATH + len(path)] = path
    _shared[_LENGTH:_PATH] = len(path).to_bytes(2, "little")


def end_with(parent: int, how: signal.Signals) -> None:
    """Get this signal when the parent dies, if that is still this one."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(how))
    if os.getppid() != parent:
        os.kill(os.getpid(), how)
