"""Every run that holds a GPU is put on the ledger, and does not begin where the budget is spent."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager

from workbench.commands import VERB
from workbench.commands.streams import note
from workbench.errors import GateFailed
from workbench.evidence import store
from workbench.evidence.recorded import Evidence
from workbench.evidence.records import SpentEntry
from workbench.judge.spending import Run, refusal
from workbench.run import machine
from workbench.run.gpu import gpus, held
from workbench.run.recording import now
from workbench.study.workspace import Workspace

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
        raise GateFailed(no.why, hint=no.hint)
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
