"""On a real GPU: two large matrix products run at its power limit, and each is timed alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from answers import Capsys
from workbench.cli.main import main
from workbench.evidence import store
from workbench.evidence.records import Timing
from workspaces import make

pytestmark = pytest.mark.gpu

SQUARES = """import torch
from workbench import Shape, Tolerance, Work

shapes = {"large": Shape(n=8192)}
default_shape, tolerance = "large", Tolerance(absolute=0.1, relative=2e-3)


def inputs(shape, generator):
    x = torch.randn(shape.n, shape.n, generator=generator, device=generator.device)
    return {"x": (x / 10).half()}


def reference(x):
    return x.double() @ x.double()


def work(shape):
    return Work(flops=2 * shape.n**3, bytes=4 * shape.n**2, dtype="float16")
"""
CONFIG = "[timing]\nsessions = 2\nmax_sessions = 2\ninstances = 1\nrounds = 4\n"
MODULES = {
    "baseline": "def run(x):\n    return x @ x\n",
    "halves": "import torch\n\n\ndef run(x):\n    out, half = torch.empty_like(x), len(x) // 2\n"
    "    torch.mm(x[:half], x, out=out[:half])\n"
    "    torch.mm(x[half:], x, out=out[half:])\n    return out\n",
}


def test_kernels_are_timed_alone(tmp_path: Path, capsys: Capsys) -> None:
    root = make(tmp_path, {}, MODULES, CONFIG)
    study = root / "kernels" / "scale" / "study.py"
    study.write_text(SQUARES)
    assert main(["ablate", "--no-profile", "--json", "--full", "--project", str(root)]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    if found["timing"]["throttling"] is None:
        pytest.skip("this GPU is not at its power limit")
    for row in found["variants"]:
        alone, in_turn = row["regimes"]["alone"]["microseconds"], row["microseconds"]
        assert 0.8 < alone["value"] / in_turn["value"] < 1.3
        assert 500 < alone["sm_clock_mhz"] < 2000
    assert 0.7 < row["regimes"]["alone"]["speedup_over_parent"]["ratio"] < 1.4
    (path,) = root.rglob("timings/*.zst")
    series = [s for one in store.read_record(path, Timing).sessions for s in one.series]
    assert sum(len(s.microseconds) > 6 for s in series if s.regime == "alone") == 4
