"""Eager PyTorch: a kernel an operation, each with a trip through memory."""

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    scale = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.float()).to(x.dtype)
