"""Workers in this process: one of its own spends seconds on imports."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from answers import Patch
from workbench.cuda.compiler import CUBIN_FOLDER
from workbench.run import compilation, side_jobs
from workbench.run.process import BUILDS, WorkerEnd
from workbench.run.protocol import (
    EVENTS,
    Broken,
    Done,
    Event,
    Job,
    ShipJob,
    TrialJob,
    VariantsJob,
    decode,
)
from workbench.run.worker.event_log import EventLog, describe
from workbench.run.worker.job_worker import JobWorker

ONE_AT_A_TIME = threading.Lock()  # the current folder is the process's


@contextlib.contextmanager
def in_folder(scratch: Path) -> Iterator[None]:
    """What is imported from the folder is forgotten afterwards."""
    with ONE_AT_A_TIME, contextlib.chdir(scratch), pytest.MonkeyPatch.context() as patch:
        path, known = list(sys.path), set(sys.modules)
        patch.setenv(CUBIN_FOLDER, str(scratch / BUILDS))
        yield
        sys.path[:] = path
        for name in sys.modules.keys() - known:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(scratch)):
                del sys.modules[name]


def work(job: Job, journal: EventLog) -> None:
    if isinstance(job, VariantsJob) and not job.on_cpu:
        return JobWorker(job, journal).run()
    from workbench.run.worker.device import on_cpu
    from workbench.run.worker.shipping import packed
    from workbench.run.worker.trial_worker import TrialRun

    if isinstance(job, ShipJob):
        return journal.write(packed(job))
    with on_cpu():
        if isinstance(job, VariantsJob):
            return JobWorker(job, journal).run()
        assert isinstance(job, TrialJob)
        return journal.write(TrialRun(job).run())


def run_worker(
    scratch: Path, job: Job, limit_seconds: float, on_event: Callable[[Event], Any]
) -> WorkerEnd:
    with in_folder(scratch), EventLog(scratch) as journal:
        try:
            work(job, journal)
            journal.write(Done())
        except Exception as error:
            journal.write(Broken(error=describe(error)))
    events = [decode(line) for line in (scratch / EVENTS).read_text().splitlines()]
    for event in events:
        on_event(event)
    return WorkerEnd(events, 0)


def calls_here(study: Any, run: Callable[..., Any], shape: Any = None, side: Any = None) -> Any:
    """What the process of a variant does in a check, for the one that compares: both are this."""
    from workbench.run.worker.correctness import make_calls

    def calls(kind: str, seed: int, given: Any, alone: bool, take: Callable[[Any], None]) -> Any:
        def show(outputs: Any) -> None:
            tensors = {name: tensor.clone() for name, tensor in outputs.tensors.items()}
            take(replace(outputs, tensors=tensors))

        return make_calls(study, run, shape, side, kind, seed, given, alone, show)

    return calls


@pytest.fixture
def builds_here(monkeypatch: Patch) -> None:
    monkeypatch.setattr(compilation, "run_worker", run_worker)


@pytest.fixture
def same_draws(monkeypatch: Patch) -> None:
    """A trial draws the same inputs in every run: an error beside its bound is on one side."""
    numbers = itertools.count(1)
    monkeypatch.setattr(secrets, "randbits", lambda bits: next(numbers))


@pytest.fixture
def trials_here(same_draws: None, monkeypatch: Patch) -> None:
    monkeypatch.setattr(side_jobs, "run_worker", run_worker)


Hook = Callable[[str, tuple[Any, ...]], None]


class OneHook:
    """``sys`` for the module that hears of opened files. Python never takes an audit hook away, and
    each slows all that comes after it: here one passes on what it hears to the hooks of the test
    that runs.
    """

    def __init__(self) -> None:
        self.hooks: list[Hook] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        for hook in self.hooks:
            hook(event, arguments)

    def addaudithook(self, hook: Hook) -> None:
        self.hooks.append(hook)

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)


one_hook = cache(OneHook)


@pytest.fixture(autouse=True)
def hooks_of_one_test(monkeypatch: Patch) -> Iterator[None]:
    opened = sys.modules.get("workbench.run.worker.loader")
    if opened is None:
        yield
        return
    monkeypatch.setattr(opened, "sys", one_hook())
    yield
    one_hook().hooks.clear()
