"""PyTorch: torch.softmax."""

import torch


def run(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)
