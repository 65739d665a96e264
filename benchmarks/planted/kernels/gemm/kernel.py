"""A square product in half precision, a block a tile of 128 x 128."""

import torch

from workbench import cuda

params = cuda.params(fault="none")
fault = params["fault"]
kernel = cuda.kernel("kernel.cu", "gemm", defines={} if fault == "none" else {fault: 1})
STAGES = 2 * (128 * 40 + 32 * 136) * 2  # bytes
SHARED = 200 << 10 if fault == "large_shared" else STAGES


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    n = a.shape[0]
    out = a.new_empty((n, n), dtype=torch.float32)
    kernel[(n // 128, n // 128), 256, SHARED](a, b, out, n, n)
    return out
