"""Softmax of rows of 8192 values, a block a row."""

import torch

from workbench import cuda

params = cuda.params(fault="none")
fault = params["fault"]
kernel = cuda.kernel("kernel.cu", "softmax", defines={} if fault == "none" else {fault: 1})


def run(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    kernel[x.shape[0], 256](x, out)
    return out
