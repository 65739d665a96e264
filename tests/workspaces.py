"""Small workspaces for tests: a study that scales a vector, with variants given as text."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

STUDY = '''"""Doubles a vector."""

from workbench import Shape, Tolerance, Work

shapes = {"large": Shape(n=4194304), "odd": Shape(profiled=False, n=1001)}
default_shape = "large"
tolerance = Tolerance(absolute=1e-6, relative=1e-6)


def inputs(shape, generator):
    import torch

    return {"x": torch.randn(shape.n, generator=generator, device=generator.device)}


def reference(x):
    return x.double() * 2


def work(shape):
    return Work(flops=shape.n, bytes=8 * shape.n, dtype="float32")
'''

MODULE = """import torch
from workbench import cuda

kernel = cuda.kernel("{name}.cu", "scale")


def run(x):
    out = torch.empty_like(x)
    kernel[x.numel() // 256 + 1, 256](x, out, x.numel())
    return out
"""

KERNEL = """extern "C" __global__ void scale(float* x, float* out, int n) {{
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    {body}
}}
"""
GOOD = "if (i < n) out[i] = 2 * x[i];"


def step(name: str, parent: str | None = "baseline") -> str:
    above = f'parent = "{parent}"\n' if parent else ""
    return f'[[step]]\nvariant = "{name}"\n{above}key_change = "{name}"\n\n'


def make(
    root: Path, kernels: dict[str, str], modules: dict[str, str] | None = None, config: str = ""
) -> Path:
    """``kernels``: variant to the body of its CUDA kernel; ``modules``: variant to its module."""
    folder, ladder = root / "kernels" / "scale", root / "ablations" / "scale"
    folder.mkdir(parents=True)
    ladder.mkdir(parents=True)
    (root / "workbench.toml").write_text(f'study = "scale"\n{config}')
    (folder / "study.py").write_text(STUDY)
    for name, body in kernels.items():
        (folder / f"{name}.cu").write_text(KERNEL.format(body=body))
        (folder / f"{name}.py").write_text(MODULE.format(name=name))
    for name, text in (modules or {}).items():
        (folder / f"{name}.py").write_text(text)
    names = [*kernels, *(modules or {})]
    text = "".join(step(n, None if n == names[0] else names[0]) for n in names)
    (ladder / "ablation.toml").write_text("schema_version = 1\n" + text)
    return root


def copy_of_repository(root: Path) -> Path:
    """The repository's own workspace with its recorded evidence, to be changed by a test."""
    for name in ("kernels", "ablations", "templates"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "workbench.toml", root)
    return root
