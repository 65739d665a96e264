"""Softmax of the rows of a matrix: exp(x - max) / sum.

Read on machines without torch too, so torch is imported inside the functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench import Shape, Tolerance, Work

if TYPE_CHECKING:
    import torch

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def _shape(
    rows: int, cols: int, dtype: str = "float16", *, profiled: bool = True, captured: bool = False
) -> Shape:
    return Shape(profiled=profiled, captured=captured, rows=rows, cols=cols, dtype=dtype)


shapes = {
    "4096x8192": _shape(4096, 8192, captured=True),
    "4096x8192-fp32": _shape(4096, 8192, "float32"),
    "8192x1024": _shape(8192, 1024),
    "65536x1024-bf16": _shape(65536, 1024, "bfloat16"),
    "1024x32768-bf16": _shape(1024, 32768, "bfloat16"),
    "256x131072": _shape(256, 131072),
    "256x131072-fp32": _shape(256, 131072, "float32"),
    "32x131072-bf16": _shape(32, 131072, "bfloat16"),
    "odd": _shape(37, 1000, profiled=False),
    "odd-fp32": _shape(301, 4099, "float32", profiled=False),
    "vocabulary-bf16": _shape(5, 50257, "bfloat16", profiled=False),
    "ragged-long": _shape(3, 131064, profiled=False),
    "one column": _shape(5, 1, "float32", profiled=False),
}
default_shape = "4096x8192"


def tolerance(shape: Shape) -> Tolerance:
    """Rounding of the output, half an ulp of values up to 1, and as much again for the rest."""
    if shape.dtype == "float32":
        return Tolerance(absolute=2e-6, relative=2e-6)
    if shape.dtype == "float16":
        return Tolerance(absolute=1e-3, relative=1e-3)
    return Tolerance(absolute=8e-3, relative=8e-3)


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """x: [rows, cols] normal(0, 1), scaled by 4: a row has a few large weights."""
    import torch

    x = torch.randn((shape.rows, shape.cols), generator=generator, device=generator.device)
    return {"x": (4 * x).to(getattr(torch, shape.dtype))}


def _large(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """All about 20000: exp of any of them is infinite."""
    inputs["x"] += 20000
    return inputs


def _masked(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """Minus infinity in the second half of every row and in every second row's first quarter too;
    one column of a row always counts.
    """
    x = inputs["x"]
    cols = x.shape[1]
    x[:, cols // 2 + 1 :] = float("-inf")
    x[::2, : cols // 4] = float("-inf")
    return inputs


def _constant(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """Every element of a row is the same, and so is every weight."""
    inputs["x"][:] = inputs["x"][:, :1].clone()
    return inputs


def _rising(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """From -60 to 60 along a row: whoever goes along it meets a new maximum at every step."""
    import torch

    x = inputs["x"]
    inputs["x"][:] = torch.linspace(-60, 60, x.shape[1], device=x.device).to(x.dtype)
    return inputs


def _last(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """The last element of a row has nearly all the weight."""
    inputs["x"][:, -1] = 40
    return inputs


adversarial = {
    "large": _large,
    "masked": _masked,
    "constant rows": _constant,
    "rising": _rising,
    "last one": _last,
}


def reference(x: torch.Tensor) -> torch.Tensor:
    """The same in float64, [rows, cols]."""
    return x.double().softmax(-1)


def work(shape: Shape) -> Work:
    """Of every element: less the maximum, into the sum, times its reciprocal. Read and written
    once.
    """
    elements = shape.rows * shape.cols
    return Work(
        flops=3 * elements - shape.rows,
        bytes=2 * elements * BYTES[shape.dtype],
        dtype=shape.dtype,
    )
