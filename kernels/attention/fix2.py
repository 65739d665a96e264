"""Four threads per query row, each with a quarter of the keys."""

import torch

from workbench import cuda

params = cuda.params(warps=4)
kernel = cuda.kernel("fix2.cu", "attention_forward", defines=params)
THREADS = 32 * params["warps"]
SPLIT = 4


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    b, h, s, d = q.shape
    if d != 64 or q.dtype != torch.float16 or causal:
        raise NotImplementedError("only head dimension 64, fp16, not causal")
    out = torch.empty_like(q)
    kernel[(-(-s * SPLIT // THREADS), b * h), THREADS](q, k, v, out, s, d**-0.5)
    return out
