"""A lower triangular matrix times a vector."""

import torch

from workbench import cuda

products = cuda.kernel("a.cu", "products")


def run(matrix: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    n = x.shape[0]
    out = torch.empty_like(x)
    products[n // 32, 256](matrix, x, out, n)
    return out
