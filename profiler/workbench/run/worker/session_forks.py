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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from msgspec import structs

from workbench.errors import ToolFailed, WorkbenchError
from workbench.evidence.records import Session, other_ways
from workbench.run.protocol import (
    Broken,
    DeviceFound,
    Round,
    SessionsDone,
    SessionsJob,
    Start,
    TimedSession,
    Witnessed,
)
from workbench.run.worker.event_log import BESIDE_HINT, EventLog, describe
from workbench.run.worker.startup import (
    ENVIRONMENT,
    LOOK_SECONDS,
    Parent,
    import_ahead,
    import_libraries,
    job_of,
    keeping_bytecode,
    wait_for_turn,
)
from workbench.study.front_ends import is_compiling
from workbench.study.params import add_shapes
from workbench.study.users_code import kept_whole
from workbench.words import Phase, Regime

ALONE = "--alone"  # nothing is imported ahead
Sample = tuple[int, str, float]  # of which instance, in which regime, and microseconds


@dataclass(frozen=True)
class Answer:
    """A session answers which variants failed, which may have done so by changing what is not their
    own (``suspects``), and what was timed, if anything was.
    """

    out: set[str]
    suspects: dict[str, WorkbenchError] = field(default_factory=dict)
    timed: TimedSession | None = None


CHANGED = ToolFailed("times were changed in the process after they were read", hint=BESIDE_HINT)


def has_samples(session: Session, samples: Iterable[Sequence[float]]) -> bool:
    """Whether its times are those that left its process one by one."""
    return Counter(map(tuple, samples)) == Counter(one.microseconds for one in session.series)


class Server:
    """Does one job in the current directory."""

    def __init__(self, job: SessionsJob, journal: EventLog) -> None:
        self.job, self.journal = job, journal
        self.parent = Parent()
        self.done = 0
        self.reported = False
        self.cool = False  # the last session never ran into the power limit
        self.copies: int | None = None  # of what is constant, once something was timed
        self.has_others = False
        self.failed: set[str] = set()
        self.acquitted: set[str] = set()  # who changed what was not its own beside others alone

    def run(self) -> None:
        variants = wait_for_turn()
        self.has_others = len(variants) > 1
        references = [name for name in variants if name in self.job.references]
        steps = [name for name in variants if name not in self.job.references]
        if references and steps and self.job.references_alone:
            self.session(references, alone=True)
        left = self.sessions(variants, self.job.sessions)
        while left:
            self.journal.write(SessionsDone(sessions=self.done))
            more = [v for v in wait_for_turn() if v in left]
            left = self.sessions(more, self.job.sessions)
        if self.copies is not None and self.job.referee:
            self.witnessed([name for name in variants if name not in self.failed], self.copies)

    def witnessed(self, variants: Sequence[str], copies: int) -> None:
        """Let the referee time them, too. It forks from here, where no code of theirs has run."""
        from workbench.run.worker.referee import Referee

        anchor = next((name for name in self.job.controls[::-1] if name in variants), "")
        others = [n for n in variants if n != anchor and n not in self.job.references]
        if not anchor:
            return
        try:
            for witness in Referee(self.job, anchor, copies).witnesses(others, self.current):
                self.journal.write(Witnessed(witness=witness))
        except Exception:  # what was timed is timed; the log says why there is no witness
            traceback.print_exc()
        self.journal.current("")

    def sessions(self, variants: Sequence[str], number: int) -> list[str]:
        """So many; returns the variants that did not fail."""
        left, self.cool = list(variants), False  # fewer of them may draw more power
        for _ in range(number):
            out = self.session(left, alone=False) if left else set()
            left = [name for name in left if name not in out]
            self.done += 1
        return left

    def session(self, variants: Sequence[str], alone: bool) -> set[str]:
        """Run a session in a child, and return the variants that failed in it.

        If a variant changes what is not its own, only what it does alone counts, or that it does so
        beside others in a second session. Where somebody did so unseen, or an error ended it that
        nobody is named for, the session runs again, without who fails alone.
        """
        answer = self.forked(variants, alone)
        if answer.timed is not None:
            self.cool = not alone and answer.timed.session.throttled == 0.0
            self.journal.write(answer.timed)
            self.copies = answer.timed.copies
            if not self.job.kernels_alone:
                series = answer.timed.session.series
                names = tuple(one.variant for one in series if one.regime == Regime.ALONE)
                self.job = structs.replace(self.job, kernels_alone=names)
        if not answer.suspects:
            return answer.out
        again = self.acquitted & answer.suspects.keys() if answer.timed is not None else set()
        for name in again:
            self.fail(name, answer.suspects[name])
        suspects = answer.suspects.keys() - again
        out = answer.out | again | self.guilty(suspects)
        if not out >= suspects:  # then it may have been another one
            self.acquitted |= suspects - out
            out |= self.guilty({*variants} - out - suspects)
        if answer.timed is None:
            if not out:
                first = next(iter(answer.suspects.values()))
                raise ToolFailed(
                    f"{first.message}, but with no variant that is timed alone", hint=first.hint
                )
            left = [name for name in variants if name not in out]
            out |= self.session(left, alone) if left else set()
        return out

    def guilty(self, names: Iterable[str]) -> set[str]:
        """Return the variants that fail in a session of their own, which is not recorded."""
        return set().union(*(self.forked([name], alone=False).out for name in sorted(names)))

    def forked(self, variants: Sequence[str], alone: bool) -> Answer:
        """Fork a session, and return its answer. If the child is killed, so is this process."""
        ours, theirs = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            ours.close()
            self.child(variants, alone, theirs)
        theirs.close()
        samples: dict[tuple[int, str], list[float]] = defaultdict(list)
        answer: Answer | None = None
        try:
            while answer is None:
                while not ours.poll(LOOK_SECONDS):
                    self.parent.require()
                match ours.recv():
                    case Answer() as answer:
                        pass
                    case instance, regime, microseconds:
                        samples[instance, regime].append(microseconds)
        except EOFError:
            pass
        _, status = os.waitpid(pid, 0)
        if answer is None:
            code = os.waitstatus_to_exitcode(status)
            if code < 0:
                os.kill(os.getpid(), -code)
            os._exit(code if code > 0 else 1)
        self.reported = True
        if answer.timed and not has_samples(answer.timed.session, samples.values()):
            self.failed |= answer.out
            return self.blamed(variants, CHANGED)
        return answer

    def blamed(self, variants: Sequence[str], error: WorkbenchError) -> Answer:
        """Blame variants for what one did: all that have not failed are suspects, one
        alone fails.
        """
        left = [name for name in variants if name not in self.failed]
        if len(variants) > 1:
            return Answer({*variants} & self.failed, dict.fromkeys(left, error))
        for name in left:
            self.fail(name, error)
        return Answer({*variants})

    def child(self, variants: Sequence[str], alone: bool, pipe: Connection) -> None:
        """Run one session; this never returns."""
        code = 1
        try:
            gc.disable()
            try:
                with kept_whole():
                    answer = self.measured(variants, alone, pipe.send)
            except Exception as error:
                from workbench.run.worker.guard import Tampered

                if not (self.has_others or isinstance(error, Tampered)):
                    raise
                traceback.print_exc()
                answer = self.blamed(variants, describe(error).error())
            pipe.send(answer)
            code = 0
        except BaseException as error:
            self.journal.write(Broken(error=describe(error)))
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def measured(
        self, variants: Sequence[str], alone: bool, sent: Callable[[Sample], None]
    ) -> Answer:
        """``sent`` takes samples out of this process as they are read."""
        import torch

        from workbench.run.worker.device import environment
        from workbench.run.worker.guard import Guard, Tampered
        from workbench.run.worker.timing.instances import Loader
        from workbench.run.worker.timing.session import Listeners, TimingProcess

        torch.zeros(1, device="cuda")
        if not self.reported:
            self.journal.write(DeviceFound(environment=environment()))
        folder = Path.cwd() / "kernels" / self.job.study
        guard = Guard(folder, self.job.sources)
        study = guard.load(folder / "study.py", "workbench_study")
        add_shapes(study.shapes, self.job.derived)
        loader = Loader(folder, self.job.params, guard.load, guard.sources)
        self.start(variants[0])
        suspects: dict[str, WorkbenchError] = {}

        def fail(name: str, error: BaseException) -> None:
            if isinstance(error, Tampered) and len(variants) > 1:
                suspects[name] = error
            else:
                self.fail(name, error)

        listeners = Listeners(fail, self.current, self.heard, sent)
        timing = TimingProcess(self.job, study, loader, guard, listeners, self.cool)
        session = timing.session(self.done, variants, alone)
        self.journal.current("")
        inputs, timed = timing.setup.inputs, None
        if session.series:
            nodes = {name: calls[0] for name, calls in timing.calls.items()}
            ways = {name: other_ways(*calls) for name, calls in timing.calls.items()}
            timed = TimedSession(session=session, nodes=nodes, ways=ways, copies=inputs.copies)
        return Answer(timing.out - suspects.keys(), suspects, timed)

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
        self.failed.add(variant)
        self.journal.fail(variant, Phase.TIME, error)


def register_ahead() -> None:
    """The kernels in Triton that torch registers when it first uses the GPU, for most of a second:
    once, and not in every session. It uses no GPU.
    """
    import torch

    queued = getattr(torch.cuda, "_queued_calls", [])
    for call in list(queued):
        if getattr(call[0], "__name__", "") == "_register_triton_kernels":
            queued.remove(call)
            call[0]()


def main() -> None:
    os.environ.update(ENVIRONMENT)
    with job_of(SessionsJob, forks=True) as (job, journal):
        import_libraries()
        with keeping_bytecode():
            register_ahead()
        folder = Path.cwd() / "kernels" / job.study
        sources = (folder / name for names in job.sources.values() for name in names)
        if ALONE not in sys.argv and not import_ahead(sources, job.gpus):  # each session does
            print("what variants import uses the GPU, starts threads or changes torch", flush=True)
            module = [sys.executable, "-m", "workbench.run.worker.session_forks"]
            os.execv(sys.executable, [*module, *sys.argv[1:], ALONE])
        Server(job, journal).run()


if __name__ == "__main__":
    main()
