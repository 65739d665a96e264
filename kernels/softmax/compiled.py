"""torch.softmax through torch.compile, compiled for each shape."""

import functools
import types
from collections.abc import Callable

import torch


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


@functools.cache
def compiled(shape: torch.Size, dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    """Compile a copy of the code per shape: after eight compilations, torch.compile runs a code
    object eagerly.
    """
    copy = types.FunctionType(softmax.__code__.replace(), globals())
    return torch.compile(copy, dynamic=False)


def run(x: torch.Tensor) -> torch.Tensor:
    return compiled(x.shape, x.dtype)(x)
