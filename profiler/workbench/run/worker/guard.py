"""Watch what the code of a variant does to the process that it shares with others, and which files
it opens.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch

from workbench.errors import WorkbenchError
from workbench.run.worker.event_log import BESIDE_HINT
from workbench.run.worker.integrity import IntegritySnapshot, is_users
from workbench.run.worker.process_settings import keep_settings, load_own
from workbench.run.worker.timing.timed_gpu import put_back_l2, set_aside_l2
from workbench.study.sources import CODE


class Tampered(WorkbenchError):
    """A variant that changes what is not its own, or opens what nobody knows of."""


class Guard:
    """Made before any code of a user is imported. ``sources`` are the files by variant that its
    fingerprint covers, in ``folder``, the study's.
    """

    def __init__(self, folder: Path, sources: Mapping[str, Sequence[str]]) -> None:
        self.folder, self.sources = folder, sources
        self.integrity = IntegritySnapshot()
        self.opened = Opened(folder.parent)
        self.set_aside: int | None = None  # bytes of the L2, once there is a context
        self.is_whole = False  # as it was noted, when the last variant had run
        self.own = ""  # the module that was loaded last
        files = {folder / name for names in sources.values() for name in names}
        files |= {path for path in folder.glob("*") if path.suffix in CODE}
        self.contents = {
            path: (path.read_bytes(), _stamp_of(path)) for path in sorted(files) if path.is_file()
        }

    def load(self, path: Path, name: str) -> ModuleType:
        self.replaced()
        module = load_own(path, name)
        self.adopt(module)
        self.own = name
        return module

    def adopt(self, module: ModuleType) -> None:
        """A module of the user's, which no other may change from now on."""
        self.integrity.also(module)  # with its own functions, and then with those around them
        keep_settings(module)
        self.integrity.also(module)

    @contextmanager
    def watching(self, variant: str) -> Iterator[None]:
        """Raises Tampered at the end, with all that can be put back in its place again. What is
        not in its place at the beginning is somebody else's doing.
        """
        is_alone = len(sys._current_frames()) == 1  # no other thread may have acted meanwhile
        if not (self.is_whole and is_alone) and self.integrity.changed():
            self.integrity.restore()
        self.is_whole = False
        if self.set_aside is None and torch.cuda.is_initialized():
            self.set_aside = set_aside_l2()
        try:
            with self.opened.during() as seen:
                yield
        except BaseException:
            self.integrity.restore()
            self._put_back()
            raise
        why = self.integrity.changed(own=self.own) or self._put_back() or self.replaced()
        if self.opened.added_hook:
            self.opened.added_hook, why = False, why or "adds an audit hook"
        if why:
            self.integrity.restore()
            raise Tampered(why, hint=BESIDE_HINT)
        self.is_whole = True
        if why := unseen(seen, self.folder, self.sources.get(variant, ())):
            raise Tampered(why, hint="name the file in a plain string of the module")

    def _put_back(self) -> str:
        """Put back the context; return what was changed of it, in words, or ""."""
        if self.set_aside is None:
            return ""
        size = put_back_l2(self.set_aside)
        if size == self.set_aside:
            return ""
        return f"sets {size} bytes aside as persisting L2 cache, which the others miss"

    def unheard(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The reference's ``run``, for the error that stands beside a variant's: what it opens, as
        a compiler does at its first call, is not the variant's doing.
        """

        def called(**inputs: Any) -> Any:
            with self.opened.paused():
                return run(**inputs)

        return called

    def require_whole(self) -> None:
        """Raises Tampered where somebody, later than expected, changed the harness."""
        if why := self.integrity.changed() or self.replaced():
            raise Tampered(f"{why} while it is timed", hint=BESIDE_HINT)

    def replaced(self) -> str:
        """The source that is not what it was, in words, and puts it back; "" where there is none.

        Contents are read where size or date tell of a change.
        """
        for path, (content, stamp) in self.contents.items():
            if _stamp_of(path) != stamp:
                changed = not path.is_file() or path.read_bytes() != content
                if changed:
                    path.unlink(missing_ok=True)
                    path.write_bytes(content)
                self.contents[path] = content, _stamp_of(path)
                if changed:
                    return f"replaces {path.name}, a source"
        return ""


def _stamp_of(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0, 0
    return status.st_ino, status.st_size, status.st_mtime_ns


HOOK = "addaudithook"


class Opened:
    """Hears of every file that Python opens below some folders: the copy of the study's sources
    that a worker has, and the workspace that it was made from.

    An audit hook can never be taken away again, by the code that it watches neither. Files that
    native code opens are not heard of.
    """

    def __init__(self, *folders: Path) -> None:
        self._folders = tuple(os.path.realpath(folder) + os.sep for folder in folders)
        self._seen: dict[str, None] | None = None
        self.added_hook = False
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
        """Ignore what is opened inside: it is somebody else's doing."""
        seen, self._seen = self._seen, None
        try:
            yield
        finally:
            self._seen = seen

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if (
            event == f"sys.{HOOK}"
            and self._seen is not None
            and not adds_own_hook(sys._getframe(1).f_code)
        ):
            self.added_hook = True
            raise RuntimeError  # it is not added then, and who adds it hears nothing of that
        if event != "open" or self._seen is None:
            return
        path = arguments[0]
        if isinstance(path, str | bytes | os.PathLike):
            name = os.path.realpath(os.fsdecode(path))
            if name.startswith(self._folders) and "__pycache__" not in Path(name).parts:
                self._seen[name] = None


def adds_own_hook(code: CodeType) -> bool:
    """Whether it is a library's that adds a hook where it says so itself, as filelock does when
    torch's compiler imports it: not one that a variant has it add.
    """
    return HOOK in code.co_names and not is_users(code)


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
