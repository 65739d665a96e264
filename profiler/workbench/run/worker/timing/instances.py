"""One instance of a variant: its module loaded anew, its own buffers and its own graphs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from workbench import cuda
from workbench.errors import WorkbenchError
from workbench.evidence.timing import GraphNode
from workbench.ncu.command import variant_module
from workbench.run.worker.guard import Guard
from workbench.run.worker.journal import STREAM_HINT
from workbench.run.worker.output import NoResult, Outputs, kept_gradient, outputs_of
from workbench.run.worker.timing.card import Card, captured, nodes
from workbench.run.worker.timing.surroundings import (
    Surroundings,
    in_memory,
    is_dense,
    kept_call,
    room_for,
)
from workbench.study.params import base_name
from workbench.words import Inputs, Parameter, Regime

BARE = (Regime.CHAINED, Regime.COLD)
FLUSH_FACTOR = 2  # times the L2 size, so that nothing of the inputs stays
COLD_CALLS = 2
LONG_CALL = 500.0  # microseconds, from which on a graph holds a single one
SLOW_CALL = 5000.0  # from which on there is a single instance, in few rounds
MOST_CALLS = 48
TRIAL_CALLS = 4
PADDINGS = 4096  # of 512 bytes


class NotTimed(WorkbenchError):
    """A variant that cannot be timed, or whose graph is not what a call launches."""


@dataclass(frozen=True)
class Group:
    """Instances of one variant; ``twin``: a second group of it."""

    variant: str
    twin: bool = False


class Loader:
    """Loads modules of variants in a folder, each time anew."""

    def __init__(self, folder: Path, params: dict[str, dict[str, Parameter]], guard: Guard) -> None:
        self.folder = folder
        self.params = params
        self.guard = guard
        self.loaded = 0

    def load(self, variant: str) -> ModuleType:
        """Its kernels are loaded anew too."""
        self.loaded += 1
        with cuda.overridden(self.params.get(variant, {})):
            name = variant_module(self.loaded, variant)
            module = self.guard.load(self.folder / f"{base_name(variant)}.py", name)
        cuda.take_declared()
        return module


@dataclass
class Around:
    """What all instances of a session share."""

    card: Card
    loader: Loader
    inputs: Surroundings
    graph_microseconds: float

    @property
    def bared(self) -> tuple[Regime, ...]:
        """The regimes with something around a call: what restores inputs that it changes, too."""
        return tuple(Regime) if self.inputs.restored else BARE

    @cached_property
    def flush(self) -> torch.Tensor:
        size = FLUSH_FACTOR * self.card.l2_bytes
        return torch.empty(size, dtype=torch.uint8, device="cuda")

    def calls(self, each: float) -> int:
        """How many of so many microseconds fill a graph: a multiple of the copies of what is
        constant, which are MOST_COPIES at most.
        """
        least = 1 if each > LONG_CALL else 2
        wanted = max(least, min(MOST_CALLS, round(self.graph_microseconds / each)))
        return max(1, wanted // self.inputs.copies) * self.inputs.copies


class Instance:
    """Graphs by regime, and the same without the variant in ``bare``."""

    def __init__(self, around: Around, group: Group, each: float = 0.0) -> None:
        self.around, self.group = around, group
        self.padding = torch.empty(
            random.randrange(1, PADDINGS) * 512, dtype=torch.uint8, device="cuda"
        )
        self.own = around.inputs.inputs()
        self.table = around.inputs.table(self.own)
        self.run: Callable[..., Any] = around.loader.load(group.variant).run
        out = self.first_call()
        self.outputs = replace(out, tensors={})
        self.kept: dict[str, torch.Tensor] = {}
        self.idle: dict[str, torch.Tensor] = {}
        for name in list(out.tensors):
            self.kept[name], self.idle[name] = room_for(out.tensors[name], 2)
            self.idle[name].zero_()
        del out
        # What compiles at the first call may launch otherwise at the next; and what is made of an
        # input once is made of each copy of it ahead of what is captured.
        for number in range(around.inputs.copies):
            self.call(number)
        self.each = each or self.trial()
        self.calls = {
            Regime.CHAINED: around.calls(self.each + 4),
            Regime.BACK_TO_BACK: around.calls(self.each),
            Regime.COLD: 1 if self.is_slow else COLD_CALLS,
        }
        for regime in Regime:  # loads the harness's own kernels
            self.once(regime, 0, bare=True)
        around.card.warm()
        self.graphs = {regime: self.capture(regime) for regime in Regime}
        self.bare = {regime: self.capture(regime, bare=True) for regime in around.bared}
        self.last = 0  # the replay of its chained graph whose output is kept

    @property
    def is_slow(self) -> bool:
        """Whether its calls take so long that there are few of them."""
        return self.each > SLOW_CALL

    def call(self, number: int = 0) -> Outputs:
        """One of a graph, by its number. Raises NoResult."""
        own = {**self.own, **self.around.inputs.constants_of(number)}
        return outputs_of(self.run(**own), own, self.around.inputs.in_place)

    def first_call(self) -> Outputs:
        """Loads every kernel before anything is captured. Raises NotTimed where what it gives are
        no outputs in memory of their own, without gaps.
        """
        try:
            out = self.call()
        except NoResult as error:
            raise NotTimed(error.message, hint=error.hint) from None
        why = kept_gradient(self.own)
        for name, tensor in out.tensors.items():
            if not why and not is_dense(tensor):
                what = f"'{name}'" if name else "a tensor"
                why = f"run() returned {what} whose elements do not fill its memory"
        if why:
            raise NotTimed(why, hint="return what torch.empty or torch.empty_like gives")
        return out

    def trial(self) -> float:
        """About how many microseconds a call takes on the GPU, whatever Python takes besides."""
        calls = TRIAL_CALLS if microseconds(self.call) < LONG_CALL else 1
        graph = self.captured(lambda: [self.call() for _ in range(calls)])
        graph.replay()
        return max(0.5, microseconds(graph.replay) / calls)

    @cached_property
    def nodes(self) -> tuple[GraphNode, ...]:
        """Of the graph of one call. Raises NotTimed where that is not what its graphs hold."""
        one = nodes(self.captured(self.call))
        if not one:
            raise NotTimed(
                "launched nothing on the stream that it was called on",
                hint=STREAM_HINT,
            )
        return one

    def require_nodes(self, one: tuple[GraphNode, ...]) -> None:
        """Every call of the chained graph must launch what one call launches by itself."""
        calls = self.calls[Regime.CHAINED] + 1
        chained, bare = (
            Counter(nodes(graphs[Regime.CHAINED])) for graphs in (self.graphs, self.bare)
        )
        launched = chained - bare
        if launched != Counter({node: calls * count for node, count in Counter(one).items()}):
            others = launched.total() == calls * len(one)
            raise NotTimed(
                f"the nodes of its graphs differ: {len(one)} in a call by itself, "
                f"{launched.total()} in {calls} calls between others"
                f"{', of other kernels or sizes' if others else ''}",
                hint="every call must do all of its work",
            )

    def once(self, regime: Regime, call: int, bare: bool = False) -> None:
        """One call with what is around it. What it changes of its inputs is restored before it."""
        inputs, calls = self.around.inputs, self.calls[regime]
        number = call if call < calls else -1  # ahead of the others
        if regime == Regime.CHAINED:
            inputs.write(self.table, call)
            out = self.idle if bare else self.call(number).tensors
            kept = call if not bare else -1
            for name, tensor in out.items():
                inputs.read(tensor, self.kept[name], kept, calls)
            return
        inputs.restore(self.table, call)
        if regime == Regime.COLD:
            self.around.flush.zero_()
        if not bare:
            self.call(number)

    def captured(self, work: Callable[[], Any]) -> torch.cuda.CUDAGraph:
        """Raises NotTimed where it cannot be captured."""
        try:
            return captured(work, self.around.card.side)
        except RuntimeError as error:
            what = str(error).strip().partition("\n")[0]
            raise NotTimed(
                f"cannot be captured in a CUDA graph: {what}",
                hint=f"run() must neither wait for the GPU nor copy from it; {STREAM_HINT}",
            ) from error

    def capture(self, regime: Regime, bare: bool = False) -> torch.cuda.CUDAGraph:
        """One call is ahead of the stamps, since what is around it is another graph's."""
        card, calls = self.around.card, self.calls[regime]

        def work() -> None:
            card.advance()
            self.once(regime, calls, bare)
            card.stamp(0)
            for call in range(calls):
                self.once(regime, call, bare)
            card.stamp(1)

        return self.captured(work)

    def replay(self, regime: Regime, bare: bool = False) -> None:
        """Queue one of its graphs."""
        self.around.card.replay((self.bare if bare else self.graphs)[regime])
        if regime == Regime.CHAINED and not bare:
            self.last = self.around.card.replays

    def inputs_of_kept(self) -> Inputs:
        """Those of the call whose output is kept: of one more replay where some are constant, and
        renewed since the rounds. What a variant made of them earlier is of no use there.
        """
        if self.around.inputs.constant:
            self.replay(Regime.CHAINED)
        return self.around.inputs.written(
            self.last, kept_call(self.last, self.calls[Regime.CHAINED])
        )

    def changed_input(self) -> str:
        """The name of an input that is not what the neighbours wrote, after one more replay, or of
        a constant one that is not as it was.
        """
        self.replay(Regime.CHAINED)
        wanted = self.around.inputs.written(self.last, self.calls[Regime.CHAINED] - 1)
        names = self.around.inputs.given
        changed = (name for name in names if not torch.equal(self.own[name], wanted[name]))
        return next(changed, "") or self.around.inputs.changed_constant()

    @property
    def found(self) -> Outputs:
        """The kept outputs."""
        return replace(self.outputs, tensors=self.kept)

    def kept_pieces(
        self, kept: torch.Tensor, expected: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Of a kept output those elements that were read, and the expected ones: [elements]."""
        stride = self.around.inputs.stride_of(kept)
        laid_out = expected
        if expected.stride() != kept.stride():
            laid_out = torch.empty_strided(
                kept.shape, kept.stride(), dtype=expected.dtype, device=expected.device
            ).copy_(expected)
        found, wanted = in_memory(kept), in_memory(laid_out)
        if stride == 1:
            return found, wanted
        each = 16 // kept.element_size()
        whole = found.numel() // each * each
        return (
            found[:whole].view(-1, each)[::stride].reshape(-1),
            wanted[:whole].view(-1, each)[::stride].reshape(-1),
        )


def microseconds(work: Callable[[], Any]) -> float:
    """Between two events around it."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3
