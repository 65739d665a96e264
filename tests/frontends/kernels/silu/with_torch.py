# mypy: ignore-errors
"""torch, a kernel of its own library."""

from torch.nn.functional import silu


def run(x):
    return silu(x)
