"""Limits of memory: the bandwidth of a level, sectors fetched for nothing, bank conflicts."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.derive.diff.costs import SECTORS, WAVEFRONTS
from workbench.derive.roofline.ceilings import DRAM, L1, LEVELS, METRICS
from workbench.judge.advice.candidate import NAMED, ONE_WAY, Candidate, Limit
from workbench.judge.advice.subject import AdvisedKernel
from workbench.judge.findings import Finding, finding
from workbench.words import Change, Stage

BOUND = 0.6  # of a bandwidth: below it, what is slow is the latency
TWICE = 1.2  # times the least bytes: more is read or written more than once
WASTED = 0.2  # of the sectors
WIDE = ("float32", "float64", "int64")  # types that have half as wide ones
GLOBAL = ("long_scoreboard", "lg_throttle", "drain")
SHARED = ("short_scoreboard", "mio_throttle", "barrier")
HALF = 0.5
REFETCHED = frozenset(LEVELS)


def rules(subject: AdvisedKernel) -> Iterator[Candidate]:
    """Each level that is near its bandwidth, and what is lost on the way to it."""
    for level, one in subject.used.items():
        if one.share >= BOUND:
            yield from _bandwidth(subject, level, one.share)
    yield from _sectors(subject)
    yield from _conflicts(subject)


def _bandwidth(subject: AdvisedKernel, level: str, share: float) -> Iterator[Candidate]:
    measured = "measured" if subject.used[level].measured else "theoretical"
    unit = f"% of the {measured} bandwidth"
    counters = ("long_scoreboard", "lg_throttle")
    limit = Limit(Stage.MEMORY, level, share, METRICS[level], 100 * share, unit, counters)
    excess = subject.excess(level)
    again = excess is not None and excess >= TWICE
    if again and excess:
        saved, why = share * (1 - 1 / excess), finding("advice.bytes_again", times_bytes=excess)
    else:
        saved, why = share * HALF, Finding("advice.half_the_bytes")
    if level == DRAM and not again:
        whole = Finding("advice.stays_on_gpu")
        yield Candidate(limit, Change.FUSE, saved, ONE_WAY, whole, REFETCHED)
        if subject.work and subject.work.dtype in WIDE:
            yield Candidate(limit, Change.NARROW, saved, ONE_WAY / 2, why, REFETCHED)
        return
    bare = level != DRAM and subject.has_shared is False
    if bare:
        yield Candidate(limit, Change.TILE_SHARED, saved, NAMED, why, REFETCHED)
    sure = NAMED if again and not bare else ONE_WAY
    yield Candidate(limit, Change.REUSE, saved, sure, why, REFETCHED)


def _sectors(subject: AdvisedKernel) -> Iterator[Candidate]:
    """Excess sectors, as far as warps wait for global memory or a level is near its bandwidth."""
    excess = subject.total(SECTORS)
    requests, each = subject.value("global_load_requests"), subject.value("sectors_per_request")
    if not excess or requests is None:
        return
    wasted = excess / max(excess, requests * 1e6 * (each or 0.0))
    off = [one.share for level, one in subject.used.items() if level != L1 and one.share >= BOUND]
    share = max([subject.waits(*GLOBAL), *off])
    if wasted < WASTED:
        return
    limit = Limit(
        Stage.MEMORY,
        "sectors",
        share,
        "derived__memory_l2_theoretical_sectors_global_excessive",
        excess,
        "sectors",
        (SECTORS,),
    )
    why = finding("advice.wasted_sectors", share=wasted)
    yield Candidate(limit, Change.COALESCE, wasted * share, NAMED, why, frozenset((*LEVELS, "lsu")))


def _conflicts(subject: AdvisedKernel) -> Iterator[Candidate]:
    """Passes of shared memory that bank conflicts add, as far as warps wait for it."""
    conflicts, cycles = subject.value("shared_conflicts"), subject.value("cycles")
    if not conflicts or not cycles or not subject.sms:
        return
    share = min(1.0, conflicts * 1e6 / subject.sms / cycles)
    metric = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
    counters = (WAVEFRONTS,) if subject.total(WAVEFRONTS) else SHARED
    limit = Limit(Stage.MEMORY, "shared", share, metric, conflicts * 1e6, "conflicts", counters)
    why = finding("advice.bank_conflicts", share=share)
    saved = min(share, subject.waits(*SHARED))
    yield Candidate(limit, Change.SWIZZLE, saved, NAMED, why, frozenset(("lsu",)))
