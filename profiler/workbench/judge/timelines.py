"""What a timeline shows to be wrong: a tail, a slow block, an early producer, no overlap. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import quantiles

from workbench.derive.timeline import CallTimeline, LaunchTimeline
from workbench.judge.findings import Finding, Value, finding, number_of, percent
from workbench.words import Change, Stage

TAIL = 0.1  # of SM time, idle after an SM's last block; attention's fix7 has 0.05
FEW = 0.05  # of the blocks: where more are slow, the work is uneven
UNEVEN = 1.5  # of the lives of blocks, the ninth decile over the first
RUNS_ON = 0.2  # of a block's life, after the end of its producer
GAPS = 0.05  # of SM time, idle between two blocks of an SM
BETWEEN = 0.05  # of a call's span, in which no warp runs
SHORT_US = 1.0  # a block's life, below which the clock's steps of 32 ns are too coarse


@dataclass(frozen=True)
class Fault:
    """``share`` of SM time, or of the span of a call, is lost by it; ``change`` addresses it."""

    stage: Stage
    change: Change
    share: float
    why: Finding


def faults(call: CallTimeline) -> tuple[Fault, ...]:
    """Name the faults of a call, the one that costs most first."""
    every = [fault for launch in call.launches for fault in _faults(launch)]
    share, count = call.between_us / call.span_us, len(call.launches)
    if share >= BETWEEN:
        message = (
            f"each of {count} launches starts when the one before has ended, and no warp runs for "
            f"{call.between_us:.3g} µs, {percent(share)} of the call"
        )
        why = finding("timeline.launches", message, share=share, launches=count)
        every.append(Fault(Stage.LAUNCH, Change.EARLY, share, why))
    return tuple(sorted(every, key=lambda fault: -fault.share))


def _faults(launch: LaunchTimeline) -> Iterator[Fault]:
    kernel = launch.kernel
    if launch.tail_idle >= TAIL:
        yield _tail(launch)
    if (share := launch.gaps_idle) >= GAPS:
        message = (
            f"{kernel}: an SM has {number_of(launch.resident, 'block')} at once, and none for "
            f"{percent(share)} of the time, between its blocks: their loads overlap nothing"
        )
        resident = launch.resident
        why = finding("timeline.gaps", message, kernel=kernel, share=share, resident=resident)
        yield Fault(Stage.LATENCY, Change.WARPS, share, why)
    early = min(launch.roles, key=lambda role: role.end)
    others = launch.launch.warps - (early.last - early.first + 1)
    share = 1 - early.end
    if share >= RUNS_ON and 2 * others >= launch.launch.warps and launch.median_us >= SHORT_US:
        message = (
            f"{kernel}: in each block {early.words} ended after {percent(early.end)} of its life, "
            f"and the other {others} run on alone: their work is not overlapped"
        )
        warps = (early.first, early.last)
        why = finding("timeline.late_producer", message, kernel=kernel, share=share, warps=warps)
        yield Fault(Stage.LATENCY, Change.OVERLAP, share, why)


def _tail(launch: LaunchTimeline) -> Fault:
    """Say why SMs end apart: a slow block, blocks of different length, or a last wave."""
    share, block, columns = launch.tail_idle, launch.longest_block, launch.launch
    idle = f"SMs are idle for {percent(share)} of the time in the last {launch.tail_us:.3g} µs"
    ends = [start + life for start, life in zip(columns.starts, columns.lives, strict=True)]
    values: dict[str, Value] = {"kernel": launch.kernel, "share": share, "tail_us": launch.tail_us}
    deciles = quantiles(columns.lives, n=10) if launch.blocks > 1 else [1.0]
    spread = deciles[-1] / max(deciles[0], 1.0)
    stage, change = Stage.IMBALANCE, Change.BALANCE
    if 0 < launch.slow_blocks <= max(1, FEW * launch.blocks) and ends[block] == max(ends):
        times, sm = launch.longest_us / launch.median_us, columns.sms[block]
        code = "timeline.slow_block"
        message = (
            f"block {block} on SM {sm} takes {launch.longest_us:.3g} µs, {times:.2g} times the "
            f"median block ({launch.slow_blocks} of {launch.blocks} are slow)"
        )
        values |= {"block": block, "sm": sm, "times_median": times, "slow": launch.slow_blocks}
    elif spread >= UNEVEN:
        code, message = "timeline.uneven", f"the lives of blocks differ by a factor of {spread:.2g}"
        values |= {"factor": spread}
    else:
        code, message = "timeline.tail", "the last wave of blocks is not full"
        stage, change = Stage.TAIL, Change.TAIL
    why = finding(code, f"{launch.kernel}: {message}; {idle}", **values)
    return Fault(stage, change, share, why)
