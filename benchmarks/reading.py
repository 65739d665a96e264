"""How long the weights of a mixture of experts take to be read, and nothing done with them: the
least that one call could take between others. On a GPU:

    python -m benchmarks.reading

Reads as many bytes as the study says that a call needs, by the kernel that measures the ceiling of
DRAM, call after call in a CUDA graph, each elsewhere in memory so that L2 has none of them. Writes
``benchmarks/recorded/reading.json``; `benchmarks.sizes` tells of it in docs/experts.md.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from workbench.study.workspace import find_workspace

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "benchmarks" / "recorded" / "reading.json"
MODELS, TOKENS = ("mixtral", "deepseek", "qwen3"), (1, 16, 128, 1024)
ROUNDS = 15
LEAST_BYTES, LEAST_CALLS = 3e9, 4  # of a graph


@dataclass(frozen=True)
class Reading:
    """``microseconds`` are of a call, a round each, by the setting that took least."""

    shape: str
    bytes_read: int
    ran: str
    microseconds: tuple[float, ...]

    @property
    def time(self) -> float:
        """Microseconds."""
        return median(self.microseconds)

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.bytes_read / self.time * 1e6


def recorded() -> Mapping[str, Reading]:
    """By shape."""
    found = json.loads(RECORD.read_text("utf-8"))["readings"]
    readings = (Reading(**{**one, "microseconds": tuple(one["microseconds"])}) for one in found)
    return {reading.shape: reading for reading in readings}


class Card:
    """The GPU, memory to read, and the ways in which the ceiling of DRAM is measured: loads in
    flight a thread, and blocks an SM.
    """

    def __init__(self, size: int) -> None:
        import torch

        from workbench.run.worker.benchmarks import PIECE, STREAM_THREADS, STREAMS, Bench

        self.bench, self.threads, self.piece = Bench(), STREAM_THREADS, PIECE
        self.settings = STREAMS
        self.buffer = torch.empty(size // 8, dtype=torch.int64, device="cuda").random_()
        self.kernels = {
            unroll: self.bench.kernel(
                "memory.cu", "stream_read", threads=STREAM_THREADS, unroll=unroll
            )
            for unroll, _ in STREAMS
        }

    def graph(self, size: int, unroll: int, blocks: int) -> tuple[Any, int]:
        """Calls that read so many bytes each, and how many they are."""
        import torch

        tile = self.threads * unroll * self.piece
        size = -(-size // tile) * tile
        places = self.buffer.numel() * 8 // size
        calls = max(LEAST_CALLS, int(LEAST_BYTES / size))

        def call(number: int) -> None:
            part = self.buffer[number % places * (size // 8) :]
            self.kernels[unroll][self.bench.sms * blocks, self.threads](
                part, size // self.piece, self.bench.sink, self.bench.clocks
            )

        call(0)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for number in range(calls):
                call(number)
        return graph, calls


def measure(card: Card, shape: str, size: int) -> Reading:
    import torch

    graphs = {setting: card.graph(size, *setting) for setting in card.settings}
    times: dict[tuple[int, int], list[float]] = {setting: [] for setting in card.settings}
    for _ in range(ROUNDS):
        for setting in random.sample(card.settings, len(card.settings)):
            graph, calls = graphs[setting]
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            graph.replay()
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[setting].append(float(start.elapsed_time(end)) * 1e3 / calls)
    unroll, blocks = best = min(times, key=lambda setting: median(times[setting]))
    ran = f"{unroll} loads in flight a thread, {blocks} blocks of {card.threads} threads an SM"
    return Reading(shape, size, ran, tuple(round(one, 3) for one in times[best]))


def main() -> int:
    import torch

    study = find_workspace(ROOT).study("moe")
    sizes = {
        shape: int(study.work(shape).bytes)
        for model in MODELS
        for tokens in TOKENS
        if (shape := f"{model}-t{tokens}") in study.shapes
    }
    card = Card(2 * max(sizes.values()))
    found = {
        "gpu": torch.cuda.get_device_name(0),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "readings": [vars(measure(card, *each)) for each in sizes.items()],
    }
    RECORD.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
