"""From a list of variants to evidence: build, check, time, then one ncu for all captures.

Every finished piece is written to the evidence folder at once. A variant that fails costs only
itself: the others go on, in a fresh worker where it took the process along.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import structs

from workbench.errors import BadCapture
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.records import Build, CapturedKernel, Timing
from workbench.ncu import command as ncu
from workbench.ncu import output
from workbench.ncu.ranges import range_name
from workbench.ncu.reader import launches_by_range
from workbench.ncu.resources import resources_of
from workbench.run import machine
from workbench.run.ahead import compilers, copy_sources
from workbench.run.build import params_of, sources_of, worker_stopped
from workbench.run.plan import Measured, Plan
from workbench.run.process import Worker, WorkerEnd, run_worker
from workbench.run.protocol import (
    Built,
    Captured,
    Checked,
    ContextLost,
    ErrorText,
    Event,
    Failed,
    Passes,
    SessionsDone,
    SessionsJob,
    Start,
    Surroundings,
    Timed,
    VariantsJob,
)
from workbench.run.recording import Recorder
from workbench.run.scratch import scratch_folder
from workbench.study.config import Config
from workbench.study.front_ends import is_compiling
from workbench.study.model import Study
from workbench.study.shapes import parameters_of_derived
from workbench.study.sources import source_files
from workbench.words import ABSENT, CheckResult, Phase

LOG_KEPT = 4000  # characters: ncu's line about the kernel at hand is among them


def decided(timing: Timing) -> Sequence[str]:
    """No variant needs further sessions."""
    return ()


class Measurement:
    """One run of the measuring part: a study at a shape, on this machine's GPU.

    ``undecided`` says of a timing which variants to time in as many sessions again. ``refused``
    says of a build why it is not worth checking and timing, "" where it is; with it, all variants
    are built before any is checked. ``cubins`` is a folder that keeps builds for other
    measurements.
    """

    def __init__(
        self,
        study: Study,
        config: Config,
        folder: EvidenceFolder,
        plan: Plan,
        on_event: Callable[[Event], None],
        undecided: Callable[[Timing], Sequence[str]] = decided,
        refused: Callable[[Build], str] | None = None,
        cubins: Path | None = None,
    ) -> None:
        self.cubins = cubins
        self.undecided = undecided
        self.refused = refused
        self.study = study
        self.config = config
        self.plan = plan
        self.on_event = on_event
        self.result = Measured()
        self.recorder = Recorder(study, plan.shape, folder, plan.variants)
        self.timing: Timing | None = None
        self.clock: Worker | None = None
        self.last_session = 0.0  # after this moment none is begun

    def run(self) -> Measured:
        self.recorder.predictions()
        self.recorder.derived_shape()
        with scratch_folder(self.study, self.cubins) as scratch:
            ahead = None
            try:
                ahead = self.start_capture(scratch, self.plan.captured, gated=True)
                self.clock = self.start_sessions(scratch) if self.plan.timed else None
                if self.plan.built:
                    with self.part("build and check"):
                        self.prepare(scratch)
                if self.plan.timed and not self.result.interrupted:
                    with self.part("timing"):
                        self.time(scratch)
                if not self.result.interrupted:
                    with self.part("ncu"):
                        self.capture(scratch, ahead)
            finally:
                for worker in (ahead, self.clock):
                    if worker is not None:
                        worker.kill()
        self.result.written += self.recorder.written
        return self.result

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Note the seconds of what is done inside."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.result.seconds[name] = time.monotonic() - began

    def job(
        self, variants: Iterable[str], phases: tuple[Phase, ...], *, gated: bool = False
    ) -> VariantsJob:
        names, shape = tuple(variants), self.plan.shape
        others = [n for n, s in self.study.shapes.items() if s.always_checked and n != shape]
        return VariantsJob(
            study=self.study.name,
            variants=names,
            params=params_of(self.study, names),
            phases=phases,
            shape=shape,
            check_shapes=(shape, *others),
            reference=self.study.ladder.primary_reference or "",
            references=tuple(reference.name for reference in self.study.ladder.references),
            sources=sources_of(self.study, names),
            ranges={name: range_name(self.study.name, name, shape) for name in names},
            gated=gated,
            derived=parameters_of_derived(self.study),
        )

    def prepare(self, scratch: Path) -> None:
        """Build and check."""
        variants, together = self.plan.built, (Phase.BUILD, Phase.CHECK)
        with compilers(scratch, variants, self.build_job):
            if self.refused is None:
                return self.work(scratch, variants, together)
            self.work(scratch, variants, (Phase.BUILD,))
        left = [v for v in variants if v not in self.result.out]
        if not self.result.interrupted:
            self.work(scratch, left, (Phase.CHECK,))

    def build_job(self, variants: Sequence[str], arch: str) -> VariantsJob:
        """Of a process that compiles ahead."""
        return structs.replace(self.job(variants, (Phase.BUILD,)), arch=arch)

    def work(self, scratch: Path, variants: list[str], phases: tuple[Phase, ...]) -> None:
        """Again without the one that broke the worker."""
        limit = self.config.limits.seconds_per_step
        while variants:
            outcome = run_worker(scratch, self.job(variants, phases), limit, self.take)
            if outcome.interrupted:
                self.result.interrupted = True
                return
            culprit = self.blame(outcome, limit)
            if culprit is None:
                return
            variants = [v for v in variants if v != culprit and v not in self.result.out]

    def start_sessions(self, scratch: Path) -> Worker:
        """The process that forks the sessions; it waits at its gate."""
        settings, ladder = self.config.timing, self.study.ladder
        references = tuple(reference.name for reference in ladder.references)
        primary = (ladder.primary_reference,) if ladder.primary_reference else ()
        job = SessionsJob(
            study=self.study.name,
            shape=self.plan.shape,
            params=params_of(self.study, self.plan.timed),
            sources=sources_of(self.study, self.plan.timed),
            references=references,
            twins=(ladder.steps[0].variant, *primary),
            sessions=settings.sessions,
            instances=settings.instances,
            rounds=settings.rounds,
            graph_microseconds=settings.graph_microseconds,
            derived=parameters_of_derived(self.study),
        )
        folder = scratch / "timing"
        copy_sources(scratch, folder)
        return Worker(folder, job, cubins=scratch)

    def time(self, scratch: Path) -> None:
        """On record is what came to its end, and what Ctrl-C or an error cut short where it has as
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
        """And in further ones while a verdict is open; all again without the one that broke them.
        Whether they came to their end: False after Ctrl-C.
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
            if self.blame(outcome, limit) is None:
                break
        return True

    @property
    def is_cut_short(self) -> bool:
        """Whether there are fewer sessions than intervals are made of: older ones are better."""
        timing = self.timing
        return timing is None or len(timing.together) < self.config.timing.sessions

    def timed(self, event: Event) -> None:
        """Keep a session as soon as it comes; where they are over, ask for more or end it."""
        self.take(event)
        match event:
            case Timed():
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
        job = self.job(variants, (Phase.CAPTURE,), gated=gated)
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
        limit = self.config.limits.seconds_per_capture
        while left and not self.result.interrupted:
            worker = ahead or self.start_capture(scratch, left, gated=False)
            assert worker is not None
            tried = left
            if worker is ahead:
                worker.open_gate(left)
            ahead = None
            outcome = worker.watch(limit, self.take, self.passes())
            self.result.interrupted = outcome.interrupted
            stored = self.store(worker.scratch / ncu.REPORT, outcome.of(Captured))
            culprit = None
            if not outcome.finished and outcome.current:
                culprit = self.blame(outcome, limit)
            if outcome.finished and (stored or output.saw_no_kernel(outcome.log)):
                self.fail_without_kernel(outcome, stored)
            left = [v for v in left if v not in stored and v not in self.result.out]
            if not stored and not culprit and not outcome.interrupted and left == tried:
                raise output.failure(outcome.log)

    def fail_without_kernel(self, outcome: WorkerEnd, stored: list[str]) -> None:
        """Those that ran to their end, and launched nothing that ncu saw."""
        error = output.no_kernel()
        for event in outcome.of(Captured):
            if event.variant not in stored:
                why = f"{error.message} ({error.hint})"
                self.fail(event.variant, Phase.CAPTURE, why, CheckResult.FAILED)
                text = ErrorText(kind="", message=why)
                self.on_event(Failed(variant=event.variant, phase=Phase.CAPTURE, error=text))

    def passes(self) -> Callable[[str], None]:
        """Tells from ncu's output, piece by piece, how far it is."""
        text = ""

        def on_log(piece: str) -> None:
            nonlocal text
            text = (text + piece)[-LOG_KEPT:]
            if state := output.progress(text):
                self.on_event(Passes(kernel=state[0], percent=state[1]))

        return on_log

    def store(self, report: Path, captured: Iterable[Captured]) -> list[str]:
        """Keep the report with the variants that it really holds; these."""
        if not report.exists():
            return []
        counts = launches_by_range(report)
        held = {
            event.variant: count
            for event in captured
            if (count := counts.get(self.range_of(event.variant)))
        }
        if held:
            version = machine.ncu_version(machine.find_ncu() or "ncu") or ABSENT
            resources = self.resources(report, held)
            self.recorder.captures(report, held, self.config.profiler, version, resources)
        return list(held)

    def resources(self, report: Path, held: Iterable[str]) -> dict[str, tuple[CapturedKernel, ...]]:
        """Of the kernels of those that others compile: what is compiled here is known better."""
        study = self.study
        others = [n for n in held if is_compiling(source_files(study, study.variants[n]))]
        with suppress(BadCapture):  # what has to be read of it later says what is wrong
            return {name: resources_of(report, self.range_of(name)) for name in others}
        return {}

    def range_of(self, variant: str) -> str:
        """The NVTX range of a variant's launches."""
        return range_name(self.study.name, variant, self.plan.shape)

    def take(self, event: Event) -> None:
        """Keep what an event brings, as soon as it comes."""
        match event:
            case Surroundings():
                self.recorder.environment = structs.replace(
                    event.environment, packages=self.packages() or None
                )
            case Built():
                build = self.recorder.build(
                    event.variant, arch=event.arch, kernels=event.kernels, warnings=event.warnings
                )
                if self.refused is not None and (why := self.refused(build)):
                    self.result.refused[event.variant] = why
            case Checked():
                self.checked(event)
            case Failed():
                error = event.error
                self.fail(event.variant, event.phase, error.message, CheckResult.FAILED, error.hint)
        self.on_event(event)

    def packages(self) -> dict[str, str]:
        """Versions of what the variants of this run need."""
        needed = {self.study.variants[name].needs for name in self.plan.variants} - {""}
        return {name: known for name in needed if (known := machine.package_version(name))}

    def checked(self, event: Checked) -> None:
        self.recorder.check(
            event.variant,
            event.shape,
            status=event.status,
            why=event.why,
            max_abs=event.max_abs,
            relative=event.relative,
            times_reference=event.times_reference,
            kind=event.kind,
            varies=event.varies,
            output=event.output,
            hint=event.hint,
        )
        if event.status == CheckResult.WRONG:
            self.result.failures[event.variant] = f"wrong at {event.shape}: {event.why}"
            if event.hint:
                self.result.hints[event.variant] = event.hint
        elif event.status == CheckResult.UNSUPPORTED and event.shape == self.plan.shape:
            why = f"does not support this shape: {event.why}"
            self.result.unsupported[event.variant] = why

    def fail(
        self, variant: str, phase: Phase, why: str, status: CheckResult, hint: str = ""
    ) -> None:
        self.result.failures[variant] = why
        if hint:
            self.result.hints[variant] = hint
        if phase in (Phase.CHECK, Phase.TIME):
            self.recorder.check(variant, self.plan.shape, status=status, why=why, hint=hint)
        elif phase == Phase.BUILD:
            self.recorder.build(variant, error=why, hint=hint)

    def blame(self, outcome: WorkerEnd, limit: float) -> str | None:
        """The variant that took the worker down, recorded as failed; None when it ended well."""
        if outcome.finished or outcome.interrupted:
            return None
        if lost := outcome.of(ContextLost):
            return lost[0].variant
        variant = outcome.current
        if not variant:
            raise worker_stopped(outcome)
        phases = [event.phase for event in outcome.of(Start) if event.variant == variant]
        phase = phases[-1] if phases else Phase.BUILD
        status = CheckResult.HUNG if outcome.timed_out else CheckResult.CRASHED
        why = (
            f"hangs: nothing came for {outcome.waited or limit:g} s ({phase})"
            if outcome.timed_out
            else f"crashed its process ({phase}, exit {outcome.returncode})"
        )
        self.fail(variant, phase, why, status)
        self.on_event(Failed(variant=variant, phase=phase, error=ErrorText(kind="", message=why)))
        return variant
