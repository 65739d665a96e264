"""Tile rows padded by one element."""

import torch

from workbench import cuda

kernels = {size: cuda.kernel("padded.cu", "transpose", defines={"size": size}) for size in (2, 4)}


def run(x: torch.Tensor) -> torch.Tensor:
    rows, cols = x.shape
    out = x.new_empty(cols, rows)
    kernels[x.element_size()][(-(-cols // 32), -(-rows // 32)), (32, 8)](x, out, rows, cols)
    return out
