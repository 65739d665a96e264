"""Whether three ways to time a kernel agree over sizes: benchmarks/recorded/agreement.json has the
times of every point, docs/measuring.md those that disagree.

- product: the stamps of a timing session.
- chain: plain torch in a CUDA graph, with events around the call and around an empty kernel.
- ncu: the duration of the call's kernels inside of that chain, caches untouched.

All are medians over four copies of every buffer, since the time depends on addresses, and
microseconds more than those of an empty kernel. A fourth column has what ncu measures inside of the
product's own graph. Needs a GPU and ncu.

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
from itertools import combinations, islice
from math import isqrt
from pathlib import Path
from statistics import fmean, median
from types import ModuleType
from typing import Any, NamedTuple

import pandas as pd
import torch
from tools.pages import DOCS, ROOT, table, with_parts, write
from torch.cuda import Event
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention, silu

from workbench.run.protocol import SessionsJob
from workbench.run.worker.loader import Loader
from workbench.run.worker.timing.graphs import captured, nodes
from workbench.run.worker.timing.neighbours import switch_contexts
from workbench.run.worker.timing.session import LONG_MICROSECONDS, TimingProcess
from workbench.study.values import Shape, Tolerance
from workbench.words import HEADLINE, NodeKind

PAGE = DOCS / "measuring.md"
FILE = ROOT / "benchmarks" / "recorded" / "agreement.json"
INSIDE = "--inside"  # of ncu
METRICS = ("gpu__time_duration.sum", "gpc__cycles_elapsed.max")
NCU = (
    "ncu --graph-profiling node --cache-control none --clock-control none --csv "
    f"--profile-from-start off --print-units base --metrics {','.join(METRICS)}"
).split()
WAYS = ("product", "chain", "ncu", "ncu in the product")
COMPARED, SAME_GRAPH = (0, 1, 2), (0, 3)  # of them
PAIRS = (*combinations(COMPARED, 2), SAME_GRAPH)
WITHIN, WITHIN_US = 0.03, 0.3
KB, MB = 1e3, 1e6
L2 = torch.cuda.get_device_properties(0).L2_cache_size if torch.cuda.is_available() else 50e6
SIZES = (1024, 64 * KB, MB, 4 * MB, L2 / 4, 16.8e6, L2 / 2, 33.5e6, L2, 134e6, 1.074e9)
HEADS = {1536: (1, 1, 4), 393 * KB: (1, 8, 128), 3.1e6: (2, 8, 512), 12.6e6: (4, 16, 512)}
HEADS |= {50.3e6: (4, 16, 2048), 201e6: (8, 16, 4096), 1.06e9: (42, 64, 1024)}
CALLS, ROUNDS, COPIES = 6, 10, 4
STAMP = "stamp"  # the kernel of the product around a call: twice before, once after
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


def timing(point: Point, folder: Path, graph_microseconds: float) -> TimingProcess:
    name, size = point
    (folder / "it.py").write_text(VARIANT.format(name=name))
    study: Any = ModuleType("study")
    study.shapes = {"it": Shape(size=int(size))}
    study.reference = lambda **inputs: KERNELS[name].run(*inputs.values())
    study.inputs = lambda shape, generator: KERNELS[name].inputs(size)
    study.tolerance = Tolerance(absolute=1.0, relative=1.0)
    job = SessionsJob(
        study="it", shape="it", params={}, sources={"it": ("it.py",)}, references=(), controls=(),
        sessions=1, instances=COPIES, rounds=ROUNDS, graph_microseconds=graph_microseconds,
    )  # fmt: skip

    def fail(variant: str, error: BaseException) -> None:
        raise error

    return TimingProcess(job, study, Loader(job, folder), fail)


def product(point: Point, folder: Path) -> tuple[float, float]:
    """Microseconds by the stamps of one session, and the SM clock in GHz."""
    series = timing(point, folder, 300.0).session(0, ["it"], alone=False).series
    chained = [one for one in series if one.regime == HEADLINE]
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
    chains = [Chain(point, events=True) for _ in range(COPIES)]
    switch_contexts()
    return median(took for chain in chains for took in chain.times())


def seen_by_ncu(replay: Callable[[], None]) -> None:
    """Two replays, of which ncu sees the second."""
    profiler = torch.cuda.cudart()
    replay()
    torch.cuda.synchronize()
    profiler.cudaProfilerStart()
    replay()
    torch.cuda.synchronize()
    profiler.cudaProfilerStop()


def inside(folder: Path) -> None:
    """One replay of every copy of both graphs for ncu to see: first of the chain, of which this
    tells how many kernels stand where in a call, then of the product's.
    """
    for point in (EMPTY, *POINTS):
        chains = [Chain(point, events=False) for _ in range(COPIES)]
        for chain in chains:
            seen_by_ncu(chain.graphs[0].replay)
        places = [chains[0].ahead, chains[0].own, kernels(chains[0].graphs[0]) // CALLS]
        del chain, chains
        forget()
        process = timing(point, folder, 1.0)
        process.build(["it"])
        graphs = [one.graphs[HEADLINE] for one in process.instances]
        for graph in graphs:
            seen_by_ncu(graph.replay)
        counts = [kernels(graph) for graph in graphs if isinstance(graph, torch.cuda.CUDAGraph)]
        print(INSIDE, json.dumps([*point, *places, counts]), flush=True)
        del process, graph, graphs
        forget()


def forget() -> None:
    gc.collect()
    torch.cuda.empty_cache()


class Launch(NamedTuple):
    """What ncu measured of a kernel: microseconds and thousands of cycles."""

    kernel: str
    took: float
    kilocycles: float


def launches(lines: Sequence[str]) -> Iterator[Launch]:
    seen: dict[str, dict[str, str]] = {}
    for row in csv.DictReader(line for line in lines if line.startswith('"')):
        found = seen.setdefault(row["ID"], {"kernel": row["Kernel Name"].partition("(")[0]})
        found[row["Metric Name"]] = row["Metric Value"].replace(",", "")
    for one in seen.values():
        yield Launch(one["kernel"], *(float(one[metric]) / 1e3 for metric in METRICS))


def between_stamps(graph: Sequence[Launch]) -> list[list[Launch]]:
    """The kernels of each call of a graph of the product, but not of that ahead of its stamps."""
    stamps = [place for place, one in enumerate(graph) if one.kernel == STAMP]
    calls = [
        [*graph[start + 1 : end]]
        for before, start, end in zip(stamps, stamps[1:], stamps[2:], strict=False)
        if start == before + 1
    ]
    return calls[1:]


def total(calls: Sequence[Sequence[Launch]]) -> list[float]:
    """Medians over calls of what their kernels take: microseconds and thousands of cycles."""
    took = median(sum(one.took for one in call) for call in calls)
    return [took, median(sum(one.kilocycles for one in call) for call in calls)]


def by_ncu(folder: Path) -> dict[Point, tuple[list[float], list[float]]]:
    """Microseconds and thousands of cycles of every point, in the chain and in the product."""
    script = [sys.executable, "-m", "benchmarks.agreement", INSIDE, str(folder)]
    done = subprocess.run([*NCU, *script], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    lines = done.stdout.splitlines()
    seen, found = launches(lines), {}
    for line in lines:
        if line.startswith(INSIDE):
            name, size, ahead, own, each, counts = json.loads(line.removeprefix(INSIDE))
            chained = [[*islice(seen, each)][ahead : ahead + own] for _ in range(COPIES * CALLS)]
            its = [call for count in counts for call in between_stamps([*islice(seen, count)])]
            found[name, size] = total(chained), total(its)
    return found


def measured() -> dict[Point, list[float]]:
    """Microseconds of every point in each of ``WAYS`` more than those of an empty kernel."""
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "kernels" / "it"
        folder.mkdir(parents=True)
        ncu = by_ncu(folder)
        constant, _ = product(EMPTY, folder)
        for point in POINTS:
            took, ghz = product(point, folder)
            forget()
            found[point] = [took - constant, by_events(point)]
            for one, other in zip(ncu[point], ncu[EMPTY], strict=True):
                more = (a - b for a, b in zip(one, other, strict=True))
                found[point].append(at_clock(ghz, *more))
            print(point, found[point], flush=True)
            forget()
    return found


def at_clock(ghz: float, took: float, kilocycles: float) -> float:
    """What ncu measured, at the product's SM clock where its own is another by more than 3 %: under
    ncu the GPU rests between kernels, and does not meet its power limit.
    """
    return kilocycles / ghz if abs(kilocycles / took / ghz - 1) > WITHIN else took


def apart(times: pd.DataFrame) -> pd.Series[float]:
    return times.max(axis=1) / times.min(axis=1) - 1


def agree(found: pd.DataFrame, ways: Sequence[int]) -> pd.Series[bool]:
    """Whether some ways to time a point agree."""
    times = found.iloc[:, list(ways)]
    least = times.min(axis=1)
    return times.max(axis=1) - least <= (WITHIN * least).clip(lower=WITHIN_US)


def close(found: pd.DataFrame, ways: Sequence[int]) -> str:
    """How many ratios of two kernels at a size agree between some ways; of those that take 10 µs or
    more, since 0.3 µs are 3 % of 10.
    """
    times = found.iloc[:, list(ways)]
    long = times[times.min(axis=1) >= WITHIN_US / WITHIN].reset_index()
    both = long.merge(long, on="bytes", suffixes=("", " other")).query("kernel < `kernel other`")
    ratios = pd.DataFrame({way: both[way] / both[f"{way} other"] for way in times.columns})
    return f"{(apart(ratios) <= WITHIN).sum()} of {len(ratios)}"


def shown(found: pd.DataFrame) -> str:
    """The points that disagree, and how many agree."""
    misses = found.assign(apart=100 * apart(found.iloc[:, list(COMPARED)]))
    misses = misses[~agree(found, COMPARED)].reset_index()
    rows = [
        (name, f"{size / MB:.3g}", *(f"{time:.4g}" for time in times), f"{percent:.1f}")
        for name, size, *times, percent in misses.itertuples(index=False)
    ]
    lines = table(("kernel", "input, MB", *WAYS, "apart, %"), rows)
    pairs = ", ".join(f"{WAYS[i]} and {WAYS[j]} at {agree(found, (i, j)).sum()}" for i, j in PAIRS)
    return (
        f"{lines}\n\n{agree(found, COMPARED).sum()} of {len(found)} points agree within 3 % or "
        f"0.3 µs: {pairs}. Of the ratios of two kernels of 10 µs or more, "
        f"{close(found, COMPARED)} agree within 3 %; "
        f"between {' and '.join(WAYS[way] for way in SAME_GRAPH)}, {close(found, SAME_GRAPH)}.\n"
    )


def record(found: dict[Point, list[float]]) -> None:
    rows = [
        {"kernel": name, "bytes": size, "microseconds": [float(f"{time:.4g}") for time in times]}
        for (name, size), times in found.items()
    ]
    lines = ",\n".join(f" {json.dumps(row)}" for row in rows)
    FILE.write_text(f"[\n{lines}\n]\n", "utf-8")


def recorded() -> pd.DataFrame:
    """The last record: microseconds in each way by kernel and bytes."""
    every = pd.read_json(FILE).set_index(["kernel", "bytes"])
    return pd.DataFrame([*every.microseconds], index=every.index, columns=WAYS)


def written() -> dict[Path, str]:
    """By the last record; no GPU is needed."""
    return {PAGE: with_parts(PAGE, {"agreement": shown(recorded())})}


def main() -> None:
    record(measured())
    write(written())


if __name__ == "__main__":
    inside(Path(sys.argv[-1])) if INSIDE in sys.argv else main()
