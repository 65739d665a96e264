"""Instances of a variant, and graphs in which ordinary neighbours surround each of its calls.

A graph notes its own start and end on every SM (``stamp``), so that neither the time of a launch
from the host nor a clock read between rounds is taken for that of the calls.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

from workbench import cuda
from workbench.run.worker.timing.card import Times, between
from workbench.study.workspace import load_module
from workbench.words import Parameter

CHAINED, BARE, BACK_TO_BACK = "chained", "bare", "back to back"
SPARE = 8192  # places in the pool where inputs may start, 16 bytes apart
SLOTS = 4096  # replays whose stamps are held
TOUCH = 256  # of so many pieces one is written, where the inputs are larger than half the L2
THREADS = 256


@dataclass(frozen=True)
class Case:
    """What is timed: a variant with parameters, and cycles that are planted behind its calls."""

    variant: str
    parameters: Mapping[str, Parameter]
    planted: int = 0


class Card:
    """The GPU in this process: the neighbours, and where the stamps of replays go."""

    def __init__(self) -> None:
        properties = torch.cuda.get_device_properties(0)
        self.sms = int(properties.multi_processor_count)
        self.l2_bytes = int(properties.L2_cache_size)
        self.state = torch.zeros(1, dtype=torch.int32, device="cuda")
        self.stamps = torch.zeros((SLOTS, self.sms * 4), dtype=torch.int64, device="cuda")
        self.side = torch.cuda.Stream()
        self.replays = 0
        names = ("advance", "write_inputs", "keep_output", "stamp")
        self.kernels = {name: cuda.kernel("neighbours.cu", name) for name in names}
        cuda.take_declared()

    def advance(self) -> None:
        self.kernels["advance"][1, 1](self.state)

    def stamp(self, which: int) -> None:
        self.kernels["stamp"][self.sms, 1](self.stamps, SLOTS, which, self.sms, self.state)

    def warm(self) -> None:
        self.advance()
        self.replays += 1
        self.stamp(0)
        self.stamp(1)

    def replay(self, graph: torch.cuda.CUDAGraph) -> None:
        graph.replay()
        self.replays += 1

    def pinned(self, replays: int) -> torch.Tensor:
        return torch.empty((replays, self.sms * 4), dtype=torch.int64, pin_memory=True)

    def fetch(self, to: torch.Tensor) -> None:
        """Queue a copy of the stamps of the latest replays, behind them in the stream."""
        count = len(to)
        first = (self.replays - count + 1) % SLOTS
        head = min(count, SLOTS - first)
        to[:head].copy_(self.stamps[first : first + head], non_blocking=True)
        if count > head:
            to[head:].copy_(self.stamps[: count - head], non_blocking=True)

    def times(self, fetched: torch.Tensor) -> Times:
        """The median over the SMs that stamped both ends of a replay."""
        return between(fetched.numpy().reshape(-1, 2, self.sms, 2))


class Surroundings:
    """What the instances at a shape share: the pool of inputs, and where outputs are kept."""

    def __init__(self, card: Card, study: ModuleType, shape: str) -> None:
        self.card = card
        generator = torch.Generator("cuda").manual_seed(random.randrange(2**48))
        inputs = study.inputs(study.shapes[shape], generator)
        self.like: torch.Tensor = inputs["q"]
        self.causal = bool(inputs["causal"])
        self.pieces: int = self.like.numel() * self.like.element_size() // 16
        elements = self.like.numel() + SPARE * 16 // self.like.element_size()
        self.pool = torch.randn(elements, device="cuda").to(self.like.dtype)
        self.kept = torch.empty_like(self.like)
        self.untouched = torch.zeros_like(self.like)
        bytes_of_inputs = 3 * self.pieces * 16
        self.stride = TOUCH if bytes_of_inputs > card.l2_bytes / 2 else 1

    def blocks(self) -> int:
        threads: int = -(-self.pieces // self.stride)
        return min(-(-threads // THREADS), self.card.sms * 4)

    def write(self, inputs: tuple[torch.Tensor, ...], call: int) -> None:
        self.card.kernels["write_inputs"][(self.blocks(), 3), THREADS](
            self.pool, SPARE, *inputs, self.pieces, self.stride, self.card.state, call
        )

    def keep(self, out: torch.Tensor, planted: int) -> None:
        self.card.kernels["keep_output"][self.blocks(), THREADS](
            out, self.kept, self.pieces, self.stride, planted
        )


class Instance:
    """One load of a variant's module, with its own buffers and graphs."""

    def __init__(
        self,
        around: Surroundings,
        folder: Path,
        case: Case,
        calls: int,
        regimes: tuple[str, ...],
    ) -> None:
        self.around, self.case, self.calls = around, case, calls
        self.padding = torch.empty(random.randrange(1, 4096) * 512, device="cuda")
        self.inputs = tuple(torch.randn_like(around.like) for _ in "qkv")
        self.module = load_variant(folder, case)
        for _ in range(2):  # loads every kernel before anything is captured
            self.call()
        for regime in regimes:
            self.once(regime, 0)
        around.card.warm()
        self.graphs = {regime: self.capture(regime) for regime in regimes}

    def call(self) -> torch.Tensor:
        out = self.module.run(*self.inputs, self.around.causal)
        assert isinstance(out, torch.Tensor)
        return out

    def once(self, regime: str, call: int) -> None:
        if regime == BACK_TO_BACK:
            self.call()
            return
        self.around.write(self.inputs, call)
        if regime == BARE:
            self.around.keep(self.around.untouched, 0)
        else:
            self.around.keep(self.call(), self.case.planted)

    def capture(self, regime: str) -> torch.cuda.CUDAGraph:
        """One call is ahead of the stamps, since what is around it is another graph's.

        Not with ``torch.cuda.graph``: it collects garbage and synchronises, 0.1 s each time.
        """
        card, graph = self.around.card, torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.stream(card.side):
            graph.capture_begin()
            card.advance()
            self.once(regime, self.calls)
            card.stamp(0)
            for call in range(self.calls):
                self.once(regime, call)
            card.stamp(1)
            graph.capture_end()
        return graph


def load_variant(folder: Path, case: Case) -> ModuleType:
    """Its module anew, so that its kernels are loaded anew too."""
    with cuda.overridden(case.parameters):
        module = load_module(folder / f"{case.variant}.py", f"benchmark_{case.variant}")
    cuda.take_declared()
    return module
