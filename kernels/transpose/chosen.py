"""16 bytes an access where rows are whole pieces of 16 bytes, else element by element."""

import torch

from workbench import cuda

aligned = cuda.variant("vectorised")
any_size = cuda.variant("padded")


def run(x: torch.Tensor) -> torch.Tensor:
    vector = 16 // x.element_size()
    ragged = any(size % vector for size in x.shape)
    return (any_size if ragged else aligned).run(x)
