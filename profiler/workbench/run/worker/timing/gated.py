"""A gated executor: a process that builds a variant and replays its graph when the referee opens a
gate. All that it gets is numbers of graphs, and it times nothing. And the auditor: such a process
with the study and no variant. It has the expected results, and the time of a graph without any
call.

Each graph begins with a kernel that waits for a flag in memory that the referee shares with the
GPU, and ends with one that writes the sums of its calls there and sets another flag. The inputs
depend on a secret that the referee writes with the first flag.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import torch

from workbench import cuda
from workbench.evidence.records import Call
from workbench.run.worker.correctness import judged
from workbench.run.worker.output import Outputs, expected_of, type_name
from workbench.run.worker.timing.graphs import captured, nodes
from workbench.run.worker.timing.neighbours import (
    CALL,
    END,
    ROWS_OF_SUMS,
    SLOTS,
    SUMMED,
    Neighbours,
    T,
    TimedGpu,
    is_dense,
    kept_call,
    room_for,
    switch_contexts,
    wrong_sums,
)
from workbench.study.values import Shape, tolerance_at
from workbench.words import Parameter

RING = 64  # replays whose secrets a page holds, and commands
# Places of words of 4 bytes. Referee, executor and GPU write to different lines of the cache.
GO, POSTED = 0, 16
STATE, SERVED, CALLS = 32, 48, 49
ARRIVED, ENDED, EXPIRED = 64, 80, 96
SECRETS, COMMANDS, SUMS = 128, 192, 256
WORDS = ROWS_OF_SUMS * (SUMMED + 1) * 2  # of the sums of a replay
MACROS: dict[str, Parameter] = {
    "GO": GO, "ARRIVED": ARRIVED, "ENDED": ENDED, "EXPIRED": EXPIRED, "SECRETS": SECRETS,
    "SUMS": SUMS, "RING": RING, "WORDS": WORDS, "LONGEST_NS": "20000000000ull",
}  # fmt: skip
THREADS = 256  # of the kernel that reports
PAGE_BYTES = 4096
BUILDING, FAILED, READY = range(3)  # states of an executor
REVEAL = 1 << 30  # a command that is no number of a graph
ALWAYS_OPEN = (1 << 32) - 1
POLLS = 1 << 14  # between two looks at the other process
ASK = 1 << 28  # a command: a request waits in the pipe
AUDIT_SECONDS = 1.0
SLOT_BITS = 12  # the low bits of a secret are the slot of its sums


class Page:
    """A page holds what referee, executor and GPU share. Make it before you fork the executor, and
    ``hide`` it from others that are forked later.
    """

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, PAGE_BYTES)
        self.words = memoryview(self.memory).cast("I")
        self.words[GO] = ALWAYS_OPEN  # while the executor builds

    @property
    def address(self) -> int:
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def hide(self) -> None:
        self.memory.madvise(mmap.MADV_DONTFORK)


class GatedGpu(TimedGpu):
    """Graphs wait at the gate before they advance the counter of replays, and report at their end.
    The stamp behind each call is their only one, which makes the key of its sums: nobody asks for
    the times of the others.
    """

    def __init__(self, page: Page) -> None:
        from cuda.bindings import driver

        torch.zeros(1, device="cuda")  # makes the context
        flags = driver.CU_MEMHOSTREGISTER_DEVICEMAP
        (status,) = driver.cuMemHostRegister(page.address, PAGE_BYTES, flags)
        if int(status) == 0:
            status, address = driver.cuMemHostGetDevicePointer(page.address, 0)
        if int(status) != 0:
            raise RuntimeError(f"shared memory on the GPU: {status!r}")
        self.address = int(address)
        self.ticket = torch.zeros(1, dtype=torch.int32, device="cuda")
        self.gate = cuda.kernel("gated.cu", "gate", defines=MACROS)
        self.report = cuda.kernel("gated.cu", "report", defines=MACROS)
        super().__init__()

    def around(self, call: Callable[[], T]) -> T:
        result = call()
        self.stamp(CALL)
        return result

    def advance(self) -> None:
        self.gate[1, 1](self.address, self.ticket, self.state)
        super().advance()

    def stamp(self, row: int) -> None:
        if row == CALL:
            super().stamp(row)
        if row == END:
            self.report[1, THREADS](self.address, self.ticket, self.state, self.sums, SLOTS)


class Layout(msgspec.Struct, frozen=True):
    """An output as it lies in memory: ``dtype`` as torch names it, strides in elements."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class LaunchedGraphs(msgspec.Struct, frozen=True):
    """What an executor's graphs and one call launch: how many there are of each node."""

    layouts: tuple[Layout, ...]
    call: dict[str, int]
    graphs: tuple[dict[str, int], ...]

    def require_neighbours(self, bare: Mapping[str, int], calls: int) -> None:
        """Raise ValueError for a graph that is not a ``bare`` one and a call more of the variant
        for each of its own, and the one ahead.
        """
        whole = Counter(bare) + Counter({node: n * (calls + 1) for node, n in self.call.items()})
        for graph in self.graphs:
            if graph != whole:
                missing = (whole - Counter(graph)).total()
                more = (Counter(graph) - whole).total()
                raise ValueError(
                    f"its graph lacks {missing} launches of {calls} calls and their neighbours, "
                    f"and has {more} others"
                )


def launches(call: Call) -> dict[str, int]:
    """Count nodes by what they launch."""
    return Counter(msgspec.json.encode(node).decode() for node in call)


class Revealed(msgspec.Struct, frozen=True):
    """The outputs that an executor keeps of its latest replay, whose bytes follow, one output after
    the other, and the names of those that only their place names.
    """

    layouts: tuple[Layout, ...]
    counted: tuple[str, ...]


class GatedExecutor:
    """The executor's side: it serves the referee until that is gone."""

    def __init__(self, page: Page, pipe: Connection, gpu: GatedGpu) -> None:
        self.page, self.pipe, self.gpu = page, pipe, gpu
        self.replays: list[Callable[[], Any]] = []
        self.others: Mapping[int, Callable[[int], None]] = {REVEAL: self.reveal}
        self.outputs: Callable[[], Outputs]

    def serve(self, calls: int) -> None:
        words, served, parent = self.page.words, 0, os.getppid()
        switch_contexts()
        self.gpu.ticket.zero_()
        torch.cuda.synchronize()
        for word in (GO, ARRIVED, ENDED):
            words[word] = 0
        words[CALLS], words[STATE] = calls, READY
        while os.getppid() == parent:
            for _ in range(POLLS):
                if words[POSTED] > served:
                    break
            else:
                continue
            served += 1
            command = words[COMMANDS + served % RING]
            for kind, act in self.others.items():
                if command & kind:
                    act(command - kind)
                    break
            else:
                self.replays[command]()
            words[SERVED] = served

    def reveal(self, _: int) -> None:
        """Send what is kept of the last replay."""
        torch.cuda.synchronize()
        outputs = self.outputs()
        told = Revealed(layouts_of(outputs), tuple(outputs.counted))
        self.pipe.send_bytes(msgspec.json.encode(told))
        for out in outputs.tensors.values():
            self.pipe.send_bytes(memory_of(out).cpu().numpy().data)


def layouts_of(outputs: Outputs) -> tuple[Layout, ...]:
    return tuple(
        Layout(name, type_name(out.dtype), tuple(out.shape), out.stride())
        for name, out in outputs.tensors.items()
    )


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a dense tensor, in the order in which they lie in memory."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


# ---- the auditor --------------------------------------------------------------------------------
@dataclass(frozen=True)
class Bare:
    """Asks for a graph of so many calls without a variant, beside the outputs of an executor that
    ``launched`` so much; the answer is its number.
    """

    launched: LaunchedGraphs
    calls: int


@dataclass(frozen=True)
class Claims:
    """Asks whether an executor's results are right.

    sums: [replays, rows, SUMMED + 1] of all its replays, which have these ``secrets``.
    drawn: Replays and calls to look at, as many as there is time for.
    revealed, memory: What it keeps of the last replay.
    """

    calls: int
    secrets: Sequence[int]
    sums: np.ndarray[Any, np.dtype[np.float64]]
    drawn: Sequence[tuple[int, int]]
    revealed: Revealed
    memory: Sequence[bytes]


@dataclass(frozen=True)
class Audited:
    """So many calls were looked at; ``relative`` is the error of the kept output in norm."""

    calls: int
    relative: float
    why: str


class Auditor:
    """``seed`` decides the inputs, and with them all that executors have, too: what is constant is
    other than when their graphs were captured.
    """

    def __init__(
        self, page: Page, pipe: Connection, study: ModuleType, shape: Shape, seed: int
    ) -> None:
        self.study, self.bound = study, tolerance_at(study.tolerance, shape)
        self.pipe = pipe
        self.gpu = GatedGpu(page)
        self.inputs = Neighbours(self.gpu, study, shape, seed)
        self.inputs.renew()
        self.own = self.inputs.inputs()
        self.table = self.inputs.input_tables(self.own)
        self.gpu.warm()
        self.rooms: list[Any] = []
        self.executor = GatedExecutor(page, pipe, self.gpu)
        self.executor.others = {ASK: self.answer}

    def answer(self, _: int) -> None:
        """Send the answer to a question, or why there is none: an executor may claim anything."""
        question = self.pipe.recv()
        try:
            answer = self.bare(question) if isinstance(question, Bare) else self.audit(question)
        except Exception as error:
            self.pipe.send(str(error) or type(error).__name__)
        else:
            self.pipe.send(answer)

    def bare(self, bare: Bare) -> int:
        gpu, inputs, calls = self.gpu, self.inputs, bare.calls
        likes = [
            torch.empty_strided(
                each.shape, each.strides, dtype=getattr(torch, each.dtype), device="cuda"
            )
            for each in bare.launched.layouts
        ]
        require_dense(likes)
        rooms = [room_for(like, 2) for like in likes]

        def once(call: int) -> None:
            inputs.write(self.table, call, calls)
            gpu.around(lambda: None)
            for number, (out, kept) in enumerate(rooms):
                inputs.sum_output(out, kept, call, calls, number)

        def work() -> None:
            gpu.advance()
            once(calls)
            for call in range(calls):
                once(call)
            gpu.stamp(END)

        once(-1)  # loads the kernels
        graph = captured(work, gpu.side)
        bare.launched.require_neighbours(launches(nodes(graph)), calls)
        self.rooms.append((rooms, graph))
        self.executor.replays.append(graph.replay)
        return len(self.executor.replays) - 1

    # ---- results -----------------------------------------------------------------------------
    def audit(self, claims: Claims) -> Audited:
        for secret, sums in zip(claims.secrets, claims.sums, strict=True):
            self.gpu.sums[secret % SLOTS] = torch.from_numpy(np.array(sums))
        memory = [torch.from_numpy(np.frombuffer(each, np.uint8).copy()) for each in claims.memory]
        outputs, last = shown_in(claims.revealed, memory), claims.secrets[-1]
        expected = self.expected(last, kept_call(last, claims.calls), claims.calls)
        kept, _ = judged(outputs, expected, self.bound)
        why, audited, end = kept.why, 1, time.monotonic() + AUDIT_SECONDS
        for replay, call in claims.drawn:
            if why or (audited > 1 and time.monotonic() > end):
                break
            expected = self.expected(claims.secrets[replay], call, claims.calls)
            *sums, key = claims.sums[replay, call].tolist()
            by_name = dict(zip(outputs.tensors, sums, strict=False))
            why = wrong_sums(by_name, int(key), outputs, expected, self.bound)
            audited += 1
        return Audited(audited, kept.relative, why and f"the output of a timed call: {why}")

    def expected(self, secret: int, call: int, calls: int) -> Outputs:
        return expected_of(self.study.reference(**self.inputs.written(secret, call, calls)))


def require_dense(tensors: Iterable[torch.Tensor]) -> None:
    """Raises ValueError for gaps, which would stand in a sum for elements."""
    if not all(map(is_dense, tensors)):
        raise ValueError("it says that its outputs have gaps in memory")


def shown_in(revealed: Revealed, memory: Iterable[torch.Tensor]) -> Outputs:
    """The outputs whose bytes these are, as they lay in memory, in memory of this process. Raises
    ValueError without the bytes of one.
    """
    tensors = {}
    for layout, shown in zip(revealed.layouts, memory, strict=True):
        flat = torch.empty(len(shown), dtype=torch.uint8, device="cuda").copy_(shown)
        flat = flat.view(getattr(torch, layout.dtype))
        tensors[layout.name] = flat.as_strided(layout.shape, layout.strides)
    require_dense(tensors.values())
    return Outputs(tensors, frozenset(revealed.counted))
