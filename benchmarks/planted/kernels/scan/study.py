"""out[row, i] = sum of x[row, j], j up to i; rows of 8192 values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench import Shape, Tolerance, Work

if TYPE_CHECKING:
    import torch

COLUMNS = 8192
shapes = {"large": Shape(rows=4096)}
default_shape = "large"
tolerance = Tolerance(absolute=5e-3, relative=1e-5)


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """x: [rows, 8192] normal(0, 1)."""
    import torch

    size = (shape.rows, COLUMNS)
    return {"x": torch.randn(size, generator=generator, device=generator.device)}


def reference(x: torch.Tensor) -> torch.Tensor:
    """The same in float64."""
    return x.double().cumsum(-1)


def work(shape: Shape) -> Work:
    """An addition a value; each is read and written once."""
    n = shape.rows * COLUMNS
    return Work(flops=n, bytes=8 * n, dtype="float32")
