"""Running sums of rows."""

import torch

from workbench import cuda

scan = cuda.kernel("a.cu", "scan")


def run(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    scan[x.shape[0], 256](x, out)
    return out
