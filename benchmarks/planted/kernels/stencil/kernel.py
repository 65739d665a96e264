"""Sums of 5 x 5 values around each."""

import torch

from workbench import cuda

stencil = cuda.kernel("kernel.cu", "stencil")


def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    n = x.shape[0] - 4
    out = x.new_empty((n, n))
    stencil[(n // 32, n // 32), (32, 8)](x, weight, out, n)
    return out
