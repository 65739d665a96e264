"""A remote target: what it has, and measuring on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Protocol

from workbench.app.doctor import Diagnosis
from workbench.app.executor import Executor, Hear, Reporter, Task
from workbench.errors import EnvironmentLacks, Interrupted, ToolFailed, WorkbenchError
from workbench.judge.open_verdicts import Deciding
from workbench.remote.intake import Intake
from workbench.remote.job import (
    About,
    AboutJob,
    RemoteJob,
    Result,
    digest,
    normalised,
    own_code,
    pack,
    sources_of,
    unpack,
)
from workbench.run.gpu import Gpu
from workbench.run.plan import MeasuredPlan
from workbench.run.protocol import ErrorText
from workbench.run.recording import Recorder, typed
from workbench.study.params import parameters_of_derived


class Carrier(Protocol):
    """What brings jobs there: see ``SshHost`` and ``DaskCluster``."""

    name: str

    def results(
        self, jobs: Sequence[bytes], hear: Hear
    ) -> Iterator[tuple[int, bytes | WorkbenchError]]: ...


class Remote(Executor):
    at_once = True

    def __init__(self, verb: str, reporter: Reporter, carrier: Carrier) -> None:
        super().__init__(verb, reporter)
        self.carrier, self.place = carrier, carrier.name

    @cached_property
    def about(self) -> About:
        """Raises EnvironmentLacks where it cannot measure."""
        found = self.look()
        if found.lacks is not None:
            raise self.error(found.lacks)
        return found

    @property
    def gpu(self) -> Gpu:
        assert self.about.gpu is not None
        return self.about.gpu

    def require_gpu(self) -> Gpu:
        return self.gpu

    def package_version(self, name: str) -> str | None:
        return self.about.packages.get(normalised(name))

    def doctor(self) -> Diagnosis:
        about = self.look(doctor=True)
        assert about.doctor is not None
        return replace(about.doctor, host=about.host)

    def look(self, *, doctor: bool = False) -> About:
        job = pack(RemoteJob(code=own_code(), instead=AboutJob(doctor=doctor)))
        ((_, result),) = self.results([job], lambda event: None)
        if result.about is None:
            raise ToolFailed(f"{self.place} does not say what it has", hint="run it again")
        return result.about

    def perform(self, tasks: Sequence[Task], hear: Hear) -> list[MeasuredPlan]:
        """Each is recorded as soon as it comes back. Errors as ``results``."""
        runs = [self.begin(task, self.gpu.name) for task in tasks]
        for task in tasks:
            if task.instead is None:
                self.recorder(task).derived_shape()
        recorders = [self.recorder(task) for task in tasks]  # each knows the shapes of all
        for task, recorder in zip(tasks, recorders, strict=True):
            if task.instead is None:
                recorder.predictions()
        found = [MeasuredPlan() for _ in tasks]
        for i, result in self.results([self.job(task) for task in tasks], hear, recorders):
            found[i] = result.measured
            self.charge(tasks[i], runs[i], result.seconds)
        if any(each.interrupted for each in found):
            raise Interrupted
        return found

    def recorder(self, task: Task) -> Recorder:
        return Recorder(task.study, task.plan.shape, task.folder, task.plan.variants)

    def job(self, task: Task) -> bytes:
        sources = sources_of(task.study)
        job = RemoteJob(
            code=own_code(),
            gpu=self.gpu.name,
            study=task.study.name,
            plan=task.plan,
            derived=parameters_of_derived(task.study),
            sources={name: digest(data) for name, data in sources.items()},
            config=task.config,
            deciding=task.deciding or Deciding(),
            command=tuple(typed()),
            instead=task.instead,
        )
        return pack(job, sources.values())

    def results(
        self, jobs: Sequence[bytes], hear: Hear, recorders: Sequence[Recorder] = ()
    ) -> Iterator[tuple[int, Result]]:
        """As they come, recorded by ``recorders``. Raises, after all others, the first error of a
        job that failed.
        """
        errors: list[WorkbenchError] = []
        for i, answer in self.carrier.results(jobs, hear):
            try:
                if isinstance(answer, WorkbenchError):
                    raise answer
                result, contents = unpack(answer, Result)
                if result.error is not None:
                    raise self.error(result.error)
                if recorders:
                    Intake(recorders[i], result, contents).record()
            except WorkbenchError as error:
                errors.append(error)
            else:
                yield i, result
        if errors:
            raise errors[0]

    def error(self, text: ErrorText) -> WorkbenchError:
        """As it was raised there: of that machine, and not of this one."""
        found = text.error()
        if not isinstance(found, EnvironmentLacks | ToolFailed):
            return found
        hint = found.hint.replace("`workbench doctor`", f"`workbench doctor --on {self.place}`")
        return type(found)(f"on {self.place}: {found.message}", hint=hint)


def remote_of(name: str, verb: str, reporter: Reporter) -> Remote:
    """Of what ``--on`` names. Raises UsageError."""
    from workbench.remote.cluster import DaskCluster
    from workbench.remote.ssh import SshHost

    carrier = DaskCluster if "://" in name else SshHost
    return Remote(verb, reporter, carrier(name, reporter.note))
