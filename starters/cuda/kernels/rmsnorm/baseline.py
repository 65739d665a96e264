"""A warp a row."""

import torch

from workbench import cuda

kernel = cuda.kernel("baseline.cu", "rmsnorm")
WARPS = 4  # of a block, a row each


def run(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    rows, columns = x.shape
    out = torch.empty_like(x)
    kernel[-(-rows // WARPS), 32 * WARPS](x, weight, out, rows, columns, eps)
    return out
