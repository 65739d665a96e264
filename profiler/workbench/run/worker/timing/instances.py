"""One instance of a variant: its module loaded anew, its own buffers and its own graphs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from workbench.errors import WorkbenchError
from workbench.evidence.records import Call
from workbench.run.worker.event_log import STREAM_HINT, place
from workbench.run.worker.loader import Loader
from workbench.run.worker.output import NoResult, Outputs, kept_gradient, outputs_of
from workbench.run.worker.timing.graphs import capture_stream, captured, nodes, warm_up
from workbench.run.worker.timing.neighbours import (
    END,
    MOST_CALLS,
    START,
    Neighbours,
    TimedGpu,
    is_dense,
    room_for,
)
from workbench.words import IN_TURN, Regime

AMONG_OTHERS = (Regime.CHAINED, Regime.COLD)
# Writes before a cold call, in sizes of the L2. L2 does not replace strictly by age, so that one
# size can leave lines of the inputs. The second is a margin.
FLUSH_FACTOR = 2
COLD_CALLS = 2  # of a graph: the flush before each, 100 MB on an H100, outlasts a short call
LONG_CALL = 500.0  # microseconds, above graph_microseconds: from here on a graph may hold one call
SLOW_CALL = 5000.0  # from here on one instance in two rounds, or a session would take minutes
TRIAL_CALLS = 4  # that tell how many fill a graph
STREAMED_CALLS = 4  # at a time, of what no graph can capture: queued while AHEAD_CYCLES pass
BROKEN_CAPTURE = "STREAM_CAPTURE"  # in the error of a launch by cuda.core, which is no RuntimeError
UNJOINED = "unjoined"  # in CUDA's message: work on another stream, which nobody waits for
# The GPU waits so long, 2 ms at 1.98 GHz, while the host queues calls in a stream. Otherwise it
# would wait for Python between them.
AHEAD_CYCLES = 4_000_000
# A time depends on where buffers lie: new ones moved calls of 5 and 10 µs by 0.5 and 1.5 % (H200).
# So each instance is moved by up to 2 MiB, in the 512-byte steps of torch's allocator.
PADDINGS = 4096


class NotTimed(WorkbenchError):
    """A variant that cannot be timed, or whose graph is not what a call launches."""


class NotCaptured(NotTimed):
    """A call that no graph can capture."""


class Streamed:
    """Stands in for a graph of what none can capture: queued in a stream again each time."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work

    def replay(self) -> None:
        torch.cuda._sleep(AHEAD_CYCLES)
        self.work()


@dataclass
class SessionSetup:
    """The setup that all instances of a session share."""

    gpu: TimedGpu
    loader: Loader
    inputs: Neighbours
    graph_microseconds: float

    @property
    def with_neighbours(self) -> tuple[Regime, ...]:
        """The regimes with something around a call: what restores inputs that it changes, too."""
        return IN_TURN if self.inputs.in_place else AMONG_OTHERS

    @cached_property
    def flush(self) -> torch.Tensor:
        size = FLUSH_FACTOR * self.gpu.l2_bytes
        return torch.empty(size, dtype=torch.uint8, device="cuda")

    def calls(self, call_microseconds: float) -> int:
        """How many of so many microseconds fill a graph: a multiple of the copies of what is
        constant, which are MOST_COPIES at most.
        """
        least = 1 if call_microseconds > LONG_CALL else 2
        wanted = max(least, min(MOST_CALLS, round(self.graph_microseconds / call_microseconds)))
        return max(1, wanted // self.inputs.copies) * self.inputs.copies


class Instance:
    """An instance is one load of a variant, with its own buffers and a graph for each regime.
    ``control``: it is of a second group of this variant's.
    """

    def __init__(
        self,
        setup: SessionSetup,
        variant: str,
        each: float = 0.0,
        regimes: Sequence[Regime] = IN_TURN,
        *,
        control: bool = False,
    ) -> None:
        self.setup, self.variant, self.control = setup, variant, control
        padding = random.randrange(1, PADDINGS) * 512
        self.padding = torch.empty(padding, dtype=torch.uint8, device="cuda")
        self.side = capture_stream(setup.loader.has_extension(variant), setup.gpu.side)
        self.own = setup.inputs.inputs()
        self.table = setup.inputs.input_tables(self.own)
        self.run: Callable[..., Any] = setup.loader.load(variant)
        out = self.first_call()
        self.outputs = replace(out, tensors={})
        self.kept = {name: room_for(tensor, 1)[0] for name, tensor in out.tensors.items()}
        del out
        # What compiles or tunes at the first calls may launch otherwise at the next; and what is
        # made of an input once is made of each copy of it ahead of what is captured.
        warm_up(self.call, setup.gpu.side)
        for number in range(setup.inputs.copies):
            self.call(number)
        self.unchecked, self.refused_at = False, ""
        self.graphs: dict[Regime, torch.cuda.CUDAGraph | Streamed] = {}
        self.each = self.trial(each)
        self.calls = {
            Regime.CHAINED: setup.calls(self.each + 4),
            Regime.BACK_TO_BACK: setup.calls(self.each),
            Regime.COLD: 1 if self.is_slow else COLD_CALLS,
        }
        if self.unchecked:
            self.calls = {regime: min(STREAMED_CALLS, n) for regime, n in self.calls.items()}
        for regime in regimes:  # loads the harness's own kernels
            self.once(regime, 0, bare=True)
        setup.gpu.warm()
        for regime in regimes:
            self.graphs[regime] = self.capture(regime)

    @property
    def is_slow(self) -> bool:
        """Whether its calls take so long that there are few of them."""
        return self.each > SLOW_CALL

    def call(self, number: int = 0) -> Outputs:
        """Do the call of a graph that has this number. Raises NoResult."""
        inputs = {**self.own, **self.setup.inputs.constants_of(number)}
        return outputs_of(self.run(**inputs), inputs, self.setup.inputs.in_place)

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

    def trial(self, expected: float = 0.0) -> float:
        """About how many microseconds a call takes on the GPU, whatever Python takes besides, if
        that is not ``expected``; with Python if no graph can capture it.
        """
        alone = microseconds(self.call)
        calls = TRIAL_CALLS if alone < LONG_CALL else 1
        try:
            graph = self.captured(lambda: [self.call() for _ in range(1 if expected else calls)])
        except NotCaptured as error:
            self.unchecked, self.refused_at = True, place(error.__cause__ or error)
            return expected or microseconds(self.call)
        if expected:
            return expected
        graph.replay()
        return max(0.5, microseconds(graph.replay) / calls)

    @cached_property
    def nodes(self) -> Call:
        """The nodes are those of one call. Raises NotTimed for a call that launches nothing."""
        if isinstance(graph := self.captured(self.call), Streamed):
            return ()
        call = nodes(graph)
        if not call:
            raise NotTimed("launched nothing on the stream that it was called on", hint=STREAM_HINT)
        return call

    def require_nodes(self) -> None:
        """Every call of the chained graph must launch what one call launches alone."""
        call = self.nodes
        calls, graph = self.calls[Regime.CHAINED] + 1, self.graphs[Regime.CHAINED]
        bare = self.capture(Regime.CHAINED, bare=True)
        if isinstance(graph, Streamed) or isinstance(bare, Streamed):
            return
        launched = Counter(nodes(graph)) - Counter(nodes(bare))
        if launched != Counter({node: calls * count for node, count in Counter(call).items()}):
            others = launched.total() == calls * len(call)
            raise NotTimed(
                f"the nodes of its graphs differ: {len(call)} in a call alone, "
                f"{launched.total()} in {calls} calls between others"
                f"{', of other kernels or sizes' if others else ''}",
                hint="every call must do all of its work",
            )

    def once(self, regime: Regime, call: int, bare: bool = False) -> None:
        """Do one call with its neighbours. Inputs that it changes are restored before it. No output
        is kept of a ``bare`` one, which leaves the variant out.
        """
        inputs, calls = self.setup.inputs, self.calls[regime]
        number = call if call < calls else -1  # ahead of the others
        if regime == Regime.CHAINED:
            inputs.write(self.table, call, calls)
        else:
            inputs.restore(self.table, call)
        if regime == Regime.COLD:
            self.setup.flush.zero_()

        def timed() -> Mapping[str, torch.Tensor]:
            return self.kept if bare else self.call(number).tensors

        out = self.setup.gpu.around(timed) if regime in self.setup.with_neighbours else timed()
        if regime == Regime.CHAINED:
            for index, (name, tensor) in enumerate(out.items()):
                inputs.sum_output(tensor, self.kept[name], -1 if bare else call, calls, index)

    def captured(self, work: Callable[[], Any]) -> torch.cuda.CUDAGraph | Streamed:
        """Raises NotCaptured where it cannot be captured, OutOfMemoryError without memory."""
        if self.unchecked:
            return Streamed(work)
        first = next(iter(self.graphs.values()), None)
        try:
            return captured(work, self.side, None if isinstance(first, Streamed) else first)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            what = str(error).strip().partition("\n")[0]
            if not isinstance(error, RuntimeError) and BROKEN_CAPTURE not in what:
                raise
            kind = NotTimed if UNJOINED in what else NotCaptured
            raise kind(
                f"cannot be captured in a CUDA graph: {what}",
                hint=f"run() must neither wait for the GPU nor copy from it; {STREAM_HINT}",
            ) from error

    def capture(self, regime: Regime, bare: bool = False) -> torch.cuda.CUDAGraph | Streamed:
        """Capture a graph. One call is ahead of the stamps: its neighbours are another graph's."""
        gpu, calls = self.setup.gpu, self.calls[regime]

        def work() -> None:
            gpu.advance()
            self.once(regime, calls, bare)
            gpu.stamp(START)
            for call in range(calls):
                self.once(regime, call, bare)
            gpu.stamp(END)

        return self.captured(work)

    def replay(self, regime: Regime) -> None:
        self.graphs[regime].replay()
        self.setup.gpu.replays += 1

    @property
    def found(self) -> Outputs:
        return replace(self.outputs, tensors=self.kept)


def microseconds(work: Callable[[], Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3
