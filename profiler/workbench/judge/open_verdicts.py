"""Decide what GPU time is spent on: verdicts that a timing leaves open, within the budget. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from workbench.derive.figures import added
from workbench.derive.speedup import Key, Ratio, SessionTimes, ratio_of, session_times, time_of
from workbench.evidence.journal import SpentEntry
from workbench.evidence.records import Build, Timing
from workbench.judge.commits import TimedPair, time_verdict
from workbench.judge.findings import Finding, finding
from workbench.judge.gates import alone_state, for_bug_fix, speed_verdict
from workbench.study.config import Budget, CommitGate, Config, Gates
from workbench.study.model import Ladder, Step
from workbench.words import HEADLINE, GateState, Move, Regime, Verdict, grouped


def open_variants(timing: Timing, ladder: Ladder, gates: Gates) -> tuple[str, ...]:
    """The steps of a timing whose interval over the parent spans the gate, with these parents and
    the primary reference, in the order of the ladder: further sessions hold what all ratios are of.
    For a bug fix both gates count: which holds is not known here. Steps that are judged at another
    shape, or whose parent was not timed beside them, are left out: sessions would not decide.
    """
    times = session_times(timing.together, timing.wrong)
    undecided: set[str] = set()
    for step in ladder.steps:
        if step.parent is None or step.shape not in ("", timing.shape):
            continue
        over = _over_parent(timing, times, step, Regime.CHAINED)
        alone = _over_parent(timing, times, step, Regime.ALONE)
        limits = [gates, *([for_bug_fix(gates)] if step.corrects else [])]
        if over and any(_is_open(over, alone, limit) for limit in limits):
            undecided |= {step.variant, step.parent}
    if undecided and ladder.primary_reference in timing.chained:
        undecided.add(ladder.primary_reference)
    names = [step.variant for step in ladder.steps] + [
        reference.name for reference in ladder.references
    ]
    return tuple(name for name in names if name in undecided)


def _over_parent(
    timing: Timing, times: Mapping[Key, SessionTimes], step: Step, regime: Regime
) -> Ratio | None:
    before, after = (times.get((name or "", regime, False)) for name in (step.parent, step.variant))
    return ratio_of(before, after, timing.first_planned) if before and after else None


def _is_open(over: Ratio, alone: Ratio | None, gates: Gates) -> bool:
    verdict = speed_verdict(over, gates)
    may_be_slower = alone_state(alone, gates) == GateState.OPEN
    return verdict == Verdict.INCONCLUSIVE or (verdict == Verdict.KEPT and may_be_slower)


def timed_pair(timing: Timing, before: str, after: str) -> TimedPair | None:
    """Compare two variants in the regime that decides; None where they were not timed together."""
    every = session_times(timing.together, timing.wrong)
    old, new = (every.get((name, HEADLINE, False), {}) for name in (before, after))
    return _pair(old, new, timing.first_planned)


def _pair(before: SessionTimes, after: SessionTimes, planned: int) -> TimedPair | None:
    ratio = ratio_of(before, after, planned)
    old, new = (time_of(side, HEADLINE) for side in (before, after))
    return TimedPair(ratio, old.value, new.value) if ratio and old and new else None


def pair_apart(before: Timing, after: Timing, variant: str, planned: int) -> TimedPair | None:
    """Compare a variant in two timings whose sessions alternated: those of one number make a pair.
    None where either has none.
    """
    key = (variant, HEADLINE, False)
    old, new = (session_times(each.together, each.wrong).get(key, {}) for each in (before, after))
    return _pair(old, new, planned)


def open_apart(before: Timing, after: Timing, planned: int, gate: CommitGate) -> list[str]:
    """The variants of which two timings cannot tell whether they became faster or slower."""
    pairs = {name: pair_apart(before, after, name, planned) for name in sorted(before.chained)}
    return [
        name
        for name, pair in pairs.items()
        if pair and time_verdict(pair.ratio, gate)[0] == Move.CANNOT_TELL
    ]


def open_pairs(
    timing: Timing, pairs: Sequence[tuple[str, str]], gate: CommitGate
) -> tuple[str, ...]:
    """Both of each pair of which a timing cannot tell whether the second is faster or slower."""
    timed_pairs = ((pair, timed_pair(timing, *pair)) for pair in pairs)
    return tuple(
        name
        for pair, timed in timed_pairs
        if timed and time_verdict(timed.ratio, gate)[0] == Move.CANNOT_TELL
        for name in pair
    )


@dataclass(frozen=True)
class Deciding:
    """Further sessions while a verdict is open: over the parents of the ladder's ``steps``, or of
    the second of each of ``pairs`` over the first. ``refusing``: a build that the compiler gate
    does not let pass is neither checked nor timed.
    """

    steps: bool = False
    pairs: tuple[tuple[str, str], ...] = ()
    refusing: bool = False

    def undecided(self, ladder: Ladder, config: Config) -> Callable[[Timing], Sequence[str]]:
        """Return which variants of a timing to time in as many sessions again."""
        if self.steps:
            return partial(open_variants, ladder=ladder, gates=config.gates)
        return partial(open_pairs, pairs=self.pairs, gate=config.gate)

    def refused(self, config: Config) -> Callable[[Build], bool] | None:
        """Return which builds are not worth checking and timing."""
        from workbench.judge.sweeps import refusal

        return (lambda build: bool(refusal(build, config.gates))) if self.refusing else None


@dataclass(frozen=True)
class Spent:
    """A part of the ledger: by verb, study, place and GPU."""

    verb: str
    study: str
    place: str
    gpu: str
    runs: int
    seconds: float
    cost: float


@dataclass(frozen=True)
class NextRun:
    """A run that is about to begin."""

    verb: str
    study: str
    shape: str
    gpu: str


def by_kind(entries: Sequence[SpentEntry]) -> list[Spent]:
    """The dearest in time first."""
    kinds = grouped(((e.verb, e.study, e.place, e.gpu), e) for e in entries)
    spent = [
        Spent(*kind, len(runs), seconds_of(runs), added(entry.cost for entry in runs))
        for kind, runs in kinds.items()
    ]
    return sorted(spent, key=lambda part: (-part.seconds, part.verb, part.study))


def seconds_of(entries: Sequence[SpentEntry]) -> float:
    return added(float(entry.seconds) for entry in entries)


def expected_seconds(entries: Sequence[SpentEntry], run: NextRun) -> float:
    """The median of earlier runs of the same kind; 0 where there was none: not known."""
    alike = [e for e in entries if (e.verb, e.study, e.gpu) == (run.verb, run.study, run.gpu)]
    here = [entry for entry in alike if entry.shape == run.shape] or alike
    return float(median(float(entry.seconds) for entry in here)) if here else 0.0


def over_budget(entries: Sequence[SpentEntry], budget: Budget, run: NextRun) -> Finding | None:
    """Why a run may not begin; None where it may."""
    spent, expected = seconds_of(entries), expected_seconds(entries, run)
    limit = budget.max_gpu_seconds
    if not limit or (spent + expected <= limit and spent < limit):
        return None
    code = "budget.spent"
    message = f"all of the budget is spent: {spent:.4g} of {limit:g} GPU seconds"
    if spent < limit:
        code = "budget.exceeded"
        message = (
            f"this run would pass the budget: {spent:.4g} of {limit:g} GPU seconds are spent, and "
            f"such a run takes about {expected:.4g}"
        )
    return finding(code, message, spent_s=spent, limit_s=limit, expected_s=expected)
