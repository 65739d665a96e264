"""What a worker tells the parent; see ``run.protocol``."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from workbench.errors import WorkbenchError
from workbench.run.protocol import CURRENT, EVENTS, Broken, ErrorText, WorkerEvent, encode
from workbench.run.worker.mistakes import in_words, place

NAME_BYTES = 256


class Journal:
    """Events as they finish, and the name of whoever has the GPU right now."""

    def __init__(self, folder: Path) -> None:
        self._events = (folder / EVENTS).open("ab")
        self._current = os.open(folder / CURRENT, os.O_CREAT | os.O_WRONLY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._events.close()
        os.close(self._current)

    def write(self, event: WorkerEvent) -> None:
        self._events.write(encode(event))
        self._events.flush()

    def current(self, name: str) -> None:
        os.pwrite(self._current, name.ljust(NAME_BYTES).encode(), 0)


@contextmanager
def or_broken(journal: Journal) -> Iterator[None]:
    """What goes wrong inside is the worker's own fault: it is told, and the process ends."""
    try:
        yield
    except Exception as error:
        journal.write(Broken(error=describe(error)))
        traceback.print_exc()
        raise SystemExit(1) from None


def describe(error: BaseException) -> ErrorText:
    """The error in a line or, for a compiler, in its own words, with the user's file and line."""
    kind = type(error).__name__
    if isinstance(error, WorkbenchError):
        return ErrorText(kind=kind, message=error.message, hint=error.hint)
    if told := in_words(error):
        return told
    where = f" ({at})" if (at := place(error)) else ""
    lines = str(error).strip().splitlines()
    return ErrorText(kind=kind, message=f"{kind}: {lines[0] if lines else ''}{where}")
