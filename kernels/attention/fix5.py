"""K and V tiles prefetched by cp.async into a ring buffer in shared memory."""

import torch

from workbench import cuda

THREADS = 128
ROWS = 64
SHARED_BYTES = 4 * 2 * 64 * 72 * 2  # stages, K and V, keys, padded head dimension, fp16
kernel = cuda.kernel("fix5.cu", "attention_forward", defines={"SHARED_BYTES": SHARED_BYTES})


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    b, h, s, d = q.shape
    if d != 64 or q.dtype != torch.float16 or causal:
        raise NotImplementedError("only head dimension 64, fp16, not causal")
    out = torch.empty_like(q)
    kernel[(-(-s // ROWS), b * h), THREADS, SHARED_BYTES](q, k, v, out, s, d**-0.5)
    return out
