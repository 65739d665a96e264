"""How long the products of a mixture of experts take by the vendor's library, and nothing around
them: no routing, no gathering of rows, no activation, no sum over a token's experts. On a GPU:

    python -m benchmarks.multiplying

Every expert has as many rows, so that each of the two products of a call is one batched product of
cuBLAS, through ``torch.bmm``. Calls follow one another in a CUDA graph, long enough for the card to
be at the clock that its power leaves. Writes ``benchmarks/recorded/multiplying.json``;
`benchmarks.sizes` tells of it in docs/experts.md.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.reading import MODELS

from workbench.study.workspace import find_workspace

if TYPE_CHECKING:
    import torch

    from workbench.run.worker.timing.card import Card
    from workbench.study.model import Shape

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "benchmarks" / "recorded" / "multiplying.json"
TOKENS = (1024, 8192)
WARM_UP, ROUNDS = 20, 15  # replays of the graph
LEAST_MS = 60.0  # of a replay, by the time that a call takes before the card is warm
FIRST_CALLS = 8  # that time's


@dataclass(frozen=True)
class Multiplying:
    """``flops`` and ``microseconds`` are of a call, a round each; ``mhz`` is the SM clock of each
    round.
    """

    shape: str
    flops: int
    microseconds: tuple[float, ...]
    mhz: tuple[float, ...]

    @property
    def time(self) -> float:
        """Microseconds."""
        return median(self.microseconds)

    @property
    def rate(self) -> float:
        """FLOP/s."""
        return self.flops / self.time * 1e6

    @property
    def clock(self) -> float:
        """MHz."""
        return median(self.mhz)


def recorded() -> Mapping[str, Multiplying]:
    """By shape; empty where nothing was measured."""
    if not RECORD.exists():
        return {}
    found = json.loads(RECORD.read_text("utf-8"))["products"]
    products = (
        Multiplying(**{**one, **{name: tuple(one[name]) for name in ("microseconds", "mhz")}})
        for one in found
    )
    return {one.shape: one for one in products}


def flops(shape: Shape) -> int:
    """Of both products: gate and up together, and down."""
    return int(6 * shape.T * shape.k * shape.H * shape.I)


def products(shape: Shape) -> Callable[[], None]:
    """A call. Of E experts with T k / E rows each: x [E, rows, H] times w13 [E, 2I, H] transposed,
    and h [E, rows, I] times w2 [E, H, I] transposed, all bf16.

    The values are as the study's are, since the power of a product depends on them: x is
    normal(0, 1), the weights are scaled so that sums stay so, and h is what the activation makes
    of the first product, once, ahead of all calls.
    """
    import torch

    rows = shape.T * shape.k // shape.E

    def empty(*size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.bfloat16, device="cuda")

    x = empty(shape.E, rows, shape.H).normal_()
    w13 = empty(shape.E, 2 * shape.I, shape.H).normal_(0, shape.H**-0.5)
    w2 = empty(shape.E, shape.H, shape.I).normal_(0, shape.I**-0.5)
    both, out = empty(shape.E, rows, 2 * shape.I), empty(shape.E, rows, shape.H)
    gate, up = torch.bmm(x, w13.transpose(1, 2), out=both).chunk(2, -1)
    h = torch.nn.functional.silu(gate) * up

    def call() -> None:
        torch.bmm(x, w13.transpose(1, 2), out=both)
        torch.bmm(h, w2.transpose(1, 2), out=out)

    return call


def milliseconds(start: torch.cuda.Event, end: torch.cuda.Event) -> float:
    return float(start.elapsed_time(end))


def measure(card: Card, name: str, shape: Shape) -> Multiplying:
    """Rounds are replays of one graph, queued behind one another and behind those that warm up."""
    import torch

    call = products(shape)
    call()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(ROUNDS + 1)]
    events[0].record()
    for _ in range(FIRST_CALLS):
        call()
    events[1].record()
    events[1].synchronize()
    calls = math.ceil(LEAST_MS * FIRST_CALLS / milliseconds(events[0], events[1]))

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        card.advance()
        card.stamp(0)
        for _ in range(calls):
            call()
        card.stamp(1)
    stamps = card.pinned(ROUNDS)
    for _ in range(WARM_UP):
        card.replay(graph)
    events[0].record()
    for event in events[1:]:
        card.replay(graph)
        event.record()
    card.fetch(stamps)
    torch.cuda.synchronize()
    rounds = [milliseconds(*each) for each in pairwise(events)]
    clocks = card.times(stamps)
    return Multiplying(
        name,
        flops(shape),
        tuple(round(one * 1e3 / calls, 3) for one in rounds),
        tuple(round(float(one), 1) for one in clocks.cycles / clocks.nanoseconds * 1e3),
    )


def main() -> int:
    import torch

    from workbench.run.worker.timing.card import Card

    shapes = find_workspace(ROOT).study("moe").shapes
    card = Card()
    card.warm()
    measured = []
    for model in MODELS:
        for tokens in TOKENS:
            name = f"{model}-t{tokens}"
            measured.append(vars(measure(card, name, shapes[name])))
            torch.cuda.empty_cache()
    found = {
        "gpu": torch.cuda.get_device_name(0),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "torch": str(torch.__version__),
        "products": measured,
    }
    RECORD.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
