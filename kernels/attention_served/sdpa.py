"""PyTorch's scaled_dot_product_attention as transformers calls it: it picks the backend."""

import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    s, keys = q.shape[2], k.shape[2]
    if causal and s > keys:
        raise NotImplementedError("a query would see no key")
    mask = None
    # is_causal counts from the first key; the last query is to see all of them.
    if causal and 1 < s < keys:
        # torch.compile traces a backward pass through no CausalBias.
        written = any(x.requires_grad for x in (q, k, v))
        every = torch.ones((s, keys), dtype=torch.bool, device=q.device) if written else None
        mask = causal_lower_right(s, keys) if every is None else every.tril(keys - s)
    out = scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=mask,
        is_causal=causal and s == keys,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return out.transpose(1, 2).contiguous()
