import torch
import torch.nn as nn


class Model(nn.Module):
    """Divides every row by its root mean square, and scales it."""

    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.eps) * self.weight


rows = 8192
features = 4096


def get_inputs():
    return [torch.rand(rows, features)]


def get_init_inputs():
    return [features, 1e-6]
