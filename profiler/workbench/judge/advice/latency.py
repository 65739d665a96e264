"""Limits of latency: what warps wait for, and whether others could run meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.derive.factors import TimeBudget
from workbench.derive.figures import stall_label
from workbench.derive.roofline.ceilings import L1, L2
from workbench.judge.advice.subject import (
    LEAST,
    NAMED,
    ONE_WAY,
    WGMMA,
    AdvisedKernel,
    Candidate,
    Limit,
    waiting,
)
from workbench.judge.findings import Finding, finding, percent
from workbench.words import Change, Stage

AGAIN = 2  # times the least bytes through L1 or L2: data is read more than once
SHARED = 4  # times: more passes than one thread makes, so that others read the same
NARROW_LOADS = 8  # sectors a request: less than 16 bytes a lane
FEW_WARPS = 2  # per scheduler: while one waits, hardly another can issue
ENOUGH_WARPS = 8  # per scheduler: more would not hide more
FILLED = 0.8  # of the warps that the launch allows: the limit on them binds
LEAST_WAITING = 0.2  # of the duration
COPIES = 0.01  # million requests: fewer loads by threads are not what fetches the data
HALF = 0.5


def rules(subject: AdvisedKernel) -> Iterator[Candidate]:
    """Nothing where no samples were taken."""
    if subject.budget is None or not subject.budget.waits:
        return
    yield from _global(subject)
    yield from _shared(subject)
    yield from _barriers(subject)
    yield from _others(subject)
    yield from _warps(subject, subject.budget)


def _waits(
    limit: Limit, times_bytes: float | None = None, with_barriers: bool | None = None
) -> Finding:
    """``times_bytes`` that the work needs are moved; ``with_barriers``: those of copies count."""
    labels = [stall_label(reason).removesuffix(" stall") for reason in limit.reasons]
    message = f"{' and '.join(labels)} stalls take {percent(limit.share)} of the duration"
    if times_bytes:
        message += f", for {times_bytes:.3g} times the bytes that the work needs"
    if with_barriers:
        message += ", those of the barriers around a copy included"
    return finding(
        "advice.waits",
        message,
        reasons=limit.reasons,
        share=limit.share,
        times_bytes=times_bytes,
        with_barriers=with_barriers,
    )


def _global(subject: AdvisedKernel) -> Iterator[Candidate]:
    """Loads from global memory, by how they are made."""
    limit = waiting(subject, "long_scoreboard", "lg_throttle", "tex_throttle")
    saved = limit.share
    again = max((subject.excess(level) or 0.0 for level in (L1, L2)), default=0.0)
    why = _waits(limit, again if again >= AGAIN else None)
    if subject.has_shared is False and again >= AGAIN:
        sure = NAMED if again >= SHARED else ONE_WAY
        yield Candidate(limit, Change.TILE_SHARED, saved, sure, why)
    if again >= AGAIN:
        yield Candidate(limit, Change.REUSE, saved, ONE_WAY, why)
    requests = subject.value("global_load_requests")
    if requests is None or subject.has_shared is None:
        return
    by_threads = requests >= COPIES
    narrow = (subject.value("sectors_per_request") or 0.0) <= NARROW_LOADS
    if by_threads and subject.has_shared:
        if narrow:
            yield Candidate(limit, Change.VECTOR, saved, NAMED, why)
        hopper = WGMMA in subject.tensor_peaks
        bulk = subject.path == WGMMA
        ring = ONE_WAY if bulk or narrow else NAMED
        yield Candidate(limit, Change.ASYNC_COPY, saved, ring, why)
        if hopper:
            copies = waiting(subject, "long_scoreboard", "lg_throttle", "barrier")
            why = _waits(copies, with_barriers=True)
            sure = NAMED if bulk else ONE_WAY
            yield Candidate(copies, Change.BULK_COPY, copies.share, sure, why)
    elif by_threads and narrow:
        yield Candidate(limit, Change.VECTOR, saved, NAMED if again < SHARED else ONE_WAY, why)
    else:
        yield Candidate(limit, Change.OVERLAP, saved, ONE_WAY, why)


def _shared(subject: AdvisedKernel) -> Iterator[Candidate]:
    limit = waiting(subject, "short_scoreboard", "mio_throttle")
    why, busy = _waits(limit), subject.busy
    if busy.get("xu", 0.0) > busy.get("lsu", 0.0):
        yield Candidate(limit, Change.OTHER_PIPE, limit.share, ONE_WAY, why, frozenset(("xu",)))
    elif subject.has_shared is not False:
        relieved = frozenset(("lsu",))
        yield Candidate(limit, Change.REUSE, limit.share, ONE_WAY, why, relieved)
        yield Candidate(limit, Change.VECTOR, limit.share, ONE_WAY, why, relieved)


def _barriers(subject: AdvisedKernel) -> Iterator[Candidate]:
    limit = waiting(subject, "barrier", "membar")
    why = _waits(limit)
    yield Candidate(limit, Change.BARRIERS, limit.share, NAMED, why)
    if subject.has_shared:
        yield Candidate(limit, Change.SPECIALISE, limit.share, ONE_WAY, why)


# What else warps wait for, and what helps, as sure as the evidence names the cause.
OTHERS = (
    (("wait",), ((Change.OVERLAP, NAMED),)),  # fixed latencies between dependent instructions
    (("dispatch_stall",), ((Change.OPERANDS, NAMED),)),  # ports that are taken
    (("gmma", "warpgroup_arrive"), ((Change.OVERLAP, NAMED), (Change.SPECIALISE, ONE_WAY))),
    (("no_instructions", "branch_resolving", "imc_miss"), ((Change.SMALLER_CODE, NAMED),)),
    (("drain",), ((Change.VECTOR, ONE_WAY),)),
)


def _others(subject: AdvisedKernel) -> Iterator[Candidate]:
    for reasons, changes in OTHERS:
        limit = waiting(subject, *reasons)
        for change, sure in changes:
            yield Candidate(limit, change, limit.share, sure, _waits(limit))


def _warps(subject: AdvisedKernel, budget: TimeBudget) -> Iterator[Candidate]:
    """More warps, by what keeps them out: twice as many hide at most half of the waiting."""
    there, waits = subject.value("warps_per_scheduler"), budget.waiting
    if there is None or there >= ENOUGH_WARPS or waits < LEAST_WAITING:
        return
    achieved, most = subject.value("achieved_occupancy"), subject.value("theoretical_occupancy")
    waves = subject.value("waves")
    if achieved is None or most is None or waves is None:
        return
    metric = "smsp__warps_active.avg.per_cycle_active"
    unit, counters = "warps per scheduler", tuple(budget.waits)
    limit = Limit(Stage.LATENCY, "warps", waits, metric, there, unit, counters)
    message = f"{there:.1f} warps a scheduler; twice as many could hide half of the stalls"
    why = finding("advice.few_warps", message, warps_per_scheduler=there)
    saved = HALF * waits
    if waves < 1 and achieved < FILLED * most:
        sure = NAMED if there < FEW_WARPS else ONE_WAY
        yield Candidate(limit, Change.SPLIT, saved, sure, why)
        return
    yield Candidate(limit, Change.WARPS, saved, ONE_WAY, why)
    if "registers" in subject.limiters:
        spills = (subject.value("local_loads") or 0.0) > LEAST
        yield Candidate(limit, Change.REGISTERS, saved, NAMED if spills else ONE_WAY / 2, why)
