"""Where a use case measures: on this machine, or on a remote target (``remote/``)."""

from __future__ import annotations

import atexit
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.children import temporary_folder
from workbench.errors import CannotTell, Interrupted, WorkbenchError
from workbench.run import machine
from workbench.run.machine import Gpu, gpus, locked

if TYPE_CHECKING:  # a verb that only reads needs none of them
    from workbench.evidence.records import Timing
    from workbench.evidence.store import EvidenceFolder
    from workbench.judge.open_verdicts import Deciding
    from workbench.run.measurement import MeasuredPlan, Plan
    from workbench.run.process import Toolchain
    from workbench.run.protocol import TrialJob
    from workbench.study.config import Config
    from workbench.study.model import Study

Hear = Callable[[Any], Any]  # takes an event


class Reporter:
    """Hears what a use case reports besides its result. This one leaves all of it out."""

    def note(self, text: str) -> None:
        """One line or several for the user."""

    def progress(self, captures: int = 0, sessions: int = 0) -> AbstractContextManager[Hear]:
        """Return what takes the events of a measurement. ``captures`` is how many variants ncu will
        profile, ``sessions`` how many are wanted before verdicts are looked at.
        """
        return nullcontext(lambda event: None)

    def waiting(self, what: str) -> AbstractContextManager[object]:
        """Tell the user now and then that ``what`` goes on, until the block ends."""
        return nullcontext()


@dataclass(frozen=True)
class Task:
    """A plan for a study; ``instead`` of it there may be the trial call of what is tried.
    ``toolchain``: whose workers measure.
    """

    study: Study
    config: Config
    folder: EvidenceFolder
    plan: Plan
    deciding: Deciding | None = None
    instead: TrialJob | None = None
    toolchain: Toolchain | None = None


def perform(
    task: Task, hear: Hear, builds: Path | None, undecided: Callable[..., Any] | None = None
) -> MeasuredPlan:
    """On this machine. ``builds`` is a folder that keeps what is compiled for other tasks,
    ``undecided`` is called after each session instead of what the task decides.
    """
    from workbench.run.measurement import MeasuredPlan

    if task.instead is not None:
        from workbench.run.side_jobs import try_once

        return MeasuredPlan(learned=try_once(task.study, task.instead, builds))
    from workbench.judge.open_verdicts import Deciding
    from workbench.run.measurement import Measurement

    deciding = task.deciding or Deciding()
    return Measurement(
        task.study,
        task.config,
        task.folder,
        task.plan,
        hear,
        undecided or deciding.undecided(task.study.ladder, task.config),
        deciding.refused(task.config),
        builds,
    ).run()


def perform_in_turns(tasks: Sequence[Task], hear: Hear) -> list[MeasuredPlan]:
    """Perform a task of each of two toolchains, in threads; their sessions alternate on the GPU:
    A B B A A B B A. Both have an even number, and as many again where a verdict is open.
    """
    from concurrent.futures import ThreadPoolExecutor, as_completed

    from msgspec import structs

    from workbench.judge.open_verdicts import open_pairs
    from workbench.run.process import WORKERS_OF, even

    config = tasks[0].config
    sessions, limit = even(config.timing.sessions), 2 * config.timing.seconds
    timing = structs.replace(
        config.timing, sessions=1, max_sessions=2 * sessions, seconds=limit, references_alone=False
    )
    free = threading.Semaphore(1), threading.Semaphore(0)
    timings: dict[int, Timing] = {}
    stopped, wanted = threading.Event(), sessions

    def heard(event: Any) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt  # the other has failed
        hear(event)

    def wait(place: int) -> None:
        free[place].acquire()
        if stopped.is_set():
            raise KeyboardInterrupt

    def after(place: int, timing: Timing) -> Sequence[str]:
        """Wait while it is the other's turn, and return the variants of the next session."""
        nonlocal wanted
        timings[place], done = timing, len(timing.together)
        if place == 0 and done == wanted == sessions and len(timings) == 2:
            pairs = [(name, name) for name in timings[0].chained & timings[1].chained]
            is_open = open_pairs(timings[0], pairs, config.gate, timings[1], sessions)
            wanted *= 1 + bool(is_open)
        if done % 2 != place:
            free[1 - place].release()
            wait(place)
        return sorted(timing.fingerprints) if done < wanted else ()

    def performed(place: int, task: Task) -> MeasuredPlan:
        WORKERS_OF.set(task.toolchain)
        try:
            wait(place)
            task = replace(task, config=structs.replace(task.config, timing=timing))
            builds = task.toolchain.builds if task.toolchain else None
            return perform(task, heard, builds, partial(after, place))
        except BaseException:
            stopped.set()
            raise
        finally:
            free[1 - place].release(2 * sessions)  # more turns than are left

    with ThreadPoolExecutor(len(tasks)) as pool:
        futures = [pool.submit(performed, *each) for each in enumerate(tasks)]
        try:
            for future in as_completed(futures):
                future.result()  # the first error, and not how it stopped the other
        except BaseException:
            stopped.set()
            raise
    plans = [future.result() for future in futures]
    if any(plan.interrupted for plan in plans):
        raise Interrupted
    return plans


class Executor(ABC):
    """Measures for one command at ``place``; ``at_once``: all tasks of a command together."""

    place = "local"
    at_once = False

    def __init__(self, reporter: Reporter | None = None) -> None:
        self.reporter = reporter or Reporter()
        self.note = self.reporter.note
        self.known: set[str] = set()
        self.unprofiled: WorkbenchError | None = None

    @property
    @abstractmethod
    def gpu(self) -> Gpu | None:
        """None where nothing can be measured."""

    @abstractmethod
    def package_version(self, name: str) -> str | None:
        """Return the version of a distribution that is installed there; falsy where it is not."""

    @abstractmethod
    def perform(self, tasks: Sequence[Task], hear: Hear) -> list[MeasuredPlan]:
        """Measure. Raises Interrupted after Ctrl-C: what was finished is kept."""

    def measure(self, tasks: Sequence[Task], *, showing: bool = False) -> list[MeasuredPlan]:
        """Perform the tasks, and report it. Raises why ncu could not profile what was timed, or
        where a result is shown first (``showing``) leaves that to ``require_profiled``.
        """
        from workbench.study.sources import compiling_variables  # doctor may find no msgspec

        for name, value in compiling_variables().items() if showing else ():
            self.note(f"{name}={value}: evidence of what nvcc compiles belongs to it")
        began = time.monotonic()
        captures = sum(len(task.plan.captured) for task in tasks)
        sessions = max((task.config.timing.sessions for task in tasks), default=0)
        with self.reporter.progress(captures, sessions) as hear:
            plans = self.perform(tasks, hear)
        seconds: dict[str, float] = {}
        for each in plans:
            if each.unprofiled is not None:
                self.unprofiled = each.unprofiled.error()
            for kind, spent in each.seconds.items():
                seconds[kind] = seconds.get(kind, 0.0) + spent
        parts = ", ".join(f"{name} {spent:.0f} s" for name, spent in seconds.items())
        where = f" on {self.place}" if self.at_once else ""
        self.note(f"measured{where} in {time.monotonic() - began:.1f} s ({parts})")
        if not showing:
            self.require_profiled()
        return plans

    def require_profiled(self) -> None:
        """Raises why ncu could not profile what was timed."""
        if self.unprofiled is not None:
            raise self.unprofiled

    def require_current(self, stale: Collection[str]) -> None:
        """After the answer was printed. Raises CannotTell where there are stale variants."""
        if stale:
            raise CannotTell(
                f"all recorded evidence of {', '.join(stale)} is stale: the sources changed since",
                hint="`workbench ablate` measures again where there is a GPU and ncu",
            )

    def note_once(self, text: str) -> None:
        if text not in self.known:
            self.known.add(text)
            self.note(text)


class Local(Executor):
    """This machine, one task after the other."""

    @property
    def gpu(self) -> Gpu | None:
        return machine.find_gpu() if machine.can_measure() else None

    def package_version(self, name: str) -> str | None:
        from workbench.cuda.compiler import package_version

        return package_version(name)

    def perform(self, tasks: Sequence[Task], hear: Hear) -> list[MeasuredPlan]:
        if tasks[0].toolchain:
            with self.alone_on_the_gpu():
                return perform_in_turns(tasks, hear)
        plans = []
        for task in tasks:
            with nullcontext() if task.instead else self.alone_on_the_gpu():
                plans.append(perform(task, hear, cubin_folder()))
            if plans[-1].interrupted:
                raise Interrupted
        return plans

    def alone_on_the_gpu(self) -> AbstractContextManager[object]:
        """Inside, no other command of this user measures on the GPU."""
        first = gpus()[:1]  # what CUDA calls device 0
        return locked(first, self.note) if first else nullcontext()


@cache
def cubin_folder() -> Path:
    """Keep compiled kernels in a folder for as long as this process lives."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(temporary_folder())
