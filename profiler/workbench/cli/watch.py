"""``workbench watch``: build, check and a quick time whenever the sources of a variant are saved.

Nothing of it becomes evidence: it is measured into a folder that goes away.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from workbench.app.executor import Executor, Hear, Task
from workbench.app.target import (
    find_study,
    in_place,
    profiled_shape,
    require_arch,
)
from workbench.cli.options import WatchOptions
from workbench.cli.printing import say
from workbench.cli.streams import executor, note
from workbench.derive.speedup import ratio_of, session_times, time_of
from workbench.errors import WorkbenchError
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.recorded import Evidence
from workbench.render.as_json import plain_data
from workbench.render.document.machine import Save, told
from workbench.run.build import build_only
from workbench.run.gpu import Gpu
from workbench.run.plan import Plan
from workbench.run.protocol import Built, Event
from workbench.study.config import Config, Timing, for_study
from workbench.study.model import Study
from workbench.study.sources import source_files
from workbench.study.workspace import find_workspace, including
from workbench.words import HEADLINE, SCHEMA_VERSION

POLL_S = 0.3
# One session is no verdict: it says within seconds whether a save is worth measuring.
QUICK = Timing(sessions=1, max_sessions=1, instances=2, rounds=3)


def run(options: WatchOptions) -> None:
    rounds(options, executor("watch", options.on), time.sleep)


def rounds(options: WatchOptions, executor: Executor, pause: Callable[[float], None]) -> None:
    """Until Ctrl-C, which is how it is meant to end. Raises UsageError for what is wrong at the
    start; later mistakes in the study's files are told, and mended by the next save.
    """
    require_arch(options.arch)
    watched = Watched(*found(executor, options)[:2])
    if executor.at_once and (gpu := executor.gpu):
        note(f"every save is checked and timed on the {gpu.name} of {executor.place}")
    before: Save | None = None
    try:
        for _ in saves(watched.files, pause):
            started = time.monotonic()
            try:
                study, name, config = found(executor, options)
                watched.study, watched.name = study, name
                now = save(executor, study, name, config, options)
            except WorkbenchError as error:
                note(f"error: {error.message}")
                note(f"hint: {error.hint or 'mend it and save again'}")
                continue
            now = replace(now, seconds=time.monotonic() - started)
            show(now, before, study, options)
            before = before if now.error else now
    except KeyboardInterrupt:
        note("stopped; `workbench ablate` makes evidence of it")


def found(executor: Executor, options: WatchOptions) -> tuple[Study, str, Config]:
    """As the files are now."""
    workspace, study = find_study(executor, options.project, options.study, tell=False)
    study, (name,) = including(study, [options.variant])
    profiled_shape(study, options.shape)
    return study, name, for_study(workspace.config, study.ladder)


@dataclass
class Watched:
    """The variant as it was when its study could last be read."""

    study: Study
    name: str
    known: tuple[Path, ...] = ()

    def files(self) -> tuple[Path, ...]:
        """The variant's sources and the study itself; as before where one is being replaced."""
        with suppress(OSError, WorkbenchError):
            sources = source_files(self.study, self.study.variants[self.name])
            self.known = (*sources, self.study.folder / "study.py")
        return self.known


def saves(files: Callable[[], Sequence[Path]], pause: Callable[[float], None]) -> Iterator[None]:
    """At once, and whenever the content of the files is another and has come to rest: an editor
    may write in several steps.
    """
    seen = digest(files())
    yield
    while True:
        pause(POLL_S)
        now = digest(files())
        if now == seen:
            continue
        earlier = ""
        while now != earlier:
            pause(POLL_S)
            earlier, now = now, digest(files())
        if now != seen:
            seen = now
            yield


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


def save(
    executor: Executor, study: Study, name: str, config: Config, options: WatchOptions
) -> Save:
    if executor.gpu is not None:
        return measured(executor, executor.gpu, study, name, config, options)
    with executor.reporter.progress() as hear:
        limit = config.limits.seconds_per_step
        (event,) = build_only(study, [name], options.arch, limit, quiet(hear))
    if isinstance(event, Built):
        return Save(name, options.arch, kernels=event.kernels, warnings=event.warnings)
    return Save(name, options.arch, error=event.error.message)


def quiet(hear: Hear) -> Callable[[Event], None]:
    """The live line alone: what is built is told when it is all known."""

    def heard(event: Event) -> None:
        if not isinstance(event, Built):
            hear(event)

    return heard


def measured(
    executor: Executor, gpu: Gpu, study: Study, name: str, config: Config, options: WatchOptions
) -> Save:
    """Checked at every shape and timed at one beside what it is a change of."""
    picked = profiled_shape(study, options.shape)
    study, shape = picked.study, picked.name
    beside = against(study, name)
    names = tuple(dict.fromkeys([*([beside] if beside else []), name]))
    quick = msgspec.structs.replace(config, timing=QUICK)
    with tempfile.TemporaryDirectory(prefix="workbench-") as scratch:
        folder = EvidenceFolder(Path(scratch) / "evidence" / gpu.slug)
        folder.root.mkdir(parents=True)
        payer, plan = find_workspace(options.project), Plan(shape, timed=names)
        task = Task(payer, study, quick, folder, plan)
        with executor.reporter.progress(0, QUICK.sessions) as hear:
            (done,) = executor.perform([task], quiet(hear))
        return as_saved(Evidence(study, shape, folder), name, beside, done.failures.get(name, ""))


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


def show(now: Save, before: Save | None, study: Study, options: WatchOptions) -> None:
    if options.json:
        say(json.dumps({"schema_version": SCHEMA_VERSION, **plain_data(now)}, allow_nan=False))
        return
    at = time.strftime("%H:%M:%S")
    first, *rest = told(now, before)
    say(f"{at} {now.variant}: {first}", *(f"  {in_place(text, study)}" for text in rest))
    if now.error:
        note(f"error: {in_place(now.error, study)}")
