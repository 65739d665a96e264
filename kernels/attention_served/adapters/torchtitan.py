"""A kernel of this study as the inner attention of torchtitan's models, without gradients.

    use(model, run)                        # before model.parallelize

The kernel has no backward pass: use it for validation, or to run a trained model. Calls that need
gradients still go to SDPA. This file needs only torch and torchtitan (0.3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool], torch.Tensor]
CAPABILITY = (9, 0)  # the compute capability that the kernels need


def use(model: torch.nn.Module, attention: Attention) -> int:
    """Make each ScaledDotProductAttention of a model call ``attention``. Return their number."""
    base: type[Any] = import_module("torchtitan.models.common.attention").ScaledDotProductAttention
    replacement = type(base.__name__, (base,), {"forward": forward_of(base, attention)})
    modules = [module for module in model.modules() if type(module) is base]
    for module in modules:
        module.__class__ = replacement
    return len(modules)


def forward_of(base: type[Any], attention: Attention) -> Callable[..., torch.Tensor]:
    """Its new forward: q [B, S, H, D], k and v [B, T, key heads, D] -> [B, S, H, D]."""

    def forward(
        self: Any,
        q_BLNH: torch.Tensor,
        k_BLNH: torch.Tensor,
        v_BLNH: torch.Tensor,
        *,
        scale: float | None = None,
        is_causal: bool = True,
        **kwargs: Any,
    ) -> torch.Tensor:
        inputs = (q_BLNH, k_BLNH, v_BLNH)
        supported = (
            kwargs.get("attention_masks") is None
            and not (torch.is_grad_enabled() and any(x.requires_grad for x in inputs))
            and (scale is None or math.isclose(scale, q_BLNH.shape[-1] ** -0.5))
            and not (
                is_causal and q_BLNH.shape[1] != k_BLNH.shape[1]
            )  # SDPA aligns the mask otherwise
            and on_supported_gpu(q_BLNH)
        )
        if supported:
            try:
                q, k, v = (x.transpose(1, 2) for x in inputs)
                return attention(q, k, v, is_causal)
            except NotImplementedError:
                pass
        result: torch.Tensor = base.forward(
            self, *inputs, scale=scale, is_causal=is_causal, **kwargs
        )
        return result

    return forward


def on_supported_gpu(x: torch.Tensor) -> bool:
    """Whether x is a plain tensor (no DTensor) on a GPU that the kernels support."""
    if type(x) is not torch.Tensor or not x.is_cuda:
        return False
    return torch.cuda.get_device_capability(x.device) == CAPABILITY
