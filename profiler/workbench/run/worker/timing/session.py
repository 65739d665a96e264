"""One session: a process with several instances of every variant, timed in rounds.

A round is every graph of every instance once, in a new random order, the GPU never waiting.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from time import monotonic  # not of the module: with a variant's clock it would never end
from types import ModuleType

import numpy as np
import torch
from msgspec import structs

from workbench.evidence.records import STEADY_WINDOWS, Call, Series, Session
from workbench.run.machine import Gauge
from workbench.run.protocol import Round, SessionsJob
from workbench.run.worker.device import gpu_uuid
from workbench.run.worker.event_log import BESIDE_HINT
from workbench.run.worker.loader import Loader
from workbench.run.worker.timing.instances import (
    AMONG_OTHERS,
    SLOW_CALL,
    Instance,
    NotTimed,
    SessionSetup,
)
from workbench.run.worker.timing.neighbours import (
    SLOTS,
    Neighbours,
    TimedGpu,
    Times,
    put_back_l2,
    set_aside_l2,
    switch_contexts,
)
from workbench.words import HEADLINE, IN_TURN, Regime

MEMORY_USED = 0.8  # of the free memory that instances may take
CONTEXT_BYTES = 1 << 29  # that the context of ``switch_contexts`` may take
# A GPU that runs into its power limit needs about a second to settle. It is warm when the clock of
# a stretch of rounds is that of the stretch before, within 1 %.
STEADY_WITHIN = 0.01
STRETCH_SECONDS = 0.5
POWER_SECONDS = 1.0
LONG_MICROSECONDS = 40.0  # shorter calls draw less power, since launches take part of the time
LONGEST_WARM_UP_SECONDS = 4.0
SHORT_WARM_UP_SECONDS = 0.1  # of short calls, for what is loaded at the first replays
# One has marked graphs, the next none: to launch one again while it runs would wait for it, and
# nobody would tell who is at work.
WARM_UP_ROUNDS = -2, -1
LONG_ROUND_SECONDS, FEWEST_ROUNDS = 1.0, 4  # more rounds do not narrow the interval of sessions
POWER = "power"  # in the names of NVML's reasons for a lower clock
REFERENCES_ALONE, STEPS_ALONE = 2, 3  # the fastest: each costs up to 3 s
# How many rounds to one: verdicts rest on chained times, so that the others have half the rounds.
EVERY = {Regime.CHAINED: 1, Regime.BACK_TO_BACK: 2, Regime.COLD: 2}
SLOW_ROUNDS = (0, 1)  # in which those take part whose calls are slow
# One round runs while the next is queued. A GPU at its power limit recovers while it waits: after
# 1 ms without work, a call of 1.6 ms takes 10 % less (docs/measuring.md, "A referee").
QUEUED = 2
# A stream takes about a thousand launches. One more waits in the driver, where nobody can tell who
# hangs: so longer rounds are queued and read in parts.
MOST_QUEUED = 400
GRAPHS = len(IN_TURN)  # of an instance at most, in a round
MOST_INSTANCES = SLOTS // (QUEUED * GRAPHS)
# Of a kernel alone: a GPU needs about a second to settle at its power limit, which is five windows.
# Cycles of a kernel agree within 0.6 % alone and in turn, so that the means of windows are asked to
# agree within about as much.
WINDOW_SECONDS, LONGEST_ALONE_SECONDS = 0.2, 3.0
FIRST_REPLAYS, MOST_REPLAYS = 8, SLOTS // 8  # of a window: the first tells how many fill one
SETTLED_WITHIN = 0.005


class TimingProcess:
    """This process times a job's variants.

    It calls ``fail`` for those that cannot be timed, ``current`` with who is at work, and ``heard``
    with its progress.
    """

    def __init__(
        self,
        job: SessionsJob,
        study: ModuleType,
        loader: Loader,
        fail: Callable[[str, BaseException], None],
        current: Callable[[str], None] = lambda name: None,
        heard: Callable[[Round], None] = lambda progress: None,
        *,
        cool: bool = False,
    ) -> None:
        """``cool``: the last session of these variants never ran into the power limit."""
        self.job, self.cool = job, cool
        self.fail, self.current, self.heard = fail, current, heard
        self.wanted = job.rounds
        self.round = Round(session=0, alone=False, number=0, rounds=job.rounds)
        gpu = TimedGpu()
        inputs = Neighbours(gpu, study, study.shapes[job.shape])
        self.setup = SessionSetup(gpu, loader, inputs, job.graph_microseconds)
        self.instances: list[Instance] = []
        self.out: set[str] = set()
        self.calls: dict[str, list[Call]] = {}  # the nodes of one, of each instance
        self.gauge = Gauge(gpu_uuid())
        self.throttled: list[bool] = []
        self.reasons: set[str] = set()
        self.set_aside = set_aside_l2()

    def session(self, number: int, variants: Sequence[str], alone: bool) -> Session:
        self.round = structs.replace(self.round, session=number, alone=alone)
        made = self.build(variants)
        setup = self.setup
        rounds = Rounds(setup.gpu, self.instances, setup.with_neighbours, self.tell)
        if self.instances:
            switch_contexts()
            self.warm_up(rounds)
            self.rounds(rounds)
        if any(POWER in reason.lower() for reason in self.reasons) and not alone:
            # The clock in turn depends on who else runs: those that count are timed alone, too.
            self.round = structs.replace(self.round, kernel_alone=True)
            places = self.counting(rounds)
            for place in random.sample(places, len(places)):
                rounds.alone(place)
        load = self.gauge.load()
        return Session(
            number=number,
            instances=made,
            series=series_of(rounds, self.instances),
            alone=alone,
            temperature_c=load.temperature_c,
            throttled=sum(self.throttled) / len(self.throttled) if self.throttled else None,
            reasons=tuple(sorted(self.reasons)),
        )

    # ---- building ----------------------------------------------------------------------------
    def build(self, variants: Sequence[str]) -> int:
        """Build as many instances of each group as memory allows, and return their number."""
        groups = [(name, False) for name in variants]
        groups += [(name, True) for name in variants if name in self.job.controls]
        call_times: dict[str, float] = {}
        _room = torch.empty(CONTEXT_BYTES, dtype=torch.uint8, device="cuda")  # until all are built
        free = torch.cuda.mem_get_info()[0]
        most = min(self.job.instances, max(1, MOST_INSTANCES // len(groups)))
        for layer in range(most):
            for name, control in random.sample(groups, len(groups)):
                slow = call_times.get(name, 0.0) > SLOW_CALL and layer > 0
                if name not in self.out and not slow:
                    self.one(name, call_times, control=control)
            used = free - torch.cuda.mem_get_info()[0]
            if used * (layer + 2) / (layer + 1) > MEMORY_USED * free:
                return layer + 1
        return most

    def one(self, name: str, call_times: dict[str, float], *, control: bool) -> None:
        """A variant that has an instance stays if there is no memory for another."""
        self.current(name)
        try:
            instance = Instance(self.setup, name, call_times.get(name, 0.0), control=control)
            nodes = instance.nodes
            if not instance.unchecked:
                self.calls.setdefault(name, []).append(nodes)
            instance.require_nodes()
            self.require_l2()
        except BaseException as error:  # users' code may also exit
            if name not in call_times or not isinstance(error, torch.cuda.OutOfMemoryError):
                self.out.add(name)
                self.instances = [one for one in self.instances if one.variant != name]
                self.fail(name, error)
        else:
            call_times[name] = instance.each
            self.instances.append(instance)
        self.current("")

    def require_l2(self) -> None:
        """All share a context: who sets a part of its L2 aside takes it from the others."""
        if (size := put_back_l2(self.set_aside)) != self.set_aside:
            raise NotTimed(
                f"sets {size} bytes aside as persisting L2 cache, which the others miss",
                hint=BESIDE_HINT,
            )

    # ---- timing ------------------------------------------------------------------------------
    def warm_up(self, rounds: Rounds) -> None:
        """Run rounds until the clock no longer falls, if calls are long enough to lower it."""
        call_microseconds = median(one.each for one in self.instances)
        long = call_microseconds > LONG_MICROSECONDS and not self.cool
        least = POWER_SECONDS if long else SHORT_WARM_UP_SECONDS
        began = monotonic()
        before = 0.0
        while (passed := monotonic() - began) < LONGEST_WARM_UP_SECONDS:
            rounds.clock.clear()
            stretch = monotonic() + (STRETCH_SECONDS if long else SHORT_WARM_UP_SECONDS)
            while True:
                for number in WARM_UP_ROUNDS:
                    rounds.run(number)
                if monotonic() > stretch:
                    break
            now = sum(rounds.clock) / len(rounds.clock) if rounds.clock else 0.0
            if passed >= least and abs(now - before) < STEADY_WITHIN * now:
                return
            before = now

    def rounds(self, rounds: Rounds) -> None:
        number = 0
        while number < self.wanted:
            rounds.run(number)
            load = self.gauge.load()
            if load.throttled is not None:
                self.throttled.append(load.throttled)
                self.reasons.update(load.reasons)
            number += 1
            if number > 2 and rounds.seconds > LONG_ROUND_SECONDS:
                self.wanted = min(self.wanted, FEWEST_ROUNDS)
        rounds.finish()

    def tell(self, number: int, instance: int | None) -> None:
        """Report progress once a round, and again with the variant at work in a long one."""
        variant = "" if instance is None else self.instances[instance].variant
        now = structs.replace(self.round, number=number, rounds=self.wanted, variant=variant)
        if now != self.round or variant:
            self.round = now
            self.heard(now)

    def counting(self, rounds: Rounds) -> list[int]:
        """An instance of the primary reference, of the fastest others, of the fastest steps in turn
        and of the last step; in the first sessions of the same variants.
        """
        first: dict[str, int] = {}
        for place, instance in enumerate(self.instances):
            if not instance.control and not instance.unchecked:
                first.setdefault(instance.variant, place)
        fastest = sorted(
            first, key=lambda name: median(rounds.columns[first[name], HEADLINE].microseconds)
        )
        references = [name for name in fastest if name in self.job.references]
        steps = [name for name in fastest if name not in self.job.references]
        primary = [name for name in references if name in self.job.controls]
        last = [name for name in self.job.params if name in steps][-1:]
        names = (*primary, *references[:REFERENCES_ALONE], *steps[:STEPS_ALONE], *last)
        if self.job.kernels_alone and self.round.session < self.job.sessions:
            names = self.job.kernels_alone
        return [first[name] for name in dict.fromkeys(names) if name in first]


@dataclass(frozen=True)
class Replayed:
    """One replay: of which instance, what, and in which round."""

    instance: int
    regime: Regime
    round: int


@dataclass
class Column:
    """A column has, by round, µs of a call and between two stamps, and SM clocks in MHz."""

    microseconds: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    mhz: list[float] = field(default_factory=list)


def order_of(instances: Sequence[int], number: int) -> list[Replayed]:
    """A round: instances in random order, and of each its graphs."""
    regimes = [regime for regime, every in EVERY.items() if number % every == 0]
    return [
        Replayed(instance, regime, number)
        for instance in random.sample(instances, len(instances))
        for regime in random.sample(regimes, len(regimes))
    ]


class Rounds:
    """The next round is queued before the stamps of the last are read."""

    def __init__(
        self,
        gpu: TimedGpu,
        instances: Sequence[Instance],
        with_neighbours: Sequence[Regime] = AMONG_OTHERS,
        tell: Callable[[int, int | None], None] = lambda number, instance: None,
    ) -> None:
        """``tell`` is given the number of the round that is waited for and, where it is a long
        one, the instance at work in it.
        """
        self.gpu, self.with_neighbours, self.tell = gpu, with_neighbours, tell
        self.instances = instances
        self.queued: list[tuple[list[Replayed], int, torch.Tensor, torch.cuda.Event, bool]] = []
        self.columns: dict[tuple[int, Regime], Column] = defaultdict(Column)
        self.clock: list[float] = []  # MHz, the mean of each round
        self.seconds = 0.0  # on the GPU, in the last round that was read
        self.part = 0.0  # of a round that is not read to its end

    def run(self, number: int) -> None:
        """Queue a round. Those below zero only warm up."""
        slow = number in SLOW_ROUNDS
        taking_part = [i for i, one in enumerate(self.instances) if slow or not one.is_slow]
        order = order_of(taking_part or range(len(self.instances)), number)
        size = math.ceil(len(order) / math.ceil(len(order) / MOST_QUEUED))
        for first in range(0, len(order), size):
            self.queue(order[first : first + size])

    def alone(self, instance: int) -> None:
        """Replay its chained graph and no other, in windows, until their times have settled."""
        replayed, column = (
            Replayed(instance, Regime.CHAINED, 0),
            self.columns[instance, Regime.ALONE],
        )
        first, began = 1 if self.instances[instance].is_slow else FIRST_REPLAYS, monotonic()
        self.queue([replayed] * first, window=True)
        self.finish()
        seconds_each = (monotonic() - began) / first
        replays = max(1, min(MOST_REPLAYS, round(WINDOW_SECONDS / seconds_each)))
        end = began + LONGEST_ALONE_SECONDS
        while not is_settled(column.microseconds[1:]) and monotonic() < end:
            self.queue([replayed] * replays, window=True)
        self.finish()

    def queue(self, order: list[Replayed], window: bool = False) -> None:
        """``window``: all are of one instance, and have one mean."""
        for replayed in order:
            self.instances[replayed.instance].replay(replayed.regime)
        fetched = self.gpu.fetch(len(order))
        done = torch.cuda.Event()
        done.record()
        first = self.gpu.replays - len(order) + 1
        self.queued.append((order, first, fetched, done, window))
        if len(self.queued) == QUEUED:
            self.read()

    def read(self) -> None:
        order, first, fetched, done, window = self.queued.pop(0)
        number = order[0].round

        def look(replay: int) -> None:
            place = min(max(replay - first, 0), len(order) - 1)
            self.tell(number, order[place].instance)

        self.tell(number, order[0].instance if window else None)
        self.gpu.wait(done, look)
        times = self.gpu.times(fetched)
        self.take_window(order, times) if window else self.take(order, times)

    def take_window(self, order: Sequence[Replayed], times: Times) -> None:
        instance = order[0].instance
        calls = len(order) * self.instances[instance].calls[Regime.CHAINED]
        column, nanoseconds = self.columns[instance, Regime.ALONE], float(times.calls.sum())
        column.microseconds.append(max(0.0, round(nanoseconds / calls / 1e3, 4)))
        column.mhz.append(float(times.cycles_of_calls.sum()) / nanoseconds * 1e3)

    def take(self, order: Sequence[Replayed], times: Times) -> None:
        self.clock.append(float(times.cycles.sum() / times.nanoseconds.sum() * 1e3))
        self.part += float(times.nanoseconds.sum()) * 1e-9
        if not (self.queued and self.queued[0][0][0].round == order[0].round):
            self.seconds, self.part = self.part, 0.0
        for index, replayed in enumerate(order):
            if replayed.round < 0:
                continue
            column = self.columns[replayed.instance, replayed.regime]
            calls = 1e3 * self.instances[replayed.instance].calls[replayed.regime]
            nanoseconds, cycles = times.nanoseconds[index], times.cycles[index]
            if replayed.regime in self.with_neighbours:
                nanoseconds, cycles = times.calls[index], times.cycles_of_calls[index]
                column.gaps.append(float(times.gaps[index]) / calls)
            # Below zero where another process had the GPU between two stamps with nothing between.
            column.microseconds.append(max(0.0, round(float(nanoseconds) / calls, 4)))
            column.mhz.append(float(cycles / nanoseconds * 1e3))

    def finish(self) -> None:
        while self.queued:
            self.read()


def is_settled(microseconds: Sequence[float]) -> bool:
    """Whether the last STEADY_WINDOWS take as long as those before them."""
    last = microseconds[-STEADY_WINDOWS:]
    before = microseconds[-2 * STEADY_WINDOWS : -STEADY_WINDOWS]
    if len(before) < STEADY_WINDOWS:
        return False
    return abs(fmean(last) - fmean(before)) <= SETTLED_WITHIN * fmean(last)


def series_of(rounds: Rounds, instances: Sequence[Instance]) -> tuple[Series, ...]:
    """Return what was timed, with the instances of each group numbered from 0."""
    numbers: dict[tuple[str, bool], int] = defaultdict(int)
    recorded = []
    for index, instance in enumerate(instances):
        number = numbers[instance.variant, instance.control]
        numbers[instance.variant, instance.control] += 1
        for regime in Regime:
            column = rounds.columns[index, regime]
            if not column.microseconds:
                continue
            recorded.append(
                Series(
                    variant=instance.variant,
                    control=instance.control,
                    instance=number,
                    regime=regime,
                    calls=instance.calls[Regime.CHAINED if regime == Regime.ALONE else regime],
                    microseconds=tuple(column.microseconds),
                    unchecked=instance.unchecked,
                    refused_at=instance.refused_at,
                    gap=round(median(column.gaps), 4) if column.gaps else None,
                    # One below zero becomes zero, as in ``take``.
                    mhz=tuple(max(0.0, float(np.round(mhz, 1))) for mhz in column.mhz),
                )
            )
    return tuple(recorded)
