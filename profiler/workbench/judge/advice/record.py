"""The track record: what came of advice where a step followed it, ours and NVIDIA's. Pure.

A trial is a step, with what was advised at its parent by the parent's capture alone. A promise came
true where the step answered it (it is of that kind, or the rule vanished), was kept, and saved at
least half of what was promised of the duration under ncu. What was promised at the parent and not
tried says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from workbench.judge.advice.advise import TOP, Advice
from workbench.judge.advice.nvidia import WHOLE, Promise
from workbench.words import Change, Verdict

HALF = 0.5
JUDGED = (Verdict.KEPT, Verdict.REJECTED)


@dataclass(frozen=True)
class Trial:
    """A step of a ladder as an answer to its parent; ``shape`` is where it is judged.

    ``advised`` and ``promised`` (NVIDIA's) are what the parent's capture says, the best first;
    None where it has none. ``vanished`` are the rules, with their titles, that the step answered.
    ``ratio`` is the chained one that decided, ``saved`` the share of the duration under ncu that
    went; None is not collected.
    """

    variant: str
    parent: str
    shape: str
    kind: Change | None
    verdict: Verdict | None
    ratio: float | None
    saved: float | None
    advised: tuple[Advice, ...] | None
    promised: tuple[Promise, ...] | None
    vanished: frozenset[tuple[str, str]] = frozenset()

    @property
    def was_kept(self) -> bool:
        return self.verdict == Verdict.KEPT

    @property
    def is_told(self) -> bool:
        """Whether its author says of what kind it is, and it is a change to a kernel at all."""
        return self.kind is not None and self.kind != Change.CHOOSE

    @property
    def answered(self) -> Advice | None:
        """What was advised of its kind; None where that was not among the first."""
        return next((one for one in (self.advised or ())[:TOP] if one.change == self.kind), None)

    def fulfils(self, promised: float) -> bool:
        """Whether it was kept and saved at least half of this share of the duration."""
        return self.was_kept and self.saved is not None and self.saved >= HALF * promised


@dataclass(frozen=True)
class KindRecord:
    """A kind of change: steps of it that were judged, those kept, the median ratio of all over the
    parent; those that had been advised at their parent, and of these those that came true.
    """

    tried: int = 0
    kept: int = 0
    ratio: float | None = None
    advised: int = 0
    came_true: int = 0


@dataclass(frozen=True)
class RuleRecord:
    """A rule of ncu: the steps at whose parent it promised something of the whole runtime, those
    where that was the largest promise, those that made it vanish, and those of them that came true.
    """

    promised: int = 0
    first: int = 0
    answered: int = 0
    came_true: int = 0


@dataclass(frozen=True)
class Record:
    """Of all ladders that were looked at; ``steps`` have a judgement, ``told`` also a kind."""

    studies: tuple[str, ...] = ()
    steps: int = 0
    told: int = 0
    kinds: Mapping[Change, KindRecord] = field(default_factory=dict)
    rules: Mapping[str, RuleRecord] = field(default_factory=dict)

    def of(self, change: Change) -> KindRecord:
        """Zeros where it was never tried."""
        return self.kinds.get(change, KindRecord())


def record(trials: Mapping[str, Sequence[Trial]]) -> Record:
    """``trials`` by study; a step without a verdict is no trial, nor one that only chooses."""
    judged = {
        study: [t for t in each if t.verdict in JUDGED and t.kind != Change.CHOOSE]
        for study, each in trials.items()
    }
    every = [trial for each in judged.values() for trial in each]
    told = [trial for trial in every if trial.is_told]
    kinds = dict.fromkeys(trial.kind for trial in told if trial.kind)
    titles = dict.fromkeys(one.words for t in every for one in t.promised or () if _whole(one))
    return Record(
        studies=tuple(study for study, each in judged.items() if each),
        steps=len(every),
        told=len(told),
        kinds={kind: _kind(t for t in told if t.kind == kind) for kind in kinds},
        rules={title: _rule(title, every) for title in titles},
    )


def _kind(trials: Iterable[Trial]) -> KindRecord:
    every = tuple(trials)
    ratios = [trial.ratio for trial in every if trial.ratio]
    answers = [(trial, trial.answered) for trial in every]
    return KindRecord(
        tried=len(every),
        kept=sum(trial.was_kept for trial in every),
        ratio=median(ratios) if ratios else None,
        advised=sum(advice is not None for _, advice in answers),
        came_true=sum(advice is not None and t.fulfils(advice.saved) for t, advice in answers),
    )


def _whole(one: Promise) -> bool:
    return one.scope == WHOLE


def _rule(title: str, trials: Sequence[Trial]) -> RuleRecord:
    known = [(t, [one for one in t.promised or () if _whole(one)]) for t in trials]
    made = [(t, one) for t, each in known for one in each if one.words == title]
    answered = [(t, one) for t, one in made if (one.rule, one.words) in t.vanished]
    return RuleRecord(
        promised=sum(any(one.words == title for one in each) for _, each in known),
        first=sum(bool(each) and each[0].words == title for _, each in known),
        answered=len(answered),
        came_true=sum(trial.fulfils(one.cut) for trial, one in answered),
    )
