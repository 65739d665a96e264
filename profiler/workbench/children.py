"""Processes and folders of a command: they go when it ends, whatever ended it. The one place where
children are waited for; ``remote/bootstrap.py`` also runs without a workbench, and waits by itself.

The processes of a verb share a page: its exit code, the user's file whose code is running, since
that code may end the process, and the folders to delete.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from workbench import bounds

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_SECONDS = 2.0  # for a process that is left behind to end at SIGTERM
LAST_SECONDS = 10.0  # after which nothing helps, such as for a process that waits for a disk
POLL_SECONDS = 0.02
LOOK_SECONDS = 0.2  # between two looks at the memory that a user's code takes
WHERE = signal.SIGURG  # a process that runs a user's code answers it with its lines, others not
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36
_SET_DUMPABLE, _DROP_FROM_BOUNDING_SET = 4, 24  # of prctl(2)
_CAP_SYS_PTRACE, _CAPABILITY_VERSION = 19, 0x20080522  # of capabilities(7) and capget(2)
_libc = ctypes.CDLL(None)
_prctl = _libc.prctl
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


def running_file() -> str:
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


def kept() -> int | None:
    """Fork a child that does the work. Return None there, with signals blocked, and here its wait
    status when nothing that it started is left.

    Between both processes is a supervisor, which adopts all that the child starts and ends it, when
    the child or this process has ended. If the supervisor is killed, this process does its work.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    parent = os.getpid()
    _prctl(_SET_CHILD_SUBREAPER, 1)
    if supervisor := os.fork():
        status = _outlive(supervisor, lambda number, frame: os.kill(supervisor, number))
        _end_the_rest()
        return page.status if page.has_status else status
    parent, above = os.getpid(), parent
    _prctl(_SET_CHILD_SUBREAPER, 1)
    if child := os.fork():
        os.setpgid(0, 0)  # so that a signal to the group of the command leaves it
        _keep(child, above)
    end_with(parent, signal.SIGKILL)
    return None


def _keep(child: int, parent: int) -> None:
    def pass_on(number: int, frame: FrameType | None) -> None:
        os.kill(child, number if os.getppid() == parent else signal.SIGKILL)

    def look(number: int, frame: FrameType | None) -> None:
        if running_file() and memory_of(child) > bounds.STUDY_MEMORY:
            os.kill(child, WHERE)
            time.sleep(LOOK_SECONDS / 2)
            os.kill(child, signal.SIGKILL)

    try:
        signal.signal(signal.SIGTERM, pass_on)
        end_with(parent, signal.SIGTERM)
        signal.signal(signal.SIGALRM, look)
        signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)
        page.status = _outlive(child, pass_on)
        page.has_status = True
        _end_the_rest()
    finally:
        os._exit(0)


def _outlive(child: int, pass_on: Callable[[int, FrameType | None], None]) -> int:
    """Return the wait status of a child, which gets the signals of this process until it ends."""
    for number in PASSED_ON:
        signal.signal(number, pass_on)
    unblock()
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # until here a signal finds it
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_IGN)
    return os.waitpid(child, 0)[1]


def _end_the_rest() -> None:
    """End the children of this process, and what they leave to it. Delete their folders."""
    began, told = time.monotonic(), set[int]()
    with suppress(ChildProcessError):  # none is left
        while (passed := time.monotonic() - began) < LAST_SECONDS:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
            is_late = passed > GRACE_SECONDS
            ours = _children()
            for pid in ours if is_late else ours - told:
                os.kill(pid, signal.SIGKILL if is_late else signal.SIGTERM)
            told |= ours
            time.sleep(POLL_SECONDS)
    for name in filter(None, page.folders.split(b"\n")):
        shutil.rmtree(os.fsdecode(name), ignore_errors=True)


_before: set[int] | None = None


def hide_memory() -> None:
    """Let nobody without CAP_SYS_PTRACE write into the memory of this process or of its forks.
    Where Yama is off, the system lets any process of the same user do so, a variant's too.
    """
    _prctl(_SET_DUMPABLE, 0)


def hide_if_root() -> None:
    """Hide the memory of a process that uses CUDA: of another user's, /proc/self would belong to
    root, and that is not known to suit the driver.
    """
    if os.geteuid() == 0:
        hide_memory()


def show_memory() -> None:
    """Make a fork that is to run users' code a process like any, without the right to look into
    others that hide their memory.
    """
    _prctl(_SET_DUMPABLE, 1)
    _prctl(_DROP_FROM_BOUNDING_SET, _CAP_SYS_PTRACE)
    who, sets = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    if _libc.capget(who, sets) == 0:
        for number in range(3):  # effective, permitted, inheritable
            sets[number] &= ~(1 << _CAP_SYS_PTRACE)
        _libc.capset(who, sets)


def adopt() -> None:
    """Be the parent of what the children of this process leave behind from now on."""
    global _before
    _prctl(_SET_CHILD_SUBREAPER, 1)
    _before = _children()


def end_strays(kept: Collection[int] = ()) -> None:
    """Kill what was left behind since this process adopts: all its children but those kept."""
    while _before is not None and (strays := _children() - _before - {*kept}):
        for pid in strays:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _children() -> set[int]:
    return {pid for pid, parent in _parents().items() if parent == os.getpid()}


def memory_of(pid: int) -> int:
    """The bytes that a process has in memory; 0 for one that has ended."""
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * mmap.PAGESIZE
    return 0


def unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)


def end_with(parent: int, how: signal.Signals) -> None:
    """Get this signal when the parent dies, if that is still this one."""
    _prctl(_SET_PDEATHSIG, int(how))
    if os.getppid() != parent:
        os.kill(os.getpid(), how)


def end_like(status: int) -> int:
    """Return an exit code, or end as a child ended that a signal killed."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        if code != -signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _parents() -> dict[int, int]:
    """The parent of every process."""
    parents = {}
    for name in (path.name for path in Path("/proc").glob("[0-9]*")):
        with suppress(OSError, IndexError):
            stat = Path("/proc", name, "stat").read_bytes()
            parents[int(name)] = int(stat[stat.rindex(b")") :].split()[2])
    return parents


def kill_tree(pid: int) -> None:
    """Kill the leader of a group with the group and all below it, in whatever session."""
    parents, below = _parents(), [pid]
    for above in below:
        below += [child for child, parent in parents.items() if parent == above]
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    for child in below[1:]:
        with suppress(OSError):
            os.kill(child, signal.SIGKILL)


@contextmanager
def temporary_folder(prefix: str = "workbench-", within: Path | None = None) -> Iterator[Path]:
    """Make a folder that is gone afterwards, and also when this command is killed."""
    folder = Path(within or tempfile.gettempdir()) / f"{prefix}{secrets.token_hex(8)}"
    names = page.folders + os.fsencode(folder.absolute()) + b"\n"
    if len(names) < _FOLDERS_BYTES:  # else it stays where the command is killed
        page.folders = names
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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


def ended(command: Sequence[str], seconds: float | None, **settings: Any) -> int | None:
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
