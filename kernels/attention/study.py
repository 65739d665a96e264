"""Flash attention forward: softmax(Q K^T / sqrt(D)) V for every batch and head.

Read on machines without torch too, so torch is imported inside the functions.
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
}
default_shape = "b2h8s512d64"


def tolerance(shape: Shape) -> Tolerance:
    """Rounding of the output and of P before the second product, 2^-11 each (2^-8 in bf16), of
    the largest of a million normal(0, 1) values, 4.9, where one key has all the weight.
    """
    if shape.dtype == "bfloat16":
        return Tolerance(absolute=4e-2, relative=1.2e-2)
    return Tolerance(absolute=5e-3, relative=2e-3)


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """q, k, v: [B, H, S, D] normal(0, 1) in the shape's dtype, on the generator's device.

    With an attention ``sink`` the first 16 keys score about that with every query, where others
    score normal(0, 1): whoever meets them last has to correct what was summed before. All but one
    of their elements are zero, so that their scores are exact in fp16 too.
    """
    import torch

    size = (shape.B, shape.H, shape.S, shape.D)
    dtype = getattr(torch, shape.dtype)
    draw = {
        name: torch.randn(size, generator=generator, device=generator.device).to(dtype)
        for name in "qkv"
    }
    if sink := shape.get("sink"):
        draw["q"][..., 0] = math.sqrt(shape.D)
        draw["k"][..., :16, :] = 0
        draw["k"][..., :16, 0] = float(sink)
    return {**draw, "causal": shape.causal}


def _sink(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """Every query scores 16 with the first 16 keys, exactly, and normal(0, 1) with the others."""
    inputs["q"][..., 0] = math.sqrt(inputs["q"].shape[-1])
    inputs["k"][..., :16, :] = 0
    inputs["k"][..., :16, 0] = 16
    return inputs


def _outliers(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """One element of q and k in a thousand is thirty times as large."""
    import torch

    for name in "qk":
        value = inputs[name]
        large = torch.rand(value.shape, generator=generator, device=value.device) < 1e-3
        value.masked_fill_(large, 0).add_(large * 30)
    return inputs


def _constant_keys(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """All keys of a head are one: every key has the same weight."""
    inputs["k"][:] = inputs["k"][..., :1, :].clone()
    return inputs


def _ramp(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """Scores rise by 20 from the first key to the last: every tile has a new maximum."""
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
    """The same in float64, [B, H, S, D]."""
    import torch

    out = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    for at in itertools.product(range(q.shape[0]), range(q.shape[1])):  # one head's scores fit
        scores = q[at].double() @ k[at].double().T / q.shape[-1] ** 0.5
        if causal:
            keep = torch.ones_like(scores, dtype=torch.bool).tril()
            scores.masked_fill_(~keep, float("-inf"))
        out[at] = scores.softmax(-1) @ v[at].double()
    return out


def work(shape: Shape) -> Work:
    """4 B H S^2 D operations (two matrix products, halved under a causal mask); q, k, v, o once."""
    product = shape.B * shape.H * shape.S * shape.D
    flops = 4 * product * shape.S / (2 if shape.causal else 1)
    return Work(flops=flops, bytes=4 * product * 2, dtype=shape.dtype)
