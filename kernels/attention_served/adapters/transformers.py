"""A kernel of this study as an attention implementation of Hugging Face transformers.

    register(run)                                     # what this study's variants have
    model = AutoModel.from_config(config, attn_implementation="workbench")

What the kernel does not do goes to SDPA, as ``attn_implementation="sdpa"`` would have it: masks,
dropout, gradients, other scales, types and head dimensions, other cards. One file that needs torch
and transformers (5.x) and nothing else, so that it can go into a package.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import torch

# q: [B, H, S, D], k and v: [B, key heads, keys, D], causal: [B, S, H, D]. Of more keys than queries
# the last query sees all. Raises NotImplementedError for what it does not support.
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool], torch.Tensor]
CAPABILITY = (9, 0)  # of the cards that the kernels are made for


def register(attention: Attention, name: str = "workbench", *, strict: bool = False) -> None:
    """Make ``attention`` known to transformers under a ``name``; see ``implementation``."""
    transformers = import_module("transformers")
    transformers.AttentionInterface.register(name, implementation(attention, strict=strict))
    transformers.AttentionMaskInterface.register(name, mask)


def implementation(attention: Attention, *, strict: bool = False) -> Callable[..., Any]:
    """What transformers calls in place of SDPA. With ``strict`` a call that would go to SDPA raises
    NotImplementedError and says why.
    """
    reference = import_module("transformers.integrations.sdpa_attention").sdpa_attention_forward

    def forward(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        **others: Any,
    ) -> tuple[torch.Tensor, None]:
        """query, key, value: [B, heads, length, D]; the result is [B, S, H, D]."""
        why = refused(query, key, value, attention_mask, dropout, scaling, others)
        if not why:
            causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
            length = query.shape[2]
            causal = causal and length > 1
            # No mask, and more keys than queries: the cache has room behind them (see SDPA's own).
            seen = slice(length) if causal else slice(None)
            try:
                return attention(query, key[:, :, seen], value[:, :, seen], causal), None
            except NotImplementedError as error:
                why = str(error)
        if strict:
            raise NotImplementedError(f"attention goes to SDPA: {why}")
        result: tuple[torch.Tensor, None] = reference(
            module,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=scaling,
            is_causal=is_causal,
            **others,
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
    others: dict[str, Any],
) -> str:
    """Why a call is nothing for the kernel, whichever it is; "" where it may be."""
    if attention_mask is not None:
        return "there is a mask"
    if dropout:
        return "there is dropout"
    if torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value)):
        return "gradients are wanted"
    if others.get("position_bias") is not None:
        return "there is a bias of positions"
    if scaling is not None and not math.isclose(scaling, query.shape[-1] ** -0.5):
        return f"scores are scaled by {scaling}"
    if value.shape[-1] != query.shape[-1]:
        return "values have another head dimension"
    if not query.is_cuda or capability(query.device) != CAPABILITY:
        return f"it is on {query.device}"
    return ""


@cache
def capability(device: torch.device) -> tuple[int, int]:
    """Of a card; asking torch for it takes the host as long as a launch."""
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
    **others: Any,
) -> torch.Tensor | None:
    """SDPA's mask; none where nothing is padded, in a CUDA graph too, where SDPA gets one."""
    plain = allow_is_bidirectional_skip or (allow_is_causal_skip and q_length == kv_length)
    if plain and attention_mask is None and (local_size is None or kv_length < local_size):
        return None
    made: torch.Tensor | None = import_module("transformers.masking_utils").sdpa_mask(
        batch_size,
        q_length,
        kv_length,
        attention_mask=attention_mask,
        local_size=local_size,
        allow_is_causal_skip=allow_is_causal_skip,
        allow_is_bidirectional_skip=allow_is_bidirectional_skip,
        **others,
    )
    return made
