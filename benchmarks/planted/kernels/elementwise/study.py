"""out = sum of x^k / (k + 1), k below 16, element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench import Shape, Tolerance, Work

if TYPE_CHECKING:
    import torch

shapes = {"large": Shape(n=1 << 25)}
default_shape = "large"
tolerance = Tolerance(absolute=1e-4, relative=1e-5)


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """x: [n] uniform in -1 to 1."""
    import torch

    return {"x": torch.rand(shape.n, generator=generator, device=generator.device) * 2 - 1}


def reference(x: torch.Tensor) -> torch.Tensor:
    """The same in float64."""
    total = x.double() * 0
    for divisor in range(16, 0, -1):
        total = total * x.double() + 1 / divisor
    return total


def work(shape: Shape) -> Work:
    """15 fused multiply-adds a value."""
    return Work(flops=30 * shape.n, bytes=8 * shape.n, dtype="float32")
