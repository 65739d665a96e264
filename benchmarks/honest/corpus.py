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
    half: str = ""  # "before" or "after" the bounds of the checks were fixed

    @property
    def name(self) -> str:
        return f"{self.function}_{self.size}_{self.dtype}"

    @property
    def operation(self) -> str:
        return self.function.partition("_")[0]

    @property
    def study(self) -> str:
        return f"{self.operation}_{self.size}_{self.dtype}"


def points() -> Iterator[Point]:
    every = tomllib.loads(Path(__file__).with_name("points.toml").read_text("utf-8"))
    for half, types in every.items():
        for dtype, functions in types.items():
            for function, sizes in functions.items():
                yield from (Point(function, size, dtype, half) for size in sizes)


def study_of(point: Point) -> ModuleType:
    """As study.py would say it: rows of 1024 elements, squares, heads, images."""
    size, dtype = point.size, getattr(torch, point.dtype)
    item, n = dtype.itemsize, size * 1024

    def normal(*shape: int) -> Callable[[torch.Generator], torch.Tensor]:
        return lambda g: torch.randn(shape, generator=g, device="cuda").to(dtype)

    def index(g: torch.Generator) -> torch.Tensor:
        return torch.randint(size, (size,), generator=g, device="cuda")

    def gradient(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            x = x.detach().double().requires_grad_()
            return torch.autograd.grad(F.rms_norm(x, (1024,), eps=1e-6), x, g.double())[0]

    def rope(x: torch.Tensor, c: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        left, right = x.double().chunk(2, 1)
        return torch.cat((left * c - right * s, right * c + left * s), 1)

    def below(most: int, *size: int) -> Callable[[torch.Generator], torch.Tensor]:
        return lambda g: torch.randint(most, size, generator=g, device="cuda")

    def stencil(x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool1d(x.double().unsqueeze(1), 3, 1, 1).squeeze(1)

    def quantised(x: torch.Tensor) -> torch.Tensor:
        return (x.double() * 16).round().clamp(-128, 127).to(torch.int8)

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q.double(), k.double(), v.double())

    def scatter(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x, dtype=torch.float64).index_add_(0, index, x.double())

    def named(*names: str, of: Any) -> dict[str, Any]:
        return dict.fromkeys(names, of)

    def bytes_of(g: torch.Generator) -> torch.Tensor:
        return (torch.randint(256, (size, 1024), generator=g, device="cuda") - 128).to(torch.int8)

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
        "gelu": (rows, lambda x: F.gelu(x.double()), n, 2 * n * item),
        "add": (named("x", "y", of=x), lambda x, y: x.double() + y, n, 3 * n * item),
        "swiglu": (named("x", "y", of=x), lambda x, y: F.silu(x.double()) * y, n, 3 * n * item),
        "rope": ({"x": x, **named("c", "s", of=normal(size, 512))}, rope, 2 * n, 3 * n * item),
        "gradient": (named("x", "g", of=x), gradient, 2 * n, 3 * n * item),
        "logsumexp": (rows, lambda x: torch.logsumexp(x.double(), 1), n, n * item),
        "entropy": ({"x": x, "index": below(1024, size)},
                    lambda x, index: F.cross_entropy(x.double(), index, reduction="none"), n,
                    n * item),
        "normalized": (rows, lambda x: F.normalize(x.double()), n, 2 * n * item),
        "groups": (rows, lambda x: F.group_norm(x.double(), 32), n, 2 * n * item),
        "where": (named("x", "y", of=x), lambda x, y: torch.where(x > 0, x, y), 0, 2 * n * item),
        "concat": (named("x", "y", of=x), lambda x, y: torch.cat((x, y), 1), 0, 4 * n * item),
        "flip": (rows, lambda x: x.flip(1), 0, 2 * n * item),
        "batched": (named("a", "b", of=normal(16, size, size)),
                    lambda a, b: a.double() @ b.double(), 32.0 * size**3, 48 * size**2 * item),
        "gemv": ({"x": x, "v": normal(1024)}, lambda x, v: x.double() @ v.double(), n, n * item),
        "outer": ({"u": normal(size), "v": normal(1024)},
                  lambda u, v: torch.outer(u.double(), v.double()), 0, n * item),
        "pool": ({"x": normal(size, 32, 28, 28)}, lambda x: F.avg_pool2d(x.double(), 2), 0,
                 size * 25088 * item),
        "quantised": (rows, quantised, 0, n * (item + 1)),
        "argmax": (rows, lambda x: torch.argmax(x, 1), 0, n * item),
        "topk": (rows, lambda x: torch.topk(x.double(), 16).values, 0, n * item),
        "histogram": ({"index": below(256, n)}, lambda index: torch.bincount(index, minlength=256),
                      0, 8 * n),
        "stencil": (rows, stencil, n, 2 * n * item),
        "dequantised": ({"q": bytes_of, "s": normal(size)},
                        lambda q, s: q.double() * s.double()[:, None], 0, n * (1 + item)),
    }  # fmt: skip
    makers, reference, flops, moved = known[point.operation]
    study: Any = ModuleType("study")
    study.shapes, study.default_shape = {"it": Shape(size=size)}, "it"
    study.inputs = lambda shape, generator: {k: make(generator) for k, make in makers.items()}
    study.reference, study.tolerance = reference, BOUNDS[point.dtype]
    if point.operation == "convolve":
        study.tolerance = Tolerance(0.1, 2e-3)
    study.in_place = ("x",) if point.operation == "accumulate" else ()
    study.constant = ("w",) if point.operation == "linear" else ()
    study.work = lambda shape: Work(flops=flops, bytes=moved, dtype=point.dtype)
    return study  # type: ignore[no-any-return]
