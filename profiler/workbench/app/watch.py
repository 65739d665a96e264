"""Build, check and a quick time of a variant whenever its sources are saved.

Nothing of it becomes evidence: it is measured into a folder that goes away.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from workbench.app.executor import Executor, Hear, Task
from workbench.app.target import find_study, profiled_shape, require_arch
from workbench.derive.speedup import ratio_of, session_times, time_of
from workbench.errors import WorkbenchError
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.recorded import Evidence
from workbench.render.document.environment import Save
from workbench.run.compilation import build_only
from workbench.run.gpu import Gpu
from workbench.run.plan import Plan
from workbench.run.protocol import Built, Event
from workbench.study.config import TimingSettings
from workbench.study.model import Study
from workbench.study.sources import source_files
from workbench.study.workspace import Workspace, including
from workbench.words import HEADLINE

POLL_S = 0.3
# One session is no verdict: it says within seconds whether a save is worth measuring.
QUICK = TimingSettings(sessions=1, max_sessions=1, instances=2, rounds=3)


@dataclass
class Watch:
    """A variant of a study of ``project`` while it is edited; without a GPU compiled for ``arch``.
    ``known`` are its files, of the study as it could last be read.
    """

    executor: Executor
    variant: str
    project: Path | None
    study: str | None
    shape: str | None
    arch: str
    known: tuple[Path, ...] = ()

    def results(
        self, pause: Callable[[float], None]
    ) -> Iterator[tuple[Study, Save] | WorkbenchError]:
        """Of every save, or what is wrong with it. Raises UsageError for what is wrong at the
        start.
        """
        require_arch(self.arch)
        self.read()
        if self.executor.at_once and (gpu := self.executor.gpu):
            where = f"{gpu.name} of {self.executor.place}"
            self.executor.note(f"every save is checked and timed on the {where}")
        for _ in saves(lambda: self.known, pause):
            started = time.monotonic()
            try:
                workspace, study, name = self.read()
                now = self.save(workspace, study, name)
            except WorkbenchError as error:
                yield error
                continue
            yield study, replace(now, seconds=time.monotonic() - started)

    def read(self) -> tuple[Workspace, Study, str]:
        """As the files are now."""
        workspace, study = find_study(self.executor, self.project, self.study)
        study, (name,) = including(study, [self.variant])
        profiled_shape(study, self.shape)
        with suppress(OSError):  # as before where one is being replaced
            self.known = (*source_files(study, study.variants[name]), study.folder / "study.py")
        return workspace, study, name

    def save(self, workspace: Workspace, study: Study, name: str) -> Save:
        if self.executor.gpu is not None:
            return self.measured(self.executor.gpu, workspace, study, name)
        with self.executor.reporter.progress() as hear:
            limit = workspace.config.limits.seconds_per_step
            (event,) = build_only(study, [name], self.arch, limit, quiet(hear))
        if isinstance(event, Built):
            return Save(name, self.arch, kernels=event.kernels, warnings=event.warnings)
        return Save(name, self.arch, error=event.error.message)

    def measured(self, gpu: Gpu, workspace: Workspace, study: Study, name: str) -> Save:
        """Checked at every shape and timed at one beside what it is a change of."""
        picked = profiled_shape(study, self.shape)
        study, shape = picked.study, picked.name
        beside = against(study, name)
        names = tuple(dict.fromkeys([*([beside] if beside else []), name]))
        quick = structs.replace(workspace.config, timing=QUICK)
        with tempfile.TemporaryDirectory(prefix="workbench-") as scratch:
            folder = EvidenceFolder(Path(scratch) / "evidence" / gpu.slug)
            folder.root.mkdir(parents=True)
            task = Task(workspace, study, quick, folder, Plan(shape, timed=names))
            with self.executor.reporter.progress(0, QUICK.sessions) as hear:
                (done,) = self.executor.perform([task], quiet(hear))
            return as_saved(task.evidence, name, beside, done.failures.get(name, ""))


def saves(files: Callable[[], Sequence[Path]], pause: Callable[[float], None]) -> Iterator[None]:
    """At once, and whenever the content of the files is another and has come to rest: an editor
    may write in several steps.
    """
    seen = earlier = digest(files())
    yield
    while True:
        pause(POLL_S)
        now = digest(files())
        if now == earlier and now != seen:
            seen = now
            yield
        earlier = now


def digest(files: Sequence[Path]) -> str:
    """Of names and content; a file that is just being replaced counts as empty."""
    held = hashlib.sha256()
    for path in files:
        try:
            content = path.read_bytes()
        except OSError:
            content = b""
        held.update(str(path).encode() + b"\0" + content + b"\0")
    return held.hexdigest()


def quiet(hear: Hear) -> Callable[[Event], None]:
    """The live line alone: what is built is reported when it is all known."""

    def heard(event: Event) -> None:
        if not isinstance(event, Built):
            hear(event)

    return heard


def against(study: Study, name: str) -> str:
    """What a variant is compared with: its parent, else the primary reference; "" for neither."""
    step = study.ladder.step(name)
    other = (step.parent if step else None) or study.ladder.primary_reference or ""
    usable = other in study.variants
    return other if usable and other != name else ""


def as_saved(evidence: Evidence, name: str, beside: str, failure: str) -> Save:
    build, check = evidence.build(name).current, evidence.check(name).current
    timings = evidence.timings
    times = session_times(timings[-1].timing.together) if timings else {}
    mine, others = (times.get((each, HEADLINE, False), {}) for each in (name, beside))
    time_ = time_of(mine, HEADLINE)
    ratio = ratio_of(others, mine) if mine and others else None
    return Save(
        variant=name,
        arch=build.arch if build else "",
        kernels=build.kernels if build else (),
        warnings=build.warnings if build else (),
        error=build.error if build else failure or "it was not built",
        check=f"{check.status}{f': {check.why}' if check.why else ''}" if check else "",
        max_abs=check.max_abs if check else None,
        microseconds=time_.value if time_ else None,
        against=beside,
        ratio=ratio.ratio if ratio else None,
    )
