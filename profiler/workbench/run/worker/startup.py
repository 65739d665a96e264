"""A worker before it measures: its parent, the turn it waits for, and imports ahead of a fork.

A session is a process of its own: each would import torch.compile again, which takes six seconds on
an H200's machine.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from workbench.children import WHERE, end_like, end_with
from workbench.run.protocol import (
    PARENT,
    TURN,
    Done,
    Hello,
    Job,
    SessionsJob,
    VariantsJob,
    read_job,
    read_turn,
)
from workbench.run.worker.event_log import EventLog, or_broken
from workbench.study.front_ends import imported_by

POLL_SECONDS = 0.02
LOOK_SECONDS = 1.0
FORK_POLL_SECONDS = 0.005


class Parent:
    """The process for which this one works; without it nothing may hold a GPU any more."""

    def __init__(self) -> None:
        self.pid = int(os.environ.get(PARENT) or 0)
        self.made_our_group = False
        with suppress(ProcessLookupError):
            self.made_our_group = os.getpgid(self.pid) != os.getpgrp()

    def require(self) -> None:
        """Kill this process if the parent is gone, with an ncu around it and its session."""
        if not self.pid or is_alive(self.pid):
            return
        if self.made_our_group:
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


J = TypeVar("J", bound=Job)


@contextmanager
def job_of(
    kind: type[J], *, forks: Callable[[J], bool] = lambda job: False
) -> Iterator[tuple[J, EventLog]]:
    """The job that this process was started for, and the journal that it writes: inside, it does
    all of it. It ends with its parent, for which one that ``forks`` has no thread: it looks itself.
    """
    job = read_job(Path(sys.argv[1]))
    assert isinstance(job, kind)
    if not forks(job):
        threading.Thread(target=_look, args=(Parent(),), daemon=True).start()
    faulthandler.enable()  # the log tells at which line it crashed
    faulthandler.register(WHERE, all_threads=False)
    with EventLog(Path.cwd()) as journal, or_broken(journal):
        journal.write(Hello(pid=os.getpid()))
        yield job, journal
        journal.write(Done())


def _look(parent: Parent) -> None:
    while parent.pid:
        parent.require()
        time.sleep(LOOK_SECONDS)


def wait_for_turn() -> tuple[str, ...]:
    """Off the GPU; ends the process with its parent. The next time it waits again."""
    folder, parent = Path.cwd(), Parent()
    while not (folder / TURN).is_file():
        parent.require()
        time.sleep(POLL_SECONDS)
    variants = read_turn(folder)
    (folder / TURN).unlink()
    return variants


def is_alive(pid: int) -> bool:
    """Whether a process runs: one that has ended and that nobody has waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is somebody else's
        pass
    with suppress(OSError, IndexError):
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        return state not in ("Z", "X")
    return True


@contextmanager
def keeping_bytecode() -> Iterator[None]:
    """Keep the bytecode of imports inside, which must be no user's code. Packages that uv installs
    have none, and torch's sources take seconds to compile in every process.
    """
    sys.dont_write_bytecode = False
    try:
        yield
    finally:
        sys.dont_write_bytecode = True


# Read by torch. What was compiled in the check is not again: no pool of compilers is needed, which
# would not live through a fork, and would work beside what is timed. Whether there is a GPU is
# asked of NVML, since asking the driver is as good as using it.
ENVIRONMENT = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
# Packages whose import uses no GPU, starts no thread and changes no setting of torch, so that a
# process which has imported them can be forked. Any other is imported by each fork.
AHEAD = ("torch", "triton")


def sources_of(job: VariantsJob | SessionsJob) -> list[Path]:
    folder = Path.cwd() / "kernels" / job.study
    return [folder / name for names in job.sources.values() for name in names]


def import_ahead(sources: Iterable[Path] = ()) -> None:
    """Import what takes long and every worker needs, and what some sources import of it."""
    os.environ.update(ENVIRONMENT)
    names = [name for name in imported_by(sources) if name.partition(".")[0] in AHEAD]
    with keeping_bytecode(), redirect_stdout(sys.stderr):
        import numpy  # noqa: F401
        import torch  # noqa: F401
        from cuda.core import Program  # noqa: F401

        register_ahead()
        for name in names:
            with suppress(Exception):  # reported by the module that imports it
                import_module(name)


def register_ahead() -> None:
    """Register now the kernels in Triton that torch registers when it first uses the GPU, for most
    of a second: once, and not in every fork. It uses no GPU.
    """
    import torch

    queued = getattr(torch.cuda, "_queued_calls", [])
    for call in list(queued):
        if getattr(call[0], "__name__", "") == "_register_triton_kernels":
            queued.remove(call)
            call[0]()


def forked(work: Callable[[], None]) -> int:
    """Fork a process that does this work alone, and ends with this one. Return its number."""
    sys.stdout.flush()
    sys.stderr.flush()
    here, pid = os.getpid(), os.fork()
    if pid:
        return pid
    code = 1
    try:
        end_with(here, signal.SIGKILL)
        work()
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


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

    def run(self, parent: Parent) -> None:
        """Let it work. How it ends, if not well, is how this process ends, too."""
        with suppress(BrokenPipeError):
            os.write(self.turn, b"1")
        os.close(self.turn)
        while not (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            parent.require()
            time.sleep(FORK_POLL_SECONDS)
        if code := end_like(ended[1]):
            os._exit(code)
