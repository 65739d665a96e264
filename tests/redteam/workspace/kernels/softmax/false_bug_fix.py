"""The baseline again, said to fix a bug that no check shows."""

import torch

from workbench import cuda

kernel = cuda.kernel("softmax.cu", "softmax")


def run(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    kernel[x.shape[0], 256](x, out, x.shape[1])
    return out
