"""Runs what users wrote in this process: its prints, exits and errors do not become the verb's."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from workbench.answered import runs
from workbench.errors import UsageError

SECONDS = 30.0  # for an import, or a call, of study.py
AGAIN_SECONDS = 1.0  # the code may have caught the first one
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
    takes longer than ``SECONDS`` is stopped.
    """
    signals: list[int] = []
    try:
        with runs(path), prints_to_stderr(), time_limit(SECONDS), no_exit(), noted(signals):
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
        return f"it takes longer than {SECONDS:g} s"
    try:
        text = str(error)
    except Exception:  # users' exceptions are users' code too
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def line_in(path: Path, error: BaseException) -> str:
    """``:12`` for the line of the file where it happened, where that is known."""
    frames = traceback.extract_tb(error.__traceback__)
    numbers = [frame.lineno for frame in frames if frame.filename == str(path)]
    if not numbers and isinstance(error, SyntaxError) and error.filename == str(path):
        numbers = [error.lineno]
    return f":{numbers[-1]}" if numbers and numbers[-1] else ""


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


@contextmanager
def no_exit() -> Iterator[None]:
    """Inside, ``os._exit`` raises SystemExit, but in forks."""
    process, leave = os.getpid(), os._exit

    def refuse(status: int) -> NoReturn:
        if os.getpid() != process:
            leave(status)
        raise SystemExit(status)

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = leave


@contextmanager
def noted(signals: list[int]) -> Iterator[None]:
    """Adds those that interrupt, as Ctrl-C: a KeyboardInterrupt without one is the user's own.
    Without effect beside the main thread, where none comes.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
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
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TooLong inside after that long; without effect beside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLong

    handler = signal.signal(signal.SIGALRM, stop)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, interval)
        signal.signal(signal.SIGALRM, handler if handler is not None else signal.SIG_DFL)
