"""The GPU in a timing process: the harness's kernels, and the clocks that they note."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any, TypeVar

import numpy as np
import torch

from workbench import cuda

# Replays whose stamps and sums are held: 35 MB of stamps on the 132 SMs of an H100, 8 MB of sums.
# Two rounds must fit, which bounds the instances of a session (MOST_INSTANCES).
SLOTS = 4096
# Calls of a graph. secret() in neighbours.cu has numbers for 64 calls of a replay, and the call
# ahead of the stamps is numbered besides these.
MOST_CALLS = 48
ROWS_OF_SUMS = MOST_CALLS + 1  # of a replay: the call ahead of the stamps is summed, too
SUMMED = 4  # outputs of a call, at most; its row has the key of the signs behind them
POLL_SECONDS = 1e-3
REPORT_SECONDS = 1.0  # between two looks at how far the GPU is
# A stamp has a block for each SM, but two blocks may run on one SM. The SM without any still has
# its stamp of SLOTS replays ago, which is further from the others than this.
SKEW_NS = 200_000
KERNELS = ("advance", "write_inputs", "read_output", "stamp")
START, END, BETWEEN, CALL, BEFORE = range(5)  # see neighbours.cu
ROWS = 4  # of a replay

Array = np.ndarray[Any, np.dtype[Any]]
T = TypeVar("T")


@dataclass(frozen=True)
class Times:
    """Per replay: nanoseconds and cycles of its graph, and of all its calls, less those of as many
    pairs of stamps with nothing between, of which ``gaps`` are the nanoseconds.
    """

    nanoseconds: Array
    cycles: Array
    calls: Array
    cycles_of_calls: Array
    gaps: Array


class TimedGpu:
    """The kernels, buffers and streams of the harness (docs/measuring.md, "A timed call").

    Clocks are read by kernels inside of the graph, because host clocks and events between graphs
    include the launch of a graph, which takes longer than a short call. ``replays`` counts as the
    counter on the GPU does, which every graph advances: from it each replay finds its slot, and its
    inputs, without any parameter that the host would have to change.
    """

    def __init__(self) -> None:
        properties = torch.cuda.get_device_properties(0)
        self.sms = int(properties.multi_processor_count)
        self.l2_bytes = int(properties.L2_cache_size)
        self.state = torch.zeros(2, dtype=torch.int32, device="cuda")  # see neighbours.cu
        self.stamps = torch.zeros((SLOTS, ROWS * self.sms * 2), dtype=torch.int64, device="cuda")
        self.last = torch.zeros((2, self.sms, 2), dtype=torch.int64, device="cuda")
        size = (SLOTS, ROWS_OF_SUMS, SUMMED + 1)
        self.sums = torch.zeros(size, dtype=torch.float64, device="cuda")
        self.side = torch.cuda.Stream()
        self.looking = torch.cuda.Stream()  # past what is queued
        self.seen = torch.zeros(1, dtype=torch.int32).pin_memory()
        self.replays = 0
        self.kernels = {name: cuda.kernel("neighbours.cu", name) for name in KERNELS}
        cuda.take_declared()

    def advance(self) -> None:
        threads = ROWS_OF_SUMS * (SUMMED + 1)
        self.kernels["advance"][1, threads](self.state, self.sums, SLOTS)

    def stamp(self, row: int) -> None:
        self.kernels["stamp"][self.sms, 1](self.stamps, self.last, SLOTS, row, self.sms, self.state)

    def around(self, call: Callable[[], T]) -> T:
        self.stamp(BEFORE)
        self.stamp(BETWEEN)
        result = call()
        self.stamp(CALL)
        return result

    def warm(self) -> None:
        """Load the kernels before anything is captured."""
        self.advance()
        self.replays += 1
        self.stamp(START)
        self.stamp(END)

    def fetch(self, count: int) -> torch.Tensor:
        """Queue a copy of the stamps of the latest replays to the host, behind them in the stream.
        Return where they will be.
        """
        to = torch.empty((count, self.stamps.shape[1]), dtype=torch.int64, pin_memory=True)
        first = (self.replays - count + 1) % SLOTS
        head = min(count, SLOTS - first)
        to[:head].copy_(self.stamps[first : first + head], non_blocking=True)
        if count > head:
            to[head:].copy_(self.stamps[: count - head], non_blocking=True)
        return to

    def wait(self, done: torch.cuda.Event, tell: Callable[[int], None]) -> None:
        """Wait for an event. If that takes seconds, ``tell`` gets the number of the replay that the
        GPU is at, each time it has changed: a GPU that hangs reports no more.
        """
        look, last_seen, copied = monotonic() + REPORT_SECONDS, -1, None
        while not done.query():
            sleep(POLL_SECONDS)
            if monotonic() < look or (copied is not None and not copied.query()):
                continue
            look = monotonic() + REPORT_SECONDS
            if copied is not None and int(self.seen) > last_seen:
                last_seen = int(self.seen)
                tell(last_seen)
            with torch.cuda.stream(self.looking):
                self.seen.copy_(self.state[:1], non_blocking=True)
                copied = torch.cuda.Event()
                copied.record()

    def times(self, fetched: torch.Tensor) -> Times:
        """Return the times of fetched stamps; see ``between``."""
        return between(fetched.numpy().reshape(-1, ROWS, self.sms, 2))


def between(stamps: Array) -> Times:
    """Medians over the SMs that stamped both ends: [replay, row, SM, (cycles, nanoseconds)].

    The SM clock inside of a call may be 9 % below that of its graph, so that cycles alone do not
    tell its time. Nanoseconds advance in steps of 32 on an H100.
    """
    start, end = stamps[:, START, :, 1], stamps[:, END, :, 1]
    near = np.ones_like(start, dtype=bool)
    for ends in (start, end):
        near &= np.abs(ends - np.median(ends, axis=1, keepdims=True)) < SKEW_NS

    def over_sms(values: Array) -> tuple[Array, Array]:
        cycles, nanoseconds = np.nanmedian(np.where(near[:, :, None], values, np.nan), 1).T
        return cycles, nanoseconds

    cycles, nanoseconds = over_sms(stamps[:, END] - stamps[:, START])
    cycles_of_calls, calls = over_sms(stamps[:, CALL] - stamps[:, BETWEEN])
    _, gaps = over_sms(stamps[:, BETWEEN])
    return Times(nanoseconds, cycles, calls, cycles_of_calls, gaps)


def switch_contexts() -> None:
    """Let the GPU work for another context of this process for a moment.

    Loading modules leaves it in a state in which the way from one kernel of a graph to the next
    takes 0.2 to 0.4 µs longer (docs/measuring.md); working for another context ends that.
    """
    from cuda.bindings import driver

    torch.cuda.empty_cache()  # the other context needs memory of its own
    _, context = driver.cuCtxGetCurrent()
    _, device = driver.cuDeviceGet(0)
    status, other = driver.cuCtxCreate(None, 0, device)
    if int(status) != 0:
        raise RuntimeError(f"a second context: {status!r}")
    _, memory = driver.cuMemAlloc(1 << 20)
    calls: list[Callable[[], Any]] = [
        lambda: driver.cuMemsetD8(memory, 1, 1 << 20),
        driver.cuCtxSynchronize,
        lambda: driver.cuCtxDestroy(other),
        lambda: driver.cuCtxSetCurrent(context),
    ]
    for call in calls:
        (status,) = call()
        if int(status) != 0:
            raise RuntimeError(f"in a second context: {status!r}")


def set_aside_l2() -> int:
    """Bytes of the L2 that this context keeps for persisting accesses."""
    from cuda.bindings import driver

    status, size = driver.cuCtxGetLimit(driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
    return int(size) if int(status) == 0 else 0


def put_back_l2(size: int) -> int:
    """Keep so many bytes again; returns how many there were."""
    from cuda.bindings import driver

    before = set_aside_l2()
    if before != size:
        driver.cuCtxSetLimit(driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, size)
        driver.cuCtxResetPersistingL2Cache()
    return before
