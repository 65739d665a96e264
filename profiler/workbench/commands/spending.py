"""Every run that holds a GPU is put on the ledger, and does not begin where the budget is spent."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from workbench.commands import VERB
from workbench.commands.progress import note
from workbench.errors import GateFailed, WorkbenchError
from workbench.evidence import journal, store
from workbench.evidence.recorded import Evidence
from workbench.evidence.records import SpentEntry
from workbench.judge.spending import Refusal, Run, refusal
from workbench.run import machine
from workbench.run.cards import cards, held
from workbench.run.origin import now
from workbench.study.places import LOCAL
from workbench.study.workspace import Workspace
from workbench.words import CheckResult


def ledger(workspace: Workspace) -> list[SpentEntry]:
    """In the order in which they were written; lines that are damaged are told, and not counted."""
    found, told = store.read_lines(workspace.ledger, SpentEntry)
    for line in told:
        note(f"{line}; what that run cost is not counted")
    return list(found)


@contextmanager
def spending(workspace: Workspace, evidence: Evidence, variants: Sequence[str]) -> Iterator[None]:
    """What is done inside is measuring of ``variants``, with ``evidence`` for what is known of
    them. It begins when no other command of this user measures on the card. Raises GateFailed where
    the budget does not allow it.
    """
    gpu = machine.find_gpu()
    run = begin(workspace, evidence, variants, gpu.name if gpu else "")
    with alone_on_the_card():
        started, before = time.monotonic(), {path.name for path in _timings(evidence)}
        try:
            yield
        finally:
            timed = any(path.name not in before for path in _timings(evidence))
            charge(workspace, evidence, run, time.monotonic() - started, timed=timed)


@contextmanager
def alone_on_the_card() -> Iterator[None]:
    """The card that this machine measures on is nobody else's inside; says so where it waits."""
    first = cards()[:1]  # what CUDA calls device 0
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


def begin(workspace: Workspace, evidence: Evidence, variants: Sequence[str], gpu: str) -> Run:
    """A run on GPUs of this name. Raises GateFailed where the budget does not allow it."""
    run = Run(
        verb=VERB.get(),
        study=evidence.study.name,
        shape=evidence.shape,
        gpu=gpu,
        wrong=tuple(wrong_of(evidence, variants)),
    )
    if no := may_begin(workspace, run):
        raise GateFailed(no.why, hint=no.hint)
    return run


def charge(
    workspace: Workspace,
    evidence: Evidence,
    run: Run,
    seconds: float,
    *,
    timed: bool,
    place: str = LOCAL,
) -> None:
    """Put the GPU seconds of a run on the ledger; with what came of it, where it timed."""
    budget = workspace.config.budget
    fresh = Evidence(evidence.study, evidence.shape, evidence.folder)
    entry = SpentEntry(
        date=now(),
        verb=run.verb,
        study=run.study,
        gpu=run.gpu,
        seconds=round(seconds, 2),
        shape=run.shape,
        place=place,
        rate=budget.rate_per_hour,
        currency=budget.currency,
        best=best_of(fresh) if timed else None,
    )
    store.append(workspace.ledger, entry)


def may_begin(workspace: Workspace, run: Run) -> Refusal | None:
    config = workspace.config
    return refusal(ledger(workspace), config.budget, run, config.gates.min_speedup)


def _timings(evidence: Evidence) -> list[Path]:
    return evidence.folder.timing_files(evidence.shape)


def wrong_of(evidence: Evidence, variants: Sequence[str]) -> Iterator[str]:
    """Those of which it is on record that they are wrong as they are."""
    for name in variants:
        checks = (evidence.check(name, shape).current for shape in evidence.study.shapes)
        if any(check is not None and check.status == CheckResult.WRONG for check in checks):
            yield name


def best_of(evidence: Evidence) -> float | None:
    """Microseconds of the fastest step in the newest timing; None without any."""
    steps = [step.variant for step in evidence.study.ladder.steps]
    with suppress(WorkbenchError):
        for file in reversed(evidence.timings):
            medians = journal.medians(file.timing)
            return min((medians[name] for name in steps if name in medians), default=None)
    return None
