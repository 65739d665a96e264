"""Attention forward as models call it: views of [B, S, H, D], fewer key heads than query heads,
different numbers of queries and keys, and the result laid out for the output projection.

The workbench also reads this file without torch, so functions import torch themselves.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from workbench import Shape, Tolerance, Work

if TYPE_CHECKING:
    import torch


def _shape(B: int, S: int, H: int, D: int, *, T: int = 0, key_heads: int = 0,
           causal: bool = True, dtype: str = "bfloat16", cached: bool = False,
           profiled: bool = True, captured: bool = False, **extra: float) -> Shape:  # fmt: skip
    """S queries and T keys; T is S by default, and key_heads is H. Keys and values that are
    ``cached`` are contiguous [B, key_heads, T, D], as in a KV cache.
    """
    return Shape(profiled=profiled, captured=captured, B=B, S=S, T=T or S, H=H,
                 key_heads=key_heads or H, D=D, causal=causal, cached=cached,
                 dtype=dtype, **extra)  # fmt: skip


def _one_sink(S: int, H: int, D: int, *, T: int = 0, key_heads: int = 0) -> Shape:
    return _shape(1, S, H, D, T=T, key_heads=key_heads, causal=False, dtype="float16",
                  profiled=False, sink_weight=0.98)  # fmt: skip


shapes = {
    # Head counts of Llama-3-8B, Llama-3.2-1B, Qwen2-7B, Falcon-7B (64 of its 71), BERT-large.
    "llama-2048": _shape(1, 2048, 32, 128, key_heads=8, captured=True),
    "llama-2048-float16": _shape(1, 2048, 32, 128, key_heads=8, dtype="float16"),
    "llama-512": _shape(1, 512, 32, 128, key_heads=8),
    "llama-8192": _shape(1, 8192, 32, 128, key_heads=8),
    "small-llama-2048": _shape(1, 2048, 32, 64, key_heads=8),
    "small-llama-512": _shape(1, 512, 32, 64, key_heads=8),
    "qwen-2048": _shape(2, 2048, 28, 128, key_heads=4),
    "falcon-2048": _shape(2, 2048, 64, 64, key_heads=1),
    "bert-512": _shape(1, 512, 16, 64, causal=False, dtype="float16"),
    "bert-512-bfloat16": _shape(1, 512, 16, 64, causal=False),
    "bert-512-b8": _shape(8, 512, 16, 64, causal=False, dtype="float16"),
    "bert-128-b32": _shape(32, 128, 16, 64, causal=False, dtype="float16"),
    # The last 512 tokens of a 4096-token prompt; cross-attention of a Whisper decoder to 30 s of
    # audio; one new token of each of 16 sequences.
    "chunk": _shape(1, 512, 32, 128, T=4096, key_heads=8, cached=True),
    "whisper": _shape(4, 448, 20, 64, T=1500, causal=False, dtype="float16"),
    "decode": _shape(16, 1, 32, 128, T=2048, key_heads=8, cached=True),
    "ragged": _shape(2, 197, 6, 64, key_heads=2, causal=False, dtype="float16", profiled=False),
    "ragged-causal": _shape(2, 333, 6, 64, key_heads=3, profiled=False),
    "ragged-causal-d128": _shape(1, 700, 4, 128, key_heads=1, dtype="float16", profiled=False),
    "one-head": _shape(2, 300, 1, 128, dtype="float16", profiled=False),
    "few-queries": _shape(2, 5, 8, 64, T=777, key_heads=4, cached=True, profiled=False),
    "few-queries-d128": _shape(2, 9, 16, 128, T=500, key_heads=2, profiled=False),
    "one-query": _shape(3, 1, 32, 64, T=333, key_heads=2, cached=True, profiled=False),
    "some-queries": _shape(2, 70, 6, 64, T=200, key_heads=2, dtype="float16", profiled=False),
    "offset": _shape(1, 300, 8, 128, T=901, key_heads=2, dtype="float16", profiled=False),
    "offset-d64": _shape(2, 301, 4, 64, T=1030, key_heads=1, profiled=False),
    "more-queries": _shape(1, 900, 4, 128, T=77, key_heads=2, causal=False, profiled=False),
    "sink-s128": _one_sink(128, 8, 64),
    "sink-s512": _one_sink(512, 8, 64),
    "sink-d128": _one_sink(256, 8, 128, key_heads=2),
    "sink-few-queries": _one_sink(5, 16, 128, T=500, key_heads=4),
}  # fmt: skip
default_shape = "llama-2048"
# The output projection reads [B, S, H * D]: any other layout costs the model a copy.
contiguous = True


def tolerance(shape: Shape) -> Tolerance:
    """P is rounded before the second product, and the output is rounded: 2^-11 relative each, or
    2^-8 in bf16. If one key has all the weight, the output is a value of V. The largest of a
    million normal(0, 1) values is 4.9. With a ``sink_weight``, rounding P costs up to
    1 / (1 - sink_weight) times as much. Accurate kernels lose far less there, so the error as a
    multiple of the primary reference's decides.
    """
    others = 1 - float(shape.get("sink_weight", 0))
    if shape.dtype == "bfloat16":
        return Tolerance(absolute=4e-2, relative=1.2e-2 / others)
    return Tolerance(absolute=5e-3, relative=2e-3 / others)


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """q: [B, H, S, D], k and v: [B, key_heads, T, D], normal(0, 1) in the shape's dtype, on the
    generator's device. They are transposed views of [B, S, H, D], the layout that a projection
    writes. Only ``cached`` keys and values are contiguous.

    ``sink_weight``: the expected weight of the first key in every row. Its value is 0, so the small
    weights of the other keys make up the output, as with attention sinks. The expected exp(score)
    of each of those is exp(1/2).
    """
    import torch

    dtype = getattr(torch, shape.dtype)

    def random(length: int, heads: int, cached: bool) -> torch.Tensor:
        size = (shape.B, heads, length) if cached else (shape.B, length, heads)
        full = torch.randn((*size, shape.D), generator=generator, device=generator.device)
        return full.to(dtype) if cached else full.to(dtype).transpose(1, 2)

    q = random(shape.S, shape.H, False)
    k, v = (random(shape.T, shape.key_heads, shape.cached) for _ in "kv")
    if weight := float(shape.get("sink_weight", 0)):
        q[..., 0] = math.sqrt(shape.D)
        k[..., 0] = 0
        k[..., 0, :] = 0
        k[..., 0, 0] = math.log(weight / (1 - weight) * (shape.T - 1)) + 1 / 2
        v[..., 0, :] = 0
    return {"q": q, "k": k, "v": v, "causal": shape.causal}


def _sink(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """The first 16 keys score exactly 16 with every query. Other scores are small."""
    inputs["q"][..., 0] = math.sqrt(inputs["q"].shape[-1])
    inputs["k"][..., :16, :] = 0
    inputs["k"][..., :16, 0] = 16
    return inputs


def _far_sink(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """As _sink with a score of 128: its exponential overflows if it is taken relative to the
    largest of the other scores.
    """
    inputs = _sink(inputs, generator)
    inputs["k"][..., :16, 0] = 128
    return inputs


def _outliers(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """One in a thousand elements of q and k is 30."""
    import torch

    for name in "qk":
        value = inputs[name]
        large = torch.rand(value.shape, generator=generator, device=value.device) < 1e-3
        value.masked_fill_(large, 0).add_(large * 30)
    return inputs


def _constant_keys(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """All keys of a head are equal, so they have equal weights."""
    inputs["k"][:] = inputs["k"][..., :1, :].clone()
    return inputs


def _ramp(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """Scores rise by 20 from the first key to the last: each tile has a new maximum."""
    import torch

    keys = inputs["k"].shape[-2]
    inputs["q"][..., 0] = math.sqrt(inputs["q"].shape[-1])
    inputs["k"][..., 0] = torch.linspace(0, 20, keys, device=inputs["k"].device)
    return inputs


adversarial = {
    "sink": _sink,
    "far sink": _far_sink,
    "outliers": _outliers,
    "constant keys": _constant_keys,
    "ramp": _ramp,
}


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Attention in float64: [B, S, H, D].

    The causal mask is aligned to the last query, which sees all keys; each earlier query sees one
    key less. FlashAttention has aligned it so since 2.1; SDPA's ``is_causal`` aligns it to the
    first query. With more queries than keys, some queries would see no key.
    """
    import torch

    b, h, s, d = q.shape
    keys, group = k.shape[2], h // k.shape[1]
    out = torch.empty((b, s, h, d), dtype=torch.float64, device=q.device)
    keep = torch.ones((s, keys), dtype=torch.bool, device=q.device).tril(keys - s)
    for batch, head in itertools.product(range(b), range(h)):  # one at a time, to save memory
        key, value = k[batch, head // group].double(), v[batch, head // group].double()
        scores = q[batch, head].double() @ key.T / d**0.5
        if causal:
            scores.masked_fill_(~keep, float("-inf"))
        out[batch, :, head] = scores.softmax(-1) @ value
    return out


def outputs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """An empty tensor like the result, for tracing without values."""
    b, h, s, d = q.shape
    return q.new_empty(b, s, h, d)


def work(shape: Shape) -> Work:
    """4 D operations (two matrix products) for each pair of a query and a key that it sees. q, k
    and v are read once, and the result is written once.
    """
    hidden = shape.S * (shape.S - 1) // 2 if shape.causal else 0
    pairs = shape.B * shape.H * (shape.S * shape.T - hidden)
    moved = shape.S * shape.H + shape.T * shape.key_heads
    return Work(
        flops=4 * shape.D * pairs, bytes=2 * shape.B * moved * shape.D * 2, dtype=shape.dtype
    )
