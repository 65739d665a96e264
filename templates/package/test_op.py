"""Compare the operator with the reference in float64, on a GPU: ``python -m pytest tests``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from kernels import get_local_kernel

op = get_local_kernel(Path(__file__).resolve().parents[1]).op
SHAPES = op.FACTS["checked"]
SMALLEST = min(SHAPES, key=lambda name: op.study().work(op.study().shapes[name]).bytes)


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    torch.compiler.reset()
    op.strict(True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*the reference is used.*")
        yield


def inputs(shape: str, seed: int = 1) -> dict[str, Any]:
    generator = torch.Generator("cuda").manual_seed(seed)
    return op.study().inputs(op.study().shapes[shape], generator)


def require_close(found: Any, given: dict[str, Any], shape: str) -> None:
    rule = op.study().tolerance
    bound = rule(op.study().shapes[shape]) if callable(rule) else rule
    wanted = op._tensors(op.study().reference(**given))
    for out, right in zip(op._tensors(found), wanted, strict=True):
        error = torch.where(right.isfinite(), out.double() - right, 0.0)
        norm = torch.where(right.isfinite(), right.double(), 0.0).norm()
        assert out.shape == right.shape
        assert error.abs().max() <= bound.absolute
        assert error.norm() <= bound.relative * norm


@pytest.mark.parametrize("shape", SHAPES)
def test_the_variant_is_right(shape: str) -> None:
    given = inputs(shape)
    require_close(op.run(*given.values()), given, shape)


def test_opcheck() -> None:
    passed = torch.library.opcheck(op.run, tuple(inputs(SMALLEST).values()))
    assert set(passed.values()) == {"SUCCESS"}


def test_another_type_is_the_references() -> None:
    given = {
        n: x.double() if n in op.TENSORS and x.is_floating_point() else x
        for n, x in inputs(SMALLEST).items()
    }
    with pytest.raises(NotImplementedError, match="is not run"):
        op.run(*given.values())
    op.strict(False)
    require_close(op.run(*given.values()), given, SMALLEST)


def test_a_graph_gives_what_a_call_gives() -> None:
    given, other = inputs(SMALLEST), inputs(SMALLEST, seed=2)
    wanted = op.run(*other.values())
    op.run(*given.values())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = op.run(*given.values())
    for name in op.TENSORS:
        given[name].copy_(other[name])
    graph.replay()
    torch.testing.assert_close(out, wanted, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_torch_compile_makes_one_graph(mode: str) -> None:
    compiled = torch.compile(op.run, fullgraph=True, mode=mode)
    for seed in range(3):
        given = inputs(SMALLEST, seed)
        require_close([x.clone() for x in op._tensors(compiled(*given.values()))], given, SMALLEST)
