"""As fix23, with 1 as the largest probability of the first keys; up to 512 keys."""

from math import e, log2

import torch

from workbench import cuda

ROWS = CHUNK = 64
KEYS = 512
# Q twice, K, V and ones; exchanged partial results; alignment; mbarriers.
SHARED = (2 * ROWS + 2 * KEYS + CHUNK) * 128 + 2 * 128 * (4 * 16 + 8) + 1024 + 256
kernels = {
    (masked, causal, dtype): cuda.kernel(
        "fix28.cu",
        "attention_forward",
        defines={"HEAD_DIM": 64, "MASKED": masked, "CAUSAL": causal, "SHARED_BYTES": SHARED}
        | ({"BF16": 1} if dtype == torch.bfloat16 else {}),
    )
    for masked, causal in ((False, False), (True, False), (True, True))
    for dtype in (torch.float16, torch.bfloat16)
}


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    b, h, s, d = q.shape
    if d != 64 or s > KEYS or q.dtype not in (torch.float16, torch.bfloat16):
        raise NotImplementedError("only head dimension 64, at most 512 keys, fp16 or bf16")
    out = torch.empty_like(q)
    maps = [cuda.tensor_map(x.view(b * h, s, d), (1, CHUNK, 64)) for x in (k, v)]
    kernel = kernels[causal or s % CHUNK != 0, causal, q.dtype]
    kernel[(-(-s // ROWS), b * h), 256, SHARED](*maps, q, k, out, s, d**-0.5 * log2(e))
    return out
