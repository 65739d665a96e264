"""The candidates of all rules, ranked by what they could bring: three kinds of change at most.

The track record: what came of advice where a step followed it. Pure.

A trial is a step, with what was advised at its parent by the parent's capture alone. A promise came
true if the step answered it (it is of that kind), was kept, and saved at least half of what was
promised of the duration under ncu. A promise that nobody tried says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from workbench.derive.figures import added
from workbench.judge.advice import latency, throughput
from workbench.judge.advice.subject import LEAST, AdvisedKernel, Candidate, Limit, Spot
from workbench.judge.findings import Finding, finding
from workbench.words import Change, Stage, Verdict, shown

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
    under ncu that would go at most, ``gain`` the speedup that this amounts to, ``why`` its source;
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
    return Advice(
        limit=candidate.limit,
        change=candidate.change,
        saved=min(candidate.saved, room),
        why=finding(why.code, **why.values, next_limit=then),
        sure=candidate.sure,
        spot=subject.spot(*candidate.limit.counters),
    )


HALF = 0.5
JUDGED = tuple(each for each in Verdict if each == Verdict.KEPT or each.is_rejected)


@dataclass(frozen=True)
class Trial:
    """A step as an answer to its parent, at the shape where it is judged. ``advised`` is what the
    parent's capture says, the best first. ``ratio`` is the chained one that decided, ``saved`` the
    share of the duration under ncu that went. None is not collected.
    """

    variant: str
    parent: str
    shape: str
    kind: Change | None
    verdict: Verdict | None
    ratio: float | None
    saved: float | None
    advised: tuple[Advice, ...] | None

    @property
    def was_kept(self) -> bool:
        return self.verdict == Verdict.KEPT

    @property
    def answered(self) -> Advice | None:
        """The advice of its kind; None if that was not among the first."""
        return next((one for one in (self.advised or ())[:TOP] if one.change == self.kind), None)

    def fulfils(self, promised: float) -> bool:
        """Whether it was kept and saved at least half of this share of the duration."""
        return self.was_kept and self.saved is not None and self.saved >= HALF * promised


@dataclass(frozen=True)
class KindRecord:
    """A kind of change: steps of it that were judged, those kept, the ``ratios`` of all over their
    parents; those that had been advised at their parent, and of these those that were realised.
    """

    tried: int = 0
    kept: int = 0
    advised: int = 0
    came_true: int = 0
    ratios: tuple[float, ...] = field(default=(), repr=False)

    @property
    @shown
    def ratio(self) -> float | None:
        """The median of ``ratios``; None without any."""
        return median(self.ratios) if self.ratios else None


@dataclass(frozen=True)
class AdviceRecord:
    """Of some ladders: judged steps, those that also have a kind, and what came of each kind."""

    studies: tuple[str, ...] = ()
    steps: int = 0
    told: int = 0
    kinds: Mapping[Change, KindRecord] = field(default_factory=dict)

    def of(self, change: Change) -> KindRecord:
        """Zeros if it was never tried."""
        return self.kinds.get(change, KindRecord())


def record(study: str, trials: Iterable[Trial]) -> AdviceRecord:
    """Of one ladder. A step without a verdict is no trial, nor one that only chooses."""
    judged = [t for t in trials if t.verdict in JUDGED and t.kind != Change.CHOOSE]
    parts = [trial for trial in judged if trial.kind]
    kinds = dict.fromkeys(trial.kind for trial in parts if trial.kind)
    return AdviceRecord(
        studies=(study,) if judged else (),
        steps=len(judged),
        told=len(parts),
        kinds={kind: _kind([t for t in parts if t.kind == kind]) for kind in kinds},
    )


def _kind(trials: Sequence[Trial]) -> KindRecord:
    answers = [(trial, trial.answered) for trial in trials]
    return KindRecord(
        tried=len(trials),
        kept=sum(trial.was_kept for trial in trials),
        advised=sum(advice is not None for _, advice in answers),
        came_true=sum(advice is not None and t.fulfils(advice.saved) for t, advice in answers),
        ratios=tuple(trial.ratio for trial in trials if trial.ratio),
    )


def together(records: Sequence[AdviceRecord]) -> AdviceRecord:
    kinds = dict.fromkeys(kind for each in records for kind in each.kinds)
    return AdviceRecord(
        studies=tuple(study for each in records for study in each.studies),
        steps=sum(each.steps for each in records),
        told=sum(each.told for each in records),
        kinds={kind: _sum([each.of(kind) for each in records]) for kind in kinds},
    )


def _sum(found: Sequence[KindRecord]) -> KindRecord:
    counts = ("tried", "kept", "advised", "came_true")
    return KindRecord(
        **{name: int(added(getattr(each, name) for each in found)) for name in counts},
        ratios=tuple(ratio for each in found for ratio in each.ratios),
    )


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
