"""The candidates of all rules, ranked by what they could bring: three kinds of change at most.

The track record says how often each kind of change was tried and kept. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from workbench.judge.advice import latency, throughput
from workbench.judge.advice.subject import LEAST, AdvisedKernel, Candidate, Limit, Spot, resource
from workbench.judge.findings import Finding, finding
from workbench.words import Change, Stage, Verdict, grouped

TOP = 3
SPREAD = (Stage.GRID, Stage.TAIL, Stage.IMBALANCE)  # lifted by spreading the work evenly
RULES: tuple[Callable[[AdvisedKernel], Iterator[Candidate]], ...] = (
    throughput.launch_rules,
    throughput.memory_rules,
    throughput.pipe_rules,
    latency.rules,
)


@dataclass(frozen=True)
class Tried:
    """A step that made this kind of change to the same variant, judged at the same shape."""

    variant: str
    verdict: Verdict


@dataclass(frozen=True)
class Advice:
    """A limit, the line that shows it, and a kind of change. ``saved`` is the share of the duration
    under ncu that would go with it, ``gain`` the speedup that this amounts to, ``why`` its source;
    ``next_limit`` in it decides then.
    """

    limit: Limit
    change: Change
    saved: float
    why: Finding
    sure: float
    spot: Spot | None
    tried: tuple[Tried, ...] = ()

    @property
    def id(self) -> str:
        """Stable: ``latency.long_scoreboard/async-copy``."""
        return f"{self.limit.id}/{self.change}"

    @property
    def gain(self) -> float:
        return 1 / (1 - self.saved)

    @property
    def expected(self) -> float:
        """By which advice is ranked where there is no record."""
        return self.saved * self.sure


def advise(subject: AdvisedKernel) -> tuple[Advice, ...] | None:
    """The best first, each kind of change once, for the limit where it brings most. Empty if
    nothing is worth a step; None without anything to judge by.
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


def _advice(subject: AdvisedKernel, candidate: Candidate) -> Advice:
    """What the next limit leaves of it."""
    spread = candidate.limit.stage in SPREAD
    name, share = subject.next_limit(candidate.relieved, spread=spread)
    room = max(0.0, 1 - share)
    capped = candidate.saved > room and name != candidate.limit.what
    why, then = candidate.why, name if capped else None
    message = f"{why.message}; {resource(name)} would be the next limit" if then else why.message
    return Advice(
        limit=candidate.limit,
        change=candidate.change,
        saved=min(candidate.saved, room),
        why=finding(why.code, message, **why.values, next_limit=then),
        sure=candidate.sure,
        spot=subject.spot(*candidate.limit.counters),
    )


JUDGED = tuple(each for each in Verdict if each == Verdict.KEPT or each.is_rejected)


@dataclass(frozen=True)
class Trial:
    """A step that made a kind of change to its parent, and was kept or rejected at ``shape``."""

    variant: str
    parent: str
    shape: str
    kind: Change
    verdict: Verdict


@dataclass(frozen=True)
class KindRecord:
    """How many steps tried a kind of change, and how many of these were kept."""

    tried: int = 0
    kept: int = 0


@dataclass(frozen=True)
class AdviceRecord:
    """The record of each kind of change, in one study or in several."""

    kinds: Mapping[Change, KindRecord] = field(default_factory=dict)

    def of(self, *changes: Change) -> KindRecord:
        """The sum over kinds of change; zeros if none was ever tried."""
        return total(self.kinds[change] for change in changes if change in self.kinds)


def total(records: Iterable[KindRecord]) -> KindRecord:
    counts = [(one.tried, one.kept) for one in records]
    return KindRecord(*map(sum, zip(*counts, strict=True)))


def record(trials: Iterable[Trial]) -> AdviceRecord:
    """The record of one ladder. A dispatcher makes no change of its own."""
    kinds = grouped(
        (trial.kind, KindRecord(1, int(trial.verdict == Verdict.KEPT)))
        for trial in trials
        if trial.kind != Change.CHOOSE
    )
    return AdviceRecord({kind: total(counts) for kind, counts in kinds.items()})


def together(records: Iterable[AdviceRecord]) -> AdviceRecord:
    kinds = grouped(pair for each in records for pair in each.kinds.items())
    return AdviceRecord({kind: total(counts) for kind, counts in kinds.items()})


NO_RECORD = AdviceRecord()


def trust(known: KindRecord) -> float:
    """Odds that the kind is kept, over even odds (Laplace's rule of succession): 1 if untried."""
    return 2 * (known.kept + 1) / (known.tried + 2)


def to_try(
    advice: Sequence[Advice] | None, record: AdviceRecord | None = None
) -> tuple[Advice, ...] | None:
    """The first few, those rejected on this variant last; None stays None: not collected."""
    if advice is None:
        return None
    known = record or NO_RECORD
    ranked = sorted(
        advice,
        key=lambda one: (_failed(one), -one.expected * trust(known.of(one.change)), one.id),
    )
    return tuple(ranked[:TOP])


def _failed(one: Advice) -> bool:
    return any(step.verdict.is_rejected for step in one.tried)
