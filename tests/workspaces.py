"""Small workspaces for tests: a study that scales a vector, with variants given as text."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tools.folders import unpacked_workspace

from answers import not_none
from workbench.app.executor import Local
from workbench.app.target import find_target
from workbench.cli.main import main
from workbench.evidence import store
from workbench.judge.ladder import Ablation, judge
from workbench.ncu.capture import Capture
from workbench.ncu.catalog import GLOBAL_SECTORS
from workbench.study.workspace import find_workspace

ROOT = Path(__file__).resolve().parents[1]


# Studies with evidence, of which all texts are kept in one file.
FIXTURE = unpacked_workspace(ROOT / "tests" / "fixture")
EVIDENCE = FIXTURE / "ablations" / "attention" / "evidence" / "nvidia-h200"
SHOWN, CAUSAL = "b2h8s512d64", "b4h16s2048d128-causal"
# Metrics of the catalogue that are younger than recorded tables, which lack them.
YOUNGER = frozenset((GLOBAL_SECTORS,))
# A report of the ladder at ``SHOWN`` as it was before, with the caches flushed before every replay
# pass: ``FLUSHED`` stands for a shape.
RAW = ROOT / "tests" / "recorded" / "ncu-raw.ncu-repz"
FLUSHED = "flushed"
# What is true of every capture is tested of these: packed halves, mma.sync, two launches, wgmma
# with TMA, a library's kernel.
CAPTURES = [
    *((FLUSHED, variant) for variant in ("baseline", "fix3", "fix5", "fix15", "sdpa_flash")),
    *((CAUSAL, variant) for variant in ("fix9", "fix10", "sdpa")),
]

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

MODULE = """from workbench import cuda

kernel = cuda.kernel("{name}.cu", "scale")


def run(x):  # without torch, which takes seconds to import
    out = x.new_empty(x.shape)
    kernel[x.numel() // 256 + 1, 256](x, out, x.numel())
    return out
"""

TUNED = """from workbench import cuda

params = cuda.params(warps=4, block=64)
kernel = cuda.kernel("baseline.cu", "scale", defines=params)


def run(x):
    return x
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


def copy_of_fixture(root: Path, *studies: str) -> Path:
    """The frozen workspace with its recorded evidence, to be changed by a test. With ``studies``
    only these, the first as the workspace's own: its verbs judge nothing else.
    """
    for name in ("kernels", "ablations"):
        for part in studies or ("",):
            shutil.copytree(
                FIXTURE / name / part,
                root / name / part,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
    config = (FIXTURE / "workbench.toml").read_text()
    own = studies[0] if studies else "attention"
    (root / "workbench.toml").write_text(config.replace('"attention"', f'"{own}"'))
    return root


@cache
def recorded_ladder(workspace: Path = FIXTURE, study: str | None = None) -> Ablation:
    target = find_target(Local(), workspace, study, None)
    return judge(target.load_ladder(target.steps([])), target.workspace.config)


def recorded_index(shape: str, variant: str) -> dict[str, Any]:
    """The entry of a recorded capture of attention."""
    path = EVIDENCE / shape / "captures.json"
    found: dict[str, Any] = json.loads(path.read_text())["captures"][variant]
    return found


def recorded_range(shape: str, variant: str) -> tuple[Path, str]:
    """The report of a recorded capture of attention, and its NVTX range in it."""
    if shape == FLUSHED:
        return RAW, f"workbench:attention/{variant}/{SHOWN}"
    found = recorded_index(shape, variant)
    return EVIDENCE / "reports" / found["report"], found["range"]


def recorded_report(shape: str, variant: str) -> Path:
    """The report with the capture that counts, not one of its repeats."""
    return recorded_range(shape, variant)[0]


@cache
def recorded_captures(shape: str) -> Mapping[str, Capture | None]:
    """Those of attention at a shape, by variant, from the kept tables."""
    every = find_target(Local(), FIXTURE, None, shape).load(captures=True).variants
    return {name: evidence.capture for name, evidence in every.items()}


def recorded_capture(shape: str, variant: str) -> Capture:
    return not_none(recorded_captures(shape)[variant])


@cache
def output_of(command: str) -> str:
    """Standard output of a verb on the frozen workspace, run once a process."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([*command.split(), "--project", str(FIXTURE)]) == 0
    return out.getvalue()


def ladder_steps() -> list[tuple[str, str]]:
    """Parent and variant of every step of the fixture's ladder of attention."""
    steps = find_workspace(FIXTURE).study().ladder.steps
    return [(step.parent, step.variant) for step in steps if step.parent]


def contents(folder: Path) -> dict[Path, bytes]:
    """Of all files in and below it."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def rewrite(path: Path, old: str, new: str) -> None:
    """Put one text in the place of another, which must be there."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def told_in(path: Path) -> Any:
    """A record as JSON, compressed or not."""
    return json.loads(store.unpacked(path, path.read_bytes()))


def put_in(path: Path, data: Any) -> None:
    """Write a record, compressed where its name says so."""
    path.write_bytes(store.packed(path, json.dumps(data).encode()))
