"""What attention costs piece by piece: our fastest kernels with parts of their work left out.

    python -m benchmarks.least                  on a GPU; less than a minute
    python -m benchmarks.least --compile-only   for sm_90a, without one
    python -m benchmarks.least --page           docs/attention-notes.md, from what is on record

Every form does strictly less than attention has to, in the structure of the kernel that `fix21`
chooses and on the same inputs. One that still misses a target says that it is out of reach for that
structure; two that differ by a piece say what it costs. Forms are made by replacing text in copies
of the sources, which fails where a text is not there as often as it should be.

Few keys are timed between ordinary neighbours, as `workbench` does ("chained"), many back to back
for so long that the card's limit of power shows. Writes ``benchmarks/recorded/least.json``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from types import ModuleType

import numpy as np
import torch
from benchmarks.chained import (
    BACK_TO_BACK,
    BARE,
    CHAINED,
    Card,
    Case,
    Instance,
    Surroundings,
    load_variant,
)
from benchmarks.forms import Edit, Form, write_form

from workbench.cuda import CUBIN_FOLDER
from workbench.cuda.cubin import TEXT, sections
from workbench.render.numbers import microseconds
from workbench.run.worker.timing.card import switch_contexts
from workbench.study.workspace import load_module

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "kernels" / "attention"
RECORD = ROOT / "benchmarks" / "recorded" / "least.json"
PAGE = ROOT / "docs" / "attention-notes.md"
BLOCK = re.compile(r"(<!-- least -->\n).*?(<!-- /least -->)", re.DOTALL)
ARCH = "sm_90a"
SDPA = "sdpa"
REFERENCES = (SDPA, "fa4")
ROUNDS = 15
CALLS = 20  # of a graph of few keys
INSTANCES = 3  # of a form at few keys
WARM_SECONDS = 0.5
COUNTED_SECONDS, AHEAD_SECONDS = 0.05, 0.02  # of a graph of many keys
TOLERANCE = 5e-3  # of outputs that are to be those of attention, over 1 + their size


@dataclass(frozen=True)
class Target:
    """A shape, the variant that takes it, which of its kernels that is, the forms, and how many
    times faster than the faster reference it should be.
    """

    shape: str
    variant: str
    kernel: tuple[object, ...]
    forms: tuple[Form, ...]
    aim: float
    is_long: bool = False
    has_loop: bool = True


# ---- what is left out ---------------------------------------------------------------------------
# Masked scores are zeros where no exponential makes zeros of them: -infinity would turn all output
# into NaN, and products of NaN need less power. For the same reason operands without exponentials
# stay positive, as probabilities are, as long as scores are still scaled.
_MASK = Edit("attention.cuh", "score[i] = __int_as_float(0xff800000)", "score[i] = 0.0f")
# The compiler has to believe that scores and operands are used, or it leaves out what makes them.
_KEEP = Edit(
    "attention.cuh",
    "constexpr float kLog2e = 1.4426950408889634f;\n",
    """\
constexpr float kLog2e = 1.4426950408889634f;

template <int kCount>
__device__ __forceinline__ void keep(const float (&d)[kCount], Element* out, int seq_len) {
    if (__builtin_expect(seq_len < 0, false)) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) reinterpret_cast<volatile float*>(out)[i] = d[i];
    }
}

template <int kCount>
__device__ __forceinline__ void keep(const unsigned (&a)[kCount][4], Element* out, int seq_len) {
    if (__builtin_expect(seq_len < 0, false)) {
#pragma unroll
        for (int i = 0; i < 4 * kCount; ++i)
            reinterpret_cast<volatile unsigned*>(out)[i] = a[i / 4][i % 4];
    }
}
""",
)

FIX16 = {
    "keep": (_KEEP,),
    "maximum": (
        Edit("fix16.cu", "reference[2] = {-1e30f, -1e30f};", "reference[2] = {0.0f, 0.0f};"),
        Edit("fix16.cu", "            if (j == 0) find_largest(score[now], reference);\n", ""),
        Edit("fix16.cu", "        find_largest(score, reference);\n", ""),
        Edit(
            "fix16.cu",
            """\
            if (j > 0 && too_large(p[now])) {
                wgmma_wait<0>();
                pin(acc);
                correct(p[now], chunk);
            }
""",
            "",
        ),
        Edit("fix16.cu", "            if (too_large(p)) correct(p, chunk + 2);\n", ""),
        Edit(
            "fix16.cu",
            """\
        const float largest = fmaxf(reference[half], other_reference);
        share[half] = exp2_fast(reference[half] - largest);
        other_share[half] = exp2_fast(other_reference - largest);
""",
            "        share[half] = other_share[half] = 1.0f;\n",
        ),
    ),
    "sums": (
        Edit("fix16.cu", "float acc[36],", "float acc[32],"),
        Edit("fix16.cu", "i < 36; ++i) acc[i] = 0.0f;", "i < 32; ++i) acc[i] = 0.0f;"),
        Edit(
            "fix16.cu",
            """\
#pragma unroll
    for (int i = 0; i < 2; ++i)
        reinterpret_cast<uint4*>(s.ones)[threadIdx.x + i * 256] =
            make_uint4(kOnes, kOnes, kOnes, kOnes);
""",
            "",
        ),
        Edit("fix16.cu", "    async_proxy_fence();\n    __syncthreads();", "    __syncthreads();"),
        Edit("fix16.cu", "acc[32], acc[34]);", "0.0f, 0.0f);"),
        Edit(
            "fix16.cu",
            """\
        const float inverse = reciprocal(
            fmaf(share[half], acc[32 + 2 * half], other_share[half] * other_sum));
        share[half] *= inverse;
        other_share[half] *= inverse;
""",
            "",
        ),
    ),
    # Neither references nor sums are left to be exchanged.
    "exchange": (
        Edit(
            "fix16.cu",
            """\
    s.exchange[group][4][local] = make_float4(reference[0], reference[1], 0.0f, 0.0f);
""",
            "",
        ),
        Edit("fix16.cu", "other = s.exchange[1 - group][4][local];", "other = {};"),
    ),
    "exponentials": (
        Edit(
            "fix16.cu",
            "score[i] = exp2_fast(fmaf(score[i], to_log2, -reference[i / 2 % 2]));",
            "score[i] = fmaf(score[i], -to_log2, reference[i / 2 % 2] + 24.0f);",
        ),
        _MASK,
    ),
    "scaling": (
        Edit("fix16.cu", "score[i] = fmaf(score[i], -to_log2, reference[i / 2 % 2] + 24.0f);", ";"),
    ),
    # Every probability is one.
    "conversions": (
        Edit(
            "fix16.cu",
            "        unsigned p[2][4][4];\n",
            """\
        unsigned p[2][4][4];
#pragma unroll
        for (int i = 0; i < 32; ++i) p[i / 16][i / 4 % 4][i % 4] = kOnes;
""",
        ),
        Edit(
            "fix16.cu",
            "        unsigned p[4][4];\n",
            """\
        unsigned p[4][4];
#pragma unroll
        for (int i = 0; i < 16; ++i) p[i / 4][i % 4] = kOnes;
""",
        ),
        Edit("fix16.cu", "pack_operand(p[now], score[now]);", "keep(score[now], out, seq_len);"),
        Edit(
            "fix16.cu",
            "        pack_operand(p, score);\n        bool first = true;",
            "        keep(score, out, seq_len);\n        bool first = true;",
        ),
        Edit(
            "fix16.cu",
            "pin(p);\n            pack_operand(p, score);\n",
            "pin(p);\n            keep(score, out, seq_len);\n",
        ),
    ),
    "products": (
        # Something that the compiler does not know.
        Edit(
            "fix16.cu",
            "        float score[2][32];\n",
            """\
        float score[2][32];
#pragma unroll
        for (int i = 0; i < 64; ++i) score[i / 32][i % 32] = __int_as_float(lane + i);
""",
        ),
        Edit(
            "fix16.cu",
            "        float score[32];\n",
            """\
        float score[32];
#pragma unroll
        for (int i = 0; i < 32; ++i) score[i] = __int_as_float(lane + i);
""",
        ),
        Edit(
            "fix16.cu",
            """\
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i)
            wgmma(score, descriptor(s.q) + i * 2, descriptor(s.k[chunk]) + i * 2, i > 0);
        wgmma_commit();
""",
            "",
        ),
        Edit(
            "fix16.cu",
            """\
        wgmma_fence();
        const unsigned v = descriptor(s.v[chunk], (kMost - chunk) * kChunk * 128);  // to the ones
#pragma unroll
        for (int i = 0; i < 4; ++i) wgmma(acc, p[i], v + i * 128, i > 0 || !first);
        wgmma_commit();
""",
            "        keep(p, out, seq_len);\n",
        ),
    ),
    "everything": (
        Edit(
            "fix16.cu",
            "    extern __shared__ char raw[];\n",
            "    if (seq_len > 0) return;\n    extern __shared__ char raw[];\n",
        ),
    ),
}

FIX18 = {
    "keep": (_KEEP,),
    # Sums of a tile are also what says that the reference is too low.
    "check": (
        Edit(
            "fix18.cu",
            """\
            if (__any_sync(~0u, !(fmaxf(sum[0], sum[1]) < kTooLarge)))
                correct(step + 1, tile * kTile);
""",
            "",
        ),
    ),
    "limit": (Edit("fix18.cu", "kTooLarge = LIMIT;", "kTooLarge = 1e30f;"),),
    "maximum": (
        Edit(
            "attention.cuh",
            "return fmaf(score, to_log2, -reference[i / 2 % 2] * to_log2);",
            "return score * to_log2;",
        ),
        Edit(
            "fix18.cu",
            "softmax.move_reference(score);\n        softmax.exponentiate(score);",
            "softmax.exponentiate(score);",
        ),
        Edit("attention.cuh", "reference[2] = {-1e30f, -1e30f};", "reference[2] = {0.0f, 0.0f};"),
    ),
    "sums": (
        Edit("fix18.cu", "                sum[i / 2 % 2] += score[i];\n", ""),
        Edit(
            "fix18.cu",
            "            softmax.sum[0] += sum[0];\n            softmax.sum[1] += sum[1];\n",
            "",
        ),
        Edit(
            "fix18.cu",
            """\
        const float inverse[2] = {reciprocal(quad_sum(softmax.sum[0])),
                                  reciprocal(quad_sum(softmax.sum[1]))};
""",
            "        const float inverse[2] = {1.0f, 1.0f};\n",
        ),
    ),
    "exponentials": (
        Edit(
            "fix18.cu",
            "score[i] = exp2_fast(softmax.exponent(score[i], i));",
            "score[i] = fmaf(score[i], -to_log2, softmax.reference[i / 2 % 2] * to_log2 + 24.0f);",
        ),
        Edit(
            "attention.cuh",
            "score[i] = exp2_fast(exponent(score[i], i));",
            "score[i] = fmaf(score[i], -to_log2, reference[i / 2 % 2] * to_log2 + 24.0f);",
        ),
        _MASK,
    ),
    "scaling": (
        Edit(
            "fix18.cu",
            "score[i] = fmaf(score[i], -to_log2, softmax.reference[i / 2 % 2] * to_log2 + 24.0f);",
            ";",
        ),
    ),
    # Those of a row's first tile, which is not masked then, are the operands of all its tiles.
    "conversions": (
        Edit(
            "fix18.cu",
            "        release_k(step);\n        mask_keys(score, tile * kTile, row, seq_len);\n",
            "        release_k(step);\n",
        ),
        Edit(
            "fix18.cu",
            "release_v(step);\n            pack_operand(p, score);\n",
            "release_v(step);\n            keep(score, out, seq_len);\n",
        ),
    ),
    "products": (
        Edit("fix18.cu", "= {}, score[kTile / 2];", "= {}, score[kTile / 2] = {};"),
        Edit(
            "fix18.cu",
            """\
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < kHeadDim / 16; ++i)
                wgmma(score, q_tile + i / 4 * (kRows * 128 >> 4) + i % 4 * 2,
                      descriptor(s.k[stage][i / 4]) + i % 4 * 2, i > 0);
            wgmma_commit();
""",
            "",
        ),
        Edit(
            "fix18.cu",
            """\
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < kTile / 16; ++i)
                wgmma(acc, p[i], descriptor(s.v[stage][0], kTile * 128) + i * 128, 1);
            wgmma_commit();
""",
            "            keep(p, out, seq_len);\n",
        ),
    ),
}
EDITS: Mapping[str, Mapping[str, tuple[Edit, ...]]] = {"fix16": FIX16, "fix18": FIX18}

ORIGINAL, NO_MAXIMUM = "original", "no maximum"
EXACT = (ORIGINAL, NO_MAXIMUM)  # their output is that of attention


def cumulative(maximum: tuple[str, ...], sums: tuple[str, ...]) -> tuple[Form, ...]:
    """Each leaves out what those ahead of it do, and more: first what a maximum takes, then what
    sums do.
    """
    none = (*maximum, *sums)
    products = (*none, "exponentials", "scaling", "keep", "conversions")
    return (
        Form(ORIGINAL),
        Form(NO_MAXIMUM, maximum),
        Form("and no sums", none),
        Form("and no exponentials", (*none, "exponentials")),
        Form("products, conversions", (*none, "exponentials", "scaling")),
        Form("products only", products),
        Form("loads and output only", (*products, "products")),
    )


ALL16 = (
    *cumulative(("maximum",), ("sums", "exchange")),
    Form("launch only", ("everything",)),
    Form("no sums alone", ("sums",)),
    Form("no exponentials alone", ("exponentials",)),
    Form("no conversions alone", ("keep", "conversions")),
    Form("no products alone", ("keep", "products")),
)
MORE18 = cumulative(("check", "maximum"), ("sums",))
ALL18 = (
    *MORE18,
    Form("no sums alone", ("check", "sums")),
    Form("no exponentials alone", ("exponentials", "limit")),
    Form("no conversions alone", ("keep", "conversions")),
    Form("no products alone", ("keep", "products", "limit")),
)
HALF = torch.float16
TARGETS = (
    Target("b2h8s512d64", "fix16", (4, False, False, HALF), ALL16, 2.3, has_loop=False),
    Target("b2h8s512d64-causal", "fix16", (0, True, True, HALF), ALL16, 2.3),
    Target("b1h16s16384d64", "fix18", (64, False, HALF), ALL18, 1.15, is_long=True),
    Target("b1h16s16384d64-causal", "fix18", (64, True, HALF), MORE18, 1.15, is_long=True),
)


def made(target: Target, form: Form, scratch: Path) -> Path:
    """The folder of a form. Raises Changed."""
    return write_form(FOLDER, target.variant, form, EDITS[target.variant], scratch)


# ---- what is compiled ---------------------------------------------------------------------------
HARMLESS = re.compile(r"never referenced|diag-suppress")
# Of an instruction of 128 bits on sm_90 the first nine say what it does, and of an `MUFU` those
# from bit 74 on which function.
OPCODES = {
    0x1F0: "HGMMA",
    0x03E: "F2FP",
    0x021: "FADD",
    0x023: "FFMA",
    0x020: "FMUL",
    0x009: "FMNMX",
    0x03C: "HMMA",
}
MUFU, EX2, BRANCH = 0x108, 2, 0x147
OF_A_TILE = 8  # matrix instructions
SHOWN = ("HGMMA", "MUFU.EX2", "F2FP", "FADD", "FFMA", "FMUL", "FMNMX", "HMMA", "all")


@dataclass(frozen=True)
class Built:
    """``instructions`` of the whole kernel, by name; ``loop`` those of the loop over tiles of keys,
    none where it has none or no products. Both have code that does not run: with a maximum what
    corrects one that was too low, without conversions what keeps scores. ``spills`` are bytes.
    """

    registers: int
    spills: int
    warnings: tuple[str, ...]
    instructions: Mapping[str, int]
    loop: Mapping[str, int]


def instructions_of(cubin: bytes, kernel: str) -> list[tuple[str, int]]:
    """Of each its name, "" for what is not told apart, and the number of the one it branches to,
    else -1. Without what fills up the end.
    """
    body = next(s.body for s in sections(cubin) if s.name == TEXT + kernel)
    found = []
    for at, (low, high) in enumerate(struct.iter_unpack("<QQ", body)):
        operation, to = low & 0x1FF, -1
        name = OPCODES.get(operation, "")
        if operation == MUFU and high >> 10 & 0xF == EX2:
            name = "MUFU.EX2"
        if operation == BRANCH:
            words = (low >> 34) << 8 | low >> 16 & 0xFF
            to = at + 1 + (words - (1 << 38 if words >> 37 else 0)) // 4
        found.append((name, to))
    while found and found[-1][1] == len(found) - 1:
        found.pop()
    return found


def counted(instructions: Sequence[tuple[str, int]]) -> dict[str, int]:
    counts = Counter(name for name, _ in instructions if name)
    return {name: counts[name] for name in SHOWN[:-1]} | {"all": len(instructions)}


def loop_of(instructions: Sequence[tuple[str, int]]) -> Sequence[tuple[str, int]]:
    loops = [instructions[to : at + 1] for at, (_, to) in enumerate(instructions) if 0 <= to <= at]
    both = [loop for loop in loops if sum(name == "HGMMA" for name, _ in loop) >= OF_A_TILE]
    return min(both, key=len, default=())


def build(folder: Path, target: Target) -> Built:
    """Compile the kernel that a form launches."""
    kernel = load_variant(folder, Case(target.variant, {})).kernels[target.kernel]
    report, code = kernel.compile(ARCH)
    (one,) = (one for one in report.kernels if one.kernel == kernel.name)
    instructions = instructions_of(bytes(code.code), kernel.name)
    loop = loop_of(instructions) if target.has_loop else ()
    return Built(
        registers=one.registers,
        spills=one.spill_store_bytes + one.spill_load_bytes,
        warnings=tuple(w for w in report.warnings if not HARMLESS.search(w)),
        instructions=counted(instructions),
        loop=counted(loop) if loop else {},
    )


def build_all(targets: Sequence[Target], scratch: Path) -> dict[tuple[str, str], Built]:
    """By shape and form. Cubins are kept for the launches of this process."""
    os.environ[CUBIN_FOLDER] = str(scratch / "cubins")
    (scratch / "cubins").mkdir()
    wanted = {
        (target.shape, form.name): (made(target, form, scratch), target)
        for target in targets
        for form in target.forms
    }
    fork = multiprocessing.get_context("fork")  # nothing has touched a GPU yet
    with ProcessPoolExecutor(min(16, os.cpu_count() or 1), mp_context=fork) as pool:
        tasks = {name: pool.submit(build, *task) for name, task in wanted.items()}
        return {name: task.result() for name, task in tasks.items()}


def built_table(targets: Sequence[Target], built: Mapping[tuple[str, str], Built]) -> Iterator[str]:
    """Lines: a form each, its instructions in all and, behind a slash, in the loop."""
    for target in targets:
        head = "".join(f"{name:>10}" for name in ("registers", "spills", *SHOWN))
        yield f"{target.shape}, {target.variant}\n{'':24}{head}"
        for form in target.forms:
            one = built[target.shape, form.name]
            cells = [str(one.registers), str(one.spills)]
            for name in SHOWN:
                own = str(one.instructions[name])
                cells.append(f"{own}/{one.loop[name]}" if one.loop else own)
            yield f"{form.name:24}" + "".join(f"{cell:>10}" for cell in cells)
            yield from (f"    {warning}" for warning in one.warnings)


# ---- what is timed ------------------------------------------------------------------------------
@dataclass
class Timed:
    """``microseconds`` of a call and ``megahertz`` of the SMs, a round each; ``calls`` of a graph.
    ``finite`` is whether its output was.
    """

    form: str
    calls: int
    finite: bool
    microseconds: list[float] = field(default_factory=list)
    megahertz: list[float] = field(default_factory=list)

    @property
    def time(self) -> float:
        """Microseconds."""
        return median(self.microseconds)


class Many(Instance):
    """Calls back to back for COUNTED_SECONDS, behind others for AHEAD_SECONDS."""

    def __init__(
        self,
        around: Surroundings,
        folder: Path,
        case: Case,
        inputs: tuple[torch.Tensor, ...],
    ) -> None:
        super().__init__(around, folder, case, 1, ())
        self.inputs = inputs  # all forms have the same
        each = self.seconds()
        self.calls = max(1, round(COUNTED_SECONDS / each + 0.5))
        self.ahead = max(1, round(AHEAD_SECONDS / each))
        around.card.warm()
        self.graphs[BACK_TO_BACK] = self.capture(BACK_TO_BACK)

    def seconds(self) -> float:
        """Of a call, roughly."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(4):
            self.call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 4e3

    def capture(self, regime: str) -> torch.cuda.CUDAGraph:
        card, graph = self.around.card, torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.stream(card.side):
            graph.capture_begin()
            card.advance()
            for number in range(self.ahead + self.calls):
                if number == self.ahead:
                    card.stamp(0)
                self.call()
            card.stamp(1)
            graph.capture_end()
        return graph


class Timing:
    """All forms of a target and the references, on this GPU."""

    def __init__(self, card: Card, study: ModuleType, target: Target, scratch: Path) -> None:
        self.card, self.target = card, target
        self.around = Surroundings(card, study, target.shape)
        self.inputs = tuple(torch.randn_like(self.around.like) for _ in "qkv")
        folders = {form.name: made(target, form, scratch) for form in target.forms}
        cases = {name: (folder, Case(target.variant, {})) for name, folder in folders.items()}
        cases |= {name: (FOLDER, Case(name, {})) for name in references()}
        wanted = list(cases) * (1 if target.is_long else INSTANCES)
        random.shuffle(wanted)
        self.instances = [(name, self.instance(*cases[name])) for name in wanted]
        first = dict(self.instances)
        self.found = {
            name: Timed(name, first[name].calls, self.is_finite(name, first[name]))
            for name in cases
        }

    def instance(self, folder: Path, case: Case) -> Instance:
        if self.target.is_long:
            return Many(self.around, folder, case, self.inputs)
        return Instance(self.around, folder, case, CALLS, (CHAINED, BARE))

    def is_finite(self, name: str, instance: Instance) -> bool:
        """Raises RuntimeError where what should be attention is not."""
        out = instance.call().float()
        if name in EXACT:
            q, k, v = instance.inputs
            attention = torch.nn.functional.scaled_dot_product_attention
            right = attention(q, k, v, is_causal=self.around.causal).float()
            error = float(((out - right).abs() / (1 + right.abs())).max())
            if not error < TOLERANCE:
                raise RuntimeError(f"{self.target.shape}, {name}: off by {error:.2g}")
        return bool(out.isfinite().all())

    def round(self) -> tuple[list[tuple[str, Instance, str]], torch.Tensor]:
        """Queue every graph once, in random order; and where its stamps will be."""
        graphs = [(name, one, regime) for name, one in self.instances for regime in one.graphs]
        random.shuffle(graphs)
        for _, one, regime in graphs:
            self.card.replay(one.graphs[regime])
        pinned = self.card.pinned(len(graphs))
        self.card.fetch(pinned)
        return graphs, pinned

    def count(self, graphs: Sequence[tuple[str, Instance, str]], pinned: torch.Tensor) -> None:
        """A round. What the neighbours take alone is taken off."""
        times = self.card.times(pinned)
        nanoseconds, megahertz = times.nanoseconds, times.cycles / times.nanoseconds * 1e3
        bare = [at for at, (_, _, regime) in enumerate(graphs) if regime == BARE]
        around = float(np.median(nanoseconds[bare])) if bare else 0.0
        for name, found in self.found.items():
            own = [at for at, (n, _, r) in enumerate(graphs) if n == name and r != BARE]
            took = float(np.median(nanoseconds[own])) - around
            found.microseconds.append(round(took / 1e3 / found.calls, 4))
            found.megahertz.append(round(float(np.median(megahertz[own]))))

    def run(self) -> dict[str, Timed]:
        """By form and reference."""
        switch_contexts()
        warm = time.monotonic() + WARM_SECONDS
        while time.monotonic() < warm:
            self.round()
            torch.cuda.synchronize()
        rounds = [self.round() for _ in range(ROUNDS)]  # the card never waits
        torch.cuda.synchronize()
        for each in rounds:
            self.count(*each)
        return self.found


def references() -> list[str]:
    """Those that can be imported here."""
    found = []
    for name in REFERENCES:
        try:
            load_module(FOLDER / f"{name}.py", f"benchmark_{name}")
        except ImportError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
        else:
            found.append(name)
    return found


def timed_table(target: Target, found: Mapping[str, Timed]) -> Iterator[str]:
    """Lines: a form each, and how many times faster than the faster reference it is."""
    best = min((found[name].time for name in REFERENCES if name in found), default=float("nan"))
    yield f"{target.shape}: {best / target.aim:.3f} us would be {target.aim}x"
    for name, one in found.items():
        mhz, note = median(one.megahertz), "" if one.finite else "  not finite"
        yield f"{name:24}{one.time:10.3f} us{best / one.time:8.3f}x{mhz:7.0f} MHz{note}"


def record(
    target: Target, built: Mapping[tuple[str, str], Built], found: Mapping[str, Timed]
) -> dict[str, object]:
    edits = {form.name: form.edits for form in target.forms}
    forms = []
    for name, one in found.items():
        own = built.get((target.shape, name))
        code = asdict(own) if own else {}
        forms.append({**asdict(one), "left_out": edits.get(name, ()), **code})
    return {
        "shape": target.shape,
        "variant": target.variant,
        "aim": target.aim,
        "regime": BACK_TO_BACK if target.is_long else CHAINED,
        "forms": forms,
    }


def page_table() -> str:
    """Of what is on record, as Markdown: a form a row, a shape a column, in each the time and how
    many times faster than the original it is.
    """
    shapes = json.loads(RECORD.read_text("utf-8"))["shapes"]
    times = {
        one["shape"]: {form["form"]: median(form["microseconds"]) for form in one["forms"]}
        for one in shapes
    }
    lines = [
        "| | " + " | ".join(f"{one['shape']}, `{one['variant']}`" for one in shapes) + " |",
        "| --- |" + " --: |" * len(shapes),
    ]
    for name in times[shapes[0]["shape"]]:
        cells = []
        for found in times.values():
            own = found.get(name)
            over = f"{found[ORIGINAL] / own:.3f}x" if own and name not in (ORIGINAL, SDPA) else ""
            cells.append(f"{microseconds(own)} {over}".strip() if own else "—")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write_page() -> None:
    text, found = BLOCK.subn(rf"\g<1>{page_table()}\n\g<2>", PAGE.read_text("utf-8"))
    assert found == 1
    PAGE.write_text(text, "utf-8")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--compile-only", action="store_true", help="needs no GPU")
    parser.add_argument("--page", action="store_true", help="write the page, measure nothing")
    parser.add_argument(
        "--shapes",
        nargs="*",
        choices=[t.shape for t in TARGETS],
        default=[t.shape for t in TARGETS],
        help="only these, and nothing is written",
    )
    given = parser.parse_args(arguments)
    if given.page:
        write_page()
        return 0
    targets = [target for target in TARGETS if target.shape in given.shapes]
    with tempfile.TemporaryDirectory(prefix="workbench-least-") as folder:
        scratch = Path(folder)
        built = build_all(targets, scratch)
        print("\n".join(built_table(targets, built)), flush=True)
        if given.compile_only:
            return int(any(one.spills or one.warnings for one in built.values()))
        card, study = Card(), load_module(FOLDER / "study.py", "benchmark_study")
        shapes = []
        for target in targets:
            found = Timing(card, study, target, scratch).run()
            print("\n".join(timed_table(target, found)), flush=True)
            shapes.append(record(target, built, found))
    if targets != list(TARGETS):
        return 0
    whole = {
        "gpu": torch.cuda.get_device_name(0),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "shapes": shapes,
    }
    RECORD.write_text(json.dumps(whole, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
