"""Flash attention forward: softmax(Q K^T / sqrt(D)) V for every batch and head.

Read on machines without torch too, so torch is imported inside the functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench import Shape, Tolerance, Work

if TYPE_CHECKING:
    import torch

shapes = {
    "b2h8s512d64": Shape(B=2, H=8, S=512, D=64, causal=False, dtype="float16"),
    "b1h8s128d64": Shape(B=1, H=8, S=128, D=64, causal=False, dtype="float16"),
    "ragged": Shape(profiled=False, B=1, H=3, S=197, D=64, causal=False, dtype="float16"),
}
default_shape = "b2h8s512d64"

# fp16 rounding of the output (2^-11 relative) plus P rounded to fp16 before the second product.
tolerance = Tolerance(absolute=4e-3, relative=2e-3)


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """q, k, v: [B, H, S, D] normal(0, 1) in the shape's dtype, on the generator's device."""
    import torch

    size = (shape.B, shape.H, shape.S, shape.D)
    dtype = getattr(torch, shape.dtype)
    draw = {
        name: torch.randn(size, generator=generator, device=generator.device).to(dtype)
        for name in "qkv"
    }
    return {**draw, "causal": shape.causal}


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """The same in float64, [B, H, S, D]."""
    import torch

    q, k, v = q.double(), k.double(), v.double()
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        keep = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~keep, float("-inf"))
    return torch.matmul(scores.softmax(-1), v)


def work(shape: Shape) -> Work:
    """4 B H S^2 D operations (two matrix products, halved under a causal mask); q, k, v, o once."""
    product = shape.B * shape.H * shape.S * shape.D
    flops = 4 * product * shape.S / (2 if shape.causal else 1)
    return Work(flops=flops, bytes=4 * product * 2, dtype=shape.dtype)
