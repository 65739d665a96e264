"""On a real GPU with ncu: a sweep of a tiny study."""

from __future__ import annotations

from pathlib import Path

import pytest

from answers import Told
from workspaces import GOOD, make

pytestmark = pytest.mark.gpu

MODULE = """import torch
from workbench import cuda

params = cuda.params(block=256, repeat=1)
kernel = cuda.kernel("own.cu", "scale", defines=params)
BLOCK = params["block"]


def run(x):
    out = torch.empty_like(x)
    kernel[(x.numel() + BLOCK - 1) // BLOCK, BLOCK](x, out, x.numel())
    return out
"""
SOURCE = """#if BLOCK == 64
#error "no blocks of 64"
#endif
extern "C" __global__ void scale(const float* x, float* out, int n) {
    const long long i = blockIdx.x * (long long)BLOCK + threadIdx.x;
    for (int j = 0; j < REPEAT; ++j)
        if (i < n) ((volatile float*)out)[i] = 2 * x[i];
}
"""
CONFIG = "[timing]\nsessions = 3\nmax_sessions = 3\ninstances = 2\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make(
        tmp_path_factory.mktemp("sweeps") / "ws", {"baseline": GOOD}, {"fix": MODULE}, CONFIG
    )
    (made / "kernels" / "scale" / "own.cu").write_text(SOURCE)
    return made


def test_a_sweep_finds_the_faster_ones(told: Told) -> None:
    """Sixteen writes of the same are slower than one; blocks of 64 do not compile."""
    (found,) = told("sweep", "fix[block=64|256|512,repeat=1|16]")["sweeps"]
    states = {(c["values"]["block"], c["values"]["repeat"]): c for c in found["combinations"]}
    assert states[64, 1]["state"] == states[64, 16]["state"] == "not built"
    timed = [c["values"]["repeat"] for c in found["combinations"] if c["state"] == "timed"]
    assert timed == [1, 1, 16, 16]
    assert found["again"] or not found["picked"]
    assert states[256, 1]["occupancy_percent"] > 10
