"""Compare the operator with the reference in float64, on a GPU: ``python -m pytest tests``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from kernels import get_local_kernel

package = get_local_kernel(Path(__file__).resolve().parents[1])
FACTS, op = package.op.FACTS, package.op
IN_PLACE = FACTS["in_place"]
SMALLEST = min(FACTS["checked"], key=lambda name: op.study().work(op.study().shapes[name]).bytes)
Inputs = dict[str, Any]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    package.strict(False)
    torch.compiler.reset()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*the reference is used.*")
        yield


def inputs(shape: str, seed: int = 1) -> Inputs:
    generator = torch.Generator("cuda").manual_seed(seed)
    drawn: Inputs = op.study().inputs(op.study().shapes[shape], generator)
    return drawn


def is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def results(call: Any, given: Inputs) -> list[torch.Tensor]:
    own = {name: x.clone() if name in IN_PLACE else x for name, x in given.items()}
    out = call(*own.values())
    outs = [] if out is None else [out] if isinstance(out, torch.Tensor) else list(out)
    return [*outs, *(own[name] for name in IN_PLACE)]


def require_close(found: list[torch.Tensor], given: Inputs, shape: str) -> None:
    rule = op.study().tolerance
    bound = rule(op.study().shapes[shape]) if callable(rule) else rule
    own = {name: x.clone() if name in IN_PLACE else x for name, x in given.items()}
    made = op.study().reference(**own)
    if isinstance(made, torch.Tensor):
        made = [made]
    wanted = list(made.values() if isinstance(made, dict) else made)
    for out, right in zip(found, wanted, strict=True):
        error = torch.where(right.isfinite(), out.double() - right, 0.0)
        norm = torch.where(right.isfinite(), right.double(), 0.0).norm()
        assert out.shape == right.shape
        assert error.abs().max() <= bound.absolute
        assert error.norm() <= bound.relative * norm


@pytest.mark.parametrize("shape", FACTS["checked"])
def test_the_variant_is_right(shape: str) -> None:
    package.strict(True)
    given = inputs(shape)
    require_close(results(op.run, given), given, shape)


def test_opcheck() -> None:
    package.strict(True)
    passed = torch.library.opcheck(op.run.default, tuple(inputs(SMALLEST).values()))
    assert set(passed.values()) == {"SUCCESS"}


def test_another_type_is_the_references() -> None:
    given = inputs(SMALLEST)
    other = {n: x.double() if is_floating(x) else x for n, x in given.items()}
    before = op.counts[FACTS["variant"]]
    results(op.run, other)
    assert op.counts[FACTS["variant"]] == before
    package.strict(True)
    with pytest.raises(NotImplementedError, match="is not run"):
        results(op.run, other)


def test_a_graph_gives_what_a_call_gives() -> None:
    package.strict(True)
    given, other = inputs(SMALLEST), inputs(SMALLEST, seed=2)
    wanted = results(op.run, other)
    op.run(*(x.clone() if isinstance(x, torch.Tensor) else x for x in given.values()))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = op.run(*given.values())
    for name in op.TENSORS:
        given[name].copy_(other[name])
    graph.replay()
    outs = [] if out is None else [out] if isinstance(out, torch.Tensor) else list(out)
    for one, two in zip([*outs, *(given[n] for n in IN_PLACE)], wanted, strict=True):
        torch.testing.assert_close(one, two, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_torch_compile_makes_one_graph(mode: str) -> None:
    package.strict(True)
    compiled = torch.compile(op.run, fullgraph=True, mode=mode)
    for seed in range(3):
        given = inputs(SMALLEST, seed)
        require_close([x.clone() for x in results(compiled, given)], given, SMALLEST)


@pytest.mark.skipif(bool(IN_PLACE), reason="it changes its inputs")
def test_gradients_are_those_of_the_reference() -> None:
    package.strict(True)
    made = []
    for call in (op.run, lambda *own: op.reference(**dict(zip(op.NAMES, own, strict=True)))):
        given = inputs(SMALLEST)
        wanted = [x.requires_grad_() for x in given.values() if is_floating(x)]
        out = call(*given.values())
        first = out if isinstance(out, torch.Tensor) else out[0]
        made.append(torch.autograd.grad(first.float().square().sum(), wanted, allow_unused=True))
    for one, two in zip(*made, strict=True):
        torch.testing.assert_close(one, two, atol=2e-2, rtol=2e-2)
