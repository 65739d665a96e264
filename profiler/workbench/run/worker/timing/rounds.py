"""Rounds of a session: every graph of every instance once, and one kernel alone."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from time import monotonic

import numpy as np
import torch

from workbench.evidence.records import STEADY_WINDOWS, Series
from workbench.run.worker.timing.instances import AMONG_OTHERS, Instance
from workbench.run.worker.timing.timed_gpu import SLOTS, TimedGpu, Times
from workbench.words import IN_TURN, Regime

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
                    mhz=_rounded(column.mhz, 1),
                )
            )
    return tuple(recorded)


def _rounded(values: Sequence[float], digits: int) -> tuple[float, ...]:
    """Round the values; one below zero becomes zero, as in ``take``."""
    return tuple(max(0.0, float(np.round(value, digits))) for value in values)
