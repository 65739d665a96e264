"""A gate on every value."""

import torch

from workbench import cuda

gate = cuda.kernel("a.cu", "gate")


def run(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    gate[x.numel() // 1024, 256](x, out)
    return out
