"""Forks a process a session: ``python -m workbench.run.worker.session_forks job.json``.

It has imported what takes long, packages that variants import among it, and no file of the
user's, and never touches the GPU itself: a session begins with a new context, and in a fifth of a
second.
"""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing import Pipe

import msgspec
from msgspec import structs

from workbench.children import adopt, end_like, end_strays, hide_memory
from workbench.errors import ToolFailed
from workbench.evidence.records import Session, are_apart, measured_in, other_ways
from workbench.run.protocol import (
    DeviceFound,
    ErrorText,
    Failed,
    Round,
    SessionsDone,
    SessionsJob,
    Start,
    TimedSession,
    Witnessed,
)
from workbench.run.worker.event_log import BESIDE_HINT, EventLog, describe, or_broken
from workbench.run.worker.loader import KeptSources, Loader
from workbench.run.worker.startup import (
    LOOK_SECONDS,
    Parent,
    forked,
    import_for_forks,
    job_of,
    wait_for_turn,
)
from workbench.study.front_ends import is_compiling
from workbench.words import Phase, Regime


class Answer(msgspec.Struct, frozen=True):
    """A session answers what was timed, if anything was, and which variants failed in it or are not
    as they are in processes of their own (``suspects``): another one may have caused it.
    ``ended``: by an error that nobody is named for.
    """

    suspects: dict[str, ErrorText] = {}
    timed: TimedSession | None = None
    ended: bool = False

    def failed(self, name: str) -> bool:
        series = self.timed.session.series if self.timed else ()
        return name in self.suspects and name not in {each.variant for each in series}


MOST_BYTES = 1 << 28  # of an answer
DISTURBED = 0.06  # of a reference's time: twice what the gate of interference allows


class Server:
    """Does one job in the current directory."""

    def __init__(self, job: SessionsJob, journal: EventLog) -> None:
        self.job, self.journal = job, journal
        self.parent = Parent()
        self.loader = Loader(job)
        self.sources = KeptSources(self.loader.folder)
        self.done = 0
        self.reported = False
        self.cool = False  # the last session never ran into the power limit
        self.failed: set[str] = set()
        self.anchor = ""
        self.by_referee = {**job.by_referee}  # microseconds
        self.alone: Mapping[str, tuple[float, float]] = {}  # of references: see measured_in
        self.disturbed: set[str] = set()  # beside others, by nobody who does so alone

    def run(self) -> None:
        variants = wait_for_turn()
        references = [name for name in variants if name in self.job.references]
        steps = [name for name in variants if name not in self.job.references]
        if self.job.referee:
            self.witnessed(variants)
        if references and steps and self.job.references_alone:
            self.session(references, alone=True)
        left = self.sessions(variants, self.job.sessions)
        while left:
            self.journal.write(SessionsDone(sessions=self.done))
            more = [v for v in wait_for_turn() if v in left]
            left = self.sessions(more, self.job.sessions)

    def witnessed(self, variants: Sequence[str]) -> None:
        """Let the referee time the steps, in processes of their own."""
        from workbench.run.worker.referee import Referee

        end_strays()
        self.anchor = anchor = next((n for n in self.job.controls[::-1] if n in variants), "")
        out = {anchor, *self.job.references, *self.by_referee}
        others = [name for name in variants if name not in out]
        if not anchor or not others:
            return

        def begins(name: str) -> None:
            self.sources.put_back()
            self.current(name)

        try:
            for witness in Referee(self.job, anchor).witnesses(others, begins):
                self.journal.write(Witnessed(witness=witness))
                if witness.microseconds and witness.anchor_microseconds:
                    self.by_referee[witness.variant] = witness.microseconds
                    self.by_referee.setdefault(anchor, witness.anchor_microseconds)
        except Exception:  # sessions follow all the same; the log says why there is no witness
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

        A failure beside others, a time that is not the referee's, or an error that nobody is named
        for may be another variant's doing: it runs again without who causes it beside the controls.
        """
        answer = self.forked(variants, alone)
        suspects = answer.suspects.keys() - self.disturbed
        if suspects and len(variants) > 1:
            others = {*variants} - suspects - {*self.job.references}
            if out := self.guilty(suspects, variants) or self.guilty(others, variants):
                left = [name for name in variants if name not in out]
                return out | (self.session(left, alone) if left else set())
        if answer.ended:
            first = next(iter(answer.suspects.values()))
            raise ToolFailed(
                f"{first.message}, but with no variant that is timed alone", hint=first.hint
            )
        if len(variants) == 1 and answer.failed(variants[0]):
            self.fail(variants[0], answer.suspects[variants[0]])
            return {*variants}
        self.disturbed |= suspects
        if answer.timed is not None:
            self.cool = not alone and answer.timed.session.throttled == 0.0
            self.journal.write(answer.timed)
            if not self.job.kernels_alone:
                series = answer.timed.session.series
                names = tuple(one.variant for one in series if one.regime == Regime.ALONE)
                self.job = structs.replace(self.job, kernels_alone=names)
        return set()

    def guilty(self, names: Iterable[str], timed: Sequence[str]) -> set[str]:
        """Fail the variants that fail beside the controls, or beside which these are not as they
        are in processes of their own; return them. These sessions are not recorded.
        """
        controls: list[str] = []
        guilty: set[str] = set()
        apart: set[str] = set()  # by itself
        first = [name for name in self.job.controls if name in timed and name not in self.failed]
        for name in (*first, *sorted({*names} - self.failed - {*first})):
            answer = self.forked([*controls, name], alone=False)
            suspects = [n for n in answer.suspects if n not in apart]
            causes = [n for n in suspects if n != name or answer.failed(name)]
            if causes:
                self.fail(name, answer.suspects[name if name in causes else causes[0]])
                guilty.add(name)
            elif name in first:
                controls.append(name)
                apart.update(suspects)
        return guilty

    def forked(self, variants: Sequence[str], alone: bool) -> Answer:
        """Fork a session, and return its answer. If the child is killed, so is this process."""
        self.sources.put_back()
        end_strays()
        ours, theirs = Pipe(duplex=False)

        def child() -> None:
            ours.close()
            with or_broken(self.journal):
                try:
                    answer = self.measured(variants, alone)
                except Exception as error:
                    traceback.print_exc()
                    answer = Answer(dict.fromkeys(variants, describe(error)), ended=True)
                theirs.send_bytes(msgspec.json.encode(answer))

        pid = forked(child)
        theirs.close()
        try:
            while not ours.poll(LOOK_SECONDS):
                self.parent.require()
            told = ours.recv_bytes(MOST_BYTES)
        except (EOFError, OSError):
            told = b""
        _, status = os.waitpid(pid, 0)
        if not told:
            os._exit(end_like(status) or 1)
        self.reported = True
        # Not pickled: a variant's process may say anything, and would run its code here.
        try:
            answer = msgspec.json.decode(told, type=Answer)
        except (msgspec.DecodeError, RecursionError) as error:
            why = ErrorText(kind="", message=f"its process tells what is no session: {error}")
            answer = Answer(dict.fromkeys(variants, why), ended=True)
        if answer.timed is not None:
            session = answer.timed.session
            answer.suspects.update(self.disturbed_in(session))
            if session.alone:
                self.alone = measured_in(session.series)
        return answer

    def disturbed_in(self, session: Session) -> dict[str, ErrorText]:
        """The variants whose time in a session is not the referee's, and references whose time is
        not as it was without steps beside them, in cycles as in microseconds.
        """
        disturbed: dict[str, ErrorText] = {}
        measured = measured_in(session.series)
        anchor, its = measured.get(self.anchor), self.by_referee.get(self.anchor)
        anchors = anchor[0] - its if anchor and its else 0.0
        for name, (here, cycles) in measured.items():
            seen, alone = self.by_referee.get(name), self.alone.get(name)
            why = ""
            is_anchor = name == self.anchor  # beside which the others are timed: see are_apart
            if is_anchor and alone:
                seen = None
            if seen and are_apart(here, seen, 0.0 if is_anchor else anchors):
                why = f"{here:.3g} µs in a session, {seen:.3g} µs by the referee's clock"
            elif alone and all(
                abs(now - before) > DISTURBED * before
                for now, before in zip((here, cycles), alone, strict=True)
            ):
                why = f"{here:.3g} µs beside steps, {alone[0]:.3g} µs without"
            if why:
                message = f"the times differ: {name} takes {why}"
                disturbed[name] = ErrorText.of(ToolFailed(message, hint=BESIDE_HINT))
        return disturbed

    def measured(self, variants: Sequence[str], alone: bool) -> Answer:
        """Run one session in this process."""
        gc.disable()
        import torch

        from workbench.run.worker.device import context_lost, environment
        from workbench.run.worker.timing.session import TimingProcess

        torch.zeros(1, device="cuda")
        if not self.reported:
            self.journal.write(DeviceFound(environment=environment()))
        study = self.loader.study()
        self.start(variants[0])
        errors: dict[str, ErrorText] = {}

        def fail(name: str, error: BaseException) -> None:
            errors[name] = describe(error)
            if context_lost():
                raise errors[name].error()

        parts = self.job, study, self.loader, fail, self.current, self.heard
        timing = TimingProcess(*parts, cool=self.cool)
        session = timing.session(self.done, variants, alone)
        self.journal.current("")
        inputs, timed = timing.setup.inputs, None
        if session.series:
            nodes = {name: calls[0] for name, calls in timing.calls.items()}
            ways = {name: other_ways(*calls) for name, calls in timing.calls.items()}
            timed = TimedSession(session=session, nodes=nodes, ways=ways, copies=inputs.copies)
        return Answer(errors, timed)

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
        compiling = is_compiling(self.loader.files(name))
        self.journal.write(Start(variant=name, phase=Phase.TIME, compiling=compiling))

    def fail(self, variant: str, error: ErrorText) -> None:
        self.failed.add(variant)
        self.journal.write(Failed(variant=variant, phase=Phase.TIME, error=error))


def main() -> None:
    with job_of(SessionsJob) as (job, journal):
        import_for_forks("workbench.run.worker.session_forks", job, job.gpus)
        adopt()
        hide_memory()  # the referee is in it
        Server(job, journal).run()


if __name__ == "__main__":
    main()
