"""A polynomial of every value."""

import torch

from workbench import cuda

params = cuda.params(fault="none")
fault = params["fault"]
kernel = cuda.kernel("kernel.cu", "polynomials", defines={} if fault == "none" else {fault: 1})
BLOCK = 32 if fault == "few_warps" else 256
VALUES = {"uncoalesced": 32, "few_warps": 1}.get(fault, 4)  # of a thread


def run(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    blocks = 132 if fault == "few_bytes" else x.numel() // (BLOCK * VALUES)
    kernel[blocks, BLOCK](x, out, x.numel(), 1)
    return out
