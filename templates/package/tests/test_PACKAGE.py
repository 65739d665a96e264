"""Compare the operator with the reference in float64, on a GPU: ``python -m pytest tests``."""

from pathlib import Path

import pytest
import torch
from kernels import get_local_kernel

op = get_local_kernel(Path(__file__).resolve().parents[1]).op
op.strict(True)
STUDY = op.study()
SMALLEST = min(op.FACTS["checked"], key=lambda name: STUDY.work(STUDY.shapes[name]).bytes)


def inputs(shape=SMALLEST, seed=1):
    return STUDY.inputs(STUDY.shapes[shape], torch.Generator("cuda").manual_seed(seed))


def require_close(result, drawn, shape=SMALLEST):
    bound = STUDY.tolerance(STUDY.shapes[shape]) if callable(STUDY.tolerance) else STUDY.tolerance
    outs, right = (
        [x.double() for x in op._tensors(xs)] for xs in (result, STUDY.reference(**drawn))
    )
    torch.testing.assert_close(outs, right, atol=bound.absolute, rtol=0, equal_nan=True)


@pytest.mark.parametrize("shape", op.FACTS["checked"])
def test_the_variant_is_right(shape):
    drawn = inputs(shape)
    require_close(op.run(*drawn.values()), drawn, shape)


def test_opcheck():
    passed = torch.library.opcheck(op.operator, tuple(inputs().values()))
    assert set(passed.values()) == {"SUCCESS"}


def test_another_type_is_the_references(monkeypatch):
    drawn = inputs()
    wide = [x.double() if getattr(x, "is_floating_point", bool)() else x for x in drawn.values()]
    with pytest.raises(NotImplementedError, match="is not run"):
        op.run(*wide)
    monkeypatch.setattr(op, "_is_strict", False)
    require_close(op.run(*wide), drawn)


def test_a_graph_gives_what_a_call_gives():
    drawn, other = inputs(), inputs(seed=2)
    op.run(*drawn.values())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = op.run(*drawn.values())
    for name in op.TENSORS:
        drawn[name].copy_(other[name])
    graph.replay()
    require_close(out, other)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_torch_compile_makes_one_graph(mode):
    compiled = torch.compile(op.run, fullgraph=True, mode=mode)
    for seed in range(3):
        drawn = inputs(seed=seed)
        require_close(compiled(*drawn.values()), drawn)
