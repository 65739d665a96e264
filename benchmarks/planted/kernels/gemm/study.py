"""out = a @ b, half precision in, fp32 out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench import Shape, Tolerance, Work

if TYPE_CHECKING:
    import torch

shapes = {"square": Shape(n=4096)}
default_shape = "square"
tolerance = Tolerance(absolute=5e-3, relative=1e-4)


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """a, b: [n, n] normal(0, 1), half precision."""
    import torch

    size = (shape.n, shape.n)
    return {
        name: torch.randn(size, generator=generator, device=generator.device).half()
        for name in ("a", "b")
    }


def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The same in float64."""
    return a.double() @ b.double()


def work(shape: Shape) -> Work:
    """n^3 fused multiply-adds."""
    return Work(flops=2 * shape.n**3, bytes=8 * shape.n**2, dtype="float16")
