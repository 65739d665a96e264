"""FlashAttention-3 from the package flash-attn-3: its forward operator, without autograd."""

import torch
from flash_attn_interface import flash_attn_3_gpu


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    if q.dtype not in (torch.float16, torch.bfloat16) or q.shape[-1] not in (64, 128):
        raise NotImplementedError("fp16 or bf16, head dimension 64 or 128")
    # The layout is [B, S, H, D]. Views with a contiguous last dimension are not copied.
    views = (x.transpose(1, 2) for x in (q, k, v))
    # flash_attn_func calls the same operator, also with one split and this scale.
    out, *_ = flash_attn_3_gpu.fwd(
        *views, softmax_scale=q.shape[-1] ** -0.5, is_causal=causal, num_splits=1
    )
    transposed: torch.Tensor = out.transpose(1, 2)
    return transposed
