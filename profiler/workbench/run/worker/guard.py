"""Watches what the code of a variant does to the process that it shares with others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from workbench.errors import WorkbenchError
from workbench.run.worker.inline_sources import prepare
from workbench.run.worker.opened import Opened, unseen
from workbench.run.worker.seal import Seal
from workbench.run.worker.timing.card import put_back_l2, set_aside_l2
from workbench.study.workspace import load_module

HINT = "a variant is measured beside others: it leaves them and what measures them alone"


class Tampered(WorkbenchError):
    """A variant that changes what is not its own, or opens what nobody knows of."""


class Guard:
    """Made before any code of a user is imported. ``sources`` are the files by variant that its
    fingerprint covers, in ``folder``, the study's.
    """

    def __init__(self, folder: Path, sources: Mapping[str, Sequence[str]]) -> None:
        self.folder, self.sources = folder, sources
        self.seal = Seal()
        self.opened = Opened(folder.parent)
        self.set_aside: int | None = None  # bytes of the L2, once there is a context
        self.own = ""  # the module that was loaded last

    def load(self, path: Path, name: str) -> ModuleType:
        """A module of the user's, which no other may change from now on."""
        prepare(path)
        module = load_module(path, name)
        self.seal.also(module)
        self.own = name
        return module

    @contextmanager
    def watching(self, variant: str) -> Iterator[None]:
        """Raises Tampered at the end, with all that can be put back in its place again."""
        if self.set_aside is None and torch.cuda.is_initialized():
            self.set_aside = set_aside_l2()
        try:
            with self.opened.during() as seen:
                yield
        except BaseException:
            self.seal.mend()
            self._put_back()
            raise
        if why := self.seal.broken(own=self.own) or self._put_back():
            self.seal.mend()
            raise Tampered(why, hint=HINT)
        if why := unseen(seen, self.folder, self.sources.get(variant, ())):
            raise Tampered(why, hint="name the file in a plain string of the module")

    def _put_back(self) -> str:
        """What was changed of the context, in words; "" for nothing."""
        if self.set_aside is None:
            return ""
        found = put_back_l2(self.set_aside)
        if found == self.set_aside:
            return ""
        return f"sets {found} bytes aside as persisting L2 cache, which the others miss"

    def unheard(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The reference's ``run``, for the error that stands beside a variant's: what it opens, as
        a compiler does at its first call, is not the variant's doing.
        """

        def called(**inputs: Any) -> Any:
            with self.opened.paused():
                return run(**inputs)

        return called

    def require_whole(self) -> None:
        """Raises RuntimeError where somebody, later than expected, changed the harness."""
        if why := self.seal.broken():
            raise RuntimeError(f"the harness was changed during the session: {why}")
