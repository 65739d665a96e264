"""A gate on every value."""

import torch

from workbench import cuda

sigmoids = cuda.kernel("b.cu", "sigmoids")
products = cuda.kernel("b.cu", "products")


def run(x: torch.Tensor) -> torch.Tensor:
    gates, out = torch.empty_like(x), torch.empty_like(x)
    sigmoids[x.numel() // 1024, 256](x, gates)
    products[x.numel() // 1024, 256](x, gates, out)
    return out
