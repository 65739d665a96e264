"""The sources of a study in a worker: which of them the code of a variant opens, and that all stay
as they are.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workbench.errors import UsageError
from workbench.study.sources import CODE


class KeptSources:
    """The files of a study's ``folder`` as they are now. No process may meet other ones than those
    that the fingerprints are of, so that whoever forks puts them back first.
    """

    def __init__(self, folder: Path) -> None:
        paths = sorted(path for path in folder.rglob("*") if path.suffix in CODE)
        self.contents = {path: path.read_bytes() for path in paths if path.is_file()}

    def put_back(self) -> None:
        for folder in {path.parent for path in self.contents}:
            shutil.rmtree(folder / "__pycache__", ignore_errors=True)  # Python would believe it
        for path, content in self.contents.items():
            if not path.is_file() or path.read_bytes() != content:
                path.unlink(missing_ok=True)
                path.write_bytes(content)


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
    def require_covered(self, study: Path, names: Sequence[str]) -> Iterator[None]:
        """Raises UsageError at the end for what is opened inside and is none of these sources."""
        seen: dict[str, None] = {}
        self._seen = seen
        try:
            yield
        finally:
            self._seen = None
        if why := unseen(seen, study, names):
            raise UsageError(why, hint="name the file in a plain string of the module")

    def unheard(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """``run``, of which nothing is noted that it opens."""

        def called(**inputs: Any) -> Any:
            seen, self._seen = self._seen, None
            try:
                return run(**inputs)
            finally:
                self._seen = seen

        return called

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or self._seen is None:
            return
        path = arguments[0]
        if isinstance(path, str | bytes | os.PathLike):
            name = os.path.realpath(os.fsdecode(path))
            if name.startswith(self._folders) and "__pycache__" not in Path(name).parts:
                self._seen[name] = None


def unseen(opened: Iterable[str], folder: Path, covered_names: Iterable[str]) -> str:
    """Why a variant is refused that ``opened`` these; "" where its fingerprint covers them all.

    ``covered_names`` are those of its sources in ``folder``, that of its study; ``study.py`` is
    covered in any case.
    """
    covered = {os.path.realpath(folder / name) for name in (*covered_names, "study.py")}
    for path in opened:
        if path not in covered:
            name = os.path.relpath(path, os.path.realpath(folder))
            return (
                f"opens {name}, which its fingerprint does not cover: a change of it would pass "
                "unseen"
            )
    return ""
