"""Where the verbs measure: on this machine, or on the remote target of ``--on``. Every run that
holds a GPU is put on the ledger, and does not begin where the budget is spent.

    @on_target
    def run(options: CheckOptions) -> None:

``--on HOST`` is a host of the user's own ``ssh``, ``--on tls://HOST:PORT`` a Dask cluster.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from workbench.cli import VERB
from workbench.cli.progress import Progress
from workbench.cli.streams import note
from workbench.errors import GateFailed
from workbench.evidence import store
from workbench.evidence.journal import SpentEntry
from workbench.evidence.recorded import Evidence
from workbench.judge.spending import Run, refusal
from workbench.render.document.findings import sentence
from workbench.run import machine
from workbench.run.gpu import Gpu, gpus, held
from workbench.run.recording import now
from workbench.study.workspace import Workspace

if TYPE_CHECKING:  # a verb that only reads needs none of them
    from workbench.remote.target import Hear, Remote, Task
    from workbench.run.plan import Measured

INTERRUPTED = 130
REMOTE: ContextVar[Remote | None] = ContextVar("remote", default=None)


def on_target(run: Callable[[Any], None]) -> Callable[[Any], None]:
    """A verb that measures where its options say with ``--on``."""

    @functools.wraps(run)
    def placed(options: Any) -> None:
        with target(options.on):
            run(options)

    return placed


@contextmanager
def target(on: str | None) -> Iterator[None]:
    """What is measured inside is measured there; None is this machine."""
    if on is None:
        yield
        return
    from workbench.remote.target import remote_of

    token = REMOTE.set(remote_of(on, note))
    try:
        yield
    finally:
        REMOTE.reset(token)


def gpu() -> Gpu | None:
    """Of the remote target, else of this machine; None where nothing can be measured."""
    if (remote := REMOTE.get()) is not None:
        return remote.gpu
    return machine.find_gpu() if machine.can_measure() else None


def package_version(name: str) -> str | None:
    """Of a distribution that is installed where it is measured."""
    if (remote := REMOTE.get()) is not None:
        return remote.about.packages.get(re.sub(r"[-_.]+", "-", name).lower())
    return machine.package_version(name)


@cache
def cubin_folder() -> Path:
    """For as long as this process lives."""
    folder = Path(tempfile.mkdtemp(prefix="workbench-cubins-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def carry_out(tasks: Sequence[Task]) -> list[Measured]:
    """Measure. Ctrl-C keeps what was finished and leaves with 130. Raises GateFailed where the
    budget does not allow it, before anything is measured.
    """
    began = time.monotonic()
    try:
        found = measured(tasks)
    except KeyboardInterrupt:
        note("interrupted: what was finished is kept; the same command goes on from there")
        raise typer.Exit(INTERRUPTED) from None
    seconds: dict[str, float] = {}
    for each in found:
        for part, spent in each.seconds.items():
            seconds[part] = seconds.get(part, 0.0) + spent
    where = f" on {remote.name}" if (remote := REMOTE.get()) is not None else ""
    parts = ", ".join(f"{name} {spent:.0f} s" for name, spent in seconds.items())
    note(f"measured{where} in {time.monotonic() - began:.1f} s ({parts})")
    return found


def measured(tasks: Sequence[Task], hear: Hear | None = None) -> list[Measured]:
    """As ``carry_out``, but raises KeyboardInterrupt after Ctrl-C; ``hear`` gets the events, by
    default a progress line.
    """
    remote = REMOTE.get()
    captures = sum(len(task.plan.captured) for task in tasks)
    sessions = max((task.config.timing.sessions for task in tasks), default=0)
    with Progress(captures, sessions) as progress:
        if remote is None:
            found = [here(task, hear or progress) for task in tasks]
        else:
            found = there(remote, tasks, hear or progress)
    if any(each.interrupted for each in found):
        raise KeyboardInterrupt
    return found


def here(task: Task, hear: Hear) -> Measured:
    from workbench.run.measure import Measurement

    with spending(task.payer, task.evidence):
        return Measurement(
            task.study,
            task.config,
            task.folder,
            task.plan,
            hear,
            task.deciding.undecided(task.study.ladder, task.config),
            task.deciding.refused(task.config),
            cubin_folder(),
        ).run()


def there(remote: Remote, tasks: Sequence[Task], hear: Hear) -> list[Measured]:
    """Each is recorded as soon as it comes back."""
    from workbench.run.plan import Measured

    runs = [begin(task.payer, task.evidence, remote.gpu.name) for task in tasks]
    found = [Measured() for _ in tasks]
    for i, result in remote.measure(tasks, hear):
        found[i] = result.measured
        charge(tasks[i].payer, runs[i], result.seconds, place=remote.name)
    return found


def answer(task: Task, hear: Hear) -> Measured:
    """Of a task that measures no variants, on the remote target. Raises the error in which it
    ended, and KeyboardInterrupt after Ctrl-C.
    """
    from workbench.run.protocol import Broken

    (found,) = measured([task], hear)
    if isinstance(found.told, Broken):
        remote = REMOTE.get()
        raise remote.error(found.told.error) if remote else found.told.error.error()
    return found


HERE = "local"


def ledger(workspace: Workspace) -> list[SpentEntry]:
    """In the order in which they were written; lines that are damaged are told, and not counted."""
    found, told = store.read_lines(workspace.ledger, SpentEntry)
    for line in told:
        note(f"{line}; what that run cost is not counted")
    return list(found)


@contextmanager
def spending(workspace: Workspace, evidence: Evidence) -> Iterator[None]:
    """What is done inside is measuring. It begins when no other command of this user measures on
    the card. Raises GateFailed where the budget does not allow it.
    """
    gpu = machine.find_gpu()
    run = begin(workspace, evidence, gpu.name if gpu else "")
    with alone_on_the_card():
        started = time.monotonic()
        try:
            yield
        finally:
            charge(workspace, run, time.monotonic() - started)


@contextmanager
def alone_on_the_card() -> Iterator[None]:
    """The card that this machine measures on is nobody else's inside; says so where it waits."""
    first = gpus()[:1]  # what CUDA calls device 0
    if not first:
        yield
        return
    tries = itertools.count()

    def go_on() -> bool:
        if next(tries) == 1:
            note(f"waiting: another command measures on this {first[0].name}")
        return True

    with held(first, go_on):
        yield


def begin(workspace: Workspace, evidence: Evidence, gpu: str) -> Run:
    """A run on GPUs of this name. Raises GateFailed where the budget does not allow it."""
    run = Run(verb=VERB.get(), study=evidence.study.name, shape=evidence.shape, gpu=gpu)
    if no := refusal(ledger(workspace), workspace.config.budget, run):
        hint = "raise budget.max_gpu_seconds in workbench.toml to go on"
        raise GateFailed(sentence(no), hint=hint)
    return run


def charge(workspace: Workspace, run: Run, seconds: float, *, place: str = HERE) -> None:
    """Put the GPU seconds of a run on the ledger."""
    entry = SpentEntry(
        date=now(),
        verb=run.verb,
        study=run.study,
        gpu=run.gpu,
        seconds=round(seconds, 2),
        shape=run.shape,
        place=place,
        rate=workspace.config.budget.rate_per_hour,
    )
    store.append(workspace.ledger, entry)
