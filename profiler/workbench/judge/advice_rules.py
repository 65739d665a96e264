"""What to try next: what limits a variant, and the kinds of change that address it. Pure.

Rules look at one captured kernel and propose candidates. At most three kinds of change are shown,
ranked by what they could bring, those that were tried on the same variant in vain last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import quantiles

from workbench.derive.factors import METRICS as TIME_METRICS
from workbench.derive.factors import SMS, TimeBudget, budget, duration_parts
from workbench.derive.figures import (
    Figure,
    added,
    figures,
    longest,
    occupancy_limiters,
    stall_label,
    stall_shares,
    totals,
)
from workbench.derive.rooflines import (
    METRICS,
    Peaks,
    Point,
    Used,
    counted_flops,
    op_peak,
    peaks,
    point,
    used,
)
from workbench.derive.source_diff import SECTORS, WAVEFRONTS
from workbench.derive.timeline import CallTimeline, LaunchTimeline
from workbench.judge.bottlenecks import NO_STALL
from workbench.judge.findings import Finding, Value, finding, number_of, percent
from workbench.ncu.capture import Capture, ColumnTable
from workbench.ncu.catalog import DRAM, L1, L2, LEVELS, STALL, STALL_PREFIX, TENSOR_OPS, catalog
from workbench.ncu.places import Place
from workbench.study.values import Work
from workbench.words import VIRTUAL_ROOT, Change, Stage, Verdict, grouped

PIPES = ("tensor", "fma", "xu", "lsu")
LEVEL_NAMES = {"dram": "DRAM", "l2": "L2", "l1": "L1"}


def resource(name: str) -> str:
    """Return what people call a level of memory or a pipe."""
    if name in PIPES:
        return f"{name.upper() if name != 'tensor' else name} pipe"
    return LEVEL_NAMES.get(name, name.replace("_", " "))


ISSUE = "issue"
SHARED_BY_ALL = (DRAM, L2)  # resources of the GPU, not of an SM
DRIVER_KB = 1.1  # of shared memory that every block has on recent GPUs without asking for any
WGMMA, MMA = "wgmma", "mma.sync"


@dataclass(frozen=True)
class Spot:
    """The line that shows a limit; ``share`` of stall samples, None if found by another counter.
    ``called_at`` is the line of the kernel's own file that calls it, where it is a helper's.
    """

    file: str
    line: int
    share: float | None
    called_at: Place | None = None


@dataclass(frozen=True, eq=False)
class AdvisedKernel:
    """One variant. What its capture lacks is not there: no figure, no budget, no level in ``used``.

    ``lines`` has a counter's value by source line. ``paths`` has the tensor FLOPs by instruction,
    ``tensor_peaks`` what each could do, in FLOP/s; ``executed`` are the FLOPs of all launches,
    ``sectors`` those of their global accesses. ``specialised``: warps trade registers, as where
    some only fetch. ``peaks`` and ``roofline`` are None where the capture lacks what they need.
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
    specialised: bool = False
    calls: Mapping[Place, Place] = field(default_factory=dict)
    timeline: CallTimeline | None = None
    peaks: Peaks | None = None
    roofline: Point | None = None

    def value(self, name: str) -> float | None:
        """Return the value of a figure; None where it was not collected."""
        figure = self.figures.get(name)
        return figure.value if figure else None

    def megabytes(self, *names: str) -> float:
        """The sum of some figures in MB; those not collected count as 0."""
        return added(self.value(name) or 0.0 for name in names)

    def waits(self, *reasons: str) -> float:
        """The share of the duration that went to some stall reasons; 0 where it is not known."""
        waits_by_reason = self.budget.waits if self.budget else {}
        return added(waits_by_reason.get(reason, 0.0) for reason in reasons)

    @cached_property
    def busy(self) -> Mapping[str, float]:
        """Memory level, pipe or issue slots to its busy share of the duration, over all SMs."""
        pipes = {name: self.value(f"{name}_pipe") for name in PIPES}
        shares = {name: share / 100 for name, share in pipes.items() if share is not None}
        shares |= {level: one.share for level, one in self.used.items()}
        if self.budget:
            shares[ISSUE] = self.budget.issuing * self.budget.balance
        return shares

    def within_next_limit(self, advice: Advice) -> Advice:
        """What the next limit leaves of an advice, with the line that shows its own: the busiest
        resource that the change does not relieve, of the busiest SM, unless the change is to spread
        the work evenly.
        """
        limit, why = advice.limit, advice.why
        uneven = self.budget.balance if self.budget and limit.stage not in SPREAD else 1.0
        left = {
            name: share if name in SHARED_BY_ALL else min(1.0, share / uneven)
            for name, share in self.busy.items()
            if name not in advice.relieved
        }
        name, share = max(left.items(), key=lambda item: item[1], default=("", 0.0))
        room, spot = max(0.0, 1 - share), self.spot(*limit.counters)
        if advice.saved > room and name and name != limit.what:
            message = f"{why.message}; {resource(name)} would be the next limit"
            why = finding(why.code, message, **why.values, next_limit=name)
        return replace(advice, saved=min(advice.saved, room), why=why, spot=spot)

    def excess(self, level: str) -> float | None:
        """Bytes through a level over the least that the work needs; None where not known."""
        use = self.used.get(level)
        return use.bytes / self.work.bytes if use and self.work and self.work.bytes else None

    @property
    def has_shared(self) -> bool | None:
        """Whether its blocks have shared memory of their own; None where not collected."""
        kilobytes = self.value("shared_memory")
        return kilobytes > DRIVER_KB if kilobytes is not None else None

    @property
    def is_bulk_fed(self) -> bool:
        """Whether most of what it reads comes by bulk copies."""
        return (self.value("bulk_read") or 0.0) > (self.value("global_read") or 0.0)

    @property
    def could_specialise(self) -> bool:
        """Whether products keep warps busy that others could fetch for."""
        return bool(self.path) and not self.specialised

    @property
    def path(self) -> str:
        """The instruction that did most of the tensor work; "" where there was none."""
        return max(self.paths, key=lambda name: self.paths[name], default="")

    def total(self, counter: str) -> float:
        """Return the sum of a counter, over all lines."""
        return added(self.lines.get(counter, {}).values())

    def spot(self, *counters: str) -> Spot | None:
        """The line with most of some counters, of the user's sources if possible; or None."""
        sums = totals(item for name in counters for item in self.lines.get(name, {}).items())
        charged = {place: value for place, value in sums.items() if place[1] > 0 and value}
        in_sources = {place: v for place, v in charged.items() if place[0].startswith(VIRTUAL_ROOT)}
        ranked = in_sources or charged
        if not ranked:
            return None
        (file, line) = max(ranked, key=lambda place: (ranked[place], place))
        stalls = added(map(self.total, self._stalls))
        its = added(self.lines[c].get((file, line), 0.0) for c in self._stalls)
        return Spot(file, line, its / stalls if stalls else None, self.calls.get((file, line)))

    @property
    def hottest(self) -> Spot | None:
        """The line with the most stall time."""
        return self.spot(*self._stalls)

    @property
    def _stalls(self) -> list[str]:
        return [name for name in self.lines if name not in NO_STALL]


def subject(
    capture: Capture,
    computed: Mapping[str, Figure] | None = None,
    ceilings: Mapping[str, float] | None = None,
    work: Work | None = None,
    timeline: CallTimeline | None = None,
    base: str = DRAM,
) -> AdvisedKernel:
    """``computed`` are the capture's figures where they are already known; ``ceilings`` the
    measured ones by id, in bytes/s and FLOP/s; ``work`` that of one call, where a study says it;
    ``base`` the level of memory that inputs come from.
    """
    lines, metrics = _by_line(capture.lines), capture.metrics
    stalls, limiters = stall_shares(metrics), tuple(occupancy_limiters(metrics))
    values = longest(metrics.by_launch)
    computed = figures(metrics) if computed is None else computed
    parts = duration_parts(metrics)
    time_budget = budget(parts, stalls) if parts else None
    done = ((op.path, values.get(op.work, 0.0)) for op in TENSOR_OPS)
    tops: dict[str, float] = {}
    for op in TENSOR_OPS:
        if peak := op_peak(values, op):
            tops[op.path] = max(tops.get(op.path, 0.0), peak)
    counted = counted_flops(metrics)
    return AdvisedKernel(
        figures=computed,
        budget=time_budget,
        used=used(metrics, ceilings or {}),
        lines=lines,
        limiters=limiters,
        work=work,
        launches=len(capture.kernels),
        sms=values.get(SMS),
        paths=totals((path, work) for path, work in done if work),
        tensor_peaks=tops,
        executed=None if counted is None else added(counted.values()),
        sectors=capture.global_sectors,
        specialised=capture.has_opcode("USETMAXREG"),
        calls=capture.calls,
        timeline=timeline,
        peaks=peaks(metrics),
        roofline=point(metrics, ceilings, base),
    )


def _by_line(lines: ColumnTable) -> dict[str, dict[Place, float]]:
    rows = lines.rows("file", "line", "counter", "value")
    rows_by_counter = grouped(
        (str(counter), ((str(file), int(line)), float(value)))
        for file, line, counter, value in rows
    )
    return {counter: totals(parts) for counter, parts in rows_by_counter.items()}


MENTIONED = 0.05  # of the samples of several stall reasons: one below it is not named
LEAST = 0.03  # of the duration: less is not worth a step, see the gate
NAMED, ONE_WAY = 1.0, 0.5  # the evidence names the cause; it leaves several ways open
CALLERS = 0.05  # nothing in the kernel can be changed for it: last, where there is anything else


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
class Tried:
    """A step that made this kind of change to the same variant in vain, at the same shape."""

    variant: str
    verdict: Verdict


@dataclass(frozen=True)
class Advice:
    """A limit, a kind of change, and the line that shows the limit. ``saved`` is the share of the
    duration under ncu that would go with it, an estimate which ranks it and is not printed:
    recorded steps gained more in 20 of 47 cases. ``next_limit`` in ``why`` decides then.

    ``sure`` is how far the evidence names this way, ``relieved`` are the resources that the change
    asks less of.
    """

    limit: Limit
    change: Change
    saved: float
    sure: float
    why: Finding
    relieved: frozenset[str] = frozenset()
    spot: Spot | None = None
    tried: tuple[Tried, ...] = ()

    @property
    def id(self) -> str:
        """Stable: ``latency.long_scoreboard/async-copy``."""
        return f"{self.limit.id}/{self.change}"

    @property
    def is_callers(self) -> bool:
        """Whether nothing in the kernel can be changed for it."""
        return self.sure == CALLERS

    @property
    def expected(self) -> float:
        """The value that ranks advice."""
        return self.saved * self.sure


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


FULL = 0.8  # of a bandwidth: what moves as many bytes has little to gain
BOUND = 0.6  # of a bandwidth, a pipe's rate, or of the issue slots
BUSY = 0.3  # of a pipe: with another as busy, the two may take turns
TURNS = 0.7  # of the time, both together
HEAVY = 0.3  # issue slots: fewer instructions are worth a look
SILENT = 0.01  # of the tensor pipe: it is not in use
RIDGE = 16  # FLOP per byte: with more, arithmetic outlasts the traffic even where it is fastest
TENSOR_TYPES = ("float16", "bfloat16", "float32", "tf32", "int8", "fp8")
ARITHMETIC = ("wait", "math_pipe_throttle", "short_scoreboard", "mio_throttle", "dispatch_stall")
PER_INSTRUCTION = ("wait", "math_pipe_throttle", "dispatch_stall")
OF_PRODUCTS = frozenset(("fma", "lsu", ISSUE, "l1"))
HALF = 0.5


def pipe_limit(subject: AdvisedKernel, pipe: str, share: float | None = None) -> Limit:
    """A pipe by how busy it was."""
    busy = subject.busy.get(pipe, 0.0)
    share = busy if share is None else share
    metric = catalog()[f"{pipe}_pipe"].names[0]
    counters = ("math_pipe_throttle", "wait", "short_scoreboard")
    return Limit(Stage.PIPE, pipe, share, metric, 100 * busy, "% of peak", counters)


def is_product(subject: AdvisedKernel) -> bool:
    """Whether the work can only be matrix products: much arithmetic, in a tensor-core type."""
    work = subject.work
    return work is not None and work.dtype in TENSOR_TYPES and intensity(subject) >= RIDGE


def intensity(subject: AdvisedKernel) -> float:
    """FLOP a byte of the work; those that were executed, where the study says none."""
    work = subject.work
    if work is None or not work.bytes:
        return 0.0
    return (work.flops or subject.executed or 0.0) / work.bytes


def _tensor(subject: AdvisedKernel) -> Iterator[Advice]:
    pipe = subject.busy.get("tensor")
    if pipe is None or subject.budget is None or not is_product(subject):
        return
    saved = subject.budget.issuing + subject.waits(*ARITHMETIC)
    if pipe < SILENT and subject.work:
        limit, single = pipe_limit(subject, "fma", saved), subject.work.dtype == "float32"
        flop_per_byte, assumed = intensity(subject), not subject.work.flops
        message = f"{flop_per_byte:.0f} FLOP a byte, none on the tensor cores"
        message += ", which take TF32, where the error allows it" if single else ""
        message += "; if these are products of matrices" if assumed else ""
        why = finding(
            "advice.no_tensor_cores",
            message,
            flop_per_byte=flop_per_byte,
            tf32=single or None,
            assumed=assumed or None,
        )
        sure = NAMED if subject.work.flops and not single else ONE_WAY
        yield Advice(limit, Change.TENSOR, saved, sure, why, OF_PRODUCTS)
    elif subject.path == MMA and WGMMA in subject.tensor_peaks:
        limit = pipe_limit(subject, "tensor", saved)
        message = (
            "mma.sync, its fragment loads and their waits, where wgmma reads shared memory itself"
        )
        why = finding("advice.mma_sync", message)
        yield Advice(limit, Change.TENSOR, saved, ONE_WAY, why, OF_PRODUCTS)


def _busy(subject: AdvisedKernel) -> Iterator[Advice]:
    """A pipe near its rate, or one that warps wait for."""
    pipes = {name: subject.busy[name] for name in PIPES if name in subject.busy}
    throttled = subject.waits("math_pipe_throttle")
    arithmetic = {name: share for name, share in pipes.items() if name != "lsu"}
    busiest = max(arithmetic, key=lambda name: arithmetic[name], default="")
    for name in pipes:
        waits = throttled if name == busiest else 0.0
        if name == "lsu":
            waits = subject.waits("lg_throttle", "mio_throttle")
        yield from _relief(subject, name, waits)


def _relief(subject: AdvisedKernel, pipe: str, waits: float) -> Iterator[Advice]:
    """``waits`` is the share of the duration in which nobody could go because of the pipe."""
    limit, relieved = pipe_limit(subject, pipe), frozenset((pipe,))
    saved = max(limit.share * HALF if limit.share >= BOUND else 0.0, waits)
    message = (
        f"the {resource(pipe)} is busy for {percent(limit.share)} of the time, and waits for it "
        f"take {percent(waits)}"
    )
    why = finding("advice.busy", message, pipe=pipe, share=limit.share, share_waited=waits)
    if pipe == "xu":
        yield Advice(limit, Change.OTHER_PIPE, saved, NAMED, why, relieved)
    elif pipe == "fma":
        yield Advice(limit, Change.LESS_WORK, saved, ONE_WAY, why, relieved | {ISSUE})
    elif pipe == "lsu":
        yield Advice(limit, Change.VECTOR, saved, ONE_WAY, why, relieved | {ISSUE, "l1"})
    else:
        yield Advice(limit, Change.OVERLAP, saved, ONE_WAY, why)
        if limit.share >= BOUND:
            yield Advice(limit, Change.NARROW, saved, ONE_WAY / 2, why, relieved)


def _turns(subject: AdvisedKernel) -> Iterator[Advice]:
    """Two pipes that are busy for most of the time together, and neither for most of it."""
    pipes = sorted(((subject.busy.get(n, 0.0), n) for n in PIPES), reverse=True)
    (most, first), (less, second) = pipes[:2]
    if less < BUSY or most >= BOUND or most + less < TURNS:
        return
    limit = pipe_limit(subject, first, most)
    message = f"{resource(first)} and {resource(second)} seem to take turns"
    why = finding("advice.turns", message, pipe=first, other_pipe=second)
    yield Advice(limit, Change.OVERLAP, 1 - most, ONE_WAY, why)


def _instructions(subject: AdvisedKernel) -> Iterator[Advice]:
    slots = subject.busy.get(ISSUE, 0.0)
    if subject.budget is None or slots < HEAVY:
        return
    busy = subject.used[DRAM].share if DRAM in subject.used else 0.0
    if busy >= FULL or slots < BOUND <= busy:
        return  # its bytes are the limit, or nearer to it
    share = subject.budget.issuing
    metric, value = "smsp__issue_active.avg.per_cycle_active", subject.value("issue_active")
    limit = Limit(Stage.ISSUE, "", share, metric, value or share, "inst/cycle", ("instructions",))
    sure = NAMED if slots >= BOUND else ONE_WAY
    message = "if every second instruction went, and what waits for it"
    why = finding("advice.half_the_instructions", message)
    relieved = frozenset((ISSUE, "fma", "lsu"))
    saved = HALF * (share + subject.waits(*PER_INSTRUCTION))
    yield Advice(limit, Change.LESS_WORK, saved, sure, why, relieved)


def _is_stream(subject: AdvisedKernel) -> bool:
    """Whether so much of DRAM's bandwidth is in use that nothing else is worth much."""
    return DRAM in subject.used and subject.used[DRAM].share >= FULL


FEW_WAVES = 8  # with more, a last wave that is not full is lost among them
MOST = 0.5  # of an imbalance that is explained by the last wave


def launch_rules(subject: AdvisedKernel) -> Iterator[Advice]:
    """Nothing where the cycles of the busiest SM were not collected."""
    if subject.budget is not None:
        yield from _head_and_tail(subject, subject.budget.head_tail)
        yield from _imbalance(subject, subject.budget)


def _head_and_tail(subject: AdvisedKernel, share: float) -> Iterator[Advice]:
    metric, unit = f"1 - {TIME_METRICS['busiest']}", "% of the duration"
    limit = Limit(Stage.LAUNCH, "", share, metric, 100 * share, unit)
    message = f"no SM works at its start and end, {percent(share)} of the duration"
    why = finding("advice.head_and_tail", message, share=share)
    if subject.launches > 1:
        yield Advice(limit, Change.FUSE, share, NAMED, why)
    else:
        yield Advice(limit, Change.EARLY, share, ONE_WAY / 2, why)
        why = finding(why.code, f"{message}; only its caller can fuse it", share=share)
        yield Advice(limit, Change.FUSE, share, CALLERS, why)


def _imbalance(subject: AdvisedKernel, budget: TimeBudget) -> Iterator[Advice]:
    share = budget.imbalance
    blocks = subject.value("grid") if subject.launches == 1 else None
    if blocks and subject.sms and blocks < subject.sms:
        limit = Limit(Stage.GRID, "", share, "launch__grid_size", blocks, "blocks")
        message = f"{blocks:.0f} blocks for {subject.sms:.0f} SMs"
        why = finding("advice.few_blocks", message, blocks=blocks, sms=subject.sms)
        yield Advice(limit, Change.SPLIT, min(share, 1 - blocks / subject.sms), NAMED, why)
        return
    waves = subject.value("waves")
    if waves and _last_wave(subject, waves, blocks) >= MOST * share:
        metric = "launch__waves_per_multiprocessor"
        limit = Limit(Stage.TAIL, "", share, metric, waves, "waves")
        why = finding("advice.last_wave", "most SMs are idle while the last wave of blocks runs")
        yield Advice(limit, Change.TAIL, share, NAMED, why)
        yield Advice(limit, Change.BALANCE, share, ONE_WAY, why)
        return
    value = 100 * budget.balance
    limit = Limit(Stage.IMBALANCE, "", share, TIME_METRICS["balance"], value, "% of the busiest SM")
    why = finding("advice.imbalance", "an average SM is done before the busiest one")
    yield Advice(limit, Change.BALANCE, share, NAMED, why)


def _last_wave(subject: AdvisedKernel, waves: float, blocks: float | None) -> float:
    """The share of slots for blocks that are empty in the last wave, if all blocks are alike; with
    less than a wave, of SMs that have one block less than the others.
    """
    rounds = waves
    if waves < 1:
        rounds = blocks / subject.sms if blocks and subject.sms else 0.0
    if not rounds or rounds > FEW_WAVES:
        return 0.0
    return 1 - rounds / math.ceil(rounds)


TWICE = 1.2  # times the least bytes: more is read or written more than once
WASTED = 0.2  # of the sectors
WIDE = ("float32", "float64", "int64")  # types that have half as wide ones
GLOBAL = ("long_scoreboard", "lg_throttle", "drain")
QUEUE = ("short_scoreboard", "mio_throttle")
SHARED = (*QUEUE, "barrier")
REFETCHED = frozenset(LEVELS)


def memory_rules(subject: AdvisedKernel) -> Iterator[Advice]:
    """Each level that is near its bandwidth, and what is lost on the way to it."""
    for level, use in subject.used.items():
        if use.share >= BOUND:
            yield from _bandwidth(subject, level, use.share)
    yield from _sectors(subject)
    yield from _conflicts(subject)
    yield from _spills(subject)
    yield from _atomics(subject)


def _bandwidth(subject: AdvisedKernel, level: str, share: float) -> Iterator[Advice]:
    measured = "measured" if subject.used[level].measured else "theoretical"
    unit = f"% of the {measured} bandwidth"
    # Of bulk copies the line would be that of a wait, which shows no access.
    counters = () if subject.is_bulk_fed else ("long_scoreboard", "lg_throttle")
    limit = Limit(Stage.MEMORY, level, share, METRICS[level], 100 * share, unit, counters)
    excess = subject.excess(level)
    again = excess is not None and excess >= TWICE
    if again and excess:
        message = f"{excess:.3g} times the bytes that the work needs"
        saved = share * (1 - 1 / excess)
        why = finding("advice.bytes_again", message, times_bytes=excess)
    else:
        saved, why = share * HALF, finding("advice.half_the_bytes", "at most half of the bytes")
    if level == DRAM and not again:
        # Its launches could keep bytes from DRAM, unless these are those of the work alone.
        is_own = subject.launches > 1 and excess is None
        who = "its launches, fused," if is_own else "only its caller can fuse it, and"
        whole = finding("advice.stays_on_gpu", f"{who} save at most half of the bytes")
        sure = ONE_WAY if is_own else CALLERS
        yield Advice(limit, Change.FUSE, saved, sure, whole, REFETCHED)
        if _is_stream(subject):
            yield from _last_of_a_stream(subject, limit)
        if subject.work and subject.work.dtype in WIDE:
            yield Advice(limit, Change.NARROW, saved, ONE_WAY / 2, why, REFETCHED)
        return
    bare = level != DRAM and subject.has_shared is False
    if bare:
        yield Advice(limit, Change.TILE_SHARED, saved, NAMED, why, REFETCHED)
    sure = NAMED if again and not bare else ONE_WAY
    yield Advice(limit, Change.REUSE, saved, sure, why, REFETCHED)


def _last_of_a_stream(subject: AdvisedKernel, limit: Limit) -> Iterator[Advice]:
    """Wide accesses reach what is left of DRAM's bandwidth, where they are not wide already."""
    if (subject.value("sectors_per_request") or math.inf) <= NARROW_LOADS:
        left = 1 - limit.share
        why = finding("advice.rest_of_bandwidth", f"{percent(left)} of DRAM's bandwidth is left")
        yield Advice(limit, Change.VECTOR, left, NAMED, why, frozenset((DRAM,)))


def _sectors(subject: AdvisedKernel) -> Iterator[Advice]:
    """Excess sectors, as far as warps wait for global memory or a level is near its bandwidth."""
    excess, sectors = subject.total(SECTORS), subject.sectors
    if not excess or not sectors:
        return
    wasted = excess / sectors
    off = [one.share for level, one in subject.used.items() if level != L1 and one.share >= BOUND]
    # Without shared memory, what waits for its queue waits behind these accesses.
    reasons = (*GLOBAL, *QUEUE) if subject.has_shared is False else GLOBAL
    share = max([subject.waits(*reasons), *off])
    if wasted < WASTED:
        return
    metric = "derived__memory_l2_theoretical_sectors_global_excessive"
    limit = Limit(Stage.MEMORY, "sectors", share, metric, excess, "sectors", (SECTORS,))
    mostly = _mostly(subject, excess, sectors)
    most_of_them = f", most of them {mostly}" if mostly else ""
    message = f"{percent(wasted)} of the sectors are more than its data needs{most_of_them}"
    why = finding("advice.wasted_sectors", message, share=wasted, mostly=mostly)
    yield Advice(limit, Change.COALESCE, wasted * share, NAMED, why, frozenset((*LEVELS, "lsu")))


def _mostly(subject: AdvisedKernel, excess: float, sectors: float) -> str | None:
    """Whether half of the excess or more is "written" or "read", as far as that is certain: each
    request needs a sector at least, so that the others of its kind bound its excess.
    """
    loads, stores = subject.value("global_load_requests"), subject.value("global_store_requests")
    if loads is None or stores is None:
        return None
    read, written = (1e6 * subject.megabytes(f"global_{way}") / 32 for way in ("read", "write"))
    read_at_most, written_at_most = read - 1e6 * loads, written - 1e6 * stores
    if excess - (sectors - written - 1e6 * loads) >= HALF * excess:
        return "written"
    return "read" if written_at_most <= HALF * excess <= read_at_most else None


def _conflicts(subject: AdvisedKernel) -> Iterator[Advice]:
    """Passes of shared memory that bank conflicts add, as far as warps wait for it."""
    share, conflicts = _conflict_share(subject), subject.value("shared_conflicts")
    if not share or not conflicts:
        return
    metric = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
    counters = (WAVEFRONTS,) if subject.total(WAVEFRONTS) else SHARED
    limit = Limit(Stage.MEMORY, "shared", share, metric, conflicts * 1e6, "conflicts", counters)
    message = f"shared memory serves conflicts for {percent(share)} of the cycles"
    why = finding("advice.bank_conflicts", message, share=share)
    saved = min(share, subject.waits(*SHARED))
    yield Advice(limit, Change.SWIZZLE, saved, NAMED, why, frozenset(("lsu",)))


def _conflict_share(subject: AdvisedKernel) -> float:
    """The share of the cycles in which shared memory serves bank conflicts; 0 if unknown."""
    conflicts, cycles = subject.value("shared_conflicts"), subject.value("cycles")
    if not conflicts or not cycles or not subject.sms:
        return 0.0
    return min(1.0, conflicts * 1e6 / subject.sms / cycles)


def _spills(subject: AdvisedKernel) -> Iterator[Advice]:
    """Registers in local memory, by their share of what threads load and store."""
    local = subject.megabytes("local_read", "local_write")
    if not local:
        return
    spilled = local / (local + subject.megabytes("global_read", "global_write"))
    metric = "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"
    waits = subject.waits(*GLOBAL)
    limit = Limit(Stage.MEMORY, "local", waits, metric, local, "MB", GLOBAL)
    message = f"{percent(spilled)} of the bytes that threads load and store are spilled registers"
    why = finding("advice.spills", message, share=spilled)
    relieved = frozenset((*LEVELS, "lsu"))
    yield Advice(limit, Change.REGISTERS, spilled * waits, NAMED, why, relieved)


def _atomics(subject: AdvisedKernel) -> Iterator[Advice]:
    """Yield what reaches L2 beside stores; nothing after bulk copies, whose stores look like
    atomics.
    """
    sent = subject.megabytes("l1_to_l2")
    atomic = sent - subject.megabytes("global_write", "local_write")
    if subject.value("bulk_read") != 0 or atomic <= WASTED * sent:
        return
    metric = "l1tex__m_l1tex2xbar_write_bytes.sum"
    waits = subject.waits("lg_throttle", "drain", "mio_throttle")
    limit = Limit(Stage.MEMORY, "atomics", waits, metric, atomic, "MB", GLOBAL)
    amount = f"{atomic:.0f}" if atomic >= 10 else f"{atomic:.2g}"
    message = f"{amount} MB of atomics reach L2: sum in registers or shared memory first"
    why = finding("advice.atomics", message, megabytes=atomic)
    yield Advice(limit, Change.REUSE, waits, NAMED, why, frozenset((*LEVELS, "lsu")))


AGAIN = 2  # times the least bytes through L1 or L2: data is read more than once
READ_BY_OTHERS = 4  # times: more passes than one thread makes, so that others read the same
NARROW_LOADS = 8  # sectors a request: less than 16 bytes a lane
FEW_WARPS = 2  # per scheduler: while one waits, hardly another can issue
ENOUGH_WARPS = 8  # per scheduler: more would not hide more
FILLED = 0.8  # of the warps that the launch allows: the limit on them binds
LEAST_WAITING = 0.2  # of the duration
COPIES = 0.01  # million requests: fewer loads by threads are not what fetches the data


def latency_rules(subject: AdvisedKernel) -> Iterator[Advice]:
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


def _global(subject: AdvisedKernel) -> Iterator[Advice]:
    """Loads from global memory, by how they are made."""
    limit = waiting(subject, "long_scoreboard", "lg_throttle", "tex_throttle")
    saved = limit.share
    again = max((subject.excess(level) or 0.0 for level in (L1, L2)), default=0.0)
    why = _waits(limit, again if again >= AGAIN else None)
    if subject.has_shared is False and again >= AGAIN:
        sure = NAMED if again >= READ_BY_OTHERS else ONE_WAY
        yield Advice(limit, Change.TILE_SHARED, saved, sure, why)
    if again >= AGAIN:
        yield Advice(limit, Change.REUSE, saved, ONE_WAY, why)
    requests = subject.value("global_load_requests")
    if requests is None or subject.has_shared is None:
        return
    if subject.is_bulk_fed:
        sure = ONE_WAY / 2 if subject.specialised else ONE_WAY
        if subject.could_specialise:
            by_tensor = NAMED if subject.path == WGMMA else ONE_WAY
            yield Advice(limit, Change.SPECIALISE, saved, by_tensor, why)
        yield Advice(limit, Change.OVERLAP, saved, sure, why)
        return
    by_threads = requests >= COPIES
    narrow = (subject.value("sectors_per_request") or 0.0) <= NARROW_LOADS
    if by_threads and subject.has_shared:
        if narrow:
            yield Advice(limit, Change.VECTOR, saved, NAMED, why)
        hopper = WGMMA in subject.tensor_peaks
        bulk = subject.path == WGMMA
        ring = ONE_WAY if bulk or narrow else NAMED
        yield Advice(limit, Change.ASYNC_COPY, saved, ring, why)
        if hopper:
            copies = waiting(subject, "long_scoreboard", "lg_throttle", "barrier")
            why = _waits(copies, with_barriers=True)
            sure = NAMED if bulk else ONE_WAY
            yield Advice(copies, Change.BULK_COPY, copies.share, sure, why)
    elif by_threads and narrow:
        yield Advice(limit, Change.VECTOR, saved, NAMED if again < READ_BY_OTHERS else ONE_WAY, why)
    else:
        yield Advice(limit, Change.OVERLAP, saved, ONE_WAY, why)


def _shared(subject: AdvisedKernel) -> Iterator[Advice]:
    limit = waiting(subject, "short_scoreboard", "mio_throttle")
    why, busy = _waits(limit), subject.busy
    if busy.get("xu", 0.0) > busy.get("lsu", 0.0):
        yield Advice(limit, Change.OTHER_PIPE, limit.share, ONE_WAY, why, frozenset(("xu",)))
    elif subject.has_shared is not False and _conflict_share(subject) < WASTED:
        relieved = frozenset(("lsu",))
        yield Advice(limit, Change.REUSE, limit.share, ONE_WAY, why, relieved)
        yield Advice(limit, Change.VECTOR, limit.share, ONE_WAY, why, relieved)


def _barriers(subject: AdvisedKernel) -> Iterator[Advice]:
    limit = waiting(subject, "barrier", "membar")
    why = _waits(limit)
    # A block that computes and fills a ring of bulk copies meets at a barrier for each tile.
    by_all = subject.is_bulk_fed and not subject.specialised
    yield Advice(limit, Change.BARRIERS, limit.share, ONE_WAY if by_all else NAMED, why)
    if subject.has_shared and subject.could_specialise:
        yield Advice(limit, Change.SPECIALISE, limit.share, NAMED if by_all else ONE_WAY, why)


# What else warps wait for, and what helps, as sure as the evidence names the cause.
OTHERS = (
    (("wait",), ((Change.OVERLAP, ONE_WAY),)),  # fixed latencies between dependent instructions
    (("dispatch_stall",), ((Change.OPERANDS, NAMED),)),  # ports that are taken
    (("gmma", "warpgroup_arrive"), ((Change.OVERLAP, NAMED), (Change.SPECIALISE, ONE_WAY))),
    (("no_instructions", "branch_resolving", "imc_miss"), ((Change.SMALLER_CODE, NAMED),)),
    (("drain",), ((Change.VECTOR, ONE_WAY),)),
)


MUCH_OF_WAIT = 0.15  # of the duration: every kernel has some


def _others(subject: AdvisedKernel) -> Iterator[Advice]:
    for reasons, changes in OTHERS:
        limit = waiting(subject, *reasons)
        if reasons == ("wait",) and limit.share < MUCH_OF_WAIT:
            continue
        for change, sure in changes:
            if change != Change.SPECIALISE or subject.could_specialise:
                yield Advice(limit, change, limit.share, sure, _waits(limit))


def _warps(subject: AdvisedKernel, budget: TimeBudget) -> Iterator[Advice]:
    """More warps, by what keeps them out: twice as many hide at most half of the waiting."""
    there, waits = subject.value("warps_per_scheduler"), budget.waiting
    if there is None or there >= ENOUGH_WARPS or waits < LEAST_WAITING:
        return
    if subject.specialised or _is_stream(subject):  # copies in flight hide it, or nothing is left
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
        yield Advice(limit, Change.SPLIT, saved, sure, why)
        return
    yield Advice(limit, Change.WARPS, saved, ONE_WAY, why)
    if "registers" in subject.limiters:
        spills = (subject.value("local_loads") or 0.0) > LEAST
        yield Advice(limit, Change.REGISTERS, saved, NAMED if spills else ONE_WAY / 2, why)


TAIL = 0.1  # of SM time, idle after an SM's last block; attention's fix7 has 0.05
FEW = 0.05  # of the blocks: where more are slow, the work is uneven
UNEVEN = 1.5  # of the lives of blocks, the ninth decile over the first
RUNS_ON = 0.2  # of a block's life, after the end of its producer
GAPS = 0.05  # of SM time, idle between two blocks of an SM
BETWEEN = 0.05  # of a call's span, in which no warp runs
SHORT_US = 1.0  # a block's life, below which the clock's steps of 32 ns are too coarse
TIMELINE = "workbench profile --timeline"


def timeline_rules(subject: AdvisedKernel) -> Iterator[Advice]:
    """The faults that its timeline shows."""
    yield from faults(subject.timeline) if subject.timeline else ()


def faults(call: CallTimeline) -> tuple[Advice, ...]:
    """Name what a timeline shows to be wrong: a tail, a slow block, an early producer, no overlap;
    the fault that costs most of SM time, or of the span of a call, first.
    """
    every = [fault for launch in call.launches for fault in _faults(launch)]
    share, count = call.between_us / call.span_us, len(call.launches)
    if share >= BETWEEN:
        message = (
            f"each of {count} launches starts when the one before has ended, and no warp runs for "
            f"{call.between_us:.3g} µs, {percent(share)} of the call"
        )
        why = finding("timeline.launches", message, share=share, launches=count)
        every.append(_fault(Stage.LAUNCH, Change.EARLY, share, why))
    return tuple(sorted(every, key=lambda fault: -fault.saved))


def _fault(stage: Stage, change: Change, share: float, why: Finding) -> Advice:
    limit = Limit(stage, "", share, TIMELINE, 100 * share, "% of the span")
    return Advice(limit, change, share, NAMED, why)


def _faults(launch: LaunchTimeline) -> Iterator[Advice]:
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
        yield _fault(Stage.LATENCY, Change.WARPS, share, why)
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
        yield _fault(Stage.LATENCY, Change.OVERLAP, share, why)


def _tail(launch: LaunchTimeline) -> Advice:
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
    return _fault(stage, change, share, why)


TOP = 3
SPREAD = (Stage.GRID, Stage.TAIL, Stage.IMBALANCE)  # lifted by spreading the work evenly
RULES: tuple[Callable[[AdvisedKernel], Iterator[Advice]], ...] = (
    launch_rules,
    memory_rules,
    _tensor,
    _busy,
    _turns,
    _instructions,
    latency_rules,
    timeline_rules,
)


def advise(subject: AdvisedKernel) -> tuple[Advice, ...] | None:
    """The best first, each kind of change once, for the limit where it brings most. Empty if
    nothing is worth a step; None without anything to judge by.
    """
    if subject.budget is None and not subject.used:
        return None
    best: dict[Change, Advice] = {}
    for rule in RULES:
        for advice in map(subject.within_next_limit, rule(subject)):
            so_far = best.get(advice.change)
            if advice.saved >= LEAST and (so_far is None or advice.expected > so_far.expected):
                best[advice.change] = advice
    return tuple(sorted(best.values(), key=lambda one: (-one.expected, one.id)))


def to_try(advice: Sequence[Advice] | None) -> tuple[Advice, ...] | None:
    """The first few, what only the caller can do and what was rejected on this variant last; None
    stays None: not collected.
    """
    if advice is None:
        return None

    def place(one: Advice) -> tuple[bool, bool, float, str]:
        return bool(one.tried), one.is_callers, -one.expected, one.id

    return tuple(sorted(advice, key=place)[:TOP])
