"""Forks a process a session: ``python -m workbench.run.worker.session_forks job.json``.

It has imported what takes long, packages that variants import among it, and no file of the
user's, and never touches the GPU itself: a session begins with a new context, and in a fifth of a
second.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from workbench.run.protocol import (
    Broken,
    DeviceFound,
    Done,
    Hello,
    Round,
    SessionsDone,
    SessionsJob,
    Start,
    TimedSession,
    read_job,
)
from workbench.run.worker.event_log import EventLog, describe, or_broken
from workbench.run.worker.startup import (
    ENVIRONMENT,
    LOOK_SECONDS,
    Parent,
    import_ahead,
    wait_at_gate,
)
from workbench.study.front_ends import is_compiling
from workbench.study.params import add_shapes
from workbench.words import Phase

ALONE = "--alone"  # nothing is imported ahead


class Server:
    """Does one job in the current directory."""

    def __init__(self, job: SessionsJob, journal: EventLog) -> None:
        self.job, self.journal = job, journal
        self.parent = Parent()
        self.done = 0
        self.told = False

    def run(self) -> None:
        self.journal.write(Hello(pid=os.getpid()))
        variants = wait_at_gate()
        references = [name for name in variants if name in self.job.references]
        steps = [name for name in variants if name not in self.job.references]
        if references and steps and self.job.references_alone:
            self.session(references, alone=True)
        left = self.sessions(variants, self.job.sessions)
        while left:
            self.journal.write(SessionsDone(sessions=self.done))
            more = [v for v in wait_at_gate() if v in left]
            left = self.sessions(more, self.job.sessions)
        self.journal.write(Done())

    def sessions(self, variants: Sequence[str], number: int) -> list[str]:
        """So many; returns the variants that did not fail."""
        left = list(variants)
        for _ in range(number):
            out = self.session(left, alone=False) if left else set()
            left = [name for name in left if name not in out]
            self.done += 1
        return left

    def session(self, variants: Sequence[str], alone: bool) -> set[str]:
        """In a child; the variants that failed in it. Goes down with it, as it went down."""
        ours, theirs = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            ours.close()
            self.child(variants, alone, theirs)
        theirs.close()
        try:
            while not ours.poll(LOOK_SECONDS):
                self.parent.require()
            out: set[str] | None = ours.recv()
        except EOFError:
            out = None
        _, status = os.waitpid(pid, 0)
        if out is None:
            code = os.waitstatus_to_exitcode(status)
            if code < 0:
                os.kill(os.getpid(), -code)
            os._exit(code if code > 0 else 1)
        self.told = True
        return out

    def child(self, variants: Sequence[str], alone: bool, pipe: Connection) -> None:
        """One session; never returns."""
        code = 1
        try:
            gc.disable()
            out = self.measured(variants, alone)
            pipe.send(out)
            code = 0
        except BaseException as error:
            self.journal.write(Broken(error=describe(error)))
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def measured(self, variants: Sequence[str], alone: bool) -> set[str]:
        import torch

        from workbench.run.worker.device import environment
        from workbench.run.worker.guard import Guard
        from workbench.run.worker.timing.instances import Loader
        from workbench.run.worker.timing.session import TimingProcess

        torch.zeros(1, device="cuda")
        if not self.told:
            self.journal.write(DeviceFound(environment=environment()))
        folder = Path.cwd() / "kernels" / self.job.study
        guard = Guard(folder, self.job.sources)
        study = guard.load(folder / "study.py", "workbench_study")
        add_shapes(study.shapes, self.job.derived)
        loader = Loader(folder, self.job.params, guard)
        self.start(variants[0])
        timing = TimingProcess(self.job, study, loader, guard, self.fail, self.current, self.heard)
        session = timing.session(self.done, variants, alone)
        self.journal.current("")
        inputs = timing.around.inputs
        if session.series:
            self.journal.write(
                TimedSession(session=session, nodes=timing.nodes, copies=inputs.copies)
            )
        return timing.out

    def current(self, name: str) -> None:
        self.journal.current(name)
        if name:
            self.start(name)

    def heard(self, event: Round) -> None:
        """Who is at work in a round has the GPU, so that one that hangs is known by its name."""
        self.journal.current(event.variant)
        self.journal.write(event)

    def start(self, name: str) -> None:
        """Every session compiles what its front end does not keep."""
        folder = Path.cwd() / "kernels" / self.job.study
        paths = [folder / file for file in self.job.sources.get(name, ())]
        compiling = is_compiling(path for path in paths if path.is_file())
        self.journal.write(Start(variant=name, phase=Phase.TIME, compiling=compiling))

    def fail(self, variant: str, error: BaseException) -> None:
        self.journal.fail(variant, Phase.TIME, error)


def main() -> None:
    os.environ.update(ENVIRONMENT)
    job = read_job(Path(sys.argv[1]))
    assert isinstance(job, SessionsJob)
    import numpy  # noqa: F401
    import torch  # noqa: F401
    from cuda.core import Program  # noqa: F401

    if ALONE not in sys.argv:
        folder = Path.cwd() / "kernels" / job.study
        sources = (folder / name for names in job.sources.values() for name in names)
        if not import_ahead(sources):  # each session imports them itself
            print("what variants import uses the GPU, starts threads or changes torch", flush=True)
            module = [sys.executable, "-m", "workbench.run.worker.session_forks"]
            os.execv(sys.executable, [*module, *sys.argv[1:], ALONE])

    with EventLog(Path.cwd()) as journal, or_broken(journal):
        Server(job, journal).run()


if __name__ == "__main__":
    main()
