"""To fill in: still a copy of baseline."""

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    # To change: nine kernels, and x goes through memory in fp32. `torch.compile` makes one of them.
    wide = x.float()
    scale = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.float()).to(x.dtype)
