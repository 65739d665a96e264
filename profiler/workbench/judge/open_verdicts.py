"""Decide what GPU time is spent on: verdicts that a timing leaves open. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from workbench.derive.speedup import Ratio, ratio_of, session_times, time_of
from workbench.evidence.records import Build, Timing
from workbench.judge.commits import TimedPair, time_verdict
from workbench.judge.gates import alone_state, compiler_gate, for_bug_fix, speed_verdict
from workbench.study.config import CommitGate, Config, Gates
from workbench.study.model import Ladder
from workbench.words import HEADLINE, GateState, Move, Regime, Verdict


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
        over, alone = (
            ratio_of(
                times.get((step.parent, regime, False), {}),
                times.get((step.variant, regime, False), {}),
                timing.first_planned,
            )
            for regime in (Regime.CHAINED, Regime.ALONE)
        )
        limits = [gates, *([for_bug_fix(gates)] if step.corrects else [])]
        if over and any(_is_open(over, alone, limit) for limit in limits):
            undecided |= {step.parent, step.variant}
    if undecided and ladder.primary_reference in timing.chained:
        undecided.add(ladder.primary_reference)
    every = (*(s.variant for s in ladder.steps), *(r.name for r in ladder.references))
    return tuple(name for name in every if name in undecided)


def _is_open(over: Ratio, alone: Ratio | None, gates: Gates) -> bool:
    verdict = speed_verdict(over, gates)
    may_be_slower = alone_state(alone, gates) == GateState.OPEN
    return verdict == Verdict.INCONCLUSIVE or (verdict == Verdict.KEPT and may_be_slower)


def timed_pair(
    timing: Timing, before: str, after: str, beside: Timing | None = None, planned: int = 0
) -> TimedPair | None:
    """Compare two variants in the regime that decides; None where they were not timed together.
    With ``beside``, the second was timed there: sessions of one number, of those ``planned``, are
    pairs.
    """
    old, new = (
        session_times(each.together, each.wrong).get((name, HEADLINE, False), {})
        for each, name in ((timing, before), (beside or timing, after))
    )
    ratio = ratio_of(old, new, planned or timing.first_planned)
    times = time_of(old, HEADLINE), time_of(new, HEADLINE)
    if ratio is None or times[0] is None or times[1] is None:
        return None
    return TimedPair(ratio=ratio, before_us=times[0].value, after_us=times[1].value)


def open_pairs(
    timing: Timing,
    pairs: Sequence[tuple[str, str]],
    gate: CommitGate,
    beside: Timing | None = None,
    planned: int = 0,
) -> tuple[str, ...]:
    """Both of each pair of which a timing cannot tell whether the second is faster or slower."""
    timed_pairs = ((pair, timed_pair(timing, *pair, beside, planned)) for pair in pairs)
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
        if not self.refusing:
            return None
        return lambda build: compiler_gate(build, config.gates).failure is not None
