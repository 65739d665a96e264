# mypy: ignore-errors
"""Helion with a configuration."""

import helion
import helion.language as hl
import torch


@helion.kernel(config=helion.Config(block_sizes=[1024], num_warps=4))
def silu(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.numel()):
        v = x[tile]
        out[tile] = v * torch.sigmoid(v)
    return out


def run(x):
    return silu(x)
