"""Stands in for the GPU under whole verbs: builds, checks and sessions as a test wants them.

    gpu = StandIn(monkeypatch, lambda run: 10.0 / run.params.get("warps", 4))
    main(["sweep", "fix[warps=2|4|8]", "--project", str(root)])
    gpu.timed   # the variants of every timing

Nothing is captured; what would have been is in ``captured``, and ncu's flags in ``flags``.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import structs

import made_evidence
from answers import Patch
from made_records import built_kernel
from workbench.evidence import store
from workbench.evidence.records import Environment, GraphNode, Series, Session, Timing
from workbench.ncu.command import flags
from workbench.run import compilation, machine, measurement, recording, side_jobs
from workbench.run.machine import Gpu
from workbench.run.measurement import Measurement
from workbench.run.process import WorkerEnd, run_worker
from workbench.run.protocol import (
    Built,
    Checked,
    DeviceFound,
    Done,
    ErrorText,
    Event,
    Failed,
    SessionsDone,
    SessionsJob,
    TimedSession,
    TrialJob,
    VariantsJob,
)
from workbench.study.sources import Fingerprints
from workbench.words import CheckResult, NodeKind, Parameter, Phase, Regime

AROUND, ROUNDS, INSTANCES = 4.0, 3, 2
ENVIRONMENT = Environment(gpu="NVIDIA H200")


def ignore(event: Any) -> None:
    pass


def played(
    events: list[Event], on_event: Callable[[Any], object] = ignore, current: str = "", **end: Any
) -> WorkerEnd:
    """A worker that tells of all events, and crashes at ``current`` unless it is done then."""
    for event in events:
        on_event(event)
    done = Done() in events
    code, at = (0, "") if done else (-11, current)
    return WorkerEnd(events=events, returncode=code, current=at, **end)


@dataclass(frozen=True)
class Run:
    """A variant at a shape; ``params`` are those that are not its own."""

    variant: str
    params: Mapping[str, Parameter]
    shape: str


@dataclass
class StandIn:
    """``time`` gives the microseconds of a run; ``noise`` is that of sessions, relative. Builds for
    which ``spills`` says a number spill so many bytes, and those of ``broken`` fail; ``wrong`` give
    wrong results; ``error`` is a multiple of the reference's.
    """

    monkeypatch: Patch
    time: Callable[[Run], float]
    spills: Callable[[Run], int] = lambda run: 0
    broken: Callable[[Run], bool] = lambda run: False
    wrong: Callable[[Run], bool] = lambda run: False
    error: Callable[[Run], float] = lambda run: 1.0
    noise: float = 1e-3
    seed: int = 1
    built: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    timed: list[list[str]] = field(default_factory=list)
    captured: list[str] = field(default_factory=list)
    flags: list[list[str]] = field(default_factory=list)
    jobs: list[VariantsJob | SessionsJob] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        gpu = Gpu("NVIDIA H200", "580", "9.0")
        self.monkeypatch.setattr(machine, "find_gpu", lambda: gpu)
        self.monkeypatch.setattr(machine, "can_measure", lambda: True)
        self.monkeypatch.setattr(measurement, "run_worker", self.work)
        self.monkeypatch.setattr(measurement, "Worker", self.start)
        self.monkeypatch.setattr(compilation, "MOST_COMPILERS", 0)
        self.monkeypatch.setattr(Measurement, "start_capture", lambda *a, **k: None)
        self.monkeypatch.setattr(Measurement, "capture", lambda *a: self.capture(a[0]))
        self.monkeypatch.setattr(recording, "now", self.now)
        self.seconds = itertools.count()

    def now(self) -> str:
        """Evidence is named after the second; here a run takes none."""
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=next(self.seconds))
        return at.strftime("%Y-%m-%dT%H:%M:%SZ")

    def capture(self, measurement: Measurement) -> None:
        out = measurement.result.out
        if measurement.plan.captured:
            self.flags.append(flags(measurement.config.profiler))
        self.captured += [name for name in measurement.plan.captured if name not in out]

    def work(
        self, scratch: Path, job: VariantsJob, limit: float, on_event: Callable[[Any], None]
    ) -> WorkerEnd:
        self.jobs.append(job)
        events: list[Event] = [DeviceFound(environment=ENVIRONMENT)]
        left = list(job.variants)
        if Phase.BUILD in job.phases:
            for name in job.variants:
                run = Run(name, job.params[name], job.shape)
                self.built.append(name)
                events.append(self.build(run))
                if isinstance(events[-1], Failed):
                    left.remove(name)
        if Phase.CHECK in job.phases:
            for name in [name for name in left if name not in job.known]:
                self.checked.append(name)
                events += [self.check(Run(name, job.params[name], s)) for s in job.check_shapes]
        return played([*events, Done()], on_event)

    def build(self, run: Run) -> Event:
        if self.broken(run):
            error = ErrorText(kind="CompileError", message="k.cu does not compile for sm_90a")
            return Failed(variant=run.variant, phase=Phase.BUILD, error=error)
        spilled = self.spills(run)
        kernel = built_kernel(kernel="scale", shared_bytes=1024, spill_store_bytes=spilled)
        return Built(variant=run.variant, arch="sm_90a", kernels=(kernel,), defines=("",),
                     warnings=())  # fmt: skip

    def check(self, run: Run) -> Checked:
        wrong = self.wrong(run)
        return Checked(
            variant=run.variant,
            shape=run.shape,
            status=CheckResult.WRONG if wrong else CheckResult.CORRECT,
            why="max error 1 (allowed 1e-06)" if wrong else "",
            max_abs=1.0 if wrong else 0.0,
            relative=0.0,
            times_reference=self.error(run),
        )

    def start(self, scratch: Path, job: Any, *more: Any, **cubins: Path) -> Any:
        self.jobs.append(job)
        return Sessions(self, job)

    def session(self, number: int, job: SessionsJob, variants: Sequence[str]) -> TimedSession:
        series = tuple(
            Series(
                variant=name,
                instance=instance,
                regime=Regime.CHAINED,
                calls=4,
                microseconds=(one + AROUND,) * ROUNDS,
                around=(AROUND,) * ROUNDS,
            )
            for name in variants
            for one in [self.drawn(Run(name, job.params[name], job.shape))]
            for instance in range(INSTANCES)
        )
        node = GraphNode(kind=NodeKind.KERNEL, kernel="scale", shared_bytes=512)
        session = Session(number=number, instances=INSTANCES, series=series)
        return TimedSession(session=session, nodes=dict.fromkeys(variants, (node,)))

    def drawn(self, run: Run) -> float:
        return self.time(run) * (1 + self.random.gauss(0, self.noise))


@dataclass
class Sessions:
    gpu: StandIn
    job: SessionsJob

    def give_turn(self, variants: list[str]) -> None:
        self.variants = variants

    def watch(self, limit: float, on_event: Callable[[Any], None]) -> WorkerEnd:
        self.gpu.timed.append(list(self.variants))
        events: list[Event] = [
            DeviceFound(environment=ENVIRONMENT),
            *(self.gpu.session(n, self.job, self.variants) for n in range(self.job.sessions)),
        ]
        events += [SessionsDone(sessions=self.job.sessions), Done()]
        return played(events, on_event)

    def kill(self) -> None:
        pass


def stand_in_for_jobs(monkeypatch: Patch) -> None:
    """A trial is made on the CPU, by the worker that would make it on the GPU."""

    def on_the_cpu(scratch: Path, job: TrialJob, *given: Any) -> WorkerEnd:
        return run_worker(scratch, structs.replace(job, device="cpu"), *given)

    monkeypatch.setattr(side_jobs, "run_worker", on_the_cpu)


def measured_by(monkeypatch: Patch, stand_in: type) -> None:
    """A machine with a GPU, whose measurements are those of ``stand_in``."""
    monkeypatch.setattr(machine, "can_measure", lambda: True)
    monkeypatch.setattr(machine, "find_gpu", lambda: Gpu("NVIDIA H200", "1", "9.0"))
    monkeypatch.setattr(measurement, "Measurement", stand_in)


def record_times(made: Any, times: Mapping[str, float], **own: Any) -> Timing:
    """A timing of the variants of a measurement with their sources as they are now."""
    shape, prints = made.plan.shape, Fingerprints(made.study)
    parameters = made.study.shapes[shape].parameters
    known = {name: prints.at_shape(name, parameters) for name in times}
    timing = structs.replace(made_evidence.timing(shape, times, **own), fingerprints=known)
    store.write(made.folder.timings(shape) / "t.json.zst", timing)
    return timing
