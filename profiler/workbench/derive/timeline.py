"""When the blocks and warps of a launch ran: span, ramp, tail, imbalance, gaps and roles. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add
from statistics import fmean, median

from workbench.evidence.records import TracedLaunch
from workbench.words import grouped

RAMPED = 0.9  # of the SMs have a warp at the end of the ramp
ALIKE = 0.05  # of a block's life: warps whose ends differ by less have one role
LONG = 1.5  # times the median life, for a block that is slow

Interval = tuple[int, int]


@dataclass(frozen=True)
class WarpRole:
    """Warps ``first`` to ``last`` of each block, which end at this share of its life, by the
    median.
    """

    first: int
    last: int
    end: float

    @property
    def words(self) -> str:
        single, more = f"warp {self.first}", f"warps {self.first} to {self.last}"
        return more if self.last > self.first else single


@dataclass(frozen=True)
class LaunchTimeline:
    """One launch. Times are in microseconds; idle times are shares of the span of all SMs that it
    used: in the tail after an SM's last block, in gaps between two of its blocks. ``resident`` are
    the most blocks that an SM has at once; ``imbalance`` is the busy time of the busiest SM over
    the mean. ``slow_blocks`` live longer than ``LONG`` medians.
    """

    kernel: str
    blocks: int
    sms: int
    resident: int
    span_us: float
    ramp_us: float
    tail_us: float
    tail_idle: float
    gaps_idle: float
    imbalance: float
    median_us: float
    longest_us: float
    longest_block: int
    slow_blocks: int
    roles: tuple[WarpRole, ...]
    launch: TracedLaunch = field(repr=False, compare=False)


def launch_timeline(launch: TracedLaunch) -> LaunchTimeline:
    us, lives = launch.tick_ns / 1000, launch.lives
    rows = zip(launch.sms, launch.starts, lives, strict=True)
    by_sm = grouped((sm, (start, start + life)) for sm, start, life in rows).values()
    firsts = sorted(min(start for start, _ in blocks) for blocks in by_sm)
    lasts = [max(end for _, end in blocks) for blocks in by_sm]
    busy = list(map(covered, by_sm))
    span, middle, mean = max(*lasts, 1), median(lives), max(fmean(busy), 1)
    return LaunchTimeline(
        kernel=launch.kernel,
        blocks=len(lives),
        sms=len(busy),
        resident=max(map(most_at_once, by_sm)),
        span_us=us * span,
        ramp_us=us * firsts[math.ceil(RAMPED * len(firsts)) - 1],
        tail_us=us * (span - min(lasts)),
        tail_idle=1 - fmean(lasts) / span,
        gaps_idle=(sum(lasts) - sum(firsts) - sum(busy)) / span / len(busy),
        imbalance=max(*busy, 1) / mean,
        median_us=us * middle,
        longest_us=us * max(lives),
        longest_block=lives.index(max(lives)),
        slow_blocks=sum(life > LONG * middle for life in lives),
        roles=tuple(_roles(launch)),
        launch=launch,
    )


def covered(blocks: Sequence[Interval]) -> int:
    """How long any of these was there."""
    total = last = 0
    for start, end in sorted(blocks):
        total += max(0, end - max(start, last))
        last = max(last, end)
    return total


def most_at_once(blocks: Sequence[Interval]) -> int:
    """Count them when they are most; one that starts when another ends comes after it."""
    changes = sorted((when, by) for start, end in blocks for when, by in ((start, 1), (end, -1)))
    return max(accumulate(by for _, by in changes))


def _roles(launch: TracedLaunch) -> Iterator[WarpRole]:
    """Neighbouring warps of a block that end together."""
    lives = [max(life, 1) for life in launch.lives[:: launch.stride]]
    ends = map(add, launch.warp_starts, launch.warp_lives)
    shares = [end / lives[n // launch.warps] for n, end in enumerate(ends)]
    first, last = 0, -1.0
    for warp in range(launch.warps):
        share = median(shares[warp :: launch.warps])
        if warp and abs(share - last) >= ALIKE:
            yield WarpRole(first, warp - 1, last)
            first = warp
        if first == warp:
            last = share
    yield WarpRole(first, launch.warps - 1, last)


@dataclass(frozen=True)
class CallTimeline:
    """The launches of one call. Where each starts when those before have ended, no warp runs for
    ``between_us``; 0 where the host may have held them up.
    """

    launches: tuple[LaunchTimeline, ...]
    span_us: float
    between_us: float


def call_timeline(launches: Sequence[TracedLaunch]) -> CallTimeline:
    every = tuple(map(launch_timeline, launches))
    starts = [one.launch.begin * one.launch.tick_ns / 1000 for one in every]
    ends = [start + one.span_us for start, one in zip(starts, every, strict=True)]
    gaps = [start - end for start, end in zip(starts[1:], ends, strict=False)]
    waits = all(gap >= 0 for gap in gaps) and all(launch.in_graph for launch in launches)
    return CallTimeline(every, max(ends), math.fsum(gaps) if waits else 0.0)
