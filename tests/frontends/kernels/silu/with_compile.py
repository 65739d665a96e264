# mypy: ignore-errors
"""torch.compile."""

import torch


@torch.compile
def silu(x):
    return x * torch.sigmoid(x)


def run(x):
    return silu(x)
