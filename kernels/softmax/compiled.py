"""PyTorch's softmax through torch.compile, compiled for every shape."""

import functools
import types
from collections.abc import Callable

import torch


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


@functools.cache
def compiled(shape: torch.Size, dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    """With code of its own: what has been compiled for eight shapes is run eagerly from then on."""
    own = types.FunctionType(softmax.__code__.replace(), globals())
    return torch.compile(own, dynamic=False)


def run(x: torch.Tensor) -> torch.Tensor:
    return compiled(x.shape, x.dtype)(x)
