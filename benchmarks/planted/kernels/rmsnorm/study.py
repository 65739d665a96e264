"""out[row] = x[row] * weight / sqrt(mean(x[row]^2) + 1e-6), rows of 2048 values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench import Shape, Tolerance, Work

if TYPE_CHECKING:
    import torch

COLUMNS = 2048
shapes = {"large": Shape(rows=16384)}
default_shape = "large"
tolerance = Tolerance(absolute=1e-4, relative=1e-5)


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """x: [rows, 2048] and weight: [2048], normal(0, 1)."""
    import torch

    device = generator.device
    return {
        "x": torch.randn((shape.rows, COLUMNS), generator=generator, device=device),
        "weight": torch.randn(COLUMNS, generator=generator, device=device),
    }


def reference(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The same in float64."""
    wide = x.double()
    return wide * weight.double() / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def work(shape: Shape) -> Work:
    """A square and two products a value; each is read and written once."""
    n = shape.rows * COLUMNS
    return Work(flops=4 * n, bytes=8 * n + 4 * COLUMNS, dtype="float32")
