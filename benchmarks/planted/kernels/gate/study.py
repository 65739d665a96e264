"""out = x / (1 + exp(-1.702 x)), element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench import Shape, Tolerance, Work

if TYPE_CHECKING:
    import torch

shapes = {"large": Shape(rows=8192, columns=4096)}
default_shape = "large"
tolerance = Tolerance(absolute=1e-4, relative=1e-5)


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """x: [rows, columns] normal(0, 1)."""
    import torch

    size = (shape.rows, shape.columns)
    return {"x": torch.randn(size, generator=generator, device=generator.device)}


def reference(x: torch.Tensor) -> torch.Tensor:
    """The same in float64."""
    return x.double() * (1.702 * x.double()).sigmoid()


def work(shape: Shape) -> Work:
    """Two products and a sum a value; each is read and written once."""
    n = shape.rows * shape.columns
    return Work(flops=3 * n, bytes=8 * n, dtype="float32")
