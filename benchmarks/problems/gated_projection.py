import torch
import torch.nn as nn


class Model(nn.Module):
    """The product of two projections, one of them through SiLU."""

    def __init__(self):
        super().__init__()

    def forward(self, x, gate, up):
        return torch.nn.functional.silu(x @ gate) * (x @ up)


rows = 2048
columns = 1024
hidden = 2048


def get_inputs():
    scale = columns**-0.5
    return [
        torch.randn(rows, columns),
        torch.randn(columns, hidden) * scale,
        torch.randn(columns, hidden) * scale,
    ]


def get_init_inputs():
    return []
