"""A referee and its executors: one process times, the others only replay graphs.

An executor has a CUDA context, builds instances of a variant and captures their graphs. Each graph
begins with a gate, a kernel that waits for a flag in memory that the referee shares with the GPU,
and ends with a kernel that sets another flag. For every replay the referee draws a secret, which
decides the inputs, opens the gate, and waits for the end. The referee has no CUDA context.
"""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import secrets
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.multiprocessing.reductions import reduce_tensor

from workbench import cuda
from workbench.run.worker.timing.instances import Instance
from workbench.run.worker.timing.timed_gpu import (
    END,
    ROWS,
    SLOTS,
    TimedGpu,
    between,
    switch_contexts,
)
from workbench.words import Parameter, Regime

RING = 64  # replays whose secrets and times a page holds
GRAPHS = 4  # of an instance
LONGEST_SECONDS = 60.0  # to build, and to answer
# Places of words of 4 bytes. Referee, executor and GPU write to different lines of the cache.
GO, POSTED = 0, 16
STATE, SERVED, SMS = 32, 48, 49
ARRIVED, OPENED, ENDED, EXPIRED = 64, 80, 96, 112
SECRETS, COMMANDS = 128, 192
OPENED_AT, ENDED_AT = 128, 192  # places of words of 8 bytes
MACROS: dict[str, Parameter] = {
    "GO": GO, "ARRIVED": ARRIVED, "OPENED": OPENED, "ENDED": ENDED, "EXPIRED": EXPIRED,
    "SECRETS": SECRETS, "OPENED_AT": OPENED_AT, "ENDED_AT": ENDED_AT, "RING": RING,
    "LONGEST_NS": "20000000000ull",
}  # fmt: skip
PAGE_BYTES = 4096
MOST_SMS = 264
STAMP_BYTES = SLOTS * ROWS * MOST_SMS * 16  # only touched where stamps are stored
BUILDING, READY, FAILED = range(3)  # states of an executor
FETCH, QUIT = 1 << 30, 1 << 31  # commands that are no number of a graph
ALWAYS_OPEN = (1 << 32) - 1
POLLS = 1 << 14  # between two looks at the other process
SECRET_BITS, SLOT_BITS = 20, 12  # the low bits of a secret are the slot that holds the stamps
CONTEXTS = 3
FORK = multiprocessing.get_context("fork")

Array = np.ndarray[Any, np.dtype[Any]]
Shared = Callable[[], torch.Tensor]  # opens memory of another process


class Page:
    """A page holds what referee, executor and GPU share. Make it before you fork the executor."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, PAGE_BYTES + STAMP_BYTES)
        self.words = memoryview(self.memory)[:PAGE_BYTES].cast("I")
        self.times = memoryview(self.memory)[:PAGE_BYTES].cast("Q")
        self.words[GO] = ALWAYS_OPEN  # while the executor builds

    @property
    def address(self) -> int:
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def stamps(self, replays: int) -> Array:
        sms = self.words[SMS]
        stamps = np.frombuffer(self.memory, np.int64, replays * ROWS * sms * 2, PAGE_BYTES)
        return stamps.reshape(replays, ROWS, sms, 2)

    def until(self, word: int, least: int) -> int:
        """Wait until a word is at least so much; return ``perf_counter_ns`` of that moment.

        Raises RuntimeError.
        """
        words, end = self.words, time.monotonic() + LONGEST_SECONDS
        while True:
            for _ in range(POLLS):
                if words[word] >= least:
                    return time.perf_counter_ns()
            if words[STATE] == FAILED or words[EXPIRED] or time.monotonic() > end:
                raise RuntimeError(f"an executor failed: word {word} is {words[word]}, not {least}")


# ---- an executor -----------------------------------------------------------------------------
class GatedGpu(TimedGpu):
    """Graphs wait at the gate before they advance the counter of replays, and report after the
    stamp at their end. ``shared`` opens memory for the stamps around a call.
    """

    def __init__(self, page: Page, shared: Shared | None = None) -> None:
        self.address = mapped(page)
        self.ticket = torch.zeros(1, dtype=torch.int32, device="cuda")
        self.gate = cuda.kernel("gated.cu", "gate", defines=MACROS)
        self.report = cuda.kernel("gated.cu", "report", defines=MACROS)
        super().__init__()
        self.last = shared() if shared else self.last
        page.words[SMS] = self.sms

    def advance(self) -> None:
        self.gate[1, 1](self.address, self.ticket, self.state)
        super().advance()

    def stamp(self, row: int) -> None:
        super().stamp(row)
        if row == END:
            self.report[1, 1](self.address, self.ticket)


def mapped(page: Page) -> int:
    """Map the page for the GPU, and return its address there."""
    from cuda.bindings import driver

    torch.zeros(1, device="cuda")  # makes the context
    flags = driver.CU_MEMHOSTREGISTER_DEVICEMAP
    (status,) = driver.cuMemHostRegister(page.address, PAGE_BYTES, flags)
    if int(status) == 0:
        status, address = driver.cuMemHostGetDevicePointer(page.address, 0)
    if int(status) != 0:
        raise RuntimeError(f"shared memory on the GPU: {status!r}")
    return int(address)


def lend(answer: Connection) -> None:
    """Hold memory for the stamps of several executors, until the process is killed.

    Sends a function and its arguments, which open the memory in another process.
    """
    memory = torch.zeros((2, MOST_SMS, 2), dtype=torch.int64, device="cuda")
    answer.send(reduce_tensor(memory))
    time.sleep(3600)


def execute(
    page: Page, build: Callable[[TimedGpu], Sequence[Instance]], shared: Shared | None = None
) -> None:
    """Build instances and serve the referee: all that an executor's process does."""
    try:
        gpu = GatedGpu(page, shared)
        instances = build(gpu)
        switch_contexts()
        gpu.ticket.zero_()
        torch.cuda.synchronize()
        for word in (GO, ARRIVED, OPENED, ENDED):
            page.words[word] = 0
        regimes = Regime.CHAINED, Regime.BACK_TO_BACK, Regime.COLD
        graphs = [
            graph
            for instance in instances
            for graph in (*(instance.graphs[regime] for regime in regimes), instance.marked)
        ]
        page.words[STATE] = READY
        serve(page, lambda number: graphs[number].replay(), partial(fetch, page, gpu))
    except BaseException:
        traceback.print_exc()
        page.words[STATE] = FAILED


def fetch(page: Page, gpu: TimedGpu, replays: int) -> None:
    """Copy the stamps of the latest replays to where the referee reads them."""
    gpu.replays = page.words[ENDED]
    gpu.fetch(torch.from_numpy(page.stamps(replays).reshape(replays, -1)))
    torch.cuda.synchronize()


def serve(page: Page, launch: Callable[[int], None], fetch: Callable[[int], None]) -> None:
    """Obey commands until the referee quits or is gone."""
    words, served, parent = page.words, 0, os.getppid()
    while os.getppid() == parent:
        for _ in range(POLLS):
            if words[POSTED] > served:
                break
        else:
            continue
        served += 1
        command = words[COMMANDS + served % RING]
        if command == QUIT:
            return
        fetch(command - FETCH) if command >= FETCH else launch(command)
        words[SERVED] = served


# ---- the referee -----------------------------------------------------------------------------
class Turn(NamedTuple):
    """A turn names the replay to make. Graph 0 of an instance is its chained one. A replay that
    only ``follows`` a switch of contexts does not count, and only chained ones do.
    """

    executor: int
    instance: int
    graph: int = 0
    follows: bool = False

    @property
    def counts(self) -> bool:
        return not self.graph and not self.follows

    @property
    def command(self) -> int:
        return self.instance * GRAPHS + self.graph


@dataclass(frozen=True)
class Replay:
    """A replay has times in microseconds.

    arrival: From the command until the GPU is at the gate.
    answer, clock: From the flag to the gate's answer and to the end, by the referee's clock.
    gpu: From the open gate to the end, by the GPU's clock.
    call, gap: A call of a chained graph, and the time between two stamps with nothing between.
    """

    turn: Turn
    arrival: float
    answer: float
    clock: float
    gpu: float
    call: float = 0.0
    gap: float = 0.0
    mhz: float = 0.0


class Executor:
    """The referee has one of these for each executor."""

    def __init__(self, page: Page, calls: int) -> None:
        self.page, self.calls = page, calls  # of a graph
        self.posted, self.waiting, self.opened, self.fetched = 0, 0, 0, 0
        self.posted_ns = 0

    def command(self, command: int) -> None:
        self.posted += 1
        self.page.words[COMMANDS + self.posted % RING] = command
        self.posted_ns = time.perf_counter_ns()
        self.page.words[POSTED] = self.posted

    def post(self, turn: Turn) -> None:
        self.command(turn.command)
        self.waiting += 1

    def arrive(self) -> float:
        """Wait until the next replay is at its gate; return microseconds since the last command."""
        return (self.page.until(ARRIVED, self.opened + 1) - self.posted_ns) / 1e3

    def open(self, turn: Turn, arrival: float) -> Replay:
        """Let the replay at the gate run, and wait for its end."""
        page, words = self.page, self.page.words
        self.opened += 1
        self.waiting -= 1
        ticket, place = self.opened, self.opened % RING
        secret = secrets.randbits(SECRET_BITS)
        words[SECRETS + place] = secret << SLOT_BITS | ticket % SLOTS
        began = time.perf_counter_ns()
        words[GO] = ticket
        answered = page.until(OPENED, ticket)
        ended = page.until(ENDED, ticket)
        gpu = page.times[ENDED_AT + place] - page.times[OPENED_AT + place]
        return Replay(turn, arrival, (answered - began) / 1e3, (ended - began) / 1e3, gpu / 1e3)

    def times(self) -> Iterator[tuple[float, float, float]]:
        """Fetch call, gap and SM clock of each replay since the last time."""
        replays, self.fetched = self.opened - self.fetched, self.opened
        self.command(FETCH + replays)
        self.page.until(SERVED, self.posted)
        times = between(self.page.stamps(replays))
        calls, gaps = (total / self.calls / 1e3 for total in (times.calls, times.gaps))
        with np.errstate(invalid="ignore"):  # graphs without stamps around their calls
            clocks = times.cycles_of_calls / times.calls * 1e3
        yield from zip(calls.tolist(), gaps.tolist(), clocks.tolist(), strict=True)


class Referee:
    def __init__(self, executors: Sequence[Executor]) -> None:
        self.executors = executors

    def run(
        self, turns: Sequence[Turn], *, queued: bool = False, idle_us: float = 0.0
    ) -> list[Replay]:
        """Make at most SLOTS replays, one after the other.

        queued: A replay stands in the stream behind the one that runs, if both have one executor.
        idle_us: How long the GPU has nothing to do after each replay that has none behind it.
        """
        replays = []
        for turn, following in zip(turns, [*turns[1:], None], strict=True):
            executor = self.executors[turn.executor]
            if not executor.waiting:
                executor.post(turn)
            arrival = executor.arrive()
            if queued and following and following.executor == turn.executor:
                executor.post(following)
            replays.append(executor.open(turn, arrival))
            pause(idle_us)
        times = {number: self.executors[number].times() for number in {t.executor for t in turns}}
        return [
            replace(replay, call=call, gap=gap, mhz=mhz)
            for replay in replays
            for call, gap, mhz in [next(times[replay.turn.executor])]
        ]

    def quit(self) -> None:
        for executor in self.executors:
            executor.command(QUIT)


def pause(microseconds: float) -> None:
    """Keep the processor busy: to sleep takes at least 50 µs."""
    end = time.perf_counter_ns() + microseconds * 1e3
    while time.perf_counter_ns() < end:
        pass


# ---- processes and what they take -------------------------------------------------------------
@contextmanager
def child(target: Callable[..., None], *arguments: object) -> Iterator[Any]:
    """Start a process, give what it sends, and kill it at the end."""
    ours, theirs = FORK.Pipe(duplex=False)
    process = FORK.Process(target=target, args=(*arguments, theirs))
    process.start()
    theirs.close()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


def context(answer: Connection) -> None:
    """Hold a CUDA context until the process is killed."""
    torch.zeros(1, device="cuda")
    answer.send(os.getpid())
    time.sleep(3600)


def used_mib() -> float:
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    return float(pynvml.nvmlDeviceGetMemoryInfo(handle).used) / 2**20


def private_mib(pid: int) -> float:
    """Read how much memory of the host a process shares with no other."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def contexts() -> list[tuple[float, float]]:
    """Measure how many MiB of the GPU and of the host each further context takes."""
    taken = []
    with ExitStack() as stack:
        for _ in range(CONTEXTS):
            before = used_mib()
            pid = stack.enter_context(child(context))
            taken.append((used_mib() - before, private_mib(pid)))
    return taken
