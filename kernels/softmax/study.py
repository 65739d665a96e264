"""Softmax of the rows of a matrix: exp(x - max) / sum.

The workbench also reads this file without torch, so functions import torch themselves.
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


# With captured=False, `ablate --shape` profiles only the steps judged there and their parents.
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
    """fp16 and bf16: the machine epsilon, four times the largest rounding error of a weight. fp32:
    17 times the machine epsilon, because the errors of exp and of the sum dominate there.
    """
    if shape.dtype == "float32":
        return Tolerance(absolute=2e-6, relative=2e-6)
    if shape.dtype == "float16":
        return Tolerance(absolute=1e-3, relative=1e-3)
    return Tolerance(absolute=8e-3, relative=8e-3)


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """x: [rows, cols] normal, with standard deviation 4: a few weights of a row are large."""
    import torch

    x = torch.randn((shape.rows, shape.cols), generator=generator, device=generator.device)
    return {"x": (4 * x).to(getattr(torch, shape.dtype))}


def _large(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """About 20000: exp overflows unless the maximum is subtracted first."""
    inputs["x"] += 20000
    return inputs


def _masked(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """Minus infinity in the second half of all rows and in the first quarter of every second row.
    At least one column stays finite.
    """
    x = inputs["x"]
    cols = x.shape[1]
    x[:, cols // 2 + 1 :] = float("-inf")
    x[::2, : cols // 4] = float("-inf")
    return inputs


def _constant(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """All elements of a row are equal, so all weights are."""
    inputs["x"][:] = inputs["x"][:, :1].clone()
    return inputs


def _rising(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """From -60 to 60 along a row: the running maximum keeps rising to the end."""
    import torch

    x = inputs["x"]
    inputs["x"][:] = torch.linspace(-60, 60, x.shape[1], device=x.device).to(x.dtype)
    return inputs


def _last(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """The last element of a row is 40 and has nearly all the weight."""
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
    """The softmax in float64: [rows, cols]."""
    return x.double().softmax(-1)


def work(shape: Shape) -> Work:
    """Per element: subtract the maximum, add to the sum, multiply by its reciprocal. Every element
    is read once and written once.
    """
    elements = shape.rows * shape.cols
    return Work(
        flops=3 * elements - shape.rows,
        bytes=2 * elements * BYTES[shape.dtype],
        dtype=shape.dtype,
    )
