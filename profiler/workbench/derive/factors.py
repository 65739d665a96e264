"""The factors of a speedup: durations under ncu as a product of five factors.

For one launch, with one roll-up (``avg``) throughout,

    duration = (smsp__inst_executed.sum / schedulers)       warp instructions per scheduler
             / smsp__issue_active.avg.per_cycle_active      issue rate while active
             / (smsp__cycles_active.avg / smsp__cycles_active.max)   load balance over the SMs
             / (smsp__cycles_active.max / gpc__cycles_elapsed.avg)   share of the busiest's time
             / gpc__cycles_elapsed.avg.per_second           clock

``gpc__cycles_elapsed.avg / .avg.per_second`` is ``gpu__time_duration.sum`` exactly; the ``max``
roll-up would not be, since GPCs differ by some percent in short kernels. What is left over (the
residual) is instructions issued more or less often than executed, and the difference between the
passes in which ncu collects the counters.

Load balance is the mean scheduler's active cycles over the busiest one's: half of the SMs without a
block, or all of them done at different times. What the busiest has not of the time is the head and
the tail of the launch, in which no SM may work at all. The two were one factor, the share of the
time active, which hides the one behind the other; it stands where the busiest is not collected.

Launches combine exactly: instructions, issue slots, active and elapsed cycles and durations are
summed, and the rates are quotients of the sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from workbench.derive.figures import DURATION, ISSUING, added
from workbench.ncu.capture import ColumnTable
from workbench.ncu.catalog import DURATION_METRICS
from workbench.words import shown

SMS, SCHEDULERS_PER_SM, INSTRUCTIONS, ISSUE_RATE, ACTIVE, ELAPSED, CLOCK, BUSIEST = DURATION_METRICS
NEEDED = DURATION_METRICS[:-1]
SPLIT = ("instructions", "issue_rate", "balance", "busiest", "clock")
WHOLE = ("instructions", "issue_rate", "active", "clock")  # without the busiest scheduler
FACTORS = ("instructions", "issue_rate", "balance", "busiest", "active", "clock")
LABELS = {
    "instructions": ("Warp instructions per scheduler", "inst"),
    "issue_rate": ("Issue rate while active", "inst/cycle"),
    "balance": ("Load balance over the SMs", "%"),
    "busiest": ("Share of the time that the busiest SM is active", "%"),
    "active": ("Share of the time active", "%"),
    "clock": ("Clock", "GHz"),
}
METRICS = {
    "instructions": f"{INSTRUCTIONS} / ({SMS} x {SCHEDULERS_PER_SM})",
    "issue_rate": ISSUE_RATE,
    "balance": f"{ACTIVE} / {BUSIEST}",
    "busiest": f"{BUSIEST} / {ELAPSED}",
    "active": f"{ACTIVE} / {ELAPSED}",
    "clock": CLOCK,
}
SCALES = {"balance": 100.0, "busiest": 100.0, "active": 100.0, "clock": 1e-9}


@dataclass(frozen=True)
class DurationParts:
    """The parts that the duration of a variant's launches is made of, all launches together.

    ``instructions`` are per scheduler, ``issue_rate`` in instructions per active cycle, ``clock``
    in Hz, ``seconds`` as measured by ``gpu__time_duration.sum``. ``active`` goes from 0 to about 1,
    and so do ``balance`` and ``busiest``, whose product it is: None where some launch lacks the
    busiest scheduler's cycles.
    """

    instructions: float
    issue_rate: float
    active: float
    clock: float
    seconds: float
    launches: int
    balance: float | None = None
    busiest: float | None = None

    @property
    def product(self) -> float:
        """Seconds by the factors, to be compared with ``seconds``."""
        return self.instructions / (self.issue_rate * self.active * self.clock)


@dataclass(frozen=True)
class Factor:
    """One factor before and after, in ``unit``; ``gain`` above 1 made the variant faster."""

    id: str
    label: str
    unit: str
    before: float
    after: float
    gain: float
    metric: str


@dataclass(frozen=True)
class SpeedupFactors:
    """``ratio`` = the gains of the factors times ``residual``: the duration before over that after,
    under ncu with the capture's cache control. With flushed caches it compares with cold times.
    """

    before: str = field(repr=False)
    after: str = field(repr=False)
    microseconds_before: float
    microseconds_after: float
    ratio: float
    factors: tuple[Factor, ...]

    @property
    def product(self) -> float:
        return math.prod(factor.gain for factor in self.factors)

    @property
    @shown
    def residual(self) -> float:
        return self.ratio / self.product

    def part(self, factor: str) -> float:
        """The factor's part in all change, 0 to 1: its |log gain| over the sum of them all."""
        sizes = {f.id: abs(math.log(f.gain)) for f in self.factors}
        total = added(sizes.values())
        return sizes.get(factor, 0.0) / total if total else 0.0


def duration_parts(metrics: ColumnTable) -> DurationParts | None:
    """None where some launch lacks one of the counters: "not collected", never a guess."""
    launches = metrics.by_launch.values()
    needed = {*NEEDED, DURATION}
    if not launches or not all(needed <= values.keys() for values in launches):
        return None
    terms = [_terms(values) for values in launches]
    sums = {key: added(term[key] for term in terms) for key in terms[0]}
    busiest = added(values.get(BUSIEST, 0.0) for values in launches)
    split = all(values.get(BUSIEST) for values in launches)
    if not all(sums.values()):
        return None
    return DurationParts(
        instructions=sums["instructions"],
        issue_rate=sums["issued"] / sums["active"],
        active=sums["active"] / sums["elapsed"],
        clock=sums["elapsed"] / sums["seconds"],
        seconds=sums["seconds"],
        launches=len(launches),
        balance=sums["active"] / busiest if split else None,
        busiest=busiest / sums["elapsed"] if split else None,
    )


def _terms(values: Mapping[str, float]) -> dict[str, float]:
    """One launch's part of every sum; cycles are of an average scheduler."""
    schedulers = values[SMS] * values[SCHEDULERS_PER_SM]
    return {
        "instructions": values[INSTRUCTIONS] / schedulers if schedulers else 0.0,
        "issued": values[ISSUE_RATE] * values[ACTIVE],
        "active": values[ACTIVE],
        "elapsed": values[ELAPSED],
        "seconds": values[DURATION] * 1e-9,
    }


def speedup_factors(
    before: DurationParts, after: DurationParts, names: tuple[str, str]
) -> SpeedupFactors:
    """How the ratio of two durations multiplies out; ``names`` are parent and variant."""
    keys = WHOLE if before.busiest is None or after.busiest is None else SPLIT
    return SpeedupFactors(
        before=names[0],
        after=names[1],
        microseconds_before=before.seconds * 1e6,
        microseconds_after=after.seconds * 1e6,
        ratio=before.seconds / after.seconds,
        factors=tuple(_factor(key, getattr(before, key), getattr(after, key)) for key in keys),
    )


def _factor(key: str, before: float, after: float) -> Factor:
    label, unit = LABELS[key]
    scale = SCALES.get(key, 1.0)
    return Factor(
        id=key,
        label=label,
        unit=unit,
        before=before * scale,
        after=after * scale,
        gain=before / after if key == "instructions" else after / before,
        metric=METRICS[key],
    )


COULD_GO = (ISSUING, "not_selected")


@dataclass(frozen=True)
class TimeBudget:
    """The duration under ncu as the time of the busiest SM, from its factors and stall samples:

        head and tail   1 - busiest                  no SM is active
        issuing         busiest x issue rate         a scheduler issues
        waiting         busiest x (1 - issue rate)   it has warps, and none that can go

    The rate is that of an average scheduler while it is active, taken for the busiest one's. The
    waiting is apportioned by the samples of warps that could not go. With one warp per scheduler
    this is the warp's own time, exactly; with more it is no promise of what would be saved.

    Shares are of the duration, 0 to 1. ``waits``: stall reason to its part of ``waiting``, empty
    where no samples were taken. ``balance`` is the average SM's active time over the busiest one's.
    """

    head_tail: float
    issuing: float
    waiting: float
    balance: float
    waits: Mapping[str, float]

    @property
    def imbalance(self) -> float:
        """The share that an even spread would save."""
        return (1 - self.head_tail) * (1 - self.balance)


def budget(parts: DurationParts, stalls: Mapping[str, float]) -> TimeBudget | None:
    """``stalls``: reason to share of all samples. None without the busiest scheduler's cycles."""
    if parts.busiest is None or parts.balance is None:
        return None
    busiest, rate = min(1.0, parts.busiest), min(1.0, parts.issue_rate)
    waiting = busiest * (1 - rate)
    held = {reason: share for reason, share in stalls.items() if reason not in COULD_GO}
    total = added(held.values())
    return TimeBudget(
        head_tail=1 - busiest,
        issuing=busiest * rate,
        waiting=waiting,
        balance=min(1.0, parts.balance),
        waits={r: waiting * share / total for r, share in held.items()} if total else {},
    )
