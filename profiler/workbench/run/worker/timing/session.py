"""One session: a process with several instances of every variant, timed in rounds.

A round is every graph of every instance once, in a new random order, the GPU never waiting.
"""

from __future__ import annotations

import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from types import ModuleType
from typing import Protocol

import numpy as np
import torch
from msgspec import structs

from workbench.evidence.timing import Audit, Call, Series, Session
from workbench.run.gpu import Gauge
from workbench.run.protocol import Round, SessionsJob
from workbench.run.worker.deviation import compare
from workbench.run.worker.device import gpu_uuid
from workbench.run.worker.guard import Guard
from workbench.run.worker.output import expected_of, paired, refuse_kind
from workbench.run.worker.timing.instances import (
    AMONG_OTHERS,
    SLOW_CALL,
    Around,
    Group,
    Instance,
    Loader,
    SummedCall,
)
from workbench.run.worker.timing.neighbours import KINDS, Neighbours, signed_sum
from workbench.run.worker.timing.timed_gpu import (
    SLOTS,
    EmptyCalls,
    TimedGpu,
    Times,
    switch_contexts,
)
from workbench.study.model import Tolerance, tolerance_at
from workbench.words import Regime

MEMORY_USED = 0.8  # of the free memory that instances may take
STEADY_WITHIN = 0.01  # the clock of a stretch of rounds and of the stretch before it
STRETCH_SECONDS = 0.5
POWER_SECONDS = 1.0  # a GPU that runs into its power limit needs so long to settle
LONG_MICROSECONDS = 40.0  # calls from which on it may
LONGEST_WARM_UP_SECONDS = 4.0
SHORT_WARM_UP_SECONDS = 0.1
# One has marked graphs, the next none: to launch one again while it runs would wait for it, and
# nobody would tell who is at work.
WARM_UP_ROUNDS = -2, -1
LONG_ROUND_SECONDS, FEWEST_ROUNDS = 1.0, 4
LOOKS = 2  # at an instance
SIGMAS = 6  # of the sum of many errors with random signs
ROUNDING = 1e-9  # of such a sum, of its norm
AUDIT_SECONDS = 1.5  # after which no further output is audited


class TimingProcess:
    """Of a job's variants in this process; those that cannot be timed go to ``fail``, and how
    far it is to ``heard``.
    """

    CHANGING = ("round", "wanted", "instances", "out", "calls", "throttled", "reasons")

    def __init__(
        self,
        job: SessionsJob,
        study: ModuleType,
        loader: Loader,
        guard: Guard,
        fail: Callable[[str, BaseException], None],
        current: Callable[[str], None],
        heard: Callable[[Round], None],
        sent: Callable[[tuple[int, str, float]], None] = lambda sample: None,
    ) -> None:
        self.job, self.study = job, study
        self.shape = study.shapes[job.shape]
        self.guard, self.fail, self.current, self.heard = guard, fail, current, heard
        self.sent = sent
        self.wanted = job.rounds
        self.round = Round(session=0, alone=False, number=0, rounds=job.rounds)
        gpu = TimedGpu()
        inputs = Neighbours(gpu, study, self.shape)
        self.around = Around(gpu, loader, inputs, job.graph_microseconds)
        self.instances: list[Instance] = []
        self.out: set[str] = set()
        self.calls: dict[str, list[Call]] = {}  # the nodes of one, of each instance
        self.gauge = Gauge(gpu_uuid())
        self.throttled: list[bool] = []
        self.reasons: set[str] = set()
        self.guard.integrity.protect(self, gpu, self.around, inputs)

    def session(self, number: int, variants: Sequence[str], alone: bool) -> Session:
        self.round = structs.replace(self.round, session=number, alone=alone)
        made = self.build(variants)
        around = self.around
        rounds = Rounds(around.gpu, self.instances, around.with_neighbours, self.tell, self.sent)
        if self.instances:
            kinds = {one.parts for one in self.instances if one.parts}
            empty = {parts: EmptyCalls(self.around.gpu, parts) for parts in kinds}
            switch_contexts()
            offsets = {parts: calls.offset() for parts, calls in empty.items()}
            for one in self.instances:
                one.offset = offsets.get(one.parts, 0.0)
            self.warm_up(rounds)
            self.rounds(rounds)
        self.guard.require_whole()
        self.around.inputs.renew()
        audits = tuple(self.audits(number))
        load = self.gauge.load()
        return Session(
            number=number,
            instances=made,
            series=series_of(rounds, self.instances),
            audits=audits,
            alone=alone,
            temperature_c=load.temperature_c,
            throttled=sum(self.throttled) / len(self.throttled) if self.throttled else None,
            reasons=tuple(sorted(self.reasons)),
        )

    # ---- building ----------------------------------------------------------------------------
    def build(self, variants: Sequence[str]) -> int:
        """As many instances of each as there is memory for; how many that is."""
        groups = [Group(name) for name in variants]
        groups += [Group(name, control=True) for name in variants if name in self.job.controls]
        each: dict[str, float] = {}
        free = torch.cuda.mem_get_info()[0]
        most = min(self.job.instances, max(1, MOST_INSTANCES // len(groups)))
        for layer in range(most):
            for group in random.sample(groups, len(groups)):
                slow = each.get(group.variant, 0.0) > SLOW_CALL and layer > 0
                if group.variant not in self.out and not slow:
                    self.one(group, each)
            used = free - torch.cuda.mem_get_info()[0]
            if used * (layer + 2) / (layer + 1) > MEMORY_USED * free:
                return layer + 1
        return most

    def one(self, group: Group, each: dict[str, float]) -> None:
        name = group.variant
        self.current(name)
        try:
            with self.guard.watching(name):
                instance = Instance(self.around, group, each.get(name, 0.0))
                nodes = instance.nodes
                if not instance.unchecked:
                    self.calls.setdefault(name, []).append(nodes)
            instance.require_nodes()
            self.guard.integrity.protect(instance)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # users' code may also exit
            self.drop(name, error)
            return
        each[name] = instance.each
        self.instances.append(instance)
        self.current("")

    def drop(self, name: str, error: BaseException) -> None:
        self.out.add(name)
        self.guard.integrity.release(one for one in self.instances if one.group.variant == name)
        self.instances = [one for one in self.instances if one.group.variant != name]
        self.fail(name, error)
        self.current("")

    # ---- timing ------------------------------------------------------------------------------
    def warm_up(self, rounds: Rounds) -> None:
        """Until the clock no longer falls, where calls are long enough for it to fall."""
        long = median(one.each for one in self.instances) > LONG_MICROSECONDS
        least = POWER_SECONDS if long else SHORT_WARM_UP_SECONDS
        began = time.monotonic()
        before = 0.0
        while (passed := time.monotonic() - began) < LONGEST_WARM_UP_SECONDS:
            rounds.clock.clear()
            stretch = time.monotonic() + (STRETCH_SECONDS if long else SHORT_WARM_UP_SECONDS)
            while True:
                for number in WARM_UP_ROUNDS:
                    rounds.run(number)
                if time.monotonic() > stretch:
                    break
            now = sum(rounds.clock) / len(rounds.clock) if rounds.clock else 0.0
            if passed >= least and abs(now - before) < STEADY_WITHIN * now:
                return
            before = now

    def rounds(self, rounds: Rounds) -> None:
        number = 0
        while number < self.wanted:
            rounds.run(number)
            self.note_throttling()
            number += 1
            if number > 2 and rounds.seconds > LONG_ROUND_SECONDS:
                self.wanted = min(self.wanted, FEWEST_ROUNDS)
        rounds.finish()

    def tell(self, number: int, instance: int | None) -> None:
        """Once a round, and again with who is at work in a long one."""
        variant = "" if instance is None else self.instances[instance].group.variant
        now = structs.replace(self.round, number=number, rounds=self.wanted, variant=variant)
        if now != self.round or variant:
            self.round = now
            self.heard(now)

    def note_throttling(self) -> None:
        load = self.gauge.load()
        if load.throttled is not None:
            self.throttled.append(load.throttled)
            self.reasons.update(load.reasons)

    # ---- auditing ----------------------------------------------------------------------------
    def audits(self, number: int) -> Iterator[Audit]:
        """Of as many kept outputs as there is time and memory for, one of every variant before the
        second of any. Each session begins with another variant, and takes so many whatever the
        time that all sessions together have looked at everyone.

        Of each instance the output that is kept is compared, and the sums of a call that is drawn
        when all have run.
        """
        by_variant: dict[str, list[Callable[[], tuple[float, str]]]] = {}
        bound = tolerance_at(self.study.tolerance, self.shape)
        for one in random.sample(self.instances, len(self.instances)):
            drawn = None if self.around.inputs.constant else one.any_call()
            by_variant.setdefault(one.group.variant, []).extend(
                (partial(self.audit, one, bound), partial(self.audit_sums, one, drawn, bound))
            )
        sessions = self.job.sessions
        first = number % sessions * len(by_variant) // sessions
        due = math.ceil(len(by_variant) / sessions)
        names = sorted(by_variant)
        order = [*names[first:], *names[:first]]
        found: dict[str, list[tuple[float, str]]] = {}
        end = time.monotonic() + AUDIT_SECONDS
        for turn in range(max(map(len, by_variant.values()), default=0)):
            for place, name in enumerate(order):
                is_due = turn < LOOKS and place < due
                if turn < len(by_variant[name]) and (is_due or time.monotonic() < end):
                    with suppress(torch.cuda.OutOfMemoryError):  # of the reference, beside them all
                        found.setdefault(name, []).append(by_variant[name][turn]())
        for name, results in found.items():
            worst = max(relative for relative, _ in results)
            yield Audit(
                variant=name,
                outputs=len(results),
                relative=worst if math.isfinite(worst) else None,
                why=next((why for _, why in results if why), ""),
            )

    def audit(self, instance: Instance, bound: Tolerance) -> tuple[float, str]:
        """The relative error of its kept output, and what is wrong with it or with its inputs."""
        inputs = instance.inputs_of_kept()
        expected, found = expected_of(self.study.reference(**inputs)), instance.found
        relative, wrong = 0.0, ""
        for name, (mine, its) in paired(found, expected).items():
            out, wanted = found.tensors[mine], expected.tensors[its]
            one, why = math.nan, refuse_kind(out, wanted)
            if not why:
                _, one, why = compare(out, wanted, bound)
            relative = relative if math.isnan(relative) or one <= relative else one
            wrong = wrong or (f"'{name}': {why}" if name and why else why)
        del inputs, expected, wanted
        changed = instance.changed_input()
        why = f"the output of a timed call: {wrong}" if wrong else ""
        return relative, why or (changed and f"changes its input '{changed}' in a timed call")

    def audit_sums(
        self, instance: Instance, drawn: SummedCall | None, bound: Tolerance
    ) -> tuple[float, str]:
        """As ``audit``, of a call that looked like any other while it ran. Signs have no part in
        errors, so that errors within the bound add up to SIGMAS times it by no chance.
        """
        drawn = drawn or instance.any_call()
        inputs = self.around.inputs.written(drawn.replay, drawn.call)
        expected = expected_of(self.study.reference(**inputs))
        for mine, its in paired(instance.found, expected).values():
            like = instance.kept[mine]
            if mine not in drawn.sums or like.dtype not in KINDS:
                continue
            wanted, norm = signed_sum(expected.tensors[its], like)
            if math.isfinite(wanted) and norm:
                error = abs(drawn.sums[mine] - wanted) / norm
                if not error <= SIGMAS * bound.relative + ROUNDING:
                    what = f"'{mine}': " if mine else ""
                    return math.nan, (
                        f"the output of a timed call: {what}by its signed sum the error is "
                        f"{error:.3g} of its norm (allowed {SIGMAS * bound.relative:.3g})"
                    )
        return 0.0, ""


EVERY = {Regime.CHAINED: 1, Regime.BACK_TO_BACK: 2, Regime.COLD: 2}  # how many rounds to one
SLOW_ROUNDS = (0, 1)  # in which those take part whose calls are slow
QUEUED = 2
GRAPHS = len(Regime) + 1  # of an instance at most, in a round
MOST_INSTANCES = SLOTS // (QUEUED * GRAPHS)


class Timed(Protocol):
    """What ``Rounds`` needs of an instance."""

    calls: dict[Regime, int]

    @property
    def is_slow(self) -> bool: ...

    @property
    def by_events(self) -> float: ...

    def replay(self, regime: Regime) -> None: ...

    def replay_marked(self) -> None: ...


@dataclass(frozen=True)
class Replayed:
    """One replay: of which instance, what, and in which round; ``marked``: by the second clock."""

    instance: int
    regime: Regime
    round: int
    marked: bool = False


@dataclass
class Column:
    """By round: microseconds of a call, those between two stamps, and SM clocks in MHz."""

    microseconds: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    mhz: list[float] = field(default_factory=list)
    by_events: list[float] = field(default_factory=list)


def order_of(instances: Sequence[int], number: int) -> list[Replayed]:
    """A round: instances in random order, and of each its graphs. Events of a round are read before
    the next but one, so that those have the second clock.
    """
    graphs = [(regime, False) for regime, every in EVERY.items() if number % every == 0]
    graphs += [(Regime.CHAINED, True)] * (number % QUEUED == 0)
    return [
        Replayed(instance, regime, number, marked)
        for instance in random.sample(instances, len(instances))
        for regime, marked in random.sample(graphs, len(graphs))
    ]


class Rounds:
    """The next round is queued before the stamps of the last are read."""

    def __init__(
        self,
        gpu: TimedGpu,
        instances: Sequence[Timed],
        with_neighbours: Sequence[Regime] = AMONG_OTHERS,
        tell: Callable[[int, int | None], None] = lambda number, instance: None,
        sent: Callable[[tuple[int, str, float]], None] = lambda sample: None,
    ) -> None:
        """``tell`` is given the number of the round that is waited for and, where it is a long
        one, the instance at work in it; ``sent`` each time as it is read: of which instance, in
        which regime, and microseconds.
        """
        self.sent = sent
        self.gpu, self.with_neighbours, self.tell = gpu, with_neighbours, tell
        self.instances = instances
        self.queued: list[tuple[list[Replayed], int, torch.Tensor, torch.cuda.Event]] = []
        self.columns: dict[tuple[int, Regime], Column] = defaultdict(Column)
        self.clock: list[float] = []  # MHz, the mean of each round
        self.seconds = 0.0  # on the GPU, in the last round that was read

    def run(self, number: int) -> None:
        """Queue a round. Those below zero only warm up."""
        slow = number in SLOW_ROUNDS
        taking_part = [i for i, one in enumerate(self.instances) if slow or not one.is_slow]
        order = order_of(taking_part or range(len(self.instances)), number)
        for one in order:
            instance = self.instances[one.instance]
            instance.replay_marked() if one.marked else instance.replay(one.regime)
        pinned = self.gpu.pinned(len(order))
        self.gpu.fetch(pinned)
        done = torch.cuda.Event()
        done.record()
        first = self.gpu.replays - len(order) + 1
        self.queued.append((order, first, pinned, done))
        if len(self.queued) == QUEUED:
            self.read()

    def read(self) -> None:
        order, first, pinned, done = self.queued.pop(0)
        number = order[0].round

        def look(replay: int) -> None:
            place = min(max(replay - first, 0), len(order) - 1)
            self.tell(number, order[place].instance)

        self.tell(number, None)
        self.gpu.wait(done, look)
        self.take(order, self.gpu.times(pinned))

    def take(self, order: Sequence[Replayed], times: Times) -> None:
        self.clock.append(float(times.cycles.sum() / times.nanoseconds.sum() * 1e3))
        self.seconds = float(times.nanoseconds.sum()) * 1e-9
        for at, one in enumerate(order):
            if one.round < 0:
                continue
            column = self.columns[one.instance, one.regime]
            if one.marked:
                column.by_events.append(self.instances[one.instance].by_events)
                continue
            each = 1e3 * self.instances[one.instance].calls[one.regime]
            nanoseconds, cycles = times.nanoseconds[at], times.cycles[at]
            if one.regime in self.with_neighbours:
                nanoseconds, cycles = times.calls[at], times.cycles_of_calls[at]
                column.gaps.append(float(times.gaps[at]) / each)
            # Below zero where another process had the GPU between two stamps with nothing between.
            column.microseconds.append(max(0.0, round(float(nanoseconds) / each, 4)))
            self.sent((one.instance, one.regime.value, column.microseconds[-1]))
            column.mhz.append(float(cycles / nanoseconds * 1e3))

    def finish(self) -> None:
        while self.queued:
            self.read()


def series_of(rounds: Rounds, instances: Sequence[Instance]) -> tuple[Series, ...]:
    """What was timed, with the instances of each group numbered from 0."""
    numbers: dict[tuple[str, bool], int] = defaultdict(int)
    found = []
    for at, instance in enumerate(instances):
        group = instance.group
        number = numbers[group.variant, group.control]
        numbers[group.variant, group.control] += 1
        for regime in Regime:
            column = rounds.columns[at, regime]
            if not column.microseconds:
                continue
            found.append(
                Series(
                    variant=group.variant,
                    control=group.control,
                    instance=number,
                    regime=regime,
                    calls=instance.calls[regime],
                    microseconds=tuple(column.microseconds),
                    by_events=_rounded(column.by_events, 4),
                    unchecked=instance.unchecked,
                    refused_at=instance.refused_at,
                    gap=round(median(column.gaps), 4) if column.gaps else None,
                    mhz=_rounded(column.mhz, 1),
                )
            )
    return tuple(found)


def _rounded(values: Sequence[float], digits: int) -> tuple[float, ...]:
    """None is below zero: see ``take``."""
    return tuple(max(0.0, float(np.round(value, digits))) for value in values)
