"""Kernels of attention for few keys on the CPU, lane by lane: whether they are right, where no GPU
is at hand. g++ with C++20 is needed:

    python -m benchmarks.lanes

Prints, for each kernel, type and mask, the error beside float64 and how many blocks went through it
again, with scores whose standard deviation is 1 and more, and with one key far above the others.
What lanes do with each other is in ``lanes.cpp``; nothing is said of speed, or of races between
warps.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "kernels" / "attention"
HARNESS = Path(__file__).with_name("lanes.cpp")
FLAGS = ("-std=c++20", "-O2", "-w", "-pthread")

# What stands in for functions that hold PTX, by name and the parameters that tell them apart.
BODIES = {
    r"float exp2_fast\(float x\)": "return exp2f(x);",
    r"float reciprocal\(float x\)": "return 1.0f / x;",
    r"unsigned pack\(float low, float high\)": "return two_of(low, high);",
    r"void mma\(float \(&d\)\[4\][^{]*": "mma_16(d, a0, a1, a2, a3, b0, b1);",
    r"void mma\(float\* d[^{]*": "mma_8(d, a[0], a[1], b);",
    r"uint4 load\(const uint4\* from, bool there\)": (
        "if (MASKED && !there) return uint4{0, 0, 0, 0}; return *from;"
    ),
    r"unsigned transposed\(unsigned two\)": "return move_transposed(two);",
    r"void load_operand\(unsigned \(&a\)\[4\], unsigned from\)": "matrices(a, from, 4);",
    r"void load_matrix\(unsigned& to, unsigned from\)": "matrices(&to, from, 1);",
    r"void load_transposed\(unsigned& to, unsigned from\)": "matrix_transposed(to, from);",
    r"void copy_piece\(unsigned to, const Element\* from\)": (
        "memcpy(shared_memory + to, from, 16);"
    ),
    r"void wait_for_pieces\(\)": "",
    r"void pin\(unsigned \(&a\)\[4\]\)": "",
    r"void wgmma_transposed\([^{]*": "wgmma_scores(d, a, b, accumulate);",
}
ZERO = re.compile(r'asm volatile\("\{\.reg \.pred p; setp\.lt\.s32.*?"memory"\);', re.DOTALL)
PTX = re.compile(r"^(?!\s*//).*\basm\b.*$", re.MULTILINE)
INCLUDED = ("attention.cuh", "ones.cuh", "hopper.cuh")
ONES = "constexpr unsigned kOnes = {};\n"


class NotOnCpu(Exception):
    """A source that has PTX which nothing stands in for, or does not compile."""


@dataclass(frozen=True)
class Kernel:
    """``rows`` of a block, up to so many ``keys``; ``bulk``: keys and values are tensor maps."""

    source: str
    threads: int
    rows: int
    keys: int
    defines: Mapping[str, int]
    bulk: bool = False


@dataclass(frozen=True)
class Found:
    """``largest`` error, the ``relative`` one, and how many of the ``blocks`` went through it
    again; of head dimension 128, where each warp does so by itself, how many of these.
    """

    largest: float
    relative: float
    repeated: int
    blocks: int


GAPS = (8, 10, 12, 14)
FEW = {"WARPS": 4, "KEYS": 32}
MORE = {"HEAD_DIM": 64, "SHARED_BYTES": 200_000}
WIDE = {**MORE, "HEAD_DIM": 128}
KERNELS = {
    "fix17": Kernel("fix17.cu", 128, 16, 128, FEW),
    "fix22": Kernel("fix22.cu", 128, 8, 128, FEW),
    "fix23": Kernel("fix23.cu", 256, 64, 512, MORE, bulk=True),
    "fix26": Kernel("fix26.cu", 256, 128, 256, WIDE, bulk=True),
    "fix28": Kernel("fix28.cu", 256, 64, 512, MORE, bulk=True),
    "fix29": Kernel("fix29.cu", 256, 128, 256, WIDE, bulk=True),
}


def replaced(text: str, function: str, body: str) -> str:
    """With another body wherever the function is defined."""
    for match in reversed(list(re.finditer(function + r"\s*\{", text))):
        at, depth = match.end(), 1
        while depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        text = f"{text[: match.end()]} {body} }}{text[at:]}"
    return text


def translated(source: str, *, bf16: bool) -> str:
    """Without PTX. Raises NotOnCpu where some is left."""
    text = (FOLDER / source).read_text("utf-8")
    if '#include "ones.cuh"' in text:
        text = text.replace(
            '#include "ones.cuh"', ONES.format("0x3F803F80u" if bf16 else "0x3C003C00u")
        )
    for name in INCLUDED:
        own = "" if name == "hopper.cuh" else (FOLDER / name).read_text("utf-8")
        text = text.replace(f'#include "{name}"', own.replace("#pragma once", ""))
    for function, body in BODIES.items():
        text = replaced(text, function, body)
    text = ZERO.sub("zero = 0; __syncthreads();", text)
    text = text.replace("extern __shared__ char raw[];", "char* raw = shared_memory;")
    if left := PTX.search(text):
        raise NotOnCpu(f"{source}: {left[0].strip()}")
    return text


def compiled(kernel: Kernel, folder: Path, *, bf16: bool, masked: bool, causal: bool) -> Path:
    """The program, in an empty folder. Raises NotOnCpu."""
    (folder / "kernel.inc").write_text(translated(kernel.source, bf16=bf16), "utf-8")
    defines = {**kernel.defines, "THREADS": kernel.threads, "ROWS": kernel.rows}
    defines |= {"MASKED": int(masked), "CAUSAL": int(causal), "BULK": int(kernel.bulk)}
    flags = [*(f"-D{name}={value}" for name, value in defines.items()), f"-I{folder}"]
    program = folder / "run"
    command = ["g++", *FLAGS, *flags, *["-DBF16"] * bf16, str(HARNESS), "-o", str(program)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise NotOnCpu("g++ was not found; install one with C++20, such as g++ 12") from error
    if ended.returncode:
        raise NotOnCpu(f"{kernel.source}: {ended.stderr[:2000]}")
    return program


def run(program: Path, keys: int, scale: float, gap: float = 0) -> Found:
    """With queries multiplied by ``scale``, which is the standard deviation of the scores; or with
    a first key whose score is so much larger than those of all others, and whose value is 0.
    """
    given = [str(program), str(keys), str(scale), str(gap)]
    ended = subprocess.run(given, capture_output=True, text=True, check=True)
    largest, relative, repeated, blocks = ended.stdout.split()
    return Found(float(largest), float(relative), int(repeated), int(blocks))


def tell(name: str, found: Found, inputs: str, *, bf16: bool, masked: bool) -> None:
    kind = ("bf16" if bf16 else "fp16") + " causal" * masked
    print(
        f"{name:8}{kind:13}{inputs}: error {found.largest:.2g}, relative {found.relative:.3g}; "
        f"again {found.repeated}, of {found.blocks} blocks",
        flush=True,
    )


def main() -> int:
    for (name, kernel), bf16, masked in product(KERNELS.items(), (False, True), (False, True)):
        with tempfile.TemporaryDirectory(prefix="workbench-lanes-") as folder:
            program = compiled(kernel, Path(folder), bf16=bf16, masked=masked, causal=masked)
            most = kernel.keys
            for keys, scale in product([most - 35] if masked else [most], (1, 4, 8, 30)):
                found = run(program, keys, scale)
                tell(name, found, f"{keys} keys, deviation {scale}", bf16=bf16, masked=masked)
            for gap in GAPS:
                found = run(program, most, 1, gap)
                tell(name, found, f"{most} keys, one {gap} above", bf16=bf16, masked=masked)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NotOnCpu as error:
        sys.exit(f"error: {error}")
