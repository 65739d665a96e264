"""From a list of variants to evidence: build, check, time, then one ncu for all captures.

Every finished piece is written to the evidence folder at once. A variant that fails costs only
itself: the others go on, in a fresh worker where it took the process along.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import structs

from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.records import Samples
from workbench.ncu import command as ncu
from workbench.ncu import output
from workbench.ncu.ranges import range_name
from workbench.ncu.reader import launches_by_range
from workbench.run import machine
from workbench.run.build import params_of, worker_stopped
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
    Start,
    Surroundings,
    Timed,
    TimingDone,
    TimingJob,
    VariantsJob,
)
from workbench.run.recording import Recorder
from workbench.run.scratch import scratch_folder
from workbench.study.config import Config
from workbench.study.model import Study
from workbench.words import ABSENT, CheckResult, Phase

LOG_KEPT = 4000  # characters: ncu's line about the kernel at hand is among them


class Measurement:
    """One run of the measuring part: a study at a shape, on this machine's GPU."""

    def __init__(
        self,
        study: Study,
        config: Config,
        folder: EvidenceFolder,
        plan: Plan,
        on_event: Callable[[Event], None],
    ) -> None:
        self.study = study
        self.config = config
        self.plan = plan
        self.on_event = on_event
        self.result = Measured()
        self.recorder = Recorder(study, plan.shape, folder, plan.variants)
        self.samples: list[Timed] = []

    def run(self) -> Measured:
        self.recorder.predictions()
        with scratch_folder(self.study) as scratch:
            ahead = self.start_capture(scratch, self.plan.captured, gated=True)
            try:
                if self.plan.built:
                    self.prepare(scratch)
                if not self.result.interrupted:
                    self.capture(scratch, ahead)
            finally:
                if ahead is not None:
                    ahead.kill()
        self.result.written += self.recorder.written
        return self.result

    def job(
        self, variants: Iterable[str], phases: tuple[Phase, ...], *, gated: bool = False
    ) -> VariantsJob:
        names, timing, shape = tuple(variants), self.config.timing, self.plan.shape
        others = [n for n, s in self.study.shapes.items() if s.captured and n != shape]
        return VariantsJob(
            study=self.study.name,
            variants=names,
            params=params_of(self.study, names),
            phases=phases,
            shape=shape,
            check_shapes=(shape, *others),
            timing=TimingJob(
                rounds=timing.rounds,
                seconds=timing.seconds,
                graph_microseconds=timing.graph_microseconds,
            ),
            ranges={name: range_name(self.study.name, name, shape) for name in names},
            gated=gated,
        )

    def prepare(self, scratch: Path) -> None:
        """Build, check and, where asked for, time; again without the one that broke the worker."""
        variants = self.plan.built
        phases = (Phase.BUILD, Phase.CHECK, *((Phase.TIME,) if self.plan.timed else ()))
        limit = self.config.limits.seconds_per_step
        while variants:
            self.samples.clear()
            outcome = run_worker(scratch, self.job(variants, phases), limit, self.take)
            if outcome.interrupted:
                self.result.interrupted = True
                return
            culprit = self.blame(outcome, limit)
            if culprit is None:
                return
            variants = [v for v in variants if v != culprit and v not in self.result.out]

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
        folder.mkdir(exist_ok=True)
        if not (folder / "kernels").exists():
            shutil.copytree(scratch / "kernels", folder / "kernels")
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
            if (count := counts.get(range_name(self.study.name, event.variant, self.plan.shape)))
        }
        if held:
            version = machine.ncu_version(machine.find_ncu() or "ncu") or ABSENT
            self.recorder.captures(report, held, self.config.profiler, version)
        return list(held)

    def take(self, event: Event) -> None:
        """Keep what an event brings, as soon as it comes."""
        match event:
            case Surroundings():
                self.recorder.environment = structs.replace(
                    event.environment, packages=self.packages() or None
                )
            case Built():
                self.recorder.build(
                    event.variant, arch=event.arch, kernels=event.kernels, warnings=event.warnings
                )
            case Checked():
                self.checked(event)
            case Timed():
                self.samples.append(event)
            case TimingDone():
                self.recorder.session(event.variants, columns(self.samples))
            case Failed():
                self.fail(event.variant, event.phase, event.error.message, CheckResult.FAILED)
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
        )
        if event.status == CheckResult.WRONG:
            self.result.failures[event.variant] = f"wrong at {event.shape}: {event.why}"
        elif event.status == CheckResult.UNSUPPORTED and event.shape == self.plan.shape:
            why = f"does not support this shape: {event.why}"
            self.result.unsupported[event.variant] = why

    def fail(self, variant: str, phase: Phase, why: str, status: CheckResult) -> None:
        self.result.failures[variant] = why
        if phase in (Phase.CHECK, Phase.TIME):
            self.recorder.check(variant, self.plan.shape, status=status, why=why)
        elif phase == Phase.BUILD:
            self.recorder.build(variant, error=why)

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
            f"hangs: nothing came for {limit:g} s ({phase})"
            if outcome.timed_out
            else f"crashed its process ({phase}, exit {outcome.returncode})"
        )
        self.fail(variant, phase, why, status)
        self.on_event(Failed(variant=variant, phase=phase, error=ErrorText(kind="", message=why)))
        return variant


def columns(samples: Iterable[Timed]) -> Samples:
    rows = list(samples)
    names = Samples.__struct_fields__
    return Samples(**{name: tuple(getattr(row, name) for row in rows) for name in names})
