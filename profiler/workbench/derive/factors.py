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

The largest changes of figures rank by score = part x log2(1 + surprise). The surprise is in
standard deviations between two captures of the same kernel. The part is how much of the time a
figure speaks of: a factor's part in the change of the duration, or the share of warp samples,
before or after, in the stall reasons that the figure feeds (``part`` in ``metrics.toml``). Launch
parameters are chosen, not measured: they are listed, not ranked.

How far a figure moves between two captures of the same kernel is assumed by its kind. The sizes are
those of two captures of one cuDNN kernel on an H200, rounded up: executed instructions differed by
up to 1 % (its warps poll barriers), durations by 0.6 %, issue rates and resident warps by 4 to 6 %,
hit rates by up to 4 points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from workbench.derive.figures import DURATION, ISSUING, Figure, added
from workbench.ncu.capture import ColumnTable
from workbench.ncu.catalog import DURATION_METRICS, FigureSpec, catalog
from workbench.words import shown

SMS, SCHEDULERS_PER_SM, INSTRUCTIONS, ISSUE_RATE, ACTIVE, ELAPSED, CLOCK, BUSIEST = DURATION_METRICS
NEEDED = DURATION_METRICS[:-1]
SPLIT = ("instructions", "issue_rate", "balance", "busiest", "clock")
WHOLE = ("instructions", "issue_rate", "active", "clock")  # without the busiest scheduler
METRICS = {
    "instructions": f"{INSTRUCTIONS} / ({SMS} x {SCHEDULERS_PER_SM})",
    "issue_rate": ISSUE_RATE,
    "balance": f"{ACTIVE} / {BUSIEST}",
    "busiest": f"{BUSIEST} / {ELAPSED}",
    "active": f"{ACTIVE} / {ELAPSED}",
    "clock": CLOCK,
}
FACTORS = {  # with their label, their unit, and what a value is multiplied by for that
    "instructions": ("Warp instructions per scheduler", "inst", 1.0),
    "issue_rate": ("Issue rate while active", "inst/cycle", 1.0),
    "balance": ("Load balance over the SMs", "%", 100.0),
    "busiest": ("Share of the time that the busiest SM is active", "%", 100.0),
    "active": ("Share of the time active", "%", 100.0),
    "clock": ("Clock", "GHz", 1e-9),
}


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
    if not all(values[SMS] * values[SCHEDULERS_PER_SM] for values in launches):
        return None
    # Cycles are of an average scheduler.
    instructions = added(v[INSTRUCTIONS] / (v[SMS] * v[SCHEDULERS_PER_SM]) for v in launches)
    issued = added(values[ISSUE_RATE] * values[ACTIVE] for values in launches)
    active, elapsed = (added(v[name] for v in launches) for name in (ACTIVE, ELAPSED))
    seconds = added(values[DURATION] * 1e-9 for values in launches)
    busiest = added(values.get(BUSIEST, 0.0) for values in launches)
    split = all(values.get(BUSIEST) for values in launches)
    if not all((instructions, issued, active, elapsed, seconds)):
        return None
    return DurationParts(
        instructions=instructions,
        issue_rate=issued / active,
        active=active / elapsed,
        clock=elapsed / seconds,
        seconds=seconds,
        balance=active / busiest if split else None,
        busiest=busiest / elapsed if split else None,
    )


def speedup_factors(before: DurationParts, after: DurationParts) -> SpeedupFactors:
    """How the ratio of two durations multiplies out."""
    keys = WHOLE if before.busiest is None or after.busiest is None else SPLIT
    return SpeedupFactors(
        microseconds_before=before.seconds * 1e6,
        microseconds_after=after.seconds * 1e6,
        ratio=before.seconds / after.seconds,
        factors=tuple(_factor(key, getattr(before, key), getattr(after, key)) for key in keys),
    )


def _factor(key: str, before: float, after: float) -> Factor:
    label, unit, scale = FACTORS[key]
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


FROM_NOTHING = 1e3  # a change from or to zero has no factor; it counts as one of this size


# Standard deviations by kind: relative, and for percentages at least so many points.
ASSUMED = {
    "launch": (0.001, 0.0),
    "counter": (0.01, 0.0),
    "time": (0.01, 0.0),
    "rate": (0.04, 0.5),
    "cache": (0.05, 3.0),
    "pace": (0.05, 0.5),
}


def kind(figure: str) -> str:
    """Return the kind of noise of a figure; one that the catalogue does not know is a pace."""
    spec = catalog().get(figure)
    return spec.noise if spec else "pace"


def surprise(before: Figure, after: Figure) -> float:
    """The move in standard deviations of a difference between two captures: percentages by points,
    all else by the logarithm of the factor.
    """
    spec = catalog().get(before.id)
    values = [max(figure.value, spec.floor) if spec else figure.value for figure in (before, after)]
    if values[0] == values[1]:
        return 0.0
    relative, points = ASSUMED[kind(before.id)]
    if before.unit.startswith("%"):  # whose moves count in points
        spread = math.hypot(*(max(relative * abs(v), points) for v in values))
        return abs(after.value - before.value) / spread if spread else math.inf
    return abs(log_factor(*values)) / (math.sqrt(2) * relative)


def log_factor(before: float, after: float) -> float:
    """Logarithm of after over before; ``FROM_NOTHING`` where one of them is zero or below."""
    if before == after:
        return 0.0
    if before <= 0 or after <= 0:
        return math.copysign(math.log(FROM_NOTHING), after - before)
    return math.log(after / before)


TOP = 6
CERTAIN = 3.0  # standard deviations; less is noise
LEAST_PART = 0.02  # so that a new spill is seen even where nothing waits for it yet
NEGLIGIBLE = 1e-3  # of the warp instructions: fewer events than this do not count
EVENTS = ("M", "inst")  # units of what is counted, as warp instructions are
SAME = 0.01  # logarithms of factors that differ by less, of their size, are the same


@dataclass(frozen=True)
class FigureChange:
    """A figure before and after. ``alike`` are the labels of others that changed by its factor."""

    figure: str
    label: str
    before: float
    after: float
    unit: str
    metric: str
    surprise: float
    part: float
    alike: tuple[str, ...] = ()

    @property
    def factor(self) -> float | None:
        """After over before; None from or to zero."""
        return self.after / self.before if self.before and self.after else None

    @property
    def score(self) -> float:
        return max(self.part, LEAST_PART) * math.log2(1 + self.surprise)

    @property
    def log(self) -> float:
        return log_factor(self.before, self.after)


@dataclass(frozen=True)
class LargestChanges:
    """The ``figures`` by score without amounts that only follow the time; ``launch`` parameters."""

    figures: tuple[FigureChange, ...]
    launch: tuple[FigureChange, ...]


def largest_changes(
    before: Mapping[str, Figure],
    after: Mapping[str, Figure],
    factors: SpeedupFactors | None,
    top: int = TOP,
) -> LargestChanges:
    """The figures of the catalogue that changed beyond the noise, each fact once."""
    shared = (spec for key, spec in catalog().items() if key in before and key in after)
    certain = [
        _figure_change(spec, before, after, factors, size)
        for spec in shared
        if spec.part and (size := surprise(*counted(spec, before, after))) >= CERTAIN
    ]
    launch = [change for change in certain if kind(change.figure) == "launch"]
    rest = [change for change in certain if change not in launch and not _is_paced(change, factors)]
    ranked = sorted(rest, key=lambda change: -change.score)  # stable: ties in catalogue order
    return LargestChanges(figures=tuple(_once(ranked)[:top]), launch=tuple(launch))


def _figure_change(
    spec: FigureSpec,
    before: Mapping[str, Figure],
    after: Mapping[str, Figure],
    factors: SpeedupFactors | None,
    size: float,
) -> FigureChange:
    old, new = before[spec.id], after[spec.id]
    return FigureChange(
        figure=spec.id,
        label=new.label,
        before=old.value,
        after=new.value,
        unit=new.unit,
        metric=new.metric,
        surprise=size,
        part=_part(spec.part, factors, before, after),
    )


def _is_paced(change: FigureChange, factors: SpeedupFactors | None) -> bool:
    """Whether an amount per time changed only because the time did."""
    if kind(change.figure) != "pace" or factors is None:
        return False
    return same(change.log, math.log(factors.ratio))


def counted(
    spec: FigureSpec, before: Mapping[str, Figure], after: Mapping[str, Figure]
) -> tuple[Figure, Figure]:
    """A figure before and after, and a count as at least what matters: 36 bank conflicts among
    millions of instructions against 0 are no infinite change.
    """
    old, new = before[spec.id], after[spec.id]
    executed = [f["warp_instructions"].value for f in (before, after) if "warp_instructions" in f]
    if spec.unit not in EVENTS or not executed:
        return old, new
    least = NEGLIGIBLE * max(executed) / catalog()["warp_instructions"].scale * spec.scale
    return replace(old, value=max(old.value, least)), replace(new, value=max(new.value, least))


def same(first: float, second: float) -> bool:
    """Whether two logarithms of factors, taken up or down, are one fact."""
    return abs(abs(first) - abs(second)) <= SAME * max(abs(first), abs(second))


def _once(ranked: list[FigureChange]) -> list[FigureChange]:
    """Changes by one factor that speak of the same thing are one fact: the first by rank stands
    for the others. Changes from or to zero have no factor and each stand for themselves.
    """
    kept: list[FigureChange] = []
    for change in ranked:
        same = next((i for i, other in enumerate(kept) if _tell_the_same(change, other)), None)
        if same is None:
            kept.append(change)
        else:
            kept[same] = replace(kept[same], alike=(*kept[same].alike, change.label))
    return kept


def _tell_the_same(first: FigureChange, second: FigureChange) -> bool:
    if not first.factor or not second.factor or not same(first.log, second.log):
        return False
    return bool(set(catalog()[first.figure].part) & set(catalog()[second.figure].part))


def _part(
    names: tuple[str, ...],
    factors: SpeedupFactors | None,
    before: Mapping[str, Figure],
    after: Mapping[str, Figure],
) -> float:
    """The larger of the part of its factors and of its stalls."""
    parts = [factors.part(name) for name in names if name in FACTORS and factors]
    stalls = [name for name in names if name not in FACTORS]
    shares = [added(f[n].value for n in stalls if n in f) / 100 for f in (before, after)]
    return max(*parts, *shares)
