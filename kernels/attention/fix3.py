"""Both products in half2, four keys at a time. Too inaccurate for outliers."""

import torch

from workbench import cuda

kernel = cuda.kernel("fix3.cu", "attention_forward")
THREADS = 128
SPLIT = 4


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    b, h, s, d = q.shape
    if d != 64 or q.dtype != torch.float16 or causal:
        raise NotImplementedError("only head dimension 64, fp16, not causal")
    out = torch.empty_like(q)
    kernel[(-(-s * SPLIT // THREADS), b * h), THREADS](q, k, v, out, s, d**-0.5)
    return out
