"""Does its arithmetic in half precision."""

import torch

from workbench import cuda

kernel = cuda.kernel("half_precision.cu", "softmax")


def run(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    kernel[x.shape[0], 256](x, out, x.shape[1])
    return out
