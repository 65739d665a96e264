"""Root mean square norm of rows."""

import torch

from workbench import cuda

scales = cuda.kernel("a.cu", "scales")
rms_norm = cuda.kernel("a.cu", "rms_norm")


def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    out, factors = torch.empty_like(x), x.new_empty(x.shape[0])
    scales[x.shape[0], 256](x, factors)
    rms_norm[x.shape[0], 256](x, weight, factors, out)
    return out
