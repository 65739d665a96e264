"""A gate on every value."""

import torch

from workbench import cuda

gate = cuda.kernel("d.cu", "gate")


def run(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    gate[x.numel() // 256, 256](x, out, x.shape[1], x.stride(0), out.stride(0))
    return out
