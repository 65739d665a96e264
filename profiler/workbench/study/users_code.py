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

from workbench import answered, bounds
from workbench.errors import UsageError

HINTS = {
    "ImportError": "import torch inside its functions: a study is also read where there is none",
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
    try:
        with answered.runs(path), prints_to_stderr(), time_limit():
            yield
    except (UsageError, KeyboardInterrupt):
        raise
    except BaseException as error:
        kind = next((k for k in HINTS if k in {c.__name__ for c in type(error).__mro__}), "")
        raise UsageError(
            f"{path}{line_in(path, error)} {doing}: {in_words(error)}",
            hint=HINTS.get(kind, "fix this line, or run the file alone to see more"),
        ) from error


def in_words(error: BaseException) -> str:
    if isinstance(error, TooLong):
        return f"it takes longer than {error.args[0]:g} s"
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
    users = [f for f in frames[::-1] if f[1] and (f[0] == str(path) or is_users(f[0]))]
    line = next((f":{number}" for file, number in users if file == str(path)), "")
    if users and users[0][0] != str(path):
        line += f" ({Path(users[0][0]).name}:{users[0][1]})"
    return line


LIBRARY = str(Path(os.__file__).parent)
INSTALLED = (LIBRARY, str(Path(__file__).parents[1]), "<")


def is_users(file: str) -> bool:
    return not file.startswith(INSTALLED) and "-packages/" not in file


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
def time_limit(seconds: float | None = None) -> Iterator[None]:
    """Raises TooLong inside after so long; without effect beside the main thread."""
    seconds = seconds or bounds.STUDY_SECONDS
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLong(seconds)

    handler = signal.signal(signal.SIGALRM, stop)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, bounds.STUDY_AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, interval)
        signal.signal(signal.SIGALRM, handler if handler is not None else signal.SIG_DFL)
