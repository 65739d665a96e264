"""out[i, j] = sum over k of |a[i, k] - b[j, k]|, 128 values of k."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench import Shape, Tolerance, Work

if TYPE_CHECKING:
    import torch

DEPTH = 128
shapes = {"large": Shape(n=4096)}
default_shape = "large"
tolerance = Tolerance(absolute=1e-3, relative=1e-5)


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """a, b: [n, 128] normal(0, 1)."""
    import torch

    size = (shape.n, DEPTH)
    return {
        name: torch.randn(size, generator=generator, device=generator.device) for name in ("a", "b")
    }


def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The same in float64, 256 rows at once."""
    import torch

    return torch.cat([torch.cdist(part, b.double(), p=1.0) for part in a.double().split(256)])


def work(shape: Shape) -> Work:
    """A difference and a sum for each value of k."""
    n = shape.n
    return Work(flops=2 * n**2 * DEPTH, bytes=4 * (n**2 + 2 * n * DEPTH), dtype="float32")
