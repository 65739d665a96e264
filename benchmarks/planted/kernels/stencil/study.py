"""out[r, c] = sum of weight[i, j] * x[r + i, c + j] over 5 x 5; x has a border of 4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench import Shape, Tolerance, Work

if TYPE_CHECKING:
    import torch

SIZE = 5
shapes = {"large": Shape(n=8192)}
default_shape = "large"
tolerance = Tolerance(absolute=1e-4, relative=1e-5)


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """x: [n + 4, n + 4] and weight: [5, 5], normal(0, 1)."""
    import torch

    device, side = generator.device, shape.n + SIZE - 1
    return {
        "x": torch.randn((side, side), generator=generator, device=device),
        "weight": torch.randn((SIZE, SIZE), generator=generator, device=device),
    }


def reference(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The same in float64."""
    n = x.shape[0] - SIZE + 1
    wide, total = x.double(), x.new_zeros((n, n)).double()
    for i in range(SIZE):
        for j in range(SIZE):
            total += weight[i, j].double() * wide[i : i + n, j : j + n]
    return total


def work(shape: Shape) -> Work:
    """25 fused multiply-adds a value."""
    n = shape.n**2
    return Work(flops=2 * SIZE**2 * n, bytes=4 * (n + (shape.n + SIZE - 1) ** 2), dtype="float32")
