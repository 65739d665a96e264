"""out[row] = sum of x[row]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench import Shape, Tolerance, Work

if TYPE_CHECKING:
    import torch

shapes = {"large": Shape(rows=8192, columns=8192)}
default_shape = "large"
tolerance = Tolerance(absolute=2e-3, relative=1e-5)


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """x: [rows, columns] normal(0, 1)."""
    import torch

    size = (shape.rows, shape.columns)
    return {"x": torch.randn(size, generator=generator, device=generator.device)}


def reference(x: torch.Tensor) -> torch.Tensor:
    """The same in float64, [rows]."""
    return x.double().sum(-1)


def work(shape: Shape) -> Work:
    """An addition a value, each read once."""
    n = shape.rows * shape.columns
    return Work(flops=n, bytes=4 * n, dtype="float32")
