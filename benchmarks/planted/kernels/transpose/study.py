"""out[c, r] = x[r, c]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench import Shape, Tolerance, Work

if TYPE_CHECKING:
    import torch

shapes = {"large": Shape(n=8192)}
default_shape = "large"
tolerance = Tolerance(absolute=0, relative=0)
contiguous = True


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """x: [n, n] normal(0, 1)."""
    import torch

    return {"x": torch.randn((shape.n, shape.n), generator=generator, device=generator.device)}


def reference(x: torch.Tensor) -> torch.Tensor:
    """The same in float64."""
    return x.double().t().contiguous()


def work(shape: Shape) -> Work:
    """Every value read once and written once."""
    return Work(flops=0, bytes=8 * shape.n * shape.n, dtype="float32")
