"""16-byte accesses if rows and columns are multiples of 16 bytes, else the padded tile."""

import torch

from workbench import cuda

aligned = cuda.variant("vectorised")
any_size = cuda.variant("padded")


def run(x: torch.Tensor) -> torch.Tensor:
    vector_size = 16 // x.element_size()
    unaligned = any(size % vector_size for size in x.shape)
    return (any_size if unaligned else aligned).run(x)
