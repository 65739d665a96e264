"""Flash attention forward: softmax(Q K^T / sqrt(D)) V for each batch and head.

Machines without torch read this file too, so the functions import torch.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from workbench import Shape, Tolerance, Work

if TYPE_CHECKING:
    import torch


def _shape(B: int, H: int, S: int, D: int, *, causal: bool = False, dtype: str = "float16",
           sink: int = 0, profiled: bool = True, captured: bool = True) -> Shape:  # fmt: skip
    extra = {"sink": sink} if sink else {}
    return Shape(profiled=profiled, captured=captured, B=B, H=H, S=S, D=D, causal=causal,
                 dtype=dtype, **extra)  # fmt: skip


def _one_sink(S: int, D: int, *, weight: float, value: float) -> Shape:
    return Shape(profiled=False, B=1, H=8, S=S, D=D, causal=False, dtype="float16",
                 sink_weight=weight, sink_value=value)  # fmt: skip


shapes = {
    "b2h8s512d64": _shape(2, 8, 512, 64),
    "b1h8s128d64": _shape(1, 8, 128, 64, captured=False),
    "b2h16s128d64": _shape(2, 16, 128, 64, captured=False),
    "b2h8s512d64-causal": _shape(2, 8, 512, 64, causal=True, captured=False),
    "b4h16s512d64": _shape(4, 16, 512, 64, captured=False),
    "b4h16s256d128": _shape(4, 16, 256, 128, captured=False),
    "b4h16s2048d64": _shape(4, 16, 2048, 64, captured=False),
    "b4h16s2048d64-causal": _shape(4, 16, 2048, 64, causal=True, captured=False),
    "b4h16s2048d128": _shape(4, 16, 2048, 128, captured=False),
    "b4h16s2048d128-causal": _shape(4, 16, 2048, 128, causal=True, captured=False),
    "b2h16s8192d128": _shape(2, 16, 8192, 128, captured=False),
    "b2h16s8192d128-causal": _shape(2, 16, 8192, 128, causal=True, captured=False),
    "b1h16s16384d64": _shape(1, 16, 16384, 64, captured=False),
    "b1h16s16384d64-causal": _shape(1, 16, 16384, 64, causal=True, captured=False),
    "ragged": _shape(1, 3, 197, 64, profiled=False),
    "ragged-causal": _shape(1, 3, 333, 64, causal=True, profiled=False),
    "ragged-causal-d128": _shape(1, 2, 700, 128, causal=True, profiled=False),
    "ragged-bfloat16": _shape(2, 2, 300, 128, dtype="bfloat16", profiled=False),
    "sink": _shape(1, 2, 500, 64, sink=16, profiled=False),
    "sink-causal": _shape(1, 2, 500, 64, causal=True, sink=128, profiled=False),
    "sink-d128": _shape(1, 2, 700, 128, sink=128, profiled=False),
    "sink-90-s128": _one_sink(128, 64, weight=0.9, value=0.05),
    "sink-90-s512": _one_sink(512, 64, weight=0.9, value=0.05),
    "sink-90-s256d128": _one_sink(256, 128, weight=0.9, value=0.05),
    "sink-98-s128": _one_sink(128, 64, weight=0.98, value=0.0),
    "sink-98-s512": _one_sink(512, 64, weight=0.98, value=0.0),
    "sink-98-s256d128": _one_sink(256, 128, weight=0.98, value=0.0),
}
default_shape = "b2h8s512d64"


def tolerance(shape: Shape) -> Tolerance:
    """Two roundings, of the output and of P before the second product: 2^-11 each, in bf16 2^-8.

    The absolute limit is for the largest of a million normal(0, 1) values, 4.9, if one key has all
    the weight. If a ``sink_weight`` is on one key with a small value, the other keys make up the
    output, and rounding P costs up to 1 / (1 - sink_weight) times as much of it. Accurate kernels
    lose far less there, so the error as a multiple of the primary reference's decides.
    """
    others = 1 - float(shape.get("sink_weight", 0))
    if shape.dtype == "bfloat16":
        return Tolerance(absolute=4e-2, relative=1.2e-2 / others)
    return Tolerance(absolute=5e-3, relative=2e-3 / others)


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """q, k, v: [B, H, S, D] normal(0, 1) in the shape's dtype, on the generator's device.

    There are two kinds of attention sinks. All but one element of a sink's key are 0, so its score
    is exact in fp16 too.

    ``sink``: the score of the first 16 keys with every query. Other scores are near normal(0, 1),
    so a kernel that reads these keys last has to rescale what it summed before.

    ``sink_weight``: the expected weight of the first key in every row, if no mask hides keys. Its
    value is ``sink_value`` times normal(0, 1), so the small weights of the other keys matter. The
    expected exp(score) of each of those is exp(1/2).
    """
    import torch

    size = (shape.B, shape.H, shape.S, shape.D)
    dtype = getattr(torch, shape.dtype)
    q, k, v = (
        torch.randn(size, generator=generator, device=generator.device).to(dtype) for _ in "qkv"
    )
    if score := shape.get("sink"):
        q[..., 0] = math.sqrt(shape.D)
        k[..., :16, :] = 0
        k[..., :16, 0] = float(score)
    if weight := float(shape.get("sink_weight", 0)):
        q[..., 0] = math.sqrt(shape.D)
        k[..., 0] = 0
        k[..., 0, :] = 0
        k[..., 0, 0] = math.log(weight / (1 - weight) * max(shape.S - 1, 1)) + 1 / 2
        v[..., 0, :] *= shape.sink_value
    return {"q": q, "k": k, "v": v, "causal": shape.causal}


def _sink(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """The first 16 keys score exactly 16 with every query, the others near normal(0, 1)."""
    inputs["q"][..., 0] = math.sqrt(inputs["q"].shape[-1])
    inputs["k"][..., :16, :] = 0
    inputs["k"][..., :16, 0] = 16
    return inputs


def _outliers(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """One element in a thousand of q and of k is 30."""
    import torch

    for name in "qk":
        value = inputs[name]
        large = torch.rand(value.shape, generator=generator, device=value.device) < 1e-3
        value.masked_fill_(large, 0).add_(large * 30)
    return inputs


def _constant_keys(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """All keys of a head are equal, so every key has the same weight."""
    inputs["k"][:] = inputs["k"][..., :1, :].clone()
    return inputs


def _ramp(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """Scores rise by 20 from the first key to the last, so every tile has a new maximum."""
    import torch

    keys = inputs["k"].shape[-2]
    inputs["q"][..., 0] = math.sqrt(inputs["q"].shape[-1])
    inputs["k"][..., 0] = torch.linspace(0, 20, keys, device=inputs["k"].device)
    return inputs


adversarial = {
    "sink": _sink,
    "outliers": _outliers,
    "constant keys": _constant_keys,
    "ramp": _ramp,
}


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """softmax(Q K^T / sqrt(D)) V in float64, [B, H, S, D]."""
    import torch

    out = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    # One head at a time: the scores of all heads would not fit into memory.
    for head in itertools.product(range(q.shape[0]), range(q.shape[1])):
        scores = q[head].double() @ k[head].double().T / q.shape[-1] ** 0.5
        if causal:
            keep = torch.ones_like(scores, dtype=torch.bool).tril()
            scores.masked_fill_(~keep, float("-inf"))
        out[head] = scores.softmax(-1) @ v[head].double()
    return out


def work(shape: Shape) -> Work:
    """Two matrix products of 2 B H S^2 D operations, half of them under a causal mask; q, k, v and
    the output move once, two bytes an element.
    """
    elements = shape.B * shape.H * shape.S * shape.D
    flops = 4 * elements * shape.S / (2 if shape.causal else 1)
    return Work(flops=flops, bytes=4 * elements * 2, dtype=shape.dtype)
