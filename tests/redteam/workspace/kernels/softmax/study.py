"""Softmax of every row: what the red team is set against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.study.values import Shape, Tolerance, Work

if TYPE_CHECKING:
    import torch

shapes = {
    "rows": Shape(rows=2048, cols=1024, scale=1.0),
    "narrow": Shape(profiled=False, rows=300, cols=1000, scale=1.0),
    "hot": Shape(profiled=False, rows=512, cols=1024, scale=200.0),
}
default_shape = "rows"
tolerance = Tolerance(absolute=2e-5, relative=1e-5)


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """x: [rows, cols] normal(0, scale) in float32."""
    import torch

    size = (int(shape.rows), int(shape.cols))
    return {"x": shape.scale * torch.randn(size, generator=generator, device=generator.device)}


def reference(x: torch.Tensor) -> torch.Tensor:
    """The same in float64."""
    return x.double().softmax(-1)


def work(shape: Shape) -> Work:
    """Of each element: less the maximum, times log2(e), added up, times one over the sum."""
    number = int(shape.rows) * int(shape.cols)
    return Work(flops=3 * number, bytes=8 * number, dtype="float32")
