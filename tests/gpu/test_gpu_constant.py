"""On a real GPU: what a variant made of constant inputs in an earlier call does not pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from answers import Capsys
from workbench.cli.main import main
from workspaces import step

pytestmark = pytest.mark.gpu

STUDY = '''"""Rows times a matrix that stays."""

from workbench import Shape, Tolerance, Work

shapes = {"one": Shape(n=1024)}
default_shape = "one"
tolerance = Tolerance(absolute=1e-3, relative=1e-3)
constant = ("w",)


def inputs(shape, generator):
    import torch

    x, w = (
        torch.randn(rows, shape.n, generator=generator, device=generator.device)
        for rows in (16, shape.n)
    )
    return {"x": x, "w": w / 32}


def reference(x, w):
    return x.double() @ w.double()


def work(shape):
    return Work(flops=2 * 16 * shape.n**2, bytes=4 * shape.n * (shape.n + 32), dtype="float32")
'''
MODULES = {
    "baseline": "def run(x, w):\n    return x @ w\n",
    "turned": "def run(x, w):\n    return (w.t().contiguous() @ x.t()).t().contiguous()\n",
    "kept": """import torch

kept = {}


def run(x, w):
    if not torch.cuda.is_current_stream_capturing():
        kept[w.data_ptr()] = w.t().contiguous()
    return (kept[w.data_ptr()] @ x.t()).t().contiguous()
""",
}


def test_weights_that_were_prepared_before_are_found_out(tmp_path: Path, capsys: Capsys) -> None:
    folder, ladder = tmp_path / "kernels" / "rows", tmp_path / "ablations" / "rows"
    folder.mkdir(parents=True)
    ladder.mkdir(parents=True)
    (tmp_path / "workbench.toml").write_text("[timing]\nrounds = 4\ninstances = 2\n")
    (folder / "study.py").write_text(STUDY)
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(text)
    steps = (step(name, None if name == "baseline" else "baseline") for name in MODULES)
    (ladder / "ablation.toml").write_text("schema_version = 1\n" + "".join(steps))
    assert main(["ablate", "--json", "--full", "--project", str(tmp_path)]) in (0, 1)
    found = {row["variant"]: row for row in json.loads(capsys.readouterr().out)["variants"]}
    gate = found["kept"]["gates"]["timed outputs"]
    assert gate["passed"] is False
    assert "the output of a timed call" in gate["why"]["message"]
    for name in ("baseline", "turned"):
        assert found[name]["gates"]["timed outputs"]["passed"] is True
