"""Root mean square norm of rows."""

import torch

from workbench import cuda

rms_norm = cuda.kernel("kernel.cu", "rms_norm")


def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    rms_norm[x.shape[0], 256](x, weight, out)
    return out
