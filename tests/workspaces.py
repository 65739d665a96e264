"""Small workspaces for tests: a study that scales a vector, with variants given as text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from workbench.evidence import store
from workbench.study.workspace import find_workspace

ROOT = Path(__file__).resolve().parents[1]
EVIDENCE = ROOT / "ablations" / "attention" / "evidence" / "nvidia-h200"

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


def workspace_of(root: Path, study: str) -> Path:
    """One study of the repository in a workspace of its own: its verbs judge nothing else."""
    for name in ("kernels", "ablations"):
        shutil.copytree(ROOT / name / study, root / name / study)
    config = (ROOT / "workbench.toml").read_text()
    (root / "workbench.toml").write_text(
        config.replace('study = "attention"', f'study = "{study}"')
    )
    return root


def recorded_index(shape: str, variant: str) -> dict[str, Any]:
    """The entry of a recorded capture."""
    path = EVIDENCE / shape / "captures" / f"{variant}.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def recorded_report(shape: str, variant: str = "baseline") -> Path:
    """The report with the capture that counts, not one of its repeats."""
    return EVIDENCE / "reports" / str(recorded_index(shape, variant)["report"])


def recorded_captures() -> list[tuple[str, str]]:
    """Shape and variant of every capture in the repository."""
    found = ((path.parents[1].name, path.stem) for path in EVIDENCE.glob("*/captures/*.json"))
    return sorted(found)


def ladder_steps() -> list[tuple[str, str]]:
    """Parent and variant of every step of the repository's own ladder."""
    steps = find_workspace(ROOT).study().ladder.steps
    return [(step.parent, step.variant) for step in steps if step.parent]


def told_in(path: Path) -> Any:
    """A record as JSON, compressed or not."""
    return json.loads(store.unpacked(path, path.read_bytes()))


def put_in(path: Path, data: Any) -> None:
    """Write a record, compressed where its name says so."""
    path.write_bytes(store.packed(path, json.dumps(data).encode()))
