"""The grouped products through torch.compile, compiled for every shape."""

import functools
from collections.abc import Callable
from types import FunctionType
from typing import cast

import torch

from workbench import cuda

eager = cast(FunctionType, cuda.variant("grouped").run)


@functools.cache
def compiled(*sizes: torch.Size) -> Callable[..., torch.Tensor]:
    """With code of its own: what has been compiled for eight shapes is run eagerly from then on."""
    own = FunctionType(eager.__code__.replace(), eager.__globals__)
    return torch.compile(own, dynamic=False)


def run(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
) -> torch.Tensor:
    of_shape = compiled(topk_ids.shape, w13.shape)
    return of_shape(x, topk_ids, topk_weights, w13, w2)
