"""RMSNorm: every row of x divided by its root mean square, times a weight a column.

Read on machines without torch too, so torch is imported inside the functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench import Shape, Tolerance, Work

if TYPE_CHECKING:
    import torch

shapes = {
    "large": Shape(rows=4096, columns=4096),
    "odd": Shape(rows=1001, columns=4095, profiled=False),  # checked only
    "narrow": Shape(rows=37, columns=129, profiled=False),
    "one": Shape(rows=1, columns=1, profiled=False),
}
default_shape = "large"
# A step is kept if it is also correct, and not slower, at shapes that are drawn from these. In
# steps of 8, since vector loads of 16 bytes need them; "odd" above checks other columns.
ranges = {"rows": range(1, 8193), "columns": range(64, 8193, 8)}
# Results are fp16 below 16, where half of a unit in the last place is 0.004.
tolerance = Tolerance(absolute=8e-3, relative=1e-3)


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """x: [rows, columns] and weight: [columns], both fp16 on the generator's device."""
    import torch

    device = generator.device
    x = torch.randn(shape.rows, shape.columns, generator=generator, device=device)
    weight = 0.5 + torch.rand(shape.columns, generator=generator, device=device)
    return {"x": x.half(), "weight": weight.half(), "eps": 1e-6}


def _loud(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """Squares that fp16 cannot hold."""
    return {**inputs, "x": inputs["x"] * 300}


def _silent(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """Rows of zeros: only eps keeps them from dividing by zero."""
    x = inputs["x"].clone()
    x[::2] = 0
    return {**inputs, "x": x}


adversarial = {"loud": _loud, "silent": _silent}


def reference(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """In float64."""
    wide = x.double()
    scale = ((wide * wide).mean(-1, keepdim=True) + eps).rsqrt()
    return wide * scale * weight.double()


def work(shape: Shape) -> Work:
    """A square, an addition and two products an element; x read once, out written once."""
    elements = shape.rows * shape.columns
    return Work(flops=4 * elements, bytes=2 * (2 * elements + shape.columns), dtype="float16")
