"""Which files of the workspace the code of a variant really opens. Runs in the worker."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

IGNORED = ("__pycache__",)


class Opened:
    """Hears of every file that Python opens below some folders: the copy of the study's sources
    that a worker has, and the workspace that it was made from.

    An audit hook can never be taken away again, by the code that it watches neither. Files that
    native code opens are not heard of.
    """

    def __init__(self, *folders: Path) -> None:
        self._folders = tuple(os.path.realpath(folder) + os.sep for folder in folders)
        self._seen: dict[str, None] | None = None
        sys.addaudithook(self._hear)

    @contextmanager
    def during(self) -> Iterator[dict[str, None]]:
        """The paths below the folders that are opened inside, as they are."""
        seen: dict[str, None] = {}
        self._seen = seen
        try:
            yield seen
        finally:
            self._seen = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Of what is opened inside nothing is heard: it is somebody else's doing."""
        seen, self._seen = self._seen, None
        try:
            yield
        finally:
            self._seen = seen

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or self._seen is None:
            return
        path = arguments[0]
        if isinstance(path, str | bytes | os.PathLike):
            name = os.path.realpath(os.fsdecode(path))
            if name.startswith(self._folders) and not set(IGNORED) & set(Path(name).parts):
                self._seen[name] = None


def unseen(opened: Iterable[str], folder: Path, known: Iterable[str]) -> str:
    """Why a variant is refused that ``opened`` these; "" where its fingerprint covers them all.

    ``known`` are the names of its sources in ``folder``, that of its study; ``study.py`` is covered
    in any case.
    """
    covered = {os.path.realpath(folder / name) for name in (*known, "study.py")}
    for path in opened:
        if path not in covered:
            name = os.path.relpath(path, os.path.realpath(folder))
            return (
                f"opens {name}, which its fingerprint does not cover: a change of it would pass "
                "unseen"
            )
    return ""
