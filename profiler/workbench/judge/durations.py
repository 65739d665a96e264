"""Whether the time that a call adds is accounted for by its capture. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.derive.figures import DURATION, by_launch
from workbench.derive.roofline.ceilings import DRAM
from workbench.judge.case import Case, added_time, rates_of
from workbench.judge.gates import Gate
from workbench.words import ABSENT, GateState, NodeKind

DURATION_GATE = "duration"
# Bounds between the time that a call adds in the chained graph and the duration of its launches
# under ncu, both at one SM clock. Measured on an H200 with the caches kept, for kernels of 5 to
# 12 µs: ncu stands 0.5 to 1.4 µs above the time in company (0.2 to 0.7 µs at one clock), and within
# a few per cent at long ones.
LEAST_SHARE = 0.90
UNDER_NCU_US = 1.2  # of a launch's start and end that other launches hide
FLUSHED_US = 0.6  # more where ncu flushed the caches first, besides reading all from DRAM again
# The other way, a call in a graph has gaps of 0.5 to 1 µs between its nodes, a memset of 0.8 µs
# that ncu does not see, and a card that neighbours keep busy with writing back what they wrote.
MOST_SHARE = 1.25
GAP_US = 1.5  # a node
CLOCK = "gpc__cycles_elapsed.avg.per_second"


@dataclass(frozen=True)
class Profiled:
    """µs that launches took under ncu at the clock of the timing, or at their own: whichever is
    shorter and longer. ``longest`` is that of one launch, of all is the sum.
    """

    longest: float
    total: float
    launches: int


def profiled(case: Case, ghz: float | None) -> Profiled | None:
    """A kernel bound by the SMs takes the same cycles at any clock, one bound by DRAM the same
    time: a launch has both. None without a capture made here.
    """
    capture = case.evidence.capture
    if capture is None or not case.evidence.was_profiled:
        return None
    shortest, longest = [], []
    for values in by_launch(capture.metrics).values():
        if DURATION not in values:
            return None
        own = values[DURATION] * 1e-3
        clock = values.get(CLOCK, 0.0) * 1e-9
        scaled = own * clock / ghz if ghz and clock else own
        shortest.append(min(own, scaled))
        longest.append(max(own, scaled))
    if not longest:
        return None
    return Profiled(longest=max(shortest), total=sum(longest), launches=len(longest))


def duration_gate(case: Case) -> Gate:
    """The time that a call adds is accounted for by what its launches took under ncu."""
    time = added_time(case)
    under_ncu = profiled(case, time.ghz if time else None)
    if time is None or under_ncu is None:
        return Gate(DURATION_GATE, GateState.OPEN, ABSENT)
    least, most = _least(case, under_ncu), _most(case, under_ncu)
    figures = f"a call adds {time.microseconds:.2f} µs, and its launches took"
    if time.microseconds < least:
        why = f"{figures} {under_ncu.longest:.2f} µs under ncu: at least {least:.2f} µs it must be"
        return Gate(DURATION_GATE, GateState.FAILED, why)
    if time.microseconds > most:
        why = f"{figures} {under_ncu.total:.2f} µs under ncu: no more than {most:.2f} µs it can be"
        return Gate(DURATION_GATE, GateState.FAILED, why)
    why = f"{figures} {under_ncu.total:.2f} µs under ncu"
    return Gate(DURATION_GATE, GateState.PASSED, why)


def _least(case: Case, under_ncu: Profiled) -> float:
    """Launches may run at once, so that the longest is what must have passed."""
    least = LEAST_SHARE * under_ncu.longest - UNDER_NCU_US
    if case.was_flushed:
        least -= FLUSHED_US + _refilling(case)
    return least


def _refilling(case: Case) -> float:
    """µs that DRAM needs for what the caches would have had."""
    figures, rates = case.evidence.figures, rates_of(case)
    if "dram_read" not in figures or not rates.get(DRAM):
        return 0.0
    return figures["dram_read"].value * 1e12 / rates[DRAM]


def _most(case: Case, under_ncu: Profiled) -> float:
    """Launches may run one after the other; so may memsets and copies, which ncu does not see."""
    nodes = case.nodes or ()
    unseen = [node.kind for node in nodes].count(NodeKind.MEMSET)
    unseen += [node.kind for node in nodes].count(NodeKind.MEMCPY)
    rate = rates_of(case).get(DRAM)
    moving = 2e6 * case.work.bytes / rate if case.work and rate else 0.0
    number = max(len(nodes), under_ncu.launches)
    return MOST_SHARE * under_ncu.total + GAP_US * number + moving * unseen
