"""Measure what the GPU really reaches: microbenchmarks of every ceiling.

They run in a worker of their own, ``python -m workbench.run.worker.benchmarks job.json``, which
imports no study. A ceiling is tried in a few settings, each for ``ROUNDS`` rounds of
``ROUND_MICROSECONDS`` once its rate is steady. Its value is the median round of the best setting:
the best setting, because a ceiling is what can be had; the median, because one lucky round cannot
be had again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import median
from typing import Any

import torch

from workbench import cuda
from workbench.errors import EnvironmentLacks
from workbench.evidence.records import Ceiling, TriedSetting
from workbench.run.gpu import Gauge
from workbench.run.protocol import (
    CeilingFailed,
    CeilingMeasured,
    CeilingsJob,
    DeviceFound,
)
from workbench.run.worker.device import environment, gpu_uuid
from workbench.run.worker.event_log import EventLog, describe
from workbench.run.worker.startup import job_of

ROUNDS = 15
ROUND_MICROSECONDS = 8000.0
STEADY, STEADY_WITHIN = 8, 0.01  # so many rounds, no further apart than that
WARM_UP_SECONDS, LONGEST_WARM_UP_SECONDS = 0.4, 1.0
AHEAD = 16  # the part of a round that runs ahead of it
FLOPS, BYTES = "FLOP/s", "byte/s"
PIECE = 16  # bytes of one load
STREAM_THREADS = 512
STREAMS = ((4, 4), (4, 64), (8, 2))  # loads in flight a thread, blocks an SM
GIB = 2**30
CHAINS, STEPS = 8, 64  # of a thread, and of every chain in one turn of the loop
# How deep along the summed dimension an instruction of wgmma and of mma.sync is.
TENSOR_TYPES = {"fp16": (16, 16), "bf16": (16, 16), "tf32": (8, 8), "fp8": (32, 32)}
WGMMA = {"threads": 256, "turns": 4}
WGMMA_STEPS = 4  # instructions of 32 bytes along the 128 of a row
MMA = {"threads": 512, "turns": 8, "rows": 2, "columns": 4}


@dataclass(frozen=True)
class Setting:
    """One way to run a benchmark: ``launch(amount)`` does ``amount`` times ``work``."""

    what: str
    work: float
    launch: Callable[[int], None]


@dataclass(frozen=True)
class BenchmarkRound:
    """``work`` in FLOPs or bytes, clocks in MHz while it ran; None is not collected."""

    seconds: float
    work: float
    sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    temperature_c: int | None
    throttled: bool

    @property
    def rate(self) -> float:
        return self.work / self.seconds


class Bench:
    """The GPU, and the memory that the benchmarks use."""

    def __init__(self) -> None:
        self.properties = torch.cuda.get_device_properties(0)
        self.sms = int(self.properties.multi_processor_count)
        self.capability = torch.cuda.get_device_capability()
        self.clocks = torch.zeros(2, dtype=torch.int64, device="cuda")
        self.sink = torch.zeros(1 << 20, dtype=torch.float64, device="cuda")
        self.gauge = Gauge(gpu_uuid())

    @cached_property
    def buffer(self) -> torch.Tensor:
        """Random bytes, many times the L2 cache and at most half of the free memory."""
        free = int(torch.cuda.mem_get_info()[0])
        size = min(8 * GIB, free // 2) // GIB * GIB or free // 2 // 2**20 * 2**20
        least = 20 * int(self.properties.L2_cache_size)
        if size < least:
            raise EnvironmentLacks(
                f"needs {least / GIB:.1f} GiB of GPU memory, {size / GIB:.1f} GiB can be had"
            )
        return torch.empty(size // 8, dtype=torch.int64, device="cuda").random_()

    def kernel(self, file: str, name: str, **defines: Any) -> cuda.Kernel:
        kernel = cuda.kernel(f"ceilings/{file}", name, defines=defines)
        cuda.take_declared()
        return kernel

    # ---- memory ------------------------------------------------------------------------------
    def dram(self) -> list[Setting]:
        return [
            self._stream(name, moved, unroll, blocks)
            for name, moved in (("read", 1), ("copy", 2), ("triad", 3))
            for unroll, blocks in STREAMS
        ]

    def _stream(self, name: str, arrays: int, unroll: int, blocks: int) -> Setting:
        threads = STREAM_THREADS
        kernel = self.kernel("memory.cu", f"stream_{name}", threads=threads, unroll=unroll)
        total = self.buffer.numel() * 8
        bytes_each = total // arrays // (threads * unroll * PIECE) * (threads * unroll * PIECE)
        parts = [
            self.buffer[i * bytes_each // 8 : (i + 1) * bytes_each // 8] for i in range(arrays)
        ]
        sink = [self.sink] if arrays == 1 else []

        def launch(amount: int) -> None:
            for _ in range(amount):
                kernel[self.sms * blocks, threads](*parts, bytes_each // PIECE, *sink, self.clocks)

        what = {1: "reading", 2: "copying", 3: "reading two arrays and writing a third of"}[arrays]
        return Setting(
            f"{what} {bytes_each / GIB:.1f} GiB, 16-byte accesses, {unroll} loads in flight a "
            f"thread, {blocks} blocks of {threads} threads an SM",
            float(bytes_each * arrays),
            launch,
        )

    def l2(self) -> list[Setting]:
        """Sets well below half of L2: Hopper and Ampere keep a copy in each of two partitions."""
        return [self._l2(part, blocks) for part in (6, 3) for blocks in (1, 2, 4)]

    def _l2(self, fraction: int, blocks: int) -> Setting:
        threads, unroll = 512, 4
        kernel = self.kernel("memory.cu", "l2_read", threads=threads, unroll=unroll)
        grid, tile = self.sms * blocks, threads * unroll * PIECE
        tiles = max(1, int(self.properties.L2_cache_size) // fraction // (tile * grid))

        def launch(amount: int) -> None:
            kernel[grid, threads](self.buffer, tiles, amount, self.sink, self.clocks)

        return Setting(
            f"each block reading its own part of {grid * tiles * tile / 2**20:.1f} MiB, "
            f"ld.global.cg, {blocks} blocks of {threads} threads an SM",
            float(grid * tile),
            launch,
        )

    def l1(self) -> list[Setting]:
        return [self._l1(unroll, blocks) for unroll, blocks in ((1, 4), (2, 2), (4, 2))]

    def _l1(self, unroll: int, blocks: int) -> Setting:
        threads = 512
        kernel = self.kernel("memory.cu", "l1_read", threads=threads, unroll=unroll)
        grid, tile = self.sms * blocks, threads * unroll * PIECE

        def launch(amount: int) -> None:
            kernel[grid, threads](self.buffer, amount, 0, self.sink, self.clocks)

        return Setting(
            f"each block reading its own {tile // 1024} KiB again and again, 16-byte ld.global, "
            f"{blocks} blocks of {threads} threads an SM",
            float(grid * tile),
            launch,
        )

    # ---- arithmetic --------------------------------------------------------------------------
    def chains(self, kind: str) -> list[Setting]:
        instruction, flops, factor, add = {
            "fp32": ("FFMA", 2, -0.99999, 3.7),
            "fp64": ("DFMA", 2, -0.99999, 3.7),
            "half": ("HFMA2", 4, _signed(0xBBFFBBFF), _signed(0x3E663E66)),  # -0.9995, 1.6
        }[kind]
        threads = 512
        kernel = self.kernel(
            "arithmetic.cu", f"chains_{kind}", threads=threads, chains=CHAINS, steps=STEPS
        )

        def launch(grid: int, amount: int) -> None:
            kernel[grid, threads](factor, add, amount, self.sink, self.clocks)

        return [
            Setting(
                f"{CHAINS} independent chains of {instruction} a thread, {blocks} blocks of "
                f"{threads} threads an SM",
                float(self.sms * blocks * threads * CHAINS * STEPS * flops),
                partial(launch, self.sms * blocks),
            )
            for blocks in (1, 2)
        ]

    def tensor(self, kind: str) -> list[Setting]:
        if self.capability < (8, 0):
            raise EnvironmentLacks("there is no benchmark of tensor cores before Ampere")
        if kind == "fp8" and self.capability < (8, 9):
            raise EnvironmentLacks("this GPU has no FP8 tensor instructions")
        wgmma = self.capability == (9, 0)
        shape = WGMMA if wgmma else MMA
        deep = TENSOR_TYPES[kind][0 if wgmma else 1]
        kernel = self.kernel("tensor.cu", "products", type=kind.upper(), **shape)
        if wgmma:
            name = f"wgmma m64n256k{deep}, {shape['threads'] // 128} warpgroups an SM"
            flops_each = (
                shape["threads"] // 128 * shape["turns"] * WGMMA_STEPS * 2 * 64 * 256 * deep
            )
        else:
            name = f"mma.sync m16n8k{deep}, {shape['threads'] // 32} warps a block"
            tiles = shape["rows"] * shape["columns"]
            flops_each = shape["threads"] // 32 * shape["turns"] * tiles * 2 * 16 * 8 * deep

        def launch(grid: int, amount: int) -> None:
            kernel[grid, shape["threads"]](amount, self.sink, self.clocks)

        return [
            Setting(
                f"{name}{'' if wgmma else f', {blocks} an SM'}, random operands of both signs "
                "from 0.25 to 1, sums in FP32",
                float(self.sms * blocks * flops_each),
                partial(launch, self.sms * blocks),
            )
            for blocks in ((1,) if wgmma else (1, 2))
        ]

    # ---- measuring ---------------------------------------------------------------------------
    def round(self, setting: Setting, amount: int) -> BenchmarkRound:
        """Some work ahead of it keeps the GPU busy until all of it has been launched."""
        setting.launch(max(1, amount // AHEAD))
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        setting.launch(amount)
        end.record()
        load = self.gauge.load()
        memory = self.gauge.memory_clock_mhz()
        end.synchronize()
        cycles, nanoseconds = self.clocks.tolist()
        return BenchmarkRound(
            seconds=float(start.elapsed_time(end)) * 1e-3,
            work=setting.work * amount,
            sm_clock_mhz=cycles / nanoseconds * 1e3 if nanoseconds > 0 else load.sm_clock_mhz,
            memory_clock_mhz=memory,
            temperature_c=load.temperature_c,
            throttled=bool(load.throttled),
        )

    def measure(self, setting: Setting) -> list[BenchmarkRound]:
        self.round(setting, 1)
        amount = 1
        while (seconds := self.round(setting, amount).seconds) < 1e-3:
            amount *= 8
        amount = max(1, round(amount * ROUND_MICROSECONDS * 1e-6 / seconds))
        warm_up(lambda: self.round(setting, amount).rate)
        return [self.round(setting, amount) for _ in range(ROUNDS)]

    def ceiling(self, name: str) -> Ceiling:
        settings = BENCHMARKS[name](self)
        measured = [(setting, self.measure(setting)) for setting in settings]
        setting, rounds = max(measured, key=lambda pair: middle_rate(pair[1]))
        return Ceiling(
            unit=BYTES if name in ("dram", "l2", "l1") else FLOPS,
            value=middle_rate(rounds),
            best=max(one.rate for one in rounds),
            rounds=len(rounds),
            round_ms=median(one.seconds for one in rounds) * 1e3,
            settings=len(settings),
            ran=setting.what,
            sm_clock_mhz=_middle(one.sm_clock_mhz for one in rounds),
            memory_clock_mhz=_middle(one.memory_clock_mhz for one in rounds),
            temperature_c=_middle(one.temperature_c for one in rounds),
            throttled=any(one.throttled for one in rounds),
            tried=tuple(
                TriedSetting(ran=each.what, median=middle_rate(own)) for each, own in measured
            ),
        )


def warm_up(rate: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> list[float]:
    """Calls ``rate``, which runs a round, until it lasts: until the last ``STEADY`` rounds agree.

    The gpu answers to the power that it draws only after a while, and the first rounds are at a
    clock that does not last: so never less than ``WARM_UP_SECONDS``, and never more than
    ``LONGEST_WARM_UP_SECONDS``. Returns the rates.
    """
    started, rates = clock(), list[float]()
    while (spent := clock() - started) < LONGEST_WARM_UP_SECONDS:
        rates.append(rate())
        last = rates[-STEADY:]
        agree = len(last) == STEADY and max(last) <= (1 + STEADY_WITHIN) * min(last)
        if agree and spent >= WARM_UP_SECONDS:
            break
    return rates


def middle_rate(rounds: Iterable[BenchmarkRound]) -> float:
    return median(one.rate for one in rounds)


def _signed(bits: int) -> int:
    return bits - 2**32 if bits >= 2**31 else bits


def _middle(values: Iterable[float | None]) -> float | None:
    collected = [value for value in values if value is not None]
    return round(median(collected), 1) if collected else None


BENCHMARKS: Mapping[str, Callable[[Bench], list[Setting]]] = {
    "dram": Bench.dram,
    "l2": Bench.l2,
    "l1": Bench.l1,
    **{kind: partial(Bench.chains, kind=kind) for kind in ("fp32", "fp64", "half")},
    **{f"tensor {kind}": partial(Bench.tensor, kind=kind) for kind in TENSOR_TYPES},
}


def main() -> None:
    with job_of(CeilingsJob) as (job, journal):
        journal.write(DeviceFound(environment=environment()))
        bench = Bench()
        for name in job.ceilings:
            journal.current(name)
            measure(name, bench, journal)
        journal.current("")


def measure(name: str, bench: Bench, journal: EventLog) -> None:
    try:
        journal.write(CeilingMeasured(id=name, ceiling=bench.ceiling(name)))
    except Exception as error:
        journal.write(CeilingFailed(id=name, error=describe(error)))
        journal.leave_if_lost(name)


if __name__ == "__main__":
    main()
