"""Watches what the code of a variant does to the process that it shares with others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from workbench.errors import WorkbenchError
from workbench.run.worker.opened import Opened, unseen
from workbench.run.worker.seal import Seal

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

    @contextmanager
    def watching(self, variant: str, sealed: bool = True) -> Iterator[None]:
        """Raises Tampered at the end, with all that can be put back in its place again.

        Not ``sealed``: only for the files that are opened, which takes no time.
        """
        try:
            with self.opened.during() as seen:
                yield
        except BaseException:
            if sealed:
                self.seal.mend()
            raise
        if sealed and (why := self.seal.broken()):
            self.seal.mend()
            raise Tampered(why, hint=HINT)
        if why := unseen(seen, self.folder, self.sources.get(variant, ())):
            raise Tampered(why, hint="name the file in a plain string of the module")

    def require_whole(self) -> None:
        """Raises RuntimeError where somebody, later than expected, changed the harness."""
        if why := self.seal.broken():
            raise RuntimeError(f"the harness was changed during the session: {why}")
