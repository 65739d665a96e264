"""PyTorch's scaled_dot_product_attention (SDPA), default: PyTorch selects the backend."""

import torch
from torch.nn.functional import scaled_dot_product_attention


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    return scaled_dot_product_attention(q, k, v, is_causal=causal)
