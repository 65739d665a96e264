"""out[i] = sum of matrix[i, j] * x[j], j up to i."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench import Shape, Tolerance, Work

if TYPE_CHECKING:
    import torch

shapes = {"large": Shape(n=8192)}
default_shape = "large"
tolerance = Tolerance(absolute=1e-2, relative=1e-5)


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """matrix: [n, n] and x: [n], normal(0, 1)."""
    import torch

    device = generator.device
    return {
        "matrix": torch.randn((shape.n, shape.n), generator=generator, device=device),
        "x": torch.randn(shape.n, generator=generator, device=device),
    }


def reference(matrix: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The same in float64, 1024 rows at once."""
    import torch

    parts = matrix.split(1024)
    return torch.cat([part.double().tril(1024 * i) @ x.double() for i, part in enumerate(parts)])


def work(shape: Shape) -> Work:
    """A fused multiply-add for each value of the triangle, which is read once."""
    n = shape.n
    return Work(flops=n * (n + 1), bytes=2 * n * (n + 1) + 8 * n, dtype="float32")
