"""Rounds: every graph of every instance once, in a new random order, the card never waiting."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch

from workbench.evidence.records import Series
from workbench.run.worker.timing.card import SLOTS, Card, Times
from workbench.run.worker.timing.instances import BARE, Instance
from workbench.words import Regime

EVERY = {Regime.CHAINED: 1, Regime.BACK_TO_BACK: 2, Regime.COLD: 2}  # how many rounds to one
SLOW_ROUNDS = (0, 1)  # in which those take part whose calls are slow
QUEUED = 2
GRAPHS = 6  # of an instance at most, in a round
MOST_INSTANCES = SLOTS // (QUEUED * GRAPHS)


class Timed(Protocol):
    """What ``Rounds`` needs of an instance."""

    calls: dict[Regime, int]

    @property
    def is_slow(self) -> bool: ...

    def replay(self, regime: Regime, bare: bool = False) -> None: ...


@dataclass(frozen=True)
class Replayed:
    """One replay: of which instance, what, and in which round."""

    instance: int
    regime: Regime
    bare: bool
    round: int


@dataclass
class Column:
    """By round: microseconds of a call, and SM clocks in MHz."""

    microseconds: list[float] = field(default_factory=list)
    mhz: list[float] = field(default_factory=list)


def order_of(
    instances: Sequence[int], number: int, bared: Sequence[Regime] = BARE
) -> list[Replayed]:
    """A round: instances in random order, and of each its regimes, with what is bare beside it."""
    found = []
    for instance in random.sample(instances, len(instances)):
        regimes = [regime for regime, every in EVERY.items() if number % every == 0]
        for regime in random.sample(regimes, len(regimes)):
            pair = [False, True] if regime in bared else [False]
            for bare in random.sample(pair, len(pair)):
                found.append(Replayed(instance, regime, bare, number))
    return found


class Rounds:
    """The next round is queued before the stamps of the last are read."""

    def __init__(
        self,
        card: Card,
        instances: Sequence[Timed],
        bared: Sequence[Regime] = BARE,
        tell: Callable[[int, int | None], None] = lambda number, instance: None,
    ) -> None:
        """``tell`` is given the number of the round that is waited for and, where it is a long
        one, the instance at work in it.
        """
        self.card, self.bared, self.tell = card, bared, tell
        self.instances = instances
        self.queued: list[tuple[list[Replayed], int, torch.Tensor, torch.cuda.Event]] = []
        self.columns: dict[tuple[int, Regime, bool], Column] = defaultdict(Column)
        self.clock: list[float] = []  # MHz, the mean of each round
        self.seconds = 0.0  # on the GPU, in the last round that was read

    def run(self, number: int) -> None:
        """Queue a round. Those below zero only warm up."""
        slow = number in SLOW_ROUNDS
        taking_part = [i for i, one in enumerate(self.instances) if slow or not one.is_slow]
        order = order_of(taking_part or range(len(self.instances)), number, self.bared)
        for one in order:
            self.instances[one.instance].replay(one.regime, one.bare)
        pinned = self.card.pinned(len(order))
        self.card.fetch(pinned)
        done = torch.cuda.Event()
        done.record()
        first = self.card.replays - len(order) + 1
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
        self.card.wait(done, look)
        self.take(order, self.card.times(pinned))

    def take(self, order: Sequence[Replayed], times: Times) -> None:
        """Keep the times of a round."""
        mhz = times.cycles / times.nanoseconds * 1e3
        self.clock.append(float(times.cycles.sum() / times.nanoseconds.sum() * 1e3))
        self.seconds = float(times.nanoseconds.sum()) * 1e-9
        for one, nanoseconds, clock in zip(order, times.nanoseconds, mhz, strict=True):
            if one.round >= 0:
                column = self.columns[one.instance, one.regime, one.bare]
                calls = self.instances[one.instance].calls[one.regime]
                column.microseconds.append(float(nanoseconds) / calls / 1e3)
                column.mhz.append(float(clock))

    def finish(self) -> None:
        """Wait for what is queued."""
        while self.queued:
            self.read()


def series_of(rounds: Rounds, instances: Sequence[Instance]) -> tuple[Series, ...]:
    """What was timed, with the instances of each group numbered from 0."""
    numbers: dict[tuple[str, bool], int] = defaultdict(int)
    found = []
    for at, instance in enumerate(instances):
        group = instance.group
        number = numbers[group.variant, group.twin]
        numbers[group.variant, group.twin] += 1
        for regime in Regime:
            column = rounds.columns[at, regime, False]
            bare = rounds.columns[at, regime, True]
            if not column.microseconds:
                continue
            found.append(
                Series(
                    variant=group.variant,
                    twin=group.twin,
                    instance=number,
                    regime=regime,
                    calls=instance.calls[regime],
                    microseconds=_rounded(column.microseconds, 4),
                    around=_rounded(bare.microseconds, 4),
                    mhz=_rounded(column.mhz, 1),
                    around_mhz=_rounded(bare.mhz, 1),
                )
            )
    return tuple(found)


def _rounded(values: Sequence[float], digits: int) -> tuple[float, ...]:
    return tuple(float(np.round(value, digits)) for value in values)
