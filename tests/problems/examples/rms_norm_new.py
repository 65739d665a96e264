import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """The same by torch's own operator."""

    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        return torch.nn.functional.rms_norm(x, x.shape[-1:], self.weight, self.eps)
