"""A square matrix, a block a tile of 32 x 32."""

import torch

from workbench import cuda

params = cuda.params(fault="none")
fault = params["fault"]
kernel = cuda.kernel("kernel.cu", "transpose", defines={} if fault == "none" else {fault: 1})


def run(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    kernel[(x.shape[0] // 32, x.shape[0] // 32), (32, 8)](x, out, x.shape[0])
    return out
