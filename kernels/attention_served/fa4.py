"""FlashAttention-4 of the package flash-attn-4, in CuTe DSL; compiled at the first call."""

import torch
from flash_attn.cute import flash_attn_func


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    if q.dtype not in (torch.float16, torch.bfloat16) or q.shape[-1] % 8:
        raise NotImplementedError("fp16 or bf16, head dimension a multiple of 8")
    if causal and q.shape[2] > k.shape[2]:
        raise NotImplementedError("some queries would see no key")
    # Both layouts are [B, S, H, D]. Views with a contiguous last dimension are not copied.
    views = (x.transpose(1, 2) for x in (q, k, v))
    result: torch.Tensor = flash_attn_func(*views, causal=causal)[0]
    return result
