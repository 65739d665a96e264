"""What PyTorch has for it."""

import torch
from torch.nn.functional import rms_norm


def run(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return rms_norm(x, weight.shape, weight, eps)
