"""A worker that calls each variant in a process of its own, and compares in one without any."""

from __future__ import annotations

import os
import signal
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.children import end_like, end_strays, hide_if_root
from workbench.errors import ToolFailed
from workbench.run.protocol import Broken, ErrorText, Hello
from workbench.run.worker.event_log import EventLog, or_broken
from workbench.run.worker.loader import KeptSources
from workbench.run.worker.startup import Parent, forked

if TYPE_CHECKING:
    from workbench.run.worker.checking import CheckPipes

POLL_SECONDS = 0.005
RAN_OUT = "where memory or time ran out"


class ForkingWorker(ABC):
    """Does one job in the current directory: what it calls, and what it compares."""

    smaller = "take smaller shapes, or fewer that study.py always checks"
    its_reference = "call reference() of study.py alone, on these inputs: it ends its process"

    def __init__(self, journal: EventLog, variants: Sequence[str], folder: Path) -> None:
        self.journal, self.variants, self.folder = journal, variants, folder
        self.ends: CheckPipes | None = None

    @abstractmethod
    def compare_all(self) -> None:
        """All that the process does that compares."""

    @abstractmethod
    def prepare(self) -> None:
        """Do in the process of a variant what needs no turn, and runs no code of it."""

    @abstractmethod
    def work(self, variants: Sequence[str]) -> None:
        """Do what is wanted of a variant, in its process."""

    def run_forks(self, *, compares: bool) -> None:
        """End as the process of a variant does that fails. None meets another source than those
        that are there now.
        """
        sources, parent = KeptSources(self.folder), Parent()
        comparing: list[int] = []
        if compares:
            from workbench.run.worker.checking import CheckPipes

            self.ends = CheckPipes(self.variants)
            comparing.append(forked(self.comparing))
            self.ends.keep(self.ends.callers)
        forks: deque[Forked] = deque()
        for name in (*self.variants, ""):
            sources.put_back()
            if name:
                prepared, work = partial(self.prepared, name), partial(self.work, [name])
                forks.append(Forked(prepared, work, self.journal))
                if self.ends:
                    self.ends.callers[name].close()
            if forks and (len(forks) > 1 or not name):
                if status := forks.popleft().run(parent):
                    self.tell_of(comparing, status)
                    os._exit(end_like(status))
                end_strays([*comparing, *(fork.pid for fork in forks)])
        for pid in comparing:
            os.waitpid(pid, 0)

    def comparing(self) -> None:
        hide_if_root()
        with or_broken(self.journal):
            assert self.ends
            self.ends.keep(self.ends.askers)
            self.journal.write(Hello(pid=os.getpid()))
            self.compare_all()

    def prepared(self, name: str) -> None:
        if self.ends:
            self.ends.keep(self.ends.callers, name)
        self.prepare()
        if self.ends:
            self.ends.heard(name)  # that what it compares with is loaded

    def tell_of(self, comparing: Sequence[int], status: int) -> None:
        """Say so where a variant's process ended because the one that compares did, for which no
        variant fails. A process that is about to end cannot be stopped any more.
        """
        from workbench.run.worker.checking import NOBODY_ASKS

        for pid in comparing if os.waitstatus_to_exitcode(status) == NOBODY_ASKS else ():
            os.kill(pid, signal.SIGSTOP)
            _, ended = os.waitpid(pid, os.WUNTRACED)
            assert self.ends
            if self.ends.work and not os.WIFSTOPPED(ended):
                code = os.waitstatus_to_exitcode(ended)
                how = f"exit {code}" if code >= 0 else f"signal {-code}, {signal.strsignal(-code)}"
                why = f"the process that compares ended ({how}) while {self.ends.work}"
                is_killed = code == -signal.SIGKILL
                hint = f"{RAN_OUT}, {self.smaller}" if is_killed else self.its_reference
                self.journal.current("")
                self.journal.write(Broken(error=ErrorText.of(ToolFailed(why, hint=hint))))


class Forked:
    """A fork with a CUDA context of its own. It prepares itself at once, and works when its turn
    comes.
    """

    def __init__(
        self, prepare: Callable[[], None], work: Callable[[], None], journal: EventLog
    ) -> None:
        waiting, self.turn = os.pipe()

        def prepare_and_work() -> None:
            with or_broken(journal):
                prepare()
                os.read(waiting, 1)
                work()

        self.pid = forked(prepare_and_work)
        os.close(waiting)

    def run(self, parent: Parent) -> int:
        """Let it work, and return its wait status."""
        with suppress(BrokenPipeError):
            os.write(self.turn, b"1")
        os.close(self.turn)
        while not (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            parent.require()
            time.sleep(POLL_SECONDS)
        return ended[1]


def make_context() -> None:
    import torch

    if torch.cuda.is_available():
        torch.zeros(1, device="cuda")
