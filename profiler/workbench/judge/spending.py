"""What measuring has cost, what is left of the budget, and why a run would not begin. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from workbench.derive.sums import added
from workbench.study.config import Budget

if TYPE_CHECKING:
    from workbench.evidence.records import SpentEntry


@dataclass(frozen=True)
class Spent:
    """A part of the ledger: by verb, study, place and card. ``cost`` is by currency."""

    verb: str
    study: str
    place: str
    gpu: str
    runs: int
    seconds: float
    cost: float


@dataclass(frozen=True)
class Run:
    """A run that is about to begin; ``wrong`` are variants of it that are known to be wrong."""

    verb: str
    study: str
    shape: str
    gpu: str
    wrong: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """Why a run does not begin, and how to go on."""

    why: str
    hint: str


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
    """What was paid in another currency counts as it is: nobody knows the rate."""
    return added(entry.cost for entry in entries)


def expected_seconds(entries: Sequence[SpentEntry], run: Run) -> float:
    """The median of earlier runs of the same kind; 0 where there was none: not known."""
    alike = [e for e in entries if (e.verb, e.study, e.gpu) == (run.verb, run.study, run.gpu)]
    here = [entry for entry in alike if entry.shape == run.shape] or alike
    return float(median(float(entry.seconds) for entry in here)) if here else 0.0


def without_progress(
    entries: Sequence[SpentEntry], study: str, shape: str, gpu: str, least: float
) -> int:
    """Of the timing runs at a shape, how many came after the last that made the study's fastest
    step faster by the factor ``least``. The first one is progress.
    """
    best, idle = None, 0
    for entry in entries:
        if (entry.study, entry.shape, entry.gpu) != (study, shape, gpu) or entry.best is None:
            continue
        if best is None or entry.best * least <= best:
            best, idle = float(entry.best), 0
        else:
            idle += 1
    return idle


def refusal(
    entries: Sequence[SpentEntry], budget: Budget, run: Run, least: float
) -> Refusal | None:
    """None where the run may begin. ``least`` is the factor that counts as progress."""
    if run.wrong and budget.stop_when_wrong:
        return Refusal(
            f"{', '.join(run.wrong)} is wrong, and the budget says to stop then",
            "mend it (`workbench check` says how wrong), or take budget.stop_when_wrong out of "
            "workbench.toml",
        )
    expected = expected_seconds(entries, run)
    spent = seconds_of(entries)
    if over := _over(spent, expected, budget.max_gpu_seconds, "GPU seconds"):
        return Refusal(over, "raise budget.max_gpu_seconds in workbench.toml to go on")
    price = expected / 3600 * budget.rate_per_hour
    money = f"{budget.currency} of cost".strip()
    if over := _over(cost_of(entries), price, budget.max_cost, money):
        return Refusal(over, "raise budget.max_cost in workbench.toml to go on")
    most = budget.stop_after_runs_without_progress
    idle = without_progress(entries, run.study, run.shape, run.gpu, least)
    if most and idle >= most:
        return Refusal(
            f"{idle} runs of {run.study} at {run.shape} in a row made no step faster by {least:g}x",
            "try something else first, then raise budget.stop_after_runs_without_progress",
        )
    return None


def _over(spent: float, expected: float, limit: float, what: str) -> str:
    """Why a limit would be passed; "" where it would not, or is none."""
    if not limit or (spent + expected <= limit and spent < limit):
        return ""
    if spent >= limit:
        return f"all of the budget is spent: {spent:.4g} of {limit:g} {what}"
    return (
        f"this run would pass the budget: {spent:.4g} of {limit:g} {what} are spent, and such a "
        f"run takes about {expected:.4g}"
    )
