"""The candidates of all rules, ranked by what they could bring: three kinds of change at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from workbench.judge.advice import latency, memory, pipes
from workbench.judge.advice.candidate import CATALOGUE, LEAST, Candidate, Kind, Limit, resource
from workbench.judge.advice.subject import Spot, Subject
from workbench.words import Change, Stage, Verdict

TOP = 3
SPREAD = (Stage.GRID, Stage.TAIL, Stage.IMBALANCE)  # lifted by spreading the work evenly
RULES: tuple[Callable[[Subject], Iterator[Candidate]], ...] = (
    pipes.launch_rules,
    memory.rules,
    pipes.rules,
    latency.rules,
)


@dataclass(frozen=True)
class Tried:
    """A step that made this kind of change to the same variant, judged at the same shape."""

    variant: str
    verdict: Verdict


@dataclass(frozen=True)
class Advice:
    """What limits, the line that shows it, the kind of change, and the gain to expect at the most.

    ``saved`` is the share of the duration under ncu that would go, ``gain`` the speedup that this
    amounts to; ``why`` says where it comes from, and what limits next where that decides.
    """

    limit: Limit
    change: Change
    saved: float
    why: str
    sure: float
    spot: Spot | None
    tried: tuple[Tried, ...] = ()

    @property
    def id(self) -> str:
        """Stable: ``latency.long_scoreboard/async-copy``."""
        return f"{self.limit.id}/{self.change}"

    @property
    def kind(self) -> Kind:
        return CATALOGUE[self.change]

    @property
    def gain(self) -> float:
        return 1 / (1 - self.saved)

    @property
    def expected(self) -> float:
        """By which advice is ranked where there is no record."""
        return self.saved * self.sure


def advise(subject: Subject) -> tuple[Advice, ...] | None:
    """The best first, each kind of change once, for the limit where it brings most.

    Empty where nothing is worth a step; None where the capture has nothing to judge by.
    """
    if subject.budget is None and not subject.used:
        return None
    best: dict[Change, Advice] = {}
    for rule in RULES:
        for candidate in rule(subject):
            found = _advice(subject, candidate)
            known = best.get(found.change)
            if found.saved >= LEAST and (known is None or found.expected > known.expected):
                best[found.change] = found
    ranked = sorted(best.values(), key=lambda one: (-one.expected, one.id))
    return tuple(ranked)


def _advice(subject: Subject, candidate: Candidate) -> Advice:
    """What the next limit leaves of it."""
    spread = candidate.limit.stage in SPREAD
    name, share = subject.next_limit(candidate.relieved, spread=spread)
    room = max(0.0, 1 - share)
    capped = candidate.saved > room and name != candidate.limit.what
    then = f"; {resource(name)} would be the next limit" if capped else ""
    return Advice(
        limit=candidate.limit,
        change=candidate.change,
        saved=min(candidate.saved, room),
        why=candidate.why + then,
        sure=candidate.sure,
        spot=subject.spot(*candidate.limit.counters),
    )
