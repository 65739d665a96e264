"""FlashAttention-4 from the package flash-attn-4, which compiles it at the first call."""

import torch
from flash_attn.cute import flash_attn_func


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    if q.dtype not in (torch.float16, torch.bfloat16) or q.shape[-1] % 8:
        raise NotImplementedError("fp16 or bf16, head dimension a multiple of 8")
    # The layout is [B, S, H, D]. Views with a contiguous last dimension are not copied.
    views = (x.transpose(1, 2) for x in (q, k, v))
    out, _ = flash_attn_func(*views, causal=causal)
    transposed: torch.Tensor = out.transpose(1, 2)
    return transposed
