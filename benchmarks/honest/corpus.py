"""The honest kernels of ``benchmarks.honest``: which function of which module, for which inputs."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from workbench.study.values import Shape, Tolerance, Work

HALF = {"float16": Tolerance(0.25, 2e-3), "bfloat16": Tolerance(1.0, 1.5e-2)}
BOUNDS = {"float32": Tolerance(1e-2, 1e-5), "float64": Tolerance(1e-6, 1e-12), **HALF}


class Point(NamedTuple):
    """A function of one of the modules here, for inputs of a size (rows) and a type."""

    function: str
    size: int
    dtype: str = "float32"

    @property
    def name(self) -> str:
        return f"{self.function}_{self.size}_{self.dtype}"

    @property
    def operation(self) -> str:
        return self.function.partition("_")[0]


def points() -> Iterator[Point]:
    every = tomllib.loads(Path(__file__).with_name("points.toml").read_text("utf-8"))
    for dtype, functions in every.items():
        for function, sizes in functions.items():
            yield from (Point(function, size, dtype) for size in sizes)


def study_of(point: Point) -> ModuleType:
    """As study.py would say it: rows of 1024 elements, squares, heads, images."""
    size, dtype = point.size, getattr(torch, point.dtype)
    item, n = dtype.itemsize, size * 1024

    def normal(*shape: int) -> Callable[[torch.Generator], torch.Tensor]:
        return lambda g: torch.randn(shape, generator=g, device="cuda").to(dtype)

    def index(g: torch.Generator) -> torch.Tensor:
        return torch.randint(size, (size,), generator=g, device="cuda")

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q.double(), k.double(), v.double())

    def scatter(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x, dtype=torch.float64).index_add_(0, index, x.double())

    def named(*names: str, of: Any) -> dict[str, Any]:
        return dict.fromkeys(names, of)

    x, square, head = normal(size, 1024), normal(size, size), normal(2, 8, size, 64)
    rows: dict[str, Any] = {"x": x}
    known: dict[str, tuple[dict[str, Any], Callable[..., Any], float, float]] = {
        "silu": (rows, lambda x: F.silu(x.double()), n, 2 * n * item),
        "softmax": (rows, lambda x: x.double().softmax(1), 2 * n, 2 * n * item),
        "sum": (rows, lambda x: x.double().sum(1), 0.9 * n, n * item),
        "rms": (rows, lambda x: F.rms_norm(x.double(), (1024,), eps=1e-6), 2 * n, 2 * n * item),
        "layernorm": (rows, lambda x: F.layer_norm(x.double(), (1024,)), 2 * n, 2 * n * item),
        "transpose": (rows, lambda x: x.t(), 0, 2 * n * item),
        "moments": (rows, lambda x: torch.var_mean(x.double(), 1), n, n * item),
        "largest": (rows, lambda x: torch.max(x.double(), 1), 0, n * item),
        "sorted": (rows, lambda x: torch.sort(x.double(), 1).values, 0, 2 * n * item),
        "cumulative": (rows, lambda x: x.double().cumsum(1), 0.9 * n, 2 * n * item),
        "spectrum": (rows, lambda x: torch.fft.rfft(x.double(), dim=1), n, 2 * n * item),
        "matmul": (named("a", "b", of=square), lambda a, b: a.double() @ b.double(),
                   2.0 * size**3, 3 * size**2 * item),
        "linear": ({"x": x, "w": normal(1024, 1024)}, lambda x, w: F.relu(x.double() @ w.double()),
                   2.0 * n * 1024, (2 * n + 2**20) * item),
        "accumulate": (named("x", "y", of=x), lambda x, y: x.double() + y, n, 3 * n * item),
        "gather": ({"table": x, "index": index}, lambda table, index: table[index], 0, n * item),
        "scatter": ({"x": x, "index": index}, scatter, 0, 2 * n * item),
        "attention": (named("q", "k", "v", of=head), attention,
                      4.0 * 16 * size**2 * 64, 4.0 * 16 * size * 64 * item),
        "convolve": ({"x": normal(size, 32, 28, 28), "w": normal(64, 32, 3, 3)},
                     lambda x, w: F.conv2d(x.double(), w.double(), padding=1), 0, size * 75264 * 4),
    }  # fmt: skip
    makers, reference, flops, moved = known[point.operation]
    study: Any = ModuleType("study")
    study.shapes = {"it": Shape(size=size)}
    study.inputs = lambda shape, generator: {k: make(generator) for k, make in makers.items()}
    study.reference, study.tolerance = reference, BOUNDS[point.dtype]
    if point.operation == "convolve":
        study.tolerance = Tolerance(0.1, 2e-3)
    study.in_place = ("x",) if point.operation == "accumulate" else ()
    study.constant = ("w",) if point.operation == "linear" else ()
    study.work = lambda shape: Work(flops=flops, bytes=moved, dtype=point.dtype)
    return study  # type: ignore[no-any-return]
