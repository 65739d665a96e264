"""Limits of the launch as a whole: its head and tail, too few blocks, blocks of unequal length."""

from __future__ import annotations

import math
from collections.abc import Iterator

from workbench.derive.factors import METRICS
from workbench.judge.advice.candidate import NAMED, ONE_WAY, Candidate, Limit
from workbench.judge.advice.subject import Subject
from workbench.words import Change, Stage

FEW_WAVES = 8  # with more, a last wave that is not full is lost among them
MOST = 0.5  # of an imbalance that is explained by the last wave


def rules(subject: Subject) -> Iterator[Candidate]:
    """Nothing where the cycles of the busiest SM were not collected."""
    yield from _head_and_tail(subject)
    yield from _imbalance(subject)


def _head_and_tail(subject: Subject) -> Iterator[Candidate]:
    if subject.budget is None:
        return
    share = subject.budget.head_tail
    limit = Limit(
        Stage.LAUNCH, "", share, f"1 - {METRICS['busiest']}", 100 * share, "% of the duration"
    )
    why = "no SM works in its head and tail"
    if subject.launches > 1:
        yield Candidate(limit, Change.FUSE, share, NAMED, why)
    else:
        yield Candidate(limit, Change.EARLY, share, ONE_WAY, why)
        yield Candidate(limit, Change.FUSE, share, ONE_WAY / 2, why)


def _imbalance(subject: Subject) -> Iterator[Candidate]:
    if subject.budget is None:
        return
    share = subject.budget.imbalance
    blocks = subject.value("grid") if subject.launches == 1 else None
    if blocks and subject.sms and blocks < subject.sms:
        limit = Limit(Stage.GRID, "", share, "launch__grid_size", blocks, "blocks")
        why = f"{blocks:.0f} blocks for {subject.sms:.0f} SMs"
        yield Candidate(limit, Change.SPLIT, min(share, 1 - blocks / subject.sms), NAMED, why)
        return
    waves = subject.value("waves")
    if waves and _last_wave(subject, waves, blocks) >= MOST * share:
        metric = "launch__waves_per_multiprocessor"
        limit = Limit(Stage.TAIL, "", share, metric, waves, "waves")
        why = "most SMs are idle while the last wave of blocks runs"
        yield Candidate(limit, Change.TAIL, share, NAMED, why)
        yield Candidate(limit, Change.BALANCE, share, ONE_WAY, why)
        return
    value = 100 * subject.budget.balance
    limit = Limit(Stage.IMBALANCE, "", share, METRICS["balance"], value, "% of the busiest SM")
    why = "an average SM is done before the busiest one"
    yield Candidate(limit, Change.BALANCE, share, NAMED, why)


def _last_wave(subject: Subject, waves: float, blocks: float | None) -> float:
    """The share of slots for blocks that are empty in the last wave, if all blocks are alike; with
    less than a wave, of SMs that have one block less than the others.
    """
    rounds = waves
    if waves < 1:
        rounds = blocks / subject.sms if blocks and subject.sms else 0.0
    if not rounds or rounds > FEW_WAVES:
        return 0.0
    return 1 - rounds / math.ceil(rounds)
