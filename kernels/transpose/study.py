"""Matrix transpose: out[c, r] = x[r, c], contiguous. No arithmetic, only memory traffic.

The workbench also reads this file without torch, so functions import torch themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench import Shape, Tolerance, Work

if TYPE_CHECKING:
    import torch

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def _shape(
    rows: int, cols: int, dtype: str = "float32", *, profiled: bool = True, captured: bool = False
) -> Shape:
    return Shape(profiled=profiled, captured=captured, rows=rows, cols=cols, dtype=dtype)


shapes = {
    "8192x8192": _shape(8192, 8192, captured=True),
    "8192x8192-fp16": _shape(8192, 8192, "float16"),
    "2048x2048": _shape(2048, 2048),
    "1024x65536": _shape(1024, 65536),
    "65536x1024-fp16": _shape(65536, 1024, "float16"),
    "edges": _shape(1000, 1096, profiled=False),
    "edges-bf16": _shape(2072, 776, "bfloat16", profiled=False),
    "odd": _shape(1001, 1023, profiled=False),
    "odd-fp16": _shape(37, 8195, "float16", profiled=False),
    "two columns": _shape(4099, 2, profiled=False),
}
default_shape = "8192x8192"
tolerance = Tolerance(absolute=0, relative=0)  # nothing is computed, so nothing is rounded
contiguous = True  # otherwise a view, x.t(), would pass for a transpose


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """x: [rows, cols] normal(0, 1)."""
    import torch

    x = torch.randn((shape.rows, shape.cols), generator=generator, device=generator.device)
    return {"x": x.to(getattr(torch, shape.dtype))}


def _denormal(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """Denormal numbers: a kernel that flushes them to zero fails."""
    import torch

    x = inputs["x"]
    inputs["x"] = x.sign() * torch.finfo(x.dtype).smallest_normal / 4
    return inputs


def _largest(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """The largest finite numbers of both signs: the sum of two of them overflows."""
    import torch

    x = inputs["x"]
    inputs["x"] = torch.where(x > 0, 1.0, -1.0).to(x.dtype) * torch.finfo(x.dtype).max
    return inputs


adversarial = {"denormal": _denormal, "largest": _largest}


def reference(x: torch.Tensor) -> torch.Tensor:
    """The transpose in float64: [cols, rows]."""
    return x.double().t().contiguous()


def work(shape: Shape) -> Work:
    """No arithmetic. Every element is read once and written once."""
    return Work(flops=0, bytes=2 * shape.rows * shape.cols * BYTES[shape.dtype], dtype=shape.dtype)
