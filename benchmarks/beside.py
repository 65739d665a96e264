"""What instructions take beside products of another warpgroup that never end, in cycles of a warp's
instruction on a scheduler:

    python -m benchmarks.beside                  on a GPU of compute capability 9.0
    python -m benchmarks.beside --compile-only   without one

Prints a table as Markdown, which docs/attention-notes.md has.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from workbench.cuda.launch import Kernel
from workbench.study.workspace import load_module

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "benchmarks" / "beside.cu"
HEADERS = [ROOT / "kernels" / "attention" / f"{n}.cuh" for n in ("hopper", "attention", "ones")]
ARCH = "sm_90a"
PRODUCTS = 4  # of a round
ROUNDS, TRIES = 200, 5
THREADS = 128  # of a warpgroup: one warp on each scheduler
SHARED = 2 * 64 * 128 + 1024
MODULE = """\
from workbench import cuda
kernels = {n: cuda.kernel("beside.cu", "beside", defines={"WHAT": n}) for n in (1, 2, 3)}
"""
WHAT = {  # name of a form to its number and how many of a round it has, as in beside.cu
    "exponential": (1, 32),
    "multiplication": (2, 4 * 32),
    "both, and half a conversion": (3, 32),
}


def kernels(folder: Path) -> dict[str, Kernel]:
    """By what they do, of a module in the folder, since sources stand beside their headers."""
    for path in (SOURCE, *HEADERS):
        shutil.copy(path, folder)
    module = folder / "kernels.py"
    module.write_text(MODULE, "utf-8")
    made = load_module(module, "beside_kernels").kernels
    return {name: made[what] for name, (what, _) in WHAT.items()}


def measure(kernel: Kernel, each: int, groups: int, *, alone: bool) -> tuple[float, float]:
    """Cycles of an instruction of ``groups`` warps on a scheduler, of which a round has ``each``,
    and of a product beside them; ``alone`` there is one round of products at the beginning.
    """
    import torch

    found = []
    for _ in range(TRIES):
        out = torch.zeros(3, dtype=torch.int32, device="cuda")
        others = 0 if alone else groups * THREADS // 32
        kernel[1, (groups + 1) * THREADS, SHARED](out, ROUNDS, others, 0.18)
        products, took, _ = out.tolist()
        found.append((took / each / groups, products / PRODUCTS))
    cycles, product = (median(values) for values in zip(*found, strict=True))
    return cycles, product


def table(every: Mapping[str, Kernel]) -> str:
    rows = [
        "| cycles | warps on a scheduler | alone | beside products | a product of 64 x 72 x 16 |",
        "| --- | --: | --: | --: | --: |",
    ]
    for name, kernel in every.items():
        for groups in (1, 2):
            each = WHAT[name][1]
            alone, _ = measure(kernel, each, groups, alone=True)
            beside, product = measure(kernel, each, groups, alone=False)
            rows.append(f"| {name} | {groups} | {alone:.2f} | {beside:.2f} | {product:.1f} |")
    return "\n".join(rows)


def main(arguments: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="workbench-beside-") as folder:
        every = kernels(Path(folder))
        if "--compile-only" not in arguments:
            print(table(every))
            return 0
        for name, kernel in every.items():
            report, _ = kernel.compile(ARCH)
            print(f"{name}: {report.kernels[0].registers} registers", *report.warnings)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
