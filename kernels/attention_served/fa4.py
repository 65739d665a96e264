"""FlashAttention-4 in CuTe DSL, as the package flash-attn-4 has it; compiled at its first call."""

import torch
from flash_attn.cute import flash_attn_func


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    if q.dtype not in (torch.float16, torch.bfloat16) or q.shape[-1] % 8:
        raise NotImplementedError("fp16 or bf16, head dimension a multiple of 8")
    if causal and q.shape[2] > k.shape[2]:
        raise NotImplementedError("a query would see no key")
    # It takes and gives [B, S, H, D]. Views whose last dimension is contiguous are not copied.
    views = (x.transpose(1, 2) for x in (q, k, v))
    result: torch.Tensor = flash_attn_func(*views, causal=causal)[0]
    return result
