"""PyTorch SDPA as transformers calls it; PyTorch chooses the backend."""

import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    s, keys = q.shape[2], k.shape[2]
    if causal and s > keys:
        raise NotImplementedError("some queries would see no key")
    mask = None
    # is_causal aligns the mask to the first query; here the last query sees all keys.
    if causal and 1 < s < keys:
        # torch.compile cannot trace a backward pass through a CausalBias.
        if any(x.requires_grad for x in (q, k, v)):
            mask = torch.ones((s, keys), dtype=torch.bool, device=q.device).tril(keys - s)
        else:
            mask = causal_lower_right(s, keys)
    out = scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=mask,
        is_causal=causal and s == keys,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return out.transpose(1, 2).contiguous()
