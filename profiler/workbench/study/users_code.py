"""Runs what users wrote in this process: its prints, exits and errors do not become the verb's."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from types import FrameType

from workbench import bounds, children
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
            noting_crashes(),
            prints_to_stderr(),
            time_limit(),
            noted(signals),
            children.runs(path),
        ):
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
        return f"{path}{place}: {in_words(TooLong(bounds.STUDY_SECONDS))}", HINTS["TooLong"]
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
    if children.crash is None or faulthandler.is_enabled():
        yield
        return
    faulthandler.enable(children.crash, all_threads=False)
    faulthandler.register(children.WHERE, children.crash, all_threads=False)
    last = bounds.STUDY_SECONDS + bounds.STUDY_LAST_SECONDS
    faulthandler.dump_traceback_later(last, file=children.crash, exit=True)
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


@contextmanager
def noted(signals: list[int]) -> Iterator[None]:
    """Adds those that interrupt, as Ctrl-C: a KeyboardInterrupt without one is the user's own.
    Without effect beside the main thread, where none comes.
    """
    is_main = threading.current_thread() is threading.main_thread()
    previous = ((number, signal.getsignal(number)) for number in INTERRUPTS if is_main)
    handlers = {number: handler for number, handler in previous if callable(handler)}

    def heard(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        handlers[signal.Signals(number)](number, frame)

    for number in handlers:
        signal.signal(number, heard)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


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
