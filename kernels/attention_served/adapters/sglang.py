"""A kernel of this study for prefill in SGLang; decoding does not change.

    register(run)                          # in every process that loads a model
    python -m sglang.launch_server --attention-backend workbench ...

SGLang keeps keys in a pool and batches requests of different lengths; the kernel supports neither.
This backend extends SGLang's torch_native: it computes one request at a time, and gathers its keys
first. This file needs only torch and sglang.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool], torch.Tensor]
CAPABILITY = (9, 0)  # the compute capability that the kernels need
LAYERS = "sglang.srt.layers.attention"


def register(attention: Attention, name: str = "workbench") -> None:
    """Register ``attention`` as an attention backend of SGLang under ``name``."""
    import_module("sglang.srt.server_args").add_attention_backend_choices([name])
    registry = import_module(f"{LAYERS}.attention_registry")
    registry.register_attention_backend(name)(lambda runner: backend(attention)(runner))


def backend(attention: Attention) -> type[Any]:
    """SGLang's torch_native backend with ``attention`` for prefill."""
    native: type[Any] = import_module(f"{LAYERS}.torch_native_backend").TorchNativeAttnBackend

    class Served(native):  # type: ignore[misc]
        def forward_extend(
            self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: Any, forward_batch: Any,
            save_kv_cache: bool = True, **kwargs: Any,
        ) -> torch.Tensor:  # fmt: skip
            """q, k, v: [tokens, heads * D] of all requests. The result has q's shape."""
            result: torch.Tensor
            if not supported(q, k, layer):
                result = super().forward_extend(
                    q, k, v, layer, forward_batch, save_kv_cache, **kwargs
                )
                return result
            pool = forward_batch.token_to_kv_pool
            if save_kv_cache:
                pool.set_kv_buffer(layer, forward_batch.out_cache_loc, k, v)
            try:
                return prefill(attention, q, layer, forward_batch)
            except NotImplementedError:  # keys and values are in the pool already
                result = super().forward_extend(q, k, v, layer, forward_batch, False, **kwargs)
                return result

    return Served


def supported(q: torch.Tensor, k: torch.Tensor | None, layer: Any) -> bool:
    """Whether the kernel supports all options of a layer."""
    d = layer.qk_head_dim
    if k is None or layer.is_cross_attention or d != layer.v_head_dim:
        return False
    if getattr(layer, "logit_cap", 0) or getattr(layer, "sliding_window_size", -1) not in (
        -1,
        None,
    ):
        return False
    if not math.isclose(layer.scaling, d**-0.5) or not q.is_cuda:
        return False
    return torch.cuda.get_device_capability(q.device) == CAPABILITY


def prefill(attention: Attention, q: torch.Tensor, layer: Any, batch: Any) -> torch.Tensor:
    """Compute each request: queries of its new tokens, keys of all its tokens."""
    heads = (layer.tp_q_head_num, layer.qk_head_dim)
    queries, out = q.view(-1, *heads), torch.empty_like(q)
    keys = batch.token_to_kv_pool.get_key_buffer(layer.layer_id)
    values = batch.token_to_kv_pool.get_value_buffer(layer.layer_id)
    causal = getattr(layer.attn_type, "value", layer.attn_type) != "encoder_only"
    start = 0
    lengths = zip(batch.extend_prefix_lens_cpu, batch.extend_seq_lens_cpu, strict=True)
    for request, (cached, new) in enumerate(lengths):
        slots = batch.req_to_token_pool.req_to_token[batch.req_pool_indices[request]]
        slots = slots[: int(cached) + int(new)]
        request_queries = queries[start : start + int(new)]
        inputs = (request_queries, keys[slots], values[slots])
        views = [x[None].transpose(1, 2) for x in inputs]
        result = attention(views[0], views[1], views[2], causal)
        out.view_as(queries)[start : start + int(new)] = result[0]
        start += int(new)
    return out
