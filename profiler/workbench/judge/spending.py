"""What measuring has cost, what is left of the budget, and why a run would not begin. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from workbench.derive.figures import added
from workbench.judge.findings import Finding, finding
from workbench.study.config import Budget

if TYPE_CHECKING:
    from workbench.evidence.journal import SpentEntry


@dataclass(frozen=True)
class Spent:
    """A part of the ledger: by verb, study, place and card."""

    verb: str
    study: str
    place: str
    gpu: str
    runs: int
    seconds: float
    cost: float


@dataclass(frozen=True)
class Run:
    """A run that is about to begin."""

    verb: str
    study: str
    shape: str
    gpu: str


def by_kind(entries: Sequence[SpentEntry]) -> list[Spent]:
    """The dearest in time first."""
    kinds: dict[tuple[str, str, str, str], list[SpentEntry]] = {}
    for entry in entries:
        kinds.setdefault((entry.verb, entry.study, entry.place, entry.gpu), []).append(entry)
    found = [
        Spent(*kind, runs=len(own), seconds=seconds_of(own), cost=cost_of(own))
        for kind, own in kinds.items()
    ]
    return sorted(found, key=lambda one: (-one.seconds, one.verb, one.study))


def seconds_of(entries: Sequence[SpentEntry]) -> float:
    return added(float(entry.seconds) for entry in entries)


def cost_of(entries: Sequence[SpentEntry]) -> float:
    return added(entry.cost for entry in entries)


def expected_seconds(entries: Sequence[SpentEntry], run: Run) -> float:
    """The median of earlier runs of the same kind; 0 where there was none: not known."""
    alike = [e for e in entries if (e.verb, e.study, e.gpu) == (run.verb, run.study, run.gpu)]
    here = [entry for entry in alike if entry.shape == run.shape] or alike
    return float(median(float(entry.seconds) for entry in here)) if here else 0.0


def refusal(entries: Sequence[SpentEntry], budget: Budget, run: Run) -> Finding | None:
    """Why a run may not begin; None where it may."""
    spent, expected = seconds_of(entries), expected_seconds(entries, run)
    limit = budget.max_gpu_seconds
    if not limit or (spent + expected <= limit and spent < limit):
        return None
    code = "budget.spent" if spent >= limit else "budget.exceeded"
    return finding(code, spent_s=spent, limit_s=limit, expected_s=expected)
