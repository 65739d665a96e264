"""A kernel of this study as inner attention of torchtitan's models, where no gradient is wanted.

    use(model, run)                        # before model.parallelize

torchtitan trains; the kernel has no backward pass. So this is for validation and for whoever runs a
trained model: with gradients every call is SDPA's, as it was. One file that needs torch and
torchtitan (0.3) and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool], torch.Tensor]
CAPABILITY = (9, 0)  # of the cards that the kernels are made for


def use(model: torch.nn.Module, attention: Attention) -> int:
    """Let every ScaledDotProductAttention of a model call ``attention``; how many there were."""
    given: type[Any] = import_module("torchtitan.models.common.attention").ScaledDotProductAttention
    served = type(given.__name__, (given,), {"forward": forward_of(given, attention)})
    found = [module for module in model.modules() if type(module) is given]
    for module in found:
        module.__class__ = served
    return len(found)


def forward_of(given: type[Any], attention: Attention) -> Callable[..., torch.Tensor]:
    """In place of its forward: q [B, S, H, D], k and v [B, T, key heads, D] to [B, S, H, D]."""

    def forward(
        self: Any,
        q_BLNH: torch.Tensor,
        k_BLNH: torch.Tensor,
        v_BLNH: torch.Tensor,
        *,
        scale: float | None = None,
        is_causal: bool = True,
        **others: Any,
    ) -> torch.Tensor:
        given_ones = (q_BLNH, k_BLNH, v_BLNH)
        plain = (
            others.get("attention_masks") is None
            and not (torch.is_grad_enabled() and any(x.requires_grad for x in given_ones))
            and (scale is None or math.isclose(scale, q_BLNH.shape[-1] ** -0.5))
            and not (is_causal and q_BLNH.shape[1] != k_BLNH.shape[1])  # SDPA counts otherwise
            and on_its_card(q_BLNH)
        )
        if plain:
            try:
                q, k, v = (x.transpose(1, 2) for x in given_ones)
                return attention(q, k, v, is_causal)
            except NotImplementedError:
                pass
        result: torch.Tensor = given.forward(
            self, *given_ones, scale=scale, is_causal=is_causal, **others
        )
        return result

    return forward


def on_its_card(x: torch.Tensor) -> bool:
    """Whether it is an ordinary tensor, no DTensor, on a card that the kernels are made for."""
    if type(x) is not torch.Tensor or not x.is_cuda:
        return False
    return torch.cuda.get_device_capability(x.device) == CAPABILITY
