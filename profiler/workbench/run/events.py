"""Events and ncu reports of a measurement: kept as they come, and who is out for which reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from workbench.cuda.compiler import package_version
from workbench.errors import BadCapture
from workbench.evidence.records import Build, CapturedKernel
from workbench.ncu import command as ncu
from workbench.ncu.command import range_name
from workbench.ncu.reader import launches_by_range, resources_of
from workbench.run import machine
from workbench.run.compilation import worker_stopped
from workbench.run.plan import MeasuredPlan, Plan
from workbench.run.process import WorkerEnd
from workbench.run.protocol import (
    Built,
    Captured,
    Checked,
    ContextLost,
    DeviceFound,
    ErrorText,
    Event,
    Failed,
    Start,
)
from workbench.run.recording import Recorder
from workbench.study.config import Profiler
from workbench.study.front_ends import is_compiling
from workbench.study.model import Study
from workbench.study.sources import source_files
from workbench.words import ABSENT, CheckResult, Phase


@dataclass
class Listener:
    """A listener takes the events of one measurement: it writes evidence with ``recorder``, notes
    failures in ``result``, and passes all on to ``on_event``. ``refused`` is as in ``Measurement``.
    """

    study: Study
    plan: Plan
    recorder: Recorder
    result: MeasuredPlan
    on_event: Callable[[Event], None]
    refused: Callable[[Build], bool] | None = None
    together: bool = False  # several variants are in the worker's process
    suspects: list[str] = field(default_factory=list)  # those that changed what is not their own

    def take(self, event: Event) -> None:
        match event:
            case DeviceFound():
                machine.require_gpu(event.environment.gpu, event.environment.gpu_uuid)
                self.recorder.environment = structs.replace(
                    event.environment, packages=self.packages() or None
                )
            case Built():
                build = self.recorder.build(
                    event.variant, arch=event.arch, kernels=event.kernels, warnings=event.warnings
                )
                if self.refused is not None and self.refused(build):
                    self.result.refused.add(event.variant)
            case Checked():
                self.checked(event)
            case Failed(error=ErrorText(kind="Tampered")) if self.together:
                self.suspects.append(event.variant)  # only what it does alone counts
                return
            case Failed():
                error = event.error
                self.fail(event.variant, event.phase, error.message, CheckResult.FAILED, error.hint)
        self.on_event(event)

    def packages(self) -> dict[str, str]:
        needed = {self.study.variants[name].needs for name in self.plan.variants} - {""}
        return {name: known for name in needed if (known := package_version(name))}

    def checked(self, event: Checked) -> None:
        self.recorder.check(**structs.asdict(event))
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

    def blame(self, outcome: WorkerEnd) -> str | None:
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
        status = CheckResult.HUNG if outcome.silent_for else CheckResult.CRASHED
        self.drop(variant, phase, outcome.why(phase), status)
        return variant

    def drop(self, variant: str, phase: Phase, why: str, status: CheckResult) -> None:
        """Fail a variant whose worker could not report it."""
        self.fail(variant, phase, why, status)
        self.on_event(Failed(variant=variant, phase=phase, error=ErrorText(kind="", message=why)))

    def fail_without_kernel(self, outcome: WorkerEnd, stored: list[str]) -> None:
        """Fail the variants that ran to their end, and launched nothing that ncu saw."""
        error = ncu.no_kernel()
        for event in outcome.of(Captured):
            if event.variant not in stored:
                why = f"{error.message} ({error.hint})"
                self.drop(event.variant, Phase.CAPTURE, why, CheckResult.FAILED)

    # ---- reports of ncu ----------------------------------------------------------------------
    def store(self, report: Path, captured: Iterable[Captured], profiler: Profiler) -> list[str]:
        """Keep a report that ncu wrote with these options, with those variants that it really
        holds; these are returned.
        """
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
            self.recorder.captures(report, held, profiler, version, resources)
        return list(held)

    def resources(self, report: Path, held: Iterable[str]) -> dict[str, tuple[CapturedKernel, ...]]:
        """Read the resources of kernels that front ends compile. The build knows those of the
        others.
        """
        study = self.study
        others = [n for n in held if is_compiling(source_files(study, study.variants[n]))]
        with suppress(BadCapture):  # what has to be read of it later says what is wrong
            return {name: resources_of(report, self.range_of(name)) for name in others}
        return {}

    def range_of(self, variant: str) -> str:
        return range_name(self.study.name, variant, self.plan.shape)
