"""Builds in this process: a worker of its own spends seconds on imports."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.cuda import CUBIN_FOLDER
from workbench.run import compilation
from workbench.run.process import WorkerEnd
from workbench.run.protocol import EVENTS, Done, Event, VariantsJob, decode
from workbench.run.worker.event_log import EventLog
from workbench.run.worker.job_worker import JobWorker

ONE_AT_A_TIME = threading.Lock()  # the current folder is the process's


def run_worker(
    scratch: Path, job: VariantsJob, limit_seconds: float, on_event: Callable[[Event], Any]
) -> WorkerEnd:
    with ONE_AT_A_TIME, contextlib.chdir(scratch), pytest.MonkeyPatch.context() as patch:
        patch.setenv(CUBIN_FOLDER, str(scratch))
        with EventLog(scratch) as journal:
            JobWorker(job, journal).run()
            journal.write(Done())
        events = [decode(line) for line in (scratch / EVENTS).read_text().splitlines()]
    for event in events:
        on_event(event)
    return WorkerEnd(events, 0)


@pytest.fixture
def builds_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "run_worker", run_worker)
