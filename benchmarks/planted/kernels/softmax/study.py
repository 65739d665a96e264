"""Softmax of every row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench import Shape, Tolerance, Work

if TYPE_CHECKING:
    import torch

shapes = {"large": Shape(rows=8192, columns=8192)}
default_shape = "large"
tolerance = Tolerance(absolute=2e-6, relative=2e-5)


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """x: [rows, columns] normal(0, 2)."""
    import torch

    size = (shape.rows, shape.columns)
    return {"x": 2 * torch.randn(size, generator=generator, device=generator.device)}


def reference(x: torch.Tensor) -> torch.Tensor:
    """The same in float64."""
    return x.double().softmax(-1)


def work(shape: Shape) -> Work:
    """Three operations a value; read once and written once."""
    n = shape.rows * shape.columns
    return Work(flops=3 * n, bytes=8 * n, dtype="float32")
