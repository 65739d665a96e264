"""The standard streams of a command: made fit before it begins, flushed when it is over; and its
answer, in the format that its options ask for.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import import_module
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

from workbench.app.executor import Executor, Hear, Local, Reporter
from workbench.cli.progress import Progress, telling
from workbench.errors import WorkbenchError
from workbench.render.text import printable_lines

if TYPE_CHECKING:
    from workbench.render import doc
    from workbench.study.model import Study

NAMES = ("stdin", "stdout", "stderr")
owed = ""  # "--brief" or "--json" where stdout owes an answer in that form
DASHES = "--"  # before a program
READER_GONE = 141  # as of a process that SIGPIPE ended


class NotWritten(OSError):
    """Stdout takes no more, as on a full disk."""


def note(text: str) -> None:
    """One line or several on stderr."""
    print(printable_lines(text), file=sys.stderr)


def note_failures(failures: Mapping[str, str], study: Study) -> None:
    """Report failures with the paths of the user's files."""
    for name, why in failures.items():
        note(f"error: {name}: {study.in_place(why)}")


class Stderr(Reporter):
    """The channel for all that a verb reports besides its result."""

    def note(self, text: str) -> None:
        note(text)

    def progress(self, captures: int = 0, sessions: int = 0) -> AbstractContextManager[Hear]:
        return Progress(captures, sessions)

    def waiting(self, what: str) -> AbstractContextManager[object]:
        return telling(what)


def executor(on: str | None = None) -> Executor:
    """Return where a verb measures: on this machine, or where ``--on`` says. Raises UsageError."""
    if on is None:
        return Local(Stderr())
    from workbench.remote.remote_target import DaskCluster, SshHost

    return (DaskCluster if "://" in on else SshHost)(on, Stderr())


@contextmanager
def printing() -> Iterator[None]:
    """Inside, an OSError is stdout's: it tells no file, and what could not be written is lost.
    Raises NotWritten, or BrokenPipeError where nobody reads any more.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise NotWritten(error.errno, error.strerror) from error


@printing()
def show(options: object, result: object) -> None:
    """Print a result in the format that the options ask for. After an answer in JSON an error goes
    to stderr alone.

    The module of the verb has ``blocks`` or ``lines`` for people, and ``frame`` for ``--csv``.
    ``data`` is for ``--json`` where that is not the result itself, and ``brief`` for ``--brief``
    where that is not the same in short.
    """
    global owed
    verb = type(options).__name__.removesuffix("Options").lower()
    reporter = import_module(f"workbench.cli.{verb}{'_' * iskeyword(verb)}")
    if getattr(options, "brief", False):
        from workbench.render import in_short

        limit = in_short.MORE if verb == "show" else in_short.LIMIT
        named = hasattr(reporter, "brief")
        short = reporter.brief(result) if named else data(reporter, result, options)
        print(in_short.dumps(short, limit))
    elif getattr(options, "json", False):
        from workbench.render import as_json, in_short

        whole = data(reporter, result, options)
        is_cut = getattr(options, "full", True) is False
        print(in_short.dumps(whole, in_short.MOST) if is_cut else as_json.dumps(whole))
    elif getattr(options, "csv", False):
        from workbench.render.as_table import as_csv

        print(as_csv(reporter.frame(result, note)))
    elif hasattr(reporter, "lines"):
        print(printable_lines("\n".join(reporter.lines(result))))
    else:
        write(reporter.blocks(result, options), options)
    owed = ""


def data(reporter: Any, result: object, options: Any) -> object:
    """Return what ``--json`` prints of a result, where it is long all of it with ``--full``."""
    if not hasattr(reporter, "data"):
        return result
    how = {"full": options.full} if hasattr(options, "full") else {}
    return reporter.data(result, **how)


def write(blocks: Iterable[doc.Block], options: Any) -> None:
    """Print blocks as they fit a terminal, or as Markdown, each as soon as it is made."""
    if on_terminal(options):
        from rich.console import Console

        from workbench.render import terminal

        terminal.write(blocks, Console(highlight=False))
    else:
        from workbench.render import markdown

        texts = (text for block in blocks if (text := markdown.blocks([block])))
        for index, text in enumerate(texts):
            print("\n" * bool(index) + printable_lines(text))


def on_terminal(options: Any) -> bool:
    """Whether a reader sits before stdout, and did not ask for Markdown."""
    return sys.stdout.isatty() and not options.markdown


@printing()
def show_failure(error: WorkbenchError) -> None:
    """The answer of a command that failed, in the form that is owed."""
    from workbench.render import as_json, in_short

    global owed
    dumps = in_short.dumps if owed == "--brief" else as_json.dumps
    print(dumps(in_short.error(error)))
    owed = ""


def owe(arguments: Sequence[str]) -> None:
    """Note which answer stdout owes to a command line."""
    global owed
    ours = arguments[: arguments.index(DASHES)] if DASHES in arguments else arguments
    owed = next((form for form in ("--brief", "--json") if form in ours), "")


def prepare() -> None:
    """A closed stream is the null device; what a stream's encoding lacks is spelt out; what stderr
    cannot take is lost, and changes no exit code.
    """
    # Descriptors are given from the lowest: no file that is opened later becomes a closed stream.
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(opened)
    for number, name in enumerate(NAMES):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))
        elif number and hasattr(stream, "reconfigure"):
            with suppress(OSError, ValueError):
                stream.reconfigure(errors="backslashreplace")
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        lossy = io.BufferedWriter(_Lossy(2, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(lossy, sys.stderr.encoding, "backslashreplace", None, True)


class _Lossy(io.FileIO):
    """A file whose disk may be full, or that was opened for reading."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def flush() -> None:
    """Raises OSError where what was printed could not be written, BrokenPipeError among them."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def abandon() -> None:
    """Drop what a stream could not take: Python would complain of it once more at its end."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
            continue
        with suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
