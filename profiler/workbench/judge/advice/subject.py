"""What advice looks at of one variant, and what a rule proposes: a limit, and a kind of change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from workbench.derive.factors import SMS, TimeBudget, budget, duration_parts
from workbench.derive.figures import (
    STALL,
    Figure,
    added,
    by_launch,
    figures,
    longest,
    occupancy_limiters,
    stall_shares,
    totals,
)
from workbench.derive.roofline.ceilings import DRAM, L2, Used, counted_flops, op_peak, used
from workbench.judge.bottlenecks import NO_STALL
from workbench.judge.findings import Finding
from workbench.ncu.capture import Capture, ColumnTable
from workbench.ncu.catalog import STALL_PREFIX, TENSOR_OPS
from workbench.study.model import Work
from workbench.words import VIRTUAL_ROOT, Change, Stage, grouped

PIPES = ("tensor", "fma", "xu", "lsu")
LEVELS = {"dram": "DRAM", "l2": "L2", "l1": "L1"}


def resource(name: str) -> str:
    """What people call a level of memory or a pipe."""
    if name in PIPES:
        return f"{name.upper() if name != 'tensor' else name} pipe"
    return LEVELS.get(name, name.replace("_", " "))


ISSUE = "issue"
SHARED_BY_ALL = (DRAM, L2)  # resources of the GPU, not of an SM
DRIVER_KB = 1.1  # of shared memory that every block has on recent GPUs without asking for any
WGMMA, MMA = "wgmma", "mma.sync"
Place = tuple[str, int]


@dataclass(frozen=True)
class Spot:
    """The line that shows a limit; ``share`` of stall samples, None if found by another counter."""

    file: str
    line: int
    share: float | None


@dataclass(frozen=True, eq=False)
class AdvisedKernel:
    """One variant. What its capture lacks is not there: no figure, no budget, no level in ``used``.

    ``lines`` has a counter's value by source line. ``paths`` has the tensor FLOPs by instruction,
    ``tensor_peaks`` what each could do, in FLOP/s; ``executed`` are the FLOPs of all launches,
    ``sectors`` those of their global accesses.
    """

    figures: Mapping[str, Figure]
    budget: TimeBudget | None
    used: Mapping[str, Used]
    lines: Mapping[str, Mapping[Place, float]] = field(default_factory=dict)
    limiters: tuple[str, ...] = ()
    work: Work | None = None
    launches: int = 1
    sms: float | None = None
    paths: Mapping[str, float] = field(default_factory=dict)
    tensor_peaks: Mapping[str, float] = field(default_factory=dict)
    executed: float | None = None
    sectors: float | None = None

    def value(self, name: str) -> float | None:
        """Of a figure; None where it was not collected."""
        known = self.figures.get(name)
        return known.value if known else None

    def megabytes(self, *names: str) -> float:
        """The sum of some figures in MB; those not collected count as 0."""
        return added(self.value(name) or 0.0 for name in names)

    def waits(self, *reasons: str) -> float:
        """The share of the duration that went to some stall reasons; 0 where it is not known."""
        known = self.budget.waits if self.budget else {}
        return added(known.get(reason, 0.0) for reason in reasons)

    @cached_property
    def busy(self) -> Mapping[str, float]:
        """Memory level, pipe or issue slots to its busy share of the duration, over all SMs."""
        pipes = {name: self.value(f"{name}_pipe") for name in PIPES}
        found = {name: share / 100 for name, share in pipes.items() if share is not None}
        found |= {level: one.share for level, one in self.used.items()}
        if self.budget:
            found[ISSUE] = self.budget.issuing * self.budget.balance
        return found

    def next_limit(self, relieved: frozenset[str], *, spread: bool) -> tuple[str, float]:
        """The busiest resource that a change does not relieve, and its share ("" and 0 for none):
        of the busiest SM, unless the change is to ``spread`` the work evenly.
        """
        uneven = self.budget.balance if self.budget and not spread else 1.0
        busy = {
            name: share if name in SHARED_BY_ALL else min(1.0, share / uneven)
            for name, share in self.busy.items()
        }
        left = {name: share for name, share in busy.items() if name not in relieved}
        return max(left.items(), key=lambda item: item[1], default=("", 0.0))

    def excess(self, level: str) -> float | None:
        """Bytes through a level over the least that the work needs; None where not known."""
        known = self.used.get(level)
        return known.bytes / self.work.bytes if known and self.work and self.work.bytes else None

    @property
    def has_shared(self) -> bool | None:
        """Whether its blocks have shared memory of their own; None where not collected."""
        known = self.value("shared_memory")
        return known > DRIVER_KB if known is not None else None

    @property
    def path(self) -> str:
        """The instruction that did most of the tensor work; "" where there was none."""
        return max(self.paths, key=lambda name: self.paths[name], default="")

    def total(self, counter: str) -> float:
        """Of a counter, over all lines."""
        return added(self.lines.get(counter, {}).values())

    def spot(self, *counters: str) -> Spot | None:
        """The line with most of some counters, of the user's sources if possible; or None."""
        sums = totals(item for name in counters for item in self.lines.get(name, {}).items())
        known = {place: value for place, value in sums.items() if place[1] > 0 and value}
        own = {place: v for place, v in known.items() if place[0].startswith(VIRTUAL_ROOT)}
        ranked = own or known
        if not ranked:
            return None
        (file, line) = max(ranked, key=lambda place: (ranked[place], place))
        stalls = added(map(self.total, self._stalls))
        its = added(self.lines[c].get((file, line), 0.0) for c in self._stalls)
        return Spot(file, line, its / stalls if stalls else None)

    @property
    def hottest(self) -> Spot | None:
        """The line with the most stall time."""
        return self.spot(*self._stalls)

    @property
    def _stalls(self) -> list[str]:
        return [name for name in self.lines if name not in NO_STALL]


def subject(
    capture: Capture,
    known: Mapping[str, Figure] | None = None,
    ceilings: Mapping[str, float] | None = None,
    work: Work | None = None,
) -> AdvisedKernel:
    """``known`` are the capture's figures where already computed; ``ceilings`` the measured ones by
    id, in bytes/s and FLOP/s; ``work`` that of one call, where a study says it.
    """
    metrics = capture.metrics
    parts, values = duration_parts(metrics), longest(by_launch(metrics))
    done = ((op.path, values.get(op.work, 0.0)) for op in TENSOR_OPS)
    tops: dict[str, float] = {}
    for op in TENSOR_OPS:
        if peak := op_peak(values, op):
            tops[op.path] = max(tops.get(op.path, 0.0), peak)
    counted = counted_flops(metrics)
    return AdvisedKernel(
        figures=figures(metrics) if known is None else known,
        budget=budget(parts, stall_shares(metrics)) if parts else None,
        used=used(metrics, ceilings or {}),
        lines=_by_line(capture.lines),
        limiters=tuple(occupancy_limiters(metrics)),
        work=work,
        launches=len(capture.kernels),
        sms=values.get(SMS),
        paths=totals((path, work) for path, work in done if work),
        tensor_peaks=tops,
        executed=None if counted is None else added(counted.values()),
        sectors=capture.global_sectors,
    )


def _by_line(lines: ColumnTable) -> dict[str, dict[Place, float]]:
    rows = lines.rows("file", "line", "counter", "value")
    found = grouped(
        (str(counter), ((str(file), int(line)), float(value)))
        for file, line, counter, value in rows
    )
    return {counter: totals(parts) for counter, parts in found.items()}


MENTIONED = 0.05  # of the samples of several stall reasons: one below it is not named
LEAST = 0.03  # of the duration: less is not worth a step, see the gate
NAMED, ONE_WAY = 1.0, 0.5  # the evidence names the cause; it leaves several ways open


@dataclass(frozen=True)
class Limit:
    """``what`` of the stage it is (a level, a pipe, a stall reason), and its ``share`` of the
    duration. ``metric`` shows it with ``value`` in ``unit``; lines are found by ``counters``.
    ``reasons`` are the stall reasons that the share is of, the largest first.
    """

    stage: Stage
    what: str
    share: float
    metric: str
    value: float
    unit: str = ""
    counters: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Stable: ``latency.long_scoreboard``."""
        return f"{self.stage}.{self.what}" if self.what else str(self.stage)


@dataclass(frozen=True)
class Candidate:
    """``saved`` is the share of the duration that the change could take away, before the next limit
    is looked at; ``sure`` how far the evidence names this way. ``why`` says where ``saved`` comes
    from; ``relieved`` are the resources that the change asks less of.
    """

    limit: Limit
    change: Change
    saved: float
    sure: float
    why: Finding
    relieved: frozenset[str] = frozenset()


def waiting(subject: AdvisedKernel, what: str, *others: str) -> Limit:
    """Warps that wait for a reason, or for several that have one cause; named after the first. The
    metric is the sum of those that have at least ``MENTIONED`` of the samples of all.
    """
    values = {reason: subject.value(STALL + reason) or 0.0 for reason in (what, *others)}
    ranked = sorted(values, key=lambda reason: -values[reason])
    least = MENTIONED * math.fsum(values.values())
    named = [reason for reason in ranked if values[reason] > least] or [what]
    return Limit(
        stage=Stage.LATENCY,
        what=what,
        share=subject.waits(what, *others),
        metric=" + ".join(STALL_PREFIX + reason for reason in named),
        value=math.fsum(values[reason] for reason in named),
        unit="% of samples",
        counters=(what, *others),
        reasons=tuple(named),
    )
