"""A kernel of this study for equal sequences in vLLM; all else is FlashAttention's, as before.

    register(run)                          # in a plugin, "vllm.general_plugins": in every process
    LLM(..., attention_backend="CUSTOM")

vLLM keeps keys in pages and batches sequences of different lengths; the kernel takes neither. What
is left are batches of prompts of one length without anything cached, and of encoders, whose keys
are those of the call. One file that needs torch and vLLM and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool], torch.Tensor]
CAPABILITY = (9, 0)  # of the cards that the kernels are made for
BACKENDS = "vllm.v1.attention.backends"
ENCODERS = ("encoder", "encoder_only")


def register(attention: Attention) -> type[Any]:
    """Make it vLLM's backend CUSTOM, by the name ``Served`` of this module; gives the class."""
    registry = import_module(f"{BACKENDS}.registry")
    globals()["Served"] = made = backend(attention)
    registry.register_backend(registry.AttentionBackendEnum.CUSTOM, f"{__name__}.Served")
    return made


def backend(attention: Attention) -> type[Any]:
    """vLLM's FlashAttention with another forward for what suits the kernel."""
    flash = import_module(f"{BACKENDS}.flash_attn")
    given: type[Any] = flash.FlashAttentionBackend
    # Older ones write the cache in their forward, which must not be passed by then.
    separate = not getattr(given, "forward_includes_kv_cache_update", True)

    class Implementation(flash.FlashAttentionImpl):  # type: ignore[misc, name-defined]
        def forward(
            self, layer: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
            kv_cache: Any, attn_metadata: Any, output: torch.Tensor | None = None,
            *others: Any, **named: Any,
        ) -> torch.Tensor:  # fmt: skip
            """query: [tokens, heads, D], key, value: [tokens, key heads, D], padded at the end."""
            scaled = any(x is not None for x in (*others, *named.values()))
            if output is not None and not scaled and suits(self, query, attn_metadata, separate):
                try:
                    return equal(attention, self, query, key, value, attn_metadata, output)
                except NotImplementedError:
                    pass
            was: torch.Tensor = super().forward(
                layer, query, key, value, kv_cache, attn_metadata, output, *others, **named
            )
            return was

    class Backend(given):  # type: ignore[misc]
        @staticmethod
        def get_name() -> str:
            return "CUSTOM"

        @staticmethod
        def get_impl_cls() -> type[Any]:
            return Implementation

    return Backend


def suits(own: Any, query: torch.Tensor, batch: Any, separate: bool) -> bool:
    """Whether the batch's sequences are of one length with nothing cached, and the layer asks for
    nothing but what the kernel does. Not in a CUDA graph, which would be replayed for others.
    """
    if batch is None or getattr(batch, "use_cascade", False):
        return False
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return False
    encoder = getattr(own.attn_type, "value", own.attn_type) in ENCODERS
    sequences = batch.query_start_loc.shape[0] - 1
    if batch.num_actual_tokens != sequences * batch.max_query_len:
        return False
    if not encoder and (batch.max_seq_len != batch.max_query_len or not separate):
        return False
    plain = (
        own.alibi_slopes is None
        and own.sliding_window in (None, (-1, -1))
        and not own.logits_soft_cap
        and getattr(own, "sinks", None) is None
        and getattr(own, "dcp_world_size", 1) == 1
        and math.isclose(own.scale, query.shape[-1] ** -0.5)
    )
    if not plain or not query.is_cuda:
        return False
    return torch.cuda.get_device_capability(query.device) == CAPABILITY


def equal(attention: Attention, own: Any, query: torch.Tensor, key: torch.Tensor,
          value: torch.Tensor, batch: Any, output: torch.Tensor) -> torch.Tensor:  # fmt: skip
    """All sequences in one call; what is behind the last of them stays as it is."""
    tokens, length = batch.num_actual_tokens, batch.max_query_len
    encoder = getattr(own.attn_type, "value", own.attn_type) in ENCODERS
    q, k, v = (x[:tokens].unflatten(0, (-1, length)).transpose(1, 2) for x in (query, key, value))
    found = attention(q, k, v, not encoder and bool(batch.causal))
    output[:tokens] = found.flatten(0, 1).view(output[:tokens].shape)
    return output
