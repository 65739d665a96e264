"""The GPU in a timing process: the harness's kernels, and where graphs note their clocks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from workbench import cuda

SLOTS = 8192  # replays whose stamps are held
POLL_SECONDS = 1e-3
TOLD_SECONDS = 1.0  # between two looks at how far the card is
SKEW_NS = 200_000  # a stamp further than this from the others is of an older replay
KERNELS = ("advance", "write_inputs", "read_output", "stamp")

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Times:
    """Per replay: nanoseconds and cycles between its stamps."""

    nanoseconds: Array
    cycles: Array


class Card:
    """``replays`` counts as the counter on the GPU does, which every graph advances."""

    def __init__(self) -> None:
        properties = torch.cuda.get_device_properties(0)
        self.sms = int(properties.multi_processor_count)
        self.l2_bytes = int(properties.L2_cache_size)
        self.state = torch.zeros(1, dtype=torch.int32, device="cuda")
        self.stamps = torch.zeros((SLOTS, self.sms * 4), dtype=torch.int64, device="cuda")
        self.side = torch.cuda.Stream()
        self.looking = torch.cuda.Stream()  # past what is queued
        self.seen = torch.zeros(1, dtype=torch.int32).pin_memory()
        self.replays = 0
        self.kernels = {name: cuda.kernel("neighbours.cu", name) for name in KERNELS}
        cuda.take_declared()

    def advance(self) -> None:
        """A node that counts the replay."""
        self.kernels["advance"][1, 1](self.state)

    def stamp(self, which: int) -> None:
        """A node that notes the clocks: 0 at the start, 1 at the end."""
        self.kernels["stamp"][self.sms, 1](self.stamps, SLOTS, which, self.sms, self.state)

    def warm(self) -> None:
        """Load the kernels before anything is captured."""
        self.advance()
        self.replays += 1
        self.stamp(0)
        self.stamp(1)

    def replay(self, graph: torch.cuda.CUDAGraph) -> None:
        """Queue it."""
        graph.replay()
        self.replays += 1

    def pinned(self, replays: int) -> torch.Tensor:
        """Room on the host for the stamps of so many replays."""
        return torch.empty((replays, self.sms * 4), dtype=torch.int64, pin_memory=True)

    def fetch(self, to: torch.Tensor) -> None:
        """Queue a copy of the stamps of the latest replays, behind them in the stream."""
        count = len(to)
        first = (self.replays - count + 1) % SLOTS
        head = min(count, SLOTS - first)
        to[:head].copy_(self.stamps[first : first + head], non_blocking=True)
        if count > head:
            to[head:].copy_(self.stamps[: count - head], non_blocking=True)

    def wait(self, done: torch.cuda.Event, tell: Callable[[int], None]) -> None:
        """Until an event. Where that takes seconds, ``tell`` is given the replay that the card is
        at, as often as that is another: of one that hangs nothing more is told.
        """
        look, at, copied = time.monotonic() + TOLD_SECONDS, -1, None
        while not done.query():
            time.sleep(POLL_SECONDS)
            if time.monotonic() < look or (copied is not None and not copied.query()):
                continue
            look = time.monotonic() + TOLD_SECONDS
            if copied is not None and int(self.seen) > at:
                at = int(self.seen)
                tell(at)
            with torch.cuda.stream(self.looking):
                self.seen.copy_(self.state, non_blocking=True)
                copied = torch.cuda.Event()
                copied.record()

    def times(self, fetched: torch.Tensor) -> Times:
        """Of fetched stamps; see ``between``."""
        return between(fetched.numpy().reshape(-1, 2, self.sms, 2))


def between(stamps: Array) -> Times:
    """The median over the SMs that stamped both ends: [replay, end, SM, (cycles, nanoseconds)]."""
    start, end = stamps[:, 0, :, 1], stamps[:, 1, :, 1]
    near = np.ones_like(start, dtype=bool)
    for ends in (start, end):
        near &= np.abs(ends - np.median(ends, axis=1, keepdims=True)) < SKEW_NS
    cycles = np.where(near, stamps[:, 1, :, 0] - stamps[:, 0, :, 0], np.nan)
    nanoseconds = np.where(near, end - start, np.nan)
    return Times(nanoseconds=np.nanmedian(nanoseconds, 1), cycles=np.nanmedian(cycles, 1))


def switch_contexts() -> None:
    """Let the card work for another context of this process for a moment.

    Loading modules leaves it in a state in which the way from one kernel of a graph to the next
    takes 0.2 to 0.4 µs longer (docs/measuring.md); working for another context ends that.
    """
    from cuda.bindings import driver

    _, own = driver.cuCtxGetCurrent()
    _, device = driver.cuDeviceGet(0)
    status, other = driver.cuCtxCreate(None, 0, device)
    if int(status) != 0:
        raise RuntimeError(f"a second context: {status!r}")
    _, memory = driver.cuMemAlloc(1 << 20)
    calls: list[Callable[[], Any]] = [
        lambda: driver.cuMemsetD8(memory, 1, 1 << 20),
        driver.cuCtxSynchronize,
        lambda: driver.cuCtxDestroy(other),
        lambda: driver.cuCtxSetCurrent(own),
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

    found = set_aside_l2()
    if found != size:
        driver.cuCtxSetLimit(driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, size)
        driver.cuCtxResetPersistingL2Cache()
    return found
