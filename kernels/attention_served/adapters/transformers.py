"""A kernel of this study as an attention implementation of Hugging Face transformers.

    register(run)                                     # the run of a variant
    model = AutoModel.from_config(config, attn_implementation="workbench")

Calls that the kernel does not support go to SDPA, as with ``attn_implementation="sdpa"``: masks,
dropout, gradients, other scales, dtypes and head dimensions, other GPUs. This file needs only torch
and transformers (5.x), so you can copy it into a package.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import torch

# q [B, H, S, D], k and v [B, key heads, T, D], causal -> [B, S, H, D]. The causal mask is aligned
# to the last query. Raises NotImplementedError for unsupported arguments.
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool], torch.Tensor]
CAPABILITY = (9, 0)  # the compute capability that the kernels need


def register(attention: Attention, name: str = "workbench", *, strict: bool = False) -> None:
    """Register ``attention`` in transformers under ``name``; see ``implementation``."""
    transformers = import_module("transformers")
    transformers.AttentionInterface.register(name, implementation(attention, strict=strict))
    transformers.AttentionMaskInterface.register(name, mask)


def implementation(attention: Attention, *, strict: bool = False) -> Callable[..., Any]:
    """The function that transformers calls instead of SDPA. If ``strict``, a call that would go to
    SDPA raises NotImplementedError with the reason.
    """
    sdpa = import_module("transformers.integrations.sdpa_attention").sdpa_attention_forward

    def forward(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        """query, key, value: [B, heads, length, D]; the result is [B, S, H, D]."""
        reason = refused(query, key, value, attention_mask, dropout, scaling, kwargs)
        if not reason:
            causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
            length = query.shape[2]
            causal = causal and length > 1
            # Without a mask, keys beyond the queries are unused slots of a static cache, as in
            # transformers' own SDPA function.
            used = slice(length) if causal else slice(None)
            try:
                return attention(query, key[:, :, used], value[:, :, used], causal), None
            except NotImplementedError as error:
                reason = str(error)
        if strict:
            raise NotImplementedError(f"attention goes to SDPA: {reason}")
        result: tuple[torch.Tensor, None] = sdpa(
            module,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=scaling,
            is_causal=is_causal,
            **kwargs,
        )
        return result

    return forward


def refused(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float,
    scaling: float | None,
    kwargs: dict[str, Any],
) -> str:
    """Why no kernel of the study supports a call; "" if one may."""
    if attention_mask is not None:
        return "there is a mask"
    if dropout:
        return "there is dropout"
    if torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value)):
        return "gradients are needed"
    if kwargs.get("position_bias") is not None:
        return "there is a position bias"
    if scaling is not None and not math.isclose(scaling, query.shape[-1] ** -0.5):
        return f"scores are scaled by {scaling}"
    if value.shape[-1] != query.shape[-1]:
        return "values have another head dimension"
    if not query.is_cuda or capability(query.device) != CAPABILITY:
        return f"it is on {query.device}"
    return ""


@cache
def capability(device: torch.device) -> tuple[int, int]:
    """The compute capability, cached: asking torch takes as long as a launch."""
    return torch.cuda.get_device_capability(device)


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    *,
    attention_mask: torch.Tensor | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    **kwargs: Any,
) -> torch.Tensor | None:
    """SDPA's mask, or None if causality is all that it would express.

    transformers' own function returns a mask in CUDA graphs even then.
    """
    skippable = allow_is_bidirectional_skip or (allow_is_causal_skip and q_length == kv_length)
    if skippable and attention_mask is None and (local_size is None or kv_length < local_size):
        return None
    result: torch.Tensor | None = import_module("transformers.masking_utils").sdpa_mask(
        batch_size,
        q_length,
        kv_length,
        attention_mask=attention_mask,
        local_size=local_size,
        allow_is_causal_skip=allow_is_causal_skip,
        allow_is_bidirectional_skip=allow_is_bidirectional_skip,
        **kwargs,
    )
    return result
