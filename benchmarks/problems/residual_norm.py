import torch
import torch.nn as nn


class Model(nn.Module):
    """Adds a residual, divides every row by its root mean square, and scales it."""

    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, residual, weight):
        x = x + residual
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.eps) * weight


rows = 8192
columns = 4096


def get_inputs():
    return [torch.randn(rows, columns), torch.randn(rows, columns), torch.rand(columns)]


def get_init_inputs():
    return [1e-6]
