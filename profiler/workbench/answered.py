"""What the processes of a verb share (``__main__``, ``children``): its exit code, the user's file
whose code is running, since that code may end the process, and the folders to delete.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PATH_BYTES, _FOLDERS_BYTES = 4096, 12288


class _Page(ctypes.Structure):
    """``status`` is what the supervisor waited for; a line break ends each of the ``folders``."""

    _fields_ = (
        ("has_answer", ctypes.c_bool),
        ("code", ctypes.c_ubyte),
        ("has_status", ctypes.c_bool),
        ("status", ctypes.c_int),
        ("path", ctypes.c_char * _PATH_BYTES),
        ("folders", ctypes.c_char * _FOLDERS_BYTES),
    )


def _shared() -> _Page:
    """Forks see the same bytes."""
    return _Page.from_buffer(mmap.mmap(-1, ctypes.sizeof(_Page)))


page = _shared()
crash: int | None = None  # the file that gets the lines of a crash


def listen() -> None:
    """Called before a fork that may crash; a process that forks for many gives each a page."""
    global crash, page
    page = _shared()
    opened = os.memfd_create("workbench-crash")
    crash = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 3)  # a standard stream may be closed
    os.close(opened)


def crash_text() -> str:
    size = os.fstat(crash).st_size if crash is not None else 0
    return os.pread(crash, size, 0).decode(errors="replace") if crash is not None else ""


def answer(code: int) -> None:
    """From here on nothing changes the exit code."""
    page.code = code & 0xFF
    page.has_answer = True


def exit_code() -> int | None:
    """None where there was no answer."""
    return page.code if page.has_answer else None


def running() -> str:
    """The user's file whose code is running; "" for none."""
    return os.fsdecode(page.path)


@contextmanager
def runs(path: Path) -> Iterator[None]:
    before = page.path
    page.path = os.fsencode(path)[: _PATH_BYTES - 1]
    try:
        yield
    finally:
        page.path = before


def note_folder(folder: Path) -> None:
    """Note a folder before it is made: it is deleted when the command ends."""
    names = page.folders + os.fsencode(folder.absolute()) + b"\n"
    if len(names) < _FOLDERS_BYTES:
        page.folders = names
