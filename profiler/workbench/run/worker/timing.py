"""Interleaved paired timing with CUDA events. Runs in the worker."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

from workbench.run.protocol import Timed
from workbench.run.worker.device import Gauge
from workbench.words import Regime

MAX_CALLS = 200
TRIAL_CALLS = 10
FEWEST_ROUNDS = 10
FLUSH_FACTOR = 2  # times the L2 size, so that nothing of the inputs stays


def draw(study: ModuleType, shape: Any) -> dict[str, Any]:
    generator = torch.Generator("cuda").manual_seed(torch.seed() % 2**48)
    inputs = study.inputs(shape, generator)
    assert isinstance(inputs, dict)
    return inputs


class Case:
    """One variant ready to be timed: a graph of several calls, and a graph of one."""

    def __init__(self, name: str, run: Callable[..., Any], inputs: dict[str, Any]) -> None:
        self.name = name
        self.run = run
        self.inputs = inputs
        self.calls = 1
        self.how = "graph"
        self.many: Callable[[], Any] = self.call
        self.one: Callable[[], Any] = self.call

    def call(self) -> Any:
        return self.run(**self.inputs)

    def prepare(self, graph_microseconds: float) -> None:
        """Warm up, find how many calls fill a sample, and capture them in CUDA graphs.

        A replay takes some microseconds to start, which a sample of a few calls would show as
        theirs: how many there are is found with a graph too, not with calls from Python.
        A ``run`` that cannot be captured (it synchronises, say) is called from Python instead,
        and its samples say so.
        """
        for _ in range(3):
            self.call()
        torch.cuda.synchronize()
        self.calls = calls_for(graph_microseconds, min(measure(self.call) for _ in range(5)))
        try:
            self.one = capture(self.call, 1).replay
            if self.calls > 1:
                trial = capture(self.call, TRIAL_CALLS).replay
                trial()
                each = min(measure(trial) for _ in range(5)) / TRIAL_CALLS
                self.calls = calls_for(graph_microseconds, each)
            self.many = capture(self.call, self.calls).replay
        except RuntimeError:
            torch.cuda.synchronize()
            self.how = "python"
            self.one = self.call
            self.many = self._loop
        self.many()
        torch.cuda.synchronize()

    def _loop(self) -> None:
        for _ in range(self.calls):
            self.call()


def calls_for(microseconds: float, each: float) -> int:
    return max(1, min(MAX_CALLS, round(microseconds / each)))


def capture(call: Callable[[], Any], times: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            call()
    return graph


def measure(work: Callable[[], Any], before: Callable[[], Any] | None = None) -> float:
    """Microseconds between two events around ``work``, with ``before`` queued ahead of them."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if before is not None:
        before()
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def interleave(
    cases: list[Case], rounds: int, seconds: float, current: Callable[[str], None]
) -> Iterator[Timed]:
    """Every case once per round and mode, in a new random order each round.

    After ``seconds`` no further round is begun, once there are FEWEST_ROUNDS.
    warm: calls back to back, inputs in L2. cold: one call after L2 was overwritten.
    """
    size = FLUSH_FACTOR * torch.cuda.get_device_properties(0).L2_cache_size
    flush = torch.empty(size, dtype=torch.uint8, device="cuda")
    gauge = Gauge()
    order = list(cases)
    started = time.monotonic()
    for number in range(rounds):
        if number >= FEWEST_ROUNDS and time.monotonic() - started > seconds:
            return
        random.shuffle(order)
        load = gauge.load()
        for mode in (Regime.WARM, Regime.COLD):
            for position, case in enumerate(order):
                current(case.name)
                if mode == Regime.WARM:
                    case.one()
                    microseconds = measure(case.many) / case.calls
                else:
                    microseconds = measure(case.one, flush.zero_)
                yield Timed(
                    variant=case.name,
                    mode=mode.value,
                    round=number,
                    order=position,
                    microseconds=round(microseconds, 4),
                    calls=case.calls,
                    how=case.how,
                    sm_clock_mhz=load.sm_clock_mhz,
                    temperature_c=load.temperature_c,
                    throttled=load.throttled,
                )
