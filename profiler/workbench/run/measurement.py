"""From a list of variants to evidence: build, check, time, then one ncu for all captures.

Every finished piece is written to the evidence folder at once. A variant that fails costs only
itself: the others go on, in a fresh worker where it took the process along.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from msgspec import structs

from workbench.cuda.compiler import package_version
from workbench.errors import BadCapture, EnvironmentLacks, ToolFailed, with_hint
from workbench.evidence.records import Build, CapturedKernel, Timing
from workbench.evidence.store import EvidenceFolder
from workbench.ncu import command as ncu
from workbench.ncu.command import range_name
from workbench.ncu.reader import launches_by_range, resources_of
from workbench.run import iket, machine
from workbench.run.compilation import (
    compilers,
    copy_sources,
    params_of,
    scratch_folder,
    sources_of,
    worker_stopped,
)
from workbench.run.process import Worker, WorkerEnd, run_worker
from workbench.run.protocol import (
    Built,
    Captured,
    Checked,
    DeviceFound,
    ErrorText,
    Event,
    Failed,
    Job,
    Learned,
    SessionsDone,
    SessionsJob,
    Start,
    TimedSession,
    VariantsJob,
    Witnessed,
    write_calls,
)
from workbench.run.recording import Recorder
from workbench.study.config import Config
from workbench.study.front_ends import is_compiling
from workbench.study.model import Study
from workbench.study.sources import source_files
from workbench.words import ABSENT, CheckResult, Phase


@dataclass(frozen=True)
class Plan:
    """A plan of the measurements at one shape.

    ``checked`` are built and compared with the reference, ``timed`` also timed together in
    sessions, ``captured`` profiled in one ncu, ``traced`` each in a run that tells when its warps
    ran. ``everywhere``: checked at every shape of the study,
    and not at those alone that always are; ``others``: at these beside ``shape`` instead. ``known``
    are timed without another check.
    """

    shape: str
    checked: tuple[str, ...] = ()
    timed: tuple[str, ...] = ()
    captured: tuple[str, ...] = ()
    everywhere: bool = False
    others: tuple[str, ...] | None = None
    known: tuple[str, ...] = ()
    traced: tuple[str, ...] = ()

    @property
    def variants(self) -> list[str]:
        return list(dict.fromkeys([*self.checked, *self.timed, *self.captured, *self.traced]))

    @property
    def built(self) -> list[str]:
        """The first worker builds these variants; the others are only profiled."""
        return list(dict.fromkeys([*self.checked, *self.timed]))


@dataclass
class MeasuredPlan:
    """A measured plan has failures by variant with hints, and the seconds of each part of the run.
    The rest of the result is in files.

    A variant that does not support the shape, or whose build was ``refused``, has not failed, and
    is neither timed nor captured. ``unprofiled`` is why ncu captured nothing more. ``learned`` is
    of a job that leaves no evidence.
    """

    failures: dict[str, str] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    seconds: dict[str, float] = field(default_factory=dict)
    unprofiled: ErrorText | None = None
    learned: Learned | None = None
    interrupted: bool = False

    def why(self, name: str) -> str:
        """What failed of a variant, and its way out."""
        return with_hint(self.failures[name], self.hints.get(name, ""))

    @property
    def out(self) -> set[str]:
        return {*self.failures, *self.unsupported, *self.refused}


def variants_job(
    study: Study,
    plan: Plan,
    variants: Iterable[str],
    phases: tuple[Phase, ...],
    *,
    waits: bool = False,
) -> VariantsJob:
    names, shape, others = tuple(variants), plan.shape, plan.others
    listed = {n: s for n, s in study.shapes.items() if n != shape and n not in study.derived}
    if plan.everywhere or others is None:
        others = tuple(n for n, s in listed.items() if plan.everywhere or s.always_checked)
    return VariantsJob(
        study=study.name,
        variants=names,
        params=params_of(study, names),
        phases=phases,
        shape=shape,
        check_shapes=(shape, *others),
        reference=study.ladder.primary_reference or "",
        references=tuple(reference.name for reference in study.ladder.references),
        sources=sources_of(study, names),
        ranges={name: range_name(study.name, name, shape) for name in names},
        waits=waits,
        derived=study.derived,
        known=plan.known,
    )


ENOUGH = 3  # variants that ended under ncu, and none that did not: it is not the variants
PROFILING = "ncu", "timeline"  # parts of a run without which the others count


@dataclass
class Measurement:
    """One run of the measuring part: a study at a shape, on this machine's GPU.

    ``undecided`` says of a timing which variants to time in as many sessions again. ``refused``
    says of a build why it is not worth checking and timing, "" where it is; with it, all variants
    are built before any is checked. ``cubins`` is a folder that keeps builds for other
    measurements.
    """

    study: Study
    config: Config
    folder: EvidenceFolder
    plan: Plan
    on_event: Callable[[Event], None]
    undecided: Callable[[Timing], Sequence[str]] = lambda timing: ()
    refused: Callable[[Build], bool] | None = None
    cubins: Path | None = None

    def __post_init__(self) -> None:
        self.result = MeasuredPlan()
        self.timing: Timing | None = None
        self.clock: Worker | None = None
        self.capturing: Worker | None = None
        self.last_session = 0.0  # after this moment none is begun
        self.scratch = Path()

    @cached_property
    def recorder(self) -> Recorder:
        return Recorder(self.study, self.plan.shape, self.folder, self.plan.variants)

    def run(self) -> MeasuredPlan:
        plan = self.plan
        if plan.traced:
            iket.folder()
        self.recorder.predictions()
        self.recorder.note_derived(plan.others or ())
        with scratch_folder(self.study, self.cubins) as self.scratch:
            try:
                self.capturing = self.start_capture(plan.captured, waits=True)
                self.clock = self.start_sessions() if plan.timed else None
                self.part("build and check", self.prepare, bool(plan.built))
                left = {*plan.timed} - self.result.out
                is_news = bool(left and (left - {*plan.known} or left == {*plan.timed}))
                self.part("timing", self.time, is_news)  # or all was known before
                self.part("ncu", self.capture)
                self.part("timeline", self.trace, bool(plan.traced))
            finally:
                for worker in (self.capturing, self.clock):
                    if worker is not None:
                        worker.kill()
        return self.result

    def part(self, name: str, work: Callable[[], None], is_wanted: bool = True) -> None:
        """Do a part of the run, if nothing has interrupted it, and note its seconds."""
        if not is_wanted or self.result.interrupted:
            return
        began = time.monotonic()
        try:
            work()
        except (EnvironmentLacks, ToolFailed) as error:
            if name not in PROFILING:
                raise
            self.result.unprofiled = ErrorText.of(error)
        finally:
            self.result.seconds[name] = time.monotonic() - began

    def start(self, name: str, job: Job, prefix: list[str] | None = None) -> Worker:
        """Start a worker in a folder of its own that has a copy of the sources."""
        folder = self.scratch / name
        copy_sources(self.scratch, folder)
        return Worker(folder, job, prefix, cubins=self.scratch)

    def prepare(self) -> None:
        variants, together = self.plan.built, (Phase.BUILD, Phase.CHECK)
        with compilers(self.scratch, self.study, variants):
            if self.refused is None:
                return self.work(variants, together)
            self.work(variants, (Phase.BUILD,))
        left = [v for v in variants if v not in self.result.out]
        if not self.result.interrupted:
            self.work(left, (Phase.CHECK,))

    def work(self, variants: list[str], phases: tuple[Phase, ...]) -> None:
        """Run phases of variants in a worker, one after the other, and those behind the one that
        broke it in another.
        """
        limit = self.config.limits.seconds_per_step
        while variants and not self.result.interrupted:
            job = variants_job(self.study, self.plan, variants, phases)
            culprit = self.blame(run_worker(self.scratch, job, limit, self.take))
            if culprit is None:
                return
            variants = variants[variants.index(culprit) + 1 :]

    def start_sessions(self) -> Worker:
        """Start the process that forks the sessions; it waits for its turn."""
        study, ladder, settings = self.study, self.study.ladder, self.config.timing
        primary = (ladder.primary_reference,) if ladder.primary_reference else ()
        job = SessionsJob(
            study=study.name,
            shape=self.plan.shape,
            params=params_of(study, self.plan.timed),
            sources=sources_of(study, self.plan.timed),
            references=tuple(reference.name for reference in ladder.references),
            references_alone=settings.references_alone,
            referee=settings.referee,
            by_referee=self.recorder.by_referee,
            controls=(ladder.steps[0].variant, *primary),
            sessions=settings.sessions,
            instances=settings.instances,
            rounds=settings.rounds,
            graph_microseconds=settings.graph_microseconds,
            derived=study.derived,
            gpus=tuple(machine.gpus()),
        )
        return self.start("timing", job)

    def time(self) -> None:
        """Time the variants in sessions, and in further ones while a verdict is open. All sessions
        run again without a variant that broke one.

        Recorded is what ended, and what Ctrl-C or an error cut short where it has as many sessions
        as intervals are made of: else older ones are better. References alone are no timing.
        """
        limit, has_ended = self.config.limits.seconds_per_step, False
        try:
            while variants := [v for v in self.plan.timed if v not in self.result.out]:
                self.timing = None
                self.recorder.drop_timing()
                self.clock = self.clock or self.start_sessions()
                self.last_session = time.monotonic() + self.config.timing.seconds
                self.clock.give_turn(variants)
                culprit = self.blame(self.clock.watch(limit, self.timed))
                self.clock = None
                if self.result.interrupted or culprit is None:
                    break
            has_ended = not self.result.interrupted
        finally:
            together = len(self.timing.together) if self.timing else 0
            if (has_ended and together) or together >= self.config.timing.sessions:
                self.recorder.end_timing()
            else:
                self.recorder.drop_timing()

    def timed(self, event: Event) -> None:
        """Keep each session when it arrives; after the last, ask for more or end it."""
        self.take(event)
        match event:
            case TimedSession():
                self.timing = self.recorder.session(event, self.config.timing.sessions)
            case Witnessed():
                self.recorder.witnesses.append(event.witness)
            case SessionsDone():
                assert self.clock is not None
                settings = self.config.timing
                over = time.monotonic() > self.last_session
                over |= event.sessions + settings.sessions > settings.max_sessions
                more = () if over or self.timing is None else self.undecided(self.timing)
                self.clock.give_turn(list(more))

    def start_capture(self, variants: Iterable[str], *, waits: bool) -> Worker | None:
        """ncu with a worker in a folder of its own; None where nothing is to be captured.

        One that waits loads its libraries while the variants are being checked and timed, which is
        half of what a profiled process costs, and touches the GPU only when its turn comes.
        """
        job = variants_job(self.study, self.plan, variants, (Phase.CAPTURE,), waits=waits)
        if not job.variants:
            return None
        tool = machine.find_ncu()
        if tool is None:
            raise machine.why_not_measuring()
        (self.scratch / "ncu" / ncu.REPORT).unlink(missing_ok=True)
        return self.start("ncu", job, ncu.command(Path(tool).name, self.config.profiler))

    def capture(self) -> None:
        """One ncu process for all, and another for the rest when a variant breaks it."""
        left = [v for v in self.plan.captured if v not in self.result.out]
        if self.timing is not None and left:
            calls = {n: (c, *self.timing.ways.get(n, ())) for n, c in self.timing.nodes.items()}
            write_calls(self.scratch / "ncu", calls)
        if self.capturing is not None and left:
            self.capturing.give_turn(left)
        died: list[str] = []  # logs of those that ended at their first kernel
        enough = min(ENOUGH, len(self.plan.captured))
        while left and not self.result.interrupted:
            tried, culprit = left, None
            worker = self.capturing or self.start_capture(tried, waits=False)
            assert worker is not None
            outcome = worker.watch(self.config.limits.seconds_per_capture, self.take)
            self.capturing = None
            stored = self.store(worker.scratch / ncu.REPORT, outcome.of(Captured))
            if not outcome.finished and outcome.current and not outcome.has_failed:
                if ncu.got_no_counters(outcome.log):
                    raise ncu.failure(outcome.log)
                culprit = self.blame(outcome)
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
                error = ncu.no_kernel()  # of those that launched nothing that ncu saw
                for event in outcome.of(Captured):
                    if event.variant not in stored:
                        why = f"{error.message} ({error.hint})"
                        self.drop(event.variant, Phase.CAPTURE, why, CheckResult.FAILED)
            left = [v for v in left if v not in stored and v not in self.result.out]
            self.result.interrupted = outcome.interrupted
            if not (stored or culprit or outcome.interrupted) and left == tried:
                raise ncu.failure(outcome.log)

    def trace(self) -> None:
        """Record when the warps of each variant ran, in a process of its own: the trace holds all
        that a process launches.
        """
        for name in [name for name in self.plan.traced if name not in self.result.out]:
            job = variants_job(self.study, self.plan, [name], (Phase.TRACE,))
            worker = self.start("timeline", job, iket.command())
            outcome = worker.watch(self.config.limits.seconds_per_capture, self.take)
            culprit = self.blame(outcome)
            if self.result.interrupted:
                return
            if culprit is None and name not in self.result.out:
                log = ncu.quoted(outcome.log)
                launches = iket.call_in(worker.scratch / iket.OUTPUT, log)
                self.recorder.timeline(name, launches)

    # ---- events ------------------------------------------------------------------------------
    def take(self, event: Event) -> None:
        match event:
            case DeviceFound():
                machine.require_gpu(event.environment.gpu, event.environment.gpu_uuid)
                needed = {self.study.variants[name].needs for name in self.plan.variants} - {""}
                packages = {name: version for name in needed if (version := package_version(name))}
                environment = structs.replace(event.environment, packages=packages or None)
                self.recorder.environment = environment
            case Built():
                build = self.recorder.build(
                    event.variant, arch=event.arch, kernels=event.kernels, warnings=event.warnings
                )
                if self.refused is not None and self.refused(build):
                    self.result.refused.add(event.variant)
            case Checked():
                self.recorder.check(**structs.asdict(event))
                if event.status == CheckResult.WRONG:
                    self.result.failures[event.variant] = f"wrong at {event.shape}: {event.why}"
                    if event.hint:
                        self.result.hints[event.variant] = event.hint
                elif event.status == CheckResult.UNSUPPORTED and event.shape == self.plan.shape:
                    why = f"does not support this shape: {event.why}"
                    self.result.unsupported[event.variant] = why
            case Failed():
                self.fail(event, CheckResult.FAILED)
        self.on_event(event)

    def fail(self, event: Failed, status: CheckResult) -> None:
        variant, why, hint = event.variant, event.error.message, event.error.hint
        self.result.failures[variant] = why
        if hint:
            self.result.hints[variant] = hint
        if event.phase in (Phase.CHECK, Phase.TIME):
            self.recorder.check(variant, self.plan.shape, status=status, why=why, hint=hint)
        elif event.phase == Phase.BUILD:
            self.recorder.build(variant, error=why, hint=hint)

    def blame(self, outcome: WorkerEnd) -> str | None:
        """The variant that took the worker down, recorded as failed; None when it ended well."""
        self.result.interrupted = outcome.interrupted
        if outcome.finished or outcome.interrupted:
            return None
        variant = outcome.current
        if not variant:
            raise worker_stopped(outcome)
        if not outcome.has_failed:
            phases = [event.phase for event in outcome.of(Start) if event.variant == variant]
            phase = phases[-1] if phases else Phase.BUILD
            status = CheckResult.HUNG if outcome.silent_for else CheckResult.CRASHED
            self.drop(variant, phase, outcome.why(phase), status)
        return variant

    def drop(self, variant: str, phase: Phase, why: str, status: CheckResult) -> None:
        """Fail a variant whose worker could not report it."""
        event = Failed(variant=variant, phase=phase, error=ErrorText(kind="", message=why))
        self.fail(event, status)
        self.on_event(event)

    # ---- reports of ncu ----------------------------------------------------------------------
    def store(self, report: Path, captured: Iterable[Captured]) -> list[str]:
        """Keep a report of ncu with the variants that it really holds, which are returned."""
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
        """Read resources of kernels that front ends compile; builds know those of others."""
        study = self.study
        others = [n for n in held if is_compiling(source_files(study, study.variants[n]))]
        with suppress(BadCapture):  # what has to be read of it later says what is wrong
            return {name: resources_of(report, self.range_of(name)) for name in others}
        return {}

    def range_of(self, variant: str) -> str:
        return range_name(self.study.name, variant, self.plan.shape)
