"""From a list of variants to evidence: build, check, time, then one ncu for all captures.

Every finished piece is written to the evidence folder at once. A variant that fails costs only
itself: the others go on, in a fresh worker where it took the process along.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from workbench.errors import EnvironmentLacks, ToolFailed
from workbench.evidence.records import Build, Timing
from workbench.evidence.store import EvidenceFolder
from workbench.ncu import command as ncu
from workbench.run import machine
from workbench.run.compilation import build_job, compilers, copy_sources, scratch_folder
from workbench.run.events import Listener
from workbench.run.plan import MeasuredPlan, Plan, sessions_job, variants_job
from workbench.run.process import Worker, run_worker
from workbench.run.protocol import (
    Captured,
    ErrorText,
    Event,
    SessionsDone,
    TimedSession,
    write_calls,
)
from workbench.run.recording import Recorder
from workbench.study.config import Config
from workbench.study.model import Study
from workbench.words import Phase

ENOUGH = 3  # variants that ended under ncu, and none that did not: it is not the variants


def decided(timing: Timing) -> Sequence[str]:
    """No variant needs further sessions."""
    return ()


@dataclass
class Measurement:
    """One run of the measuring part: a study at a shape, on this machine's GPU.

    ``undecided`` says of a timing which variants to time in as many sessions again. ``refused``
    says of a build why it is not worth checking and timing, "" where it is; with it, all variants
    are built before any is checked. ``cubins`` is a folder that keeps builds for other
    measurements, and ``extensions`` of torch where none of them runs beside this one.
    """

    study: Study
    config: Config
    folder: EvidenceFolder
    plan: Plan
    on_event: Callable[[Event], None]
    undecided: Callable[[Timing], Sequence[str]] = decided
    refused: Callable[[Build], bool] | None = None
    cubins: Path | None = None
    extensions: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        study, plan = self.study, self.plan
        self.result = MeasuredPlan()
        self.recorder = Recorder(study, plan.shape, self.folder, plan.variants)
        self.events = Listener(study, plan, self.recorder, self.result, self.on_event, self.refused)
        self.timing: Timing | None = None
        self.clock: Worker | None = None
        self.last_session = 0.0  # after this moment none is begun

    def run(self) -> MeasuredPlan:
        self.recorder.predictions()
        self.recorder.note_derived(self.plan.others or ())
        with scratch_folder(self.study, self.cubins, extensions=self.extensions) as scratch:
            ahead = None
            try:
                ahead = self.start_capture(scratch, self.plan.captured, gated=True)
                self.clock = self.start_sessions(scratch) if self.plan.timed else None
                if self.plan.built:
                    with self.part("build and check"):
                        self.prepare(scratch)
                if self.is_left and not self.result.interrupted:
                    with self.part("timing"):
                        self.time(scratch)
                if not self.result.interrupted:
                    with self.part("ncu"):
                        try:
                            self.capture(scratch, ahead)
                        except (EnvironmentLacks, ToolFailed) as error:
                            self.result.unprofiled = ErrorText.of(error)
            finally:
                for worker in (ahead, self.clock):
                    if worker is not None:
                        worker.kill()
        return self.result

    @property
    def is_left(self) -> bool:
        """Whether anything is to be timed that was not known before."""
        plan, left = self.plan, {*self.plan.timed} - self.result.out
        return bool(left and (left - {*plan.known} or left == {*plan.timed}))

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Note the seconds of what is done inside."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.result.seconds[name] = time.monotonic() - began

    def prepare(self, scratch: Path) -> None:
        variants, together = self.plan.built, (Phase.BUILD, Phase.CHECK)
        with compilers(scratch, variants, partial(build_job, self.study)):
            if self.refused is None:
                return self.work(scratch, variants, together)
            self.work(scratch, variants, (Phase.BUILD,))
        left = [v for v in variants if v not in self.result.out]
        if not self.result.interrupted:
            self.work(scratch, left, (Phase.CHECK,))

    def work(self, scratch: Path, variants: list[str], phases: tuple[Phase, ...]) -> None:
        """Run phases of variants in a worker, and again without the variant that broke it. A
        variant that may have changed what is not its own runs again in a process of its own.
        """
        limit = self.config.limits.seconds_per_step
        while variants:
            job = variants_job(self.study, self.plan, variants, phases)
            self.events.together, self.events.suspects = len(variants) > 1, []
            outcome = run_worker(scratch, job, limit, self.events.take)
            self.events.together, suspects = False, self.events.suspects
            if outcome.interrupted:
                self.result.interrupted = True
                return
            culprit = self.events.blame(outcome)
            for name in suspects:
                if not self.result.interrupted:
                    self.work(scratch, [name], phases)
            if culprit is None or self.result.interrupted:
                return
            out = {culprit, *self.result.out, *suspects}
            variants = [v for v in variants if v not in out]

    def start_sessions(self, scratch: Path) -> Worker:
        """The process that forks the sessions; it waits at its gate."""
        folder = scratch / "timing"
        copy_sources(scratch, folder)
        job = sessions_job(self.study, self.plan, self.config.timing)
        return Worker(folder, job, cubins=scratch)

    def time(self, scratch: Path) -> None:
        """Recorded is what ended, and what Ctrl-C or an error cut short where it has as
        many sessions as were asked for. References alone are no timing.
        """
        ended = False
        try:
            ended = self.time_in_sessions(scratch)
        finally:
            if (ended and self.timing and self.timing.together) or not self.is_cut_short:
                self.recorder.end_timing()
            else:
                self.recorder.drop_timing()

    def time_in_sessions(self, scratch: Path) -> bool:
        """Time the variants in sessions, and in further ones while a verdict is open. All sessions
        run again without a variant that broke one. Return False after Ctrl-C.
        """
        limit = self.config.limits.seconds_per_step
        while variants := [v for v in self.plan.timed if v not in self.result.out]:
            self.timing = None
            self.recorder.drop_timing()
            self.clock = self.clock or self.start_sessions(scratch)
            self.last_session = time.monotonic() + self.config.timing.seconds
            self.clock.open_gate(variants)
            outcome = self.clock.watch(limit, self.timed)
            self.clock = None
            self.result.interrupted = outcome.interrupted
            if outcome.interrupted:
                return False
            if self.events.blame(outcome) is None:
                break
        return True

    @property
    def is_cut_short(self) -> bool:
        """Whether there are fewer sessions than intervals are made of: older ones are better."""
        timing = self.timing
        return timing is None or len(timing.together) < self.config.timing.sessions

    def timed(self, event: Event) -> None:
        """Keep each session when it arrives; after the last, ask for more or end it."""
        self.events.take(event)
        match event:
            case TimedSession():
                self.timing = self.recorder.session(event, self.config.timing.sessions)
            case SessionsDone():
                assert self.clock is not None
                settings = self.config.timing
                over = time.monotonic() > self.last_session
                over |= event.sessions + settings.sessions > settings.max_sessions
                more = () if over or self.timing is None else self.undecided(self.timing)
                self.clock.open_gate(list(more))

    def start_capture(
        self, scratch: Path, variants: Iterable[str], *, gated: bool
    ) -> Worker | None:
        """ncu with a worker in a folder of its own; None where nothing is to be captured.

        A gated one loads its libraries while the variants are being checked and timed, which is
        half of what a profiled process costs, and touches the GPU only when the gate opens.
        """
        job = variants_job(self.study, self.plan, variants, (Phase.CAPTURE,), gated=gated)
        if not job.variants:
            return None
        tool = machine.find_ncu()
        if tool is None:
            raise machine.why_not_measuring()
        folder = scratch / "ncu"
        copy_sources(scratch, folder)
        (folder / ncu.REPORT).unlink(missing_ok=True)
        prefix = ncu.command(Path(tool).name, self.config.profiler)
        return Worker(folder, job, prefix, cubins=scratch)

    def capture(self, scratch: Path, ahead: Worker | None) -> None:
        """One ncu process for all, and another for the rest when a variant breaks it."""
        left = [v for v in self.plan.captured if v not in self.result.out]
        suspects: list[str] = []  # each in a process of its own
        if self.timing is not None and left:
            calls = {n: (c, *self.timing.ways.get(n, ())) for n, c in self.timing.nodes.items()}
            write_calls(scratch / "ncu", calls)
        limit = self.config.limits.seconds_per_capture
        died: list[str] = []  # logs of those that ended at their first kernel
        enough = min(ENOUGH, len(self.plan.captured))
        while left and not self.result.interrupted:
            tried = [v for v in suspects if v in left][:1] or left
            worker = ahead or self.start_capture(scratch, tried, gated=False)
            assert worker is not None
            self.events.together, self.events.suspects = len(tried) > 1, []
            if worker is ahead:
                worker.open_gate(left)
            ahead = None
            outcome = worker.watch(limit, self.events.take)
            suspects += self.events.suspects
            self.result.interrupted = outcome.interrupted
            report = worker.scratch / ncu.REPORT
            stored = self.events.store(report, outcome.of(Captured), self.config.profiler)
            culprit = None
            if not outcome.finished and outcome.current:
                if ncu.got_no_counters(outcome.log):
                    raise ncu.failure(outcome.log)
                culprit = self.events.blame(outcome)
                died.append(outcome.log)
            if stored:
                died.clear()
            elif len(died) == enough and (enough > 1 or ncu.error_lines(died[0])):
                raise EnvironmentLacks(
                    f"ncu ends at the first kernel of {len(died)} of {len(self.plan.captured)} "
                    f"variants, which run without it: {ncu.quoted(died[-1]) or 'no error printed'}",
                    hint="`workbench doctor` profiles a kernel of its own; times are recorded",
                )
            if outcome.finished and (stored or ncu.saw_no_kernel(outcome.log)):
                self.events.fail_without_kernel(outcome, stored)
            left = [v for v in left if v not in stored and v not in self.result.out]
            known = stored or culprit or outcome.interrupted or self.events.suspects
            if not known and left == tried:
                raise ncu.failure(outcome.log)
