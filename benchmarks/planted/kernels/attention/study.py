"""Attention without a mask, heads of 64, fp32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench import Shape, Tolerance, Work

if TYPE_CHECKING:
    import torch

shapes = {"short": Shape(heads=64, length=1024)}
default_shape = "short"
tolerance = Tolerance(absolute=2e-5, relative=2e-5)


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """q, k, v: [heads, length, 64] normal(0, 1)."""
    import torch

    size = (shape.heads, shape.length, 64)
    return {name: torch.randn(size, generator=generator, device=generator.device) for name in "qkv"}


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The same in float64."""
    scores = q.double() @ k.double().transpose(-1, -2) / 8
    return scores.softmax(-1) @ v.double()


def work(shape: Shape) -> Work:
    """Two products, as of the usual count."""
    values = shape.heads * shape.length * 64
    return Work(flops=4 * values * shape.length, bytes=16 * values, dtype="float32")
