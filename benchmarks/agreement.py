"""Whether three ways to time a kernel agree over sizes: a table of docs/measuring.md.

- product: the stamps of a timing session.
- chain: plain torch in a CUDA graph, with events around the call and around an empty kernel.
- ncu: the duration of the call's kernels inside of that chain, caches untouched.

All are microseconds more than those of an empty kernel. Needs a GPU and ncu.

python -m benchmarks.agreement
"""

from __future__ import annotations

import csv
import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from math import isqrt
from pathlib import Path
from statistics import fmean, median
from types import ModuleType
from typing import Any, NamedTuple

import torch
from benchmarks.pages import DOCS, table, with_part
from torch.cuda import Event
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention, silu

from workbench import Shape, Tolerance
from workbench.run.protocol import SessionsJob
from workbench.run.worker.guard import Guard
from workbench.run.worker.timing.graphs import captured, nodes
from workbench.run.worker.timing.instances import Loader
from workbench.run.worker.timing.session import LONG_MICROSECONDS, TimingProcess
from workbench.run.worker.timing.timed_gpu import switch_contexts
from workbench.words import NodeKind

PAGE = DOCS / "measuring.md"
INSIDE = "--inside"  # of ncu
METRICS = ("gpu__time_duration.sum", "gpc__cycles_elapsed.max")
NCU = (
    "ncu --graph-profiling node --cache-control none --clock-control none --csv "
    f"--profile-from-start off --print-units base --metrics {','.join(METRICS)}"
).split()
WAYS = ("product", "chain", "ncu")
WITHIN, WITHIN_US = 0.03, 0.3
KB, MB = 1e3, 1e6
L2 = torch.cuda.get_device_properties(0).L2_cache_size if torch.cuda.is_available() else 50e6
SIZES = (1024, 64 * KB, MB, 4 * MB, L2 / 4, 16.8e6, L2 / 2, 33.5e6, L2, 134e6, 1.074e9)
HEADS = {1536: (1, 1, 4), 393 * KB: (1, 8, 128), 3.1e6: (2, 8, 512), 12.6e6: (4, 16, 512)}
HEADS |= {50.3e6: (4, 16, 2048), 201e6: (8, 16, 4096), 1.06e9: (42, 64, 1024)}
CALLS, ROUNDS = 6, 10
STEADY_SECONDS = 1.0  # of long calls before any is timed: the GPU may meet its power limit

Inputs = dict[str, torch.Tensor]
Point = tuple[str, float]  # a kernel, and bytes of its inputs


def rows(size: float) -> Inputs:
    columns = min(1024, int(size) // 4)
    return {"x": torch.randn(int(size) // 4 // columns, columns, device="cuda")}


def squares(size: float) -> Inputs:
    n = isqrt(int(size) // 4) // 16 * 16
    return {name: torch.randn(n, n, device="cuda", dtype=torch.half) for name in "ab"}


def heads(size: float) -> Inputs:
    shape = (*HEADS[size], 64)
    return {name: torch.randn(shape, device="cuda", dtype=torch.half) for name in "qkv"}


def empty(x: torch.Tensor) -> torch.Tensor:
    torch.cuda._sleep(0)
    return torch.empty(4, device=x.device)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """One kernel at every size: others are a memset, which ncu does not see, and a kernel."""
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        return scaled_dot_product_attention(q, k, v)


class Kernel(NamedTuple):
    inputs: Callable[[float], Inputs]
    run: Callable[..., torch.Tensor]
    sizes: tuple[float, ...] = SIZES


KERNELS = {
    "empty": Kernel(rows, empty, (1024,)),
    "elementwise": Kernel(rows, silu),
    "copy": Kernel(rows, lambda x: torch.cat(x.view(2, -1).unbind())),
    "reduction": Kernel(rows, lambda x: torch.sum(x, 1)),
    "softmax": Kernel(rows, lambda x: torch.softmax(x, 1)),
    "GEMM": Kernel(squares, torch.mm, (1024, 64 * KB, MB, 16.8e6, 67e6, 268e6, 1.074e9)),
    "attention": Kernel(heads, attention, tuple(HEADS)),
}
EMPTY, *POINTS = [(name, size) for name, kernel in KERNELS.items() for size in kernel.sizes]
VARIANT = """from benchmarks.agreement import KERNELS

def run(**inputs):
    return KERNELS[{name!r}].run(*inputs.values())
"""


def product(point: Point, folder: Path) -> tuple[float, float]:
    """Microseconds by the stamps of one session, and the SM clock in GHz."""
    name, size = point
    (folder / "it.py").write_text(VARIANT.format(name=name))
    study: Any = ModuleType("study")
    study.shapes = {"it": Shape(size=int(size))}
    study.reference = lambda **inputs: KERNELS[name].run(*inputs.values())
    study.inputs = lambda shape, generator: KERNELS[name].inputs(size)
    study.tolerance = Tolerance(absolute=1.0, relative=1.0)
    job = SessionsJob(
        study="it", shape="it", params={}, sources={"it": ("it.py",)}, references=(), controls=(),
        sessions=1, instances=2, rounds=ROUNDS, graph_microseconds=300.0,
    )  # fmt: skip

    def fail(variant: str, error: BaseException) -> None:
        raise error

    guard = Guard(folder, job.sources)
    loader = Loader(folder, {}, guard)
    timing = TimingProcess(job, study, loader, guard, fail, lambda name: None, lambda event: None)
    chained = [one for one in timing.session(0, ["it"], alone=False).series if one.by_events]
    times, clocks = zip(*((one.microseconds, one.mhz) for one in chained), strict=True)
    return median(sum(times, ())), median(sum(clocks, ())) / 1e3


class Chain:
    """``CALLS`` calls in a graph: each input is written in full, then the output is read."""

    def __init__(self, point: Point, events: bool) -> None:
        kernel, size = KERNELS[point[0]], point[1]
        self.inputs, self.run = kernel.inputs(size), kernel.run
        self.sources = [kernel.inputs(size) for _ in range(4)]
        self.each = self.roughly()
        side = torch.cuda.Stream()
        parts = (lambda: self.write(0), lambda: self.run(*self.inputs.values()))
        self.ahead, self.own = (kernels(captured(part, side)) for part in parts)
        self.marks = [
            [[Event(enable_timing=True, external=True) for _ in "123"] for _ in range(CALLS)]
            for _ in range(1 + events)
        ]
        self.graphs = [captured(partial(self.calls, marks, events), side) for marks in self.marks]

    def calls(self, marks: Sequence[Sequence[Event]], events: bool) -> None:
        for number, own in enumerate(marks):
            self.call(number, own if events else ())

    def roughly(self) -> float:
        """Microseconds of a call with its neighbours; the first one loads the kernels."""
        self.call(0)
        start, end = Event(enable_timing=True), Event(enable_timing=True)
        start.record()
        self.call(0)
        end.record()
        end.synchronize()
        return 1e3 * float(start.elapsed_time(end))

    def write(self, number: int) -> None:
        for name, source in self.sources[number % len(self.sources)].items():
            torch.mul(source, 0.9, out=self.inputs[name])

    def call(self, number: int, marks: Sequence[Event] = ()) -> None:
        self.write(number)
        if marks:
            marks[0].record()
            torch.cuda._sleep(0)
            marks[1].record()
        out = self.run(*self.inputs.values())
        if marks:
            marks[2].record()
        torch.amax(out)

    def times(self) -> Iterator[float]:
        """Microseconds of a call more than those of an empty kernel, of each replay. Another replay
        is queued before one ends, so that the GPU does not rest.
        """
        long = self.each > LONG_MICROSECONDS
        ahead = int(STEADY_SECONDS * 1e6 / self.each / CALLS) if long else 2
        ends = Event(), Event()
        for number in range(ahead + ROUNDS + 1):
            self.graphs[number % 2].replay()
            ends[number % 2].record()
            ends[(number - 1) % 2].synchronize()
            if number > ahead:
                marks = self.marks[(number - 1) % 2]
                yield 1e3 * fmean(b.elapsed_time(c) - a.elapsed_time(b) for a, b, c in marks)


def kernels(graph: torch.cuda.CUDAGraph) -> int:
    return sum(node.kind == NodeKind.KERNEL for node in nodes(graph))


def by_events(point: Point) -> float:
    chain = Chain(point, events=True)
    switch_contexts()
    return median(chain.times())


def inside() -> None:
    """One replay of every chain for ncu to see, and how many kernels stand where in a call."""
    profiler = torch.cuda.cudart()
    for point in (EMPTY, *POINTS):
        chain = Chain(point, events=False)
        chain.graphs[0].replay()
        torch.cuda.synchronize()
        profiler.cudaProfilerStart()
        chain.graphs[0].replay()
        torch.cuda.synchronize()
        profiler.cudaProfilerStop()
        places = [chain.ahead, chain.own, kernels(chain.graphs[0]) // CALLS]
        print(INSIDE, json.dumps([*point, *places]), flush=True)
        del chain
        gc.collect()
        torch.cuda.empty_cache()


def by_ncu() -> dict[Point, list[float]]:
    """Microseconds and thousands of cycles of every point."""
    script = [sys.executable, "-m", "benchmarks.agreement", INSIDE]
    done = subprocess.run([*NCU, *script], capture_output=True, text=True)
    lines, found = done.stdout.splitlines(), {}
    seen = [*csv.DictReader(line for line in lines if line.startswith('"'))]
    columns = [
        iter([float(row["Metric Value"].replace(",", "")) / 1e3 for row in seen
              if row["Metric Name"] == metric]) for metric in METRICS
    ]  # fmt: skip
    for line in lines:
        if line.startswith(INSIDE):
            name, size, ahead, own, each = json.loads(line.removeprefix(INSIDE))
            found[name, size] = [
                median(sum([next(column) for _ in range(each)][ahead : ahead + own])
                       for _ in range(CALLS)) for column in columns
            ]  # fmt: skip
    return found


def measured() -> dict[Point, list[float]]:
    """Microseconds of every point in each of ``WAYS`` more than those of an empty kernel."""
    ncu, found = by_ncu(), {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "kernels" / "it"
        folder.mkdir(parents=True)
        constant, _ = product(EMPTY, folder)
        for point in POINTS:
            took, ghz = product(point, folder)
            more = (one - other for one, other in zip(ncu[point], ncu[EMPTY], strict=True))
            found[point] = [took - constant, by_events(point), at_clock(ghz, *more)]
            gc.collect()
            torch.cuda.empty_cache()
    return found


def at_clock(ghz: float, took: float, kilocycles: float) -> float:
    """What ncu measured, at the product's SM clock where its own is another by more than 3 %: under
    ncu the GPU rests between kernels, and does not meet its power limit.
    """
    return kilocycles / ghz if abs(kilocycles / took / ghz - 1) > WITHIN else took


def off(times: list[float]) -> bool:
    return max(times) - min(times) > max(WITHIN * min(times), WITHIN_US)


def ratios(found: dict[Point, list[float]]) -> Iterator[float]:
    """By how much the ratio of two kernels at a size differs between the ways, at most; of those
    that take 10 µs or more, since 0.3 µs are 3 % of 10.
    """
    long = {point: times for point, times in found.items() if min(times) >= WITHIN_US / WITHIN}
    for name, size in long:
        for other in KERNELS:
            if name < other and (other, size) in long:
                both = zip(long[name, size], long[other, size], strict=True)
                values = [one / two for one, two in both]
                yield max(values) / min(values) - 1


def shown(found: dict[Point, list[float]]) -> str:
    rows: list[tuple[str, ...]] = []
    for (name, size), times in found.items():
        apart = max(times) - min(times)
        told = f"{apart:.2g}, {100 * apart / min(times):.1f} %" + ", **miss**" * off(times)
        rows.append((name, f"{size / MB:.3g}", *(f"{time:.4g}" for time in times), told))
    agree, apart_by = sum(not off(times) for times in found.values()), [*ratios(found)]
    within = sum(each <= WITHIN for each in apart_by)
    lines = table(("kernel", "input, MB", *WAYS, "apart, µs"), rows)
    points = f"{agree} of {len(found)} points agree within 3 % or 0.3 µs"
    pairs = ", ".join(
        f"{one} and {other} at {sum(not off([t[i], t[j]]) for t in found.values())}"
        for (i, one), (j, other) in combinations(enumerate(WAYS), 2)
    )
    long = f"Of {len(apart_by)} ratios of kernels of 10 µs or more {within} agree within 3 %."
    return f"{lines}\n\n{points}: {pairs}. {long}\n"


def main() -> None:
    text = with_part(PAGE.read_text("utf-8"), "agreement", shown(measured()))
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    inside() if INSIDE in sys.argv else main()
