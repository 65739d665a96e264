"""A kernel of this study for equal-length batches in vLLM; FlashAttention computes the rest.

    register(run)                          # in a plugin, "vllm.general_plugins": in every process
    LLM(..., attention_backend="CUSTOM")

vLLM keeps keys in pages and batches sequences of different lengths; the kernel supports neither.
It computes batches of uncached prompts of one length, and encoders, whose keys are arguments of the
call. This file needs only torch and vLLM.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool], torch.Tensor]
CAPABILITY = (9, 0)  # the compute capability that the kernels need
BACKENDS = "vllm.v1.attention.backends"
ENCODERS = ("encoder", "encoder_only")


def register(attention: Attention) -> type[Any]:
    """Register ``Served`` of this module as vLLM's backend CUSTOM. Return the class."""
    registry = import_module(f"{BACKENDS}.registry")
    globals()["Served"] = result = backend(attention)
    registry.register_backend(registry.AttentionBackendEnum.CUSTOM, f"{__name__}.Served")
    return result


def backend(attention: Attention) -> type[Any]:
    """vLLM's FlashAttention backend with ``attention`` for the batches that it supports."""
    flash = import_module(f"{BACKENDS}.flash_attn")
    base: type[Any] = flash.FlashAttentionBackend
    # Older versions write the KV cache in forward, so decoders must call it.
    writes_cache = getattr(base, "forward_includes_kv_cache_update", True)

    class Implementation(flash.FlashAttentionImpl):  # type: ignore[misc, name-defined]
        def forward(
            self, layer: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
            kv_cache: Any, attn_metadata: Any, output: torch.Tensor | None = None,
            *args: Any, **kwargs: Any,
        ) -> torch.Tensor:  # fmt: skip
            """query: [tokens, heads, D], key, value: [tokens, key heads, D], padded at the end."""
            scaled = any(x is not None for x in (*args, *kwargs.values()))
            plain = not scaled and supported(self, query, attn_metadata, writes_cache)
            if output is not None and plain:
                try:
                    return compute(attention, self, query, key, value, attn_metadata, output)
                except NotImplementedError:
                    pass
            result: torch.Tensor = super().forward(
                layer, query, key, value, kv_cache, attn_metadata, output, *args, **kwargs
            )
            return result

    class Backend(base):  # type: ignore[misc]
        @staticmethod
        def get_name() -> str:
            return "CUSTOM"

        @staticmethod
        def get_impl_cls() -> type[Any]:
            return Implementation

    return Backend


def supported(layer: Any, query: torch.Tensor, batch: Any, writes_cache: bool) -> bool:
    """Whether all sequences of a batch have one length and nothing cached, and the kernel supports
    all options of the layer. Never in a CUDA graph: it would be replayed with other lengths.
    """
    if batch is None or getattr(batch, "use_cascade", False):
        return False
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return False
    encoder = getattr(layer.attn_type, "value", layer.attn_type) in ENCODERS
    sequences = batch.query_start_loc.shape[0] - 1
    if batch.num_actual_tokens != sequences * batch.max_query_len:
        return False
    if not encoder and (batch.max_seq_len != batch.max_query_len or writes_cache):
        return False
    plain = (
        layer.alibi_slopes is None
        and layer.sliding_window in (None, (-1, -1))
        and not layer.logits_soft_cap
        and getattr(layer, "sinks", None) is None
        and getattr(layer, "dcp_world_size", 1) == 1
        and math.isclose(layer.scale, query.shape[-1] ** -0.5)
    )
    if not plain or not query.is_cuda:
        return False
    return torch.cuda.get_device_capability(query.device) == CAPABILITY


def compute(attention: Attention, layer: Any, query: torch.Tensor, key: torch.Tensor,
            value: torch.Tensor, batch: Any, output: torch.Tensor) -> torch.Tensor:  # fmt: skip
    """Compute all sequences in one call. Padding after the last one does not change."""
    tokens, length = batch.num_actual_tokens, batch.max_query_len
    encoder = getattr(layer.attn_type, "value", layer.attn_type) in ENCODERS
    q, k, v = (x[:tokens].unflatten(0, (-1, length)).transpose(1, 2) for x in (query, key, value))
    result = attention(q, k, v, not encoder and bool(batch.causal))
    output[:tokens] = result.flatten(0, 1).view(output[:tokens].shape)
    return output
