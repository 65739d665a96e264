"""The auditor: a process with the study and no variant. It has the expected results, and the time
of a graph without any call.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

import numpy as np
import torch

from workbench.run.worker.correctness import judged
from workbench.run.worker.output import Outputs, expected_of
from workbench.run.worker.timing.gated import (
    GatedExecutor,
    GatedGpu,
    LaunchedGraphs,
    Page,
    Revealed,
    launches,
)
from workbench.run.worker.timing.graphs import captured, nodes
from workbench.run.worker.timing.neighbours import (
    Neighbours,
    is_dense,
    kept_call,
    room_for,
    wrong_sums,
)
from workbench.run.worker.timing.timed_gpu import END, SLOTS
from workbench.study.model import Shape, tolerance_at

AUDIT_SECONDS = 1.0
ASK = 1 << 28  # a command: a request waits in the pipe


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

    def serve(self) -> None:
        self.pipe.send(self.inputs.copies)
        self.executor.serve(0)

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
        outputs, last = outputs_of(claims), claims.secrets[-1]
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


def outputs_of(claims: Claims) -> Outputs:
    """The kept outputs, as they lay in memory. Raises ValueError without the bytes of one."""
    tensors = {}
    for layout, memory in zip(claims.revealed.layouts, claims.memory, strict=True):
        flat = torch.empty(len(memory), dtype=torch.uint8)
        flat.numpy()[:] = np.frombuffer(memory, np.uint8)
        flat = flat.view(getattr(torch, layout.dtype)).cuda()
        tensors[layout.name] = flat.as_strided(layout.shape, layout.strides)
    require_dense(tensors.values())
    return Outputs(tensors, frozenset(claims.revealed.counted))
