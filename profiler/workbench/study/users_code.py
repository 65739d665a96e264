"""Runs what users wrote in this process: its prints, exits and errors do not become the verb's."""

from __future__ import annotations

import faulthandler
import os
import posix
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from errno import EBADF
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from workbench import answered, bounds, children
from workbench.errors import UsageError

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HINTS = {
    "ImportError": "import torch inside its functions: a study is also read where there is none",
    "KeyboardInterrupt": "nobody pressed Ctrl-C: take the line out",
    "SystemExit": "take the exit out: the file is imported by every verb",
    "TooLong": "what takes long belongs inside its functions: the file is imported by every verb",
}


class TooLong(BaseException):
    """No Exception, so that few handlers catch it."""


@contextmanager
def users_code(path: Path, doing: str) -> Iterator[None]:
    """Whatever is raised inside, but by Ctrl-C, becomes a UsageError with the file and its line.

    ``doing`` is what went wrong, such as "could not be imported". Prints go to stderr, and what
    takes longer than ``STUDY_SECONDS`` is stopped.
    """
    signals: list[int] = []
    try:
        with (
            answered.runs(path), noting_crashes(), prints_to_stderr(), time_limit(), kept_whole(),
            noted(signals),
        ):  # fmt: skip
            yield
    except UsageError:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and signals:
            raise
        kind = next((k for k in HINTS if k in {c.__name__ for c in type(error).__mro__}), "")
        raise UsageError(
            f"{path}{line_in(path, error)} {doing}: {in_words(error)}",
            hint=HINTS.get(kind, "fix this line, or run the file alone to see more"),
        ) from error


def in_words(error: BaseException) -> str:
    if isinstance(error, TooLong):
        return f"it takes longer than {bounds.STUDY_SECONDS:g} s"
    try:
        text = str(error)
    except Exception:  # users' exceptions are users' code too
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def line_in(path: Path, error: BaseException) -> str:
    """``:12`` for the line of the file where it happened, where that is known; with the file and
    line of another one of the user's that it called: ``:12 (helper.py:3)``.
    """
    frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append((error.filename, error.lineno))
    return place_of(path, frames[::-1])


def place_of(path: Path, frames: Sequence[tuple[str, int | None]]) -> str:
    """Return the line, as ``line_in``, of frames from the innermost to the outermost."""
    users = [f for f in frames if f[1] and (f[0] == str(path) or is_users(f[0]))]
    line = next((f":{number}" for file, number in users if file == str(path)), "")
    if users and users[0][0] != str(path):
        line += f" ({Path(users[0][0]).name}:{users[0][1]})"
    return line


LIBRARY = str(Path(os.__file__).parent)
INSTALLED = (LIBRARY, str(Path(__file__).parents[1]), "<")


def is_users(file: str) -> bool:
    return not file.startswith(INSTALLED) and "-packages/" not in file


FRAME = re.compile(r'^  File "(.*)", line (\d+) in ', re.MULTILINE)


def crash_in_words(path: str, text: str) -> tuple[str, str]:
    """Return what ``noting_crashes`` has noted of a file, and a hint."""
    main_thread = text[text.rfind("most recent call first") :]  # the main thread is the last
    place = place_of(Path(path), [(file, int(line)) for file, line in FRAME.findall(main_thread)])
    if text.startswith("Timeout"):
        return f"{path}{place}: {in_words(TooLong())}", HINTS["TooLong"]
    why = text.partition("\n")[0].removeprefix("Fatal Python error: ")
    what = f" crashed this command: {why}"
    if text.startswith("Stack"):  # written at ``children.WHERE``
        what = f": it takes more than {bounds.STUDY_MEMORY / 2**30:.1f} GiB of memory"
    return f"{path}{place}{what}", "fix this line: every verb runs this file"


@contextmanager
def noting_crashes() -> Iterator[None]:
    """Lines at which the process crashes, does not come back or takes all memory go to the one
    that waits.
    """
    if answered.crash is None or faulthandler.is_enabled():
        yield
        return
    faulthandler.enable(answered.crash, all_threads=False)
    faulthandler.register(children.WHERE, answered.crash, all_threads=False)
    last = bounds.STUDY_SECONDS + bounds.STUDY_LAST_SECONDS
    faulthandler.dump_traceback_later(last, file=answered.crash, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        faulthandler.unregister(children.WHERE)
        faulthandler.disable()


@contextmanager
def prints_to_stderr() -> Iterator[None]:
    """Also those of processes that are started inside."""
    kept = None
    with redirect_stdout(sys.stderr):
        with suppress(OSError, ValueError):  # where a descriptor or a stream is closed
            if sys.__stdout__ is not None:
                sys.__stdout__.flush()
            kept = os.dup(1)
            os.dup2(2, 1)
        try:
            yield
        finally:
            if kept is not None:
                os.dup2(kept, 1)
                os.close(kept)


# What ends a process, of libc; events of Python's audit that may end or replace one; and those of
# a function that runs from then on in all that the verb does, where no time limit ends it.
ENDS = ("_exit", "_Exit", "exit", "quick_exit", "abort")
EVENTS = ("ctypes.dlsym", "os.exec", "os.kill", "os.killpg")
STAYING = ("sys.addaudithook", "sys.settrace", "sys.setprofile")
_whole = 0  # the process that is kept whole


def _refuse(event: str, values: tuple[Any, ...]) -> None:
    stays = event in STAYING and answered.running()
    if not (stays or event in EVENTS) or os.getpid() != _whole or not is_users(_caller()):
        return
    if stays:  # of an audit hook, Python swallows the error and does not add it
        raise PermissionError(f"{event}: it would be called in the rest of the verb")
    match event, values:
        case "ctypes.dlsym", (_, name):
            if name in ENDS:
                raise SystemExit(name)
        case "os.kill" | "os.killpg", (pid, how):
            if how == signal.SIGKILL and pid in (0, os.getpid(), os.getpgrp()):
                raise SystemExit("SIGKILL")
        case _:
            raise SystemExit(f"{event} {values[0]}")


def _caller() -> str:
    """The file that called, itself or through Python's library, the caller of this function."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith((LIBRARY, "<")):
        frame = frame.f_back
    return frame.f_code.co_filename if frame is not None else "<"


@cache
def _audit() -> None:
    sys.addaudithook(_refuse)


def opened_files() -> set[tuple[int, tuple[int, int]]]:
    """Descriptors, each with the device and the number of what it is open for."""
    names = set()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the folder itself is closed again
            stat = os.fstat(int(path.name))
            names.add((int(path.name), (stat.st_dev, stat.st_ino)))
    return names


@contextmanager
def kept_whole() -> Iterator[None]:
    """Inside, a line of the user's that would end or replace this process, or close a descriptor
    that it had before, raises an error, but in forks.
    """
    global _whole
    process, before = os.getpid(), _whole
    opened = opened_files()
    real = {(module, name): getattr(module, name) for module in (os, posix) for name in GUARDED}

    def guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*values: int) -> Any:
            if os.getpid() == process and is_users(_caller()):
                if name == "_exit":
                    raise SystemExit(*values)
                closed = range(*values) if values[1:] else values
                if any(number in closed for number, _ in opened & opened_files()):
                    raise OSError(EBADF, f"os.{name}{values} closes what its process needs")
            return function(*values)

        return called

    _audit()
    _whole = process
    for (module, name), function in real.items():
        setattr(module, name, guarded(name, function))
    try:
        yield
    finally:
        _whole = before
        for (module, name), function in real.items():
            setattr(module, name, function)


GUARDED = ("_exit", "close", "closerange")


@contextmanager
def noted(signals: list[int]) -> Iterator[None]:
    """Adds those that interrupt, as Ctrl-C: a KeyboardInterrupt without one is the user's own.
    Without effect beside the main thread, where none comes.
    """
    handlers = {number: signal.getsignal(number) for number in INTERRUPTS}
    if threading.current_thread() is not threading.main_thread():
        handlers = {}

    def heard(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        handler = handlers[signal.Signals(number)]
        assert callable(handler)
        handler(number, frame)

    for number, handler in handlers.items():
        if callable(handler):
            signal.signal(number, heard)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if callable(handler):
                signal.signal(number, handler)


@contextmanager
def time_limit() -> Iterator[None]:
    """Raises TooLong inside after ``STUDY_SECONDS``; without effect beside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLong

    handler = signal.signal(signal.SIGALRM, stop)
    left, interval = signal.setitimer(
        signal.ITIMER_REAL, bounds.STUDY_SECONDS, bounds.STUDY_AGAIN_SECONDS
    )
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, interval)
        signal.signal(signal.SIGALRM, handler if handler is not None else signal.SIG_DFL)
