"""Hands its input back with the result in it."""

import torch

from workbench import cuda

kernel = cuda.kernel("softmax.cu", "softmax")


def run(x: torch.Tensor) -> torch.Tensor:
    kernel[x.shape[0], 256](x, x, x.shape[1])
    return x
