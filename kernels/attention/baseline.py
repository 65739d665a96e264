"""One thread per query row, online softmax, K and V from global memory."""

import torch

from workbench import cuda

kernel = cuda.kernel("baseline.cu", "attention_forward")
THREADS = 128


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    b, h, s, d = q.shape
    if d != 64 or q.dtype != torch.float16 or causal:
        raise NotImplementedError("only head dimension 64, fp16, not causal")
    out = torch.empty_like(q)
    kernel[(-(-s // THREADS), b * h), THREADS](q, k, v, out, s, d**-0.5)
    return out
