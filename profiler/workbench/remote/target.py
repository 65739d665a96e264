"""A remote target: what it is, what it has, and measuring on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from workbench.errors import EnvironmentLacks, ToolFailed, WorkbenchError
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.recorded import Evidence
from workbench.judge.open_verdicts import Deciding
from workbench.remote.intake import Intake
from workbench.remote.job import (
    About,
    AboutJob,
    RemoteJob,
    Result,
    digest,
    own_code,
    pack,
    sources_of,
    unpack,
)
from workbench.run.gpu import Gpu
from workbench.run.plan import Plan
from workbench.run.protocol import CeilingsJob, ErrorText, TrialJob
from workbench.run.recording import Recorder, typed
from workbench.study.config import Config
from workbench.study.model import Study
from workbench.study.shapes import parameters_of_derived
from workbench.study.workspace import Workspace

Hear = Callable[[Any], None]  # takes an event


class Carrier(Protocol):
    """What brings jobs there: see ``SshHost`` and ``DaskCluster``."""

    name: str

    def results(
        self, jobs: Sequence[bytes], hear: Hear
    ) -> Iterator[tuple[int, bytes | WorkbenchError]]: ...


@dataclass(frozen=True)
class Task:
    """A plan of a verb; ``payer`` is the workspace whose budget it is. ``instead`` of it there may
    be a job that measures no variants.
    """

    payer: Workspace
    study: Study
    config: Config
    folder: EvidenceFolder
    plan: Plan
    deciding: Deciding = field(default_factory=Deciding)
    instead: TrialJob | CeilingsJob | None = None

    @property
    def evidence(self) -> Evidence:
        return Evidence(self.study, self.plan.shape, self.folder)


@dataclass
class Remote:
    carrier: Carrier

    @property
    def name(self) -> str:
        return self.carrier.name

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

    def look(self, *, doctor: bool = False) -> About:
        job = pack(RemoteJob(code=own_code(), instead=AboutJob(doctor=doctor)))
        ((_, result),) = self.results([job], lambda event: None)
        if result.about is None:
            raise ToolFailed(f"{self.name} does not say what it has", hint="run it again")
        return result.about

    def measure(self, tasks: Sequence[Task], hear: Hear) -> Iterator[tuple[int, Result]]:
        """Each by its place among ``tasks``, as soon as it is recorded; errors as ``results``."""
        for task in tasks:
            if task.instead is None:
                self.recorder(task).derived_shape()
        recorders = [self.recorder(task) for task in tasks]  # each knows the shapes of all
        for task, recorder in zip(tasks, recorders, strict=True):
            if task.instead is None:
                recorder.predictions()
        jobs = [self.job(task) for task in tasks]
        yield from self.results(jobs, hear, recorders)

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
            deciding=task.deciding,
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
        hint = found.hint.replace("`workbench doctor`", f"`workbench doctor --on {self.name}`")
        return type(found)(f"on {self.name}: {found.message}", hint=hint)


def remote_of(name: str, note: Callable[[str], None]) -> Remote:
    """Of what ``--on`` names. Raises UsageError."""
    from workbench.remote.cluster import DaskCluster
    from workbench.remote.ssh import SshHost

    return Remote(DaskCluster(name, note) if "://" in name else SshHost(name, note))
