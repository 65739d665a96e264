"""What a shipped package runs: who answers a call, in which memory, and what a stream has."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from answers import Patch
from shipped_packages import handmade, passes_opcheck, quiet
from workbench.study.front_ends import kept_between_calls

Make = Callable[..., Any]

DOUBLE = "def run(x):\n    return x * 2\n"
MARKED = """
def run(x, n):
    if n > 3:
        raise NotImplementedError("n up to 3")
    assert x.is_contiguous() and x.data_ptr() % 16 == 0
    return x * n + 100
"""
PLAIN = "def run(x, n):\n    return x * n\n"


def vector(n: int = 2, size: int = 8) -> dict[str, Any]:
    return {"x": torch.randn(size, 4), "n": n}


UP_TO_3: Any = {"run": MARKED, "reference": PLAIN, "calls": [vector(2), vector(3, 16)]}


@pytest.fixture
def make(tmp_path: Path, monkeypatch: Patch) -> Make:
    return partial(handmade, tmp_path, monkeypatch)


def called(op: Any, *given: Any, strict: bool = False) -> Any:
    op.strict(strict)
    with quiet():
        return op.run(*given)


# ---- who answers -----------------------------------------------------------------------------
def test_the_variant_answers_where_it_was_checked(make: Make) -> None:
    op = make(**UP_TO_3)
    x = torch.randn(5, 4)
    assert torch.equal(called(op, x, 2, strict=True), x * 2 + 100)
    assert op.counts == {"fast": 1}


def test_a_call_costs_the_host_little(make: Make) -> None:
    op, x, calls = make(**UP_TO_3), torch.randn(5, 4), []
    op.run(x, 2)
    sys.setprofile(lambda frame, event, what: calls.append(event))
    op.run(x, 2)
    sys.setprofile(None)
    assert calls.count("call") <= 24  # 46 by torch.library.custom_op


def test_what_it_refuses_is_the_references_with_a_warning_a_reason(make: Make) -> None:
    op = make(**UP_TO_3)
    x = torch.randn(5, 4)
    with pytest.warns(UserWarning, match="the reference is used: n up to 3"):
        assert torch.equal(op.run(x, 4), x * 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        op.run(x, 5)
    assert op.counts == {"reference: n up to 3": 2}
    op.strict(True)
    with pytest.raises(NotImplementedError, match="fast is not run: n up to 3"):
        op.run(x, 4)


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (torch.randn(3, 5), r"x.shape\[1\] is 5: for this call it was only checked as 4"),
        (torch.randn(3, 4, dtype=torch.float64), "float64 for x: it was checked for other types"),
        (torch.randn(2, 3, 4), r"tensors of \[3\] dimensions"),
        (torch.randn(0, 4), r"x.shape\[0\] is 0"),
    ],
)
def test_inputs_unlike_those_that_were_checked_are_the_references(
    make: Make, x: torch.Tensor, said: str
) -> None:
    op = make(**UP_TO_3)
    assert torch.equal(called(op, x, 2), x * 2)
    with pytest.raises(NotImplementedError, match=said):
        called(op, x, 2, strict=True)


def test_an_error_of_the_variant_is_no_reason_for_the_reference(make: Make) -> None:
    run = "def run(x):\n    raise RuntimeError('an illegal memory access')\n"
    op = make(run=run, reference=DOUBLE, calls=[{"x": torch.ones(4)}])
    with pytest.raises(RuntimeError, match="an illegal memory access"):
        called(op, torch.ones(4))


def test_without_a_reference_variant_the_studys_own_answers_in_the_inputs_type(make: Make) -> None:
    study = "def reference(x):\n    return x.double() * 2\n"
    x = torch.randn(4)
    op = make(run=DOUBLE, reference="", study=study, calls=[{"x": x}], on_gpu=False)
    out = called(op, x)
    assert out.dtype == torch.float32
    assert torch.equal(out, x * 2)


# ---- inputs and outputs ----------------------------------------------------------------------
def test_inputs_are_copied_only_where_they_do_not_lie_as_it_was_checked(make: Make) -> None:
    run = "seen = []\n\ndef run(x):\n    seen.append(x)\n    return x + 1\n"
    op = make(run=run, reference=DOUBLE, calls=[{"x": torch.ones(4, 4)}])
    room = torch.randn(17)
    for x, copied in (
        (torch.randn(4, 4), False),
        (torch.randn(4, 4).t(), True),
        (room[1:].view(4, 4), True),
        (torch.randn(4, 4, dtype=torch.complex64).conj().imag, True),
    ):
        assert torch.equal(called(op, x, strict=True), x + 1)
        seen = op._loaded("variant").seen[-1]
        assert (seen is not x) == copied
        assert seen.is_contiguous()
        assert not seen.is_neg()


def test_what_was_checked_with_strides_is_given_them(make: Make) -> None:
    run = "import torch\n\ndef run(x):\n    assert x.stride() == (1, 4)\n    return x + 1\n"
    op = make(run=run, reference=DOUBLE, calls=[{"x": torch.ones(4, 4).t()}])
    assert called(op, torch.randn(4, 4).t(), strict=True).is_contiguous()
    passes_opcheck(op, torch.randn(4, 4).t())


@pytest.mark.parametrize("out", ["x.t()", "x.t().clone().t().t()"])
def test_an_output_in_another_layout_or_in_an_inputs_memory_is_copied(make: Make, out: str) -> None:
    x, run = torch.randn(3, 4), f"def run(x):\n    return {out}\n"
    op = make(run=run, reference=run, calls=[{"x": x}])
    found = called(op, x, strict=True)
    assert found.is_contiguous()
    assert found.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    assert torch.equal(found, x.t())
    passes_opcheck(op, x)


def test_several_outputs(make: Make) -> None:
    run = "def run(x):\n    return {'sum': x.sum(1), 'double': x * 2}\n"
    op = make(run=run, reference=run, calls=[{"x": torch.ones(3, 4)}], outputs=2)
    x = torch.randn(3, 4)
    one, other = called(op, x, strict=True)
    assert torch.equal(one, x.sum(1))
    assert torch.equal(other, x * 2)
    passes_opcheck(op, x)


# ---- torch.compile and gradients -------------------------------------------------------------
def test_it_compiles_into_one_graph_with_sizes_that_vary(make: Make) -> None:
    op = make(**UP_TO_3)
    compiled = torch.compile(
        lambda x: op.run(x.sin(), 2) + 1, backend="aot_eager", fullgraph=True, dynamic=True
    )
    for size in (3, 5, 6):
        x = torch.randn(size, 4)
        torch.testing.assert_close(compiled(x), x.sin() * 2 + 101)


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
def test_autocast_ends_at_the_operator_compiled_or_not(make: Make, given: torch.dtype) -> None:
    run = "def run(x, y):\n    return x @ y\n"
    calls = [{"x": torch.ones(4, 4), "y": torch.ones(4, 4)}]
    op = make(run=run, reference=run, calls=calls, on_gpu=False)
    x, y = (torch.randn(4, 4, dtype=given) for _ in range(2))
    for call in (op.run, torch.compile(op.run, backend="aot_eager", fullgraph=True)):
        with torch.autocast("cpu", torch.bfloat16), quiet():
            out = call(x, y)
        assert out.dtype == given
        assert torch.equal(out, x @ y)


def test_a_study_with_a_backward_of_its_own(make: Make) -> None:
    study = "def backward(gradients, x):\n    return {'x': gradients[0] * 7}\n"
    op = make(run=DOUBLE, reference=DOUBLE, study=study, calls=[{"x": torch.ones(4)}])
    x = torch.randn(4, requires_grad=True)
    (gradient,) = torch.autograd.grad(called(op, x).sum(), x)
    assert torch.equal(gradient, torch.full((4,), 7.0))
    passes_opcheck(op, x)
    without = make(run=DOUBLE, reference=DOUBLE, calls=[{"x": torch.ones(4)}])
    with pytest.raises(RuntimeError, match="has no gradient"):
        called(without, x).sum().backward()


def test_a_study_may_say_what_its_outputs_look_like(make: Make) -> None:
    study = "import torch\n\ndef outputs(x):\n    return torch.empty_like(x)\n"
    reference = "def run(x):\n    return x * 2 if x.sum().item() else x * 2\n"
    op = make(run=DOUBLE, reference=reference, study=study, calls=[{"x": torch.ones(4)}])
    compiled = torch.compile(lambda x: op.run(x), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(4)), torch.full((4,), 2.0))


# ---- streams ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("keeps", "loaded"), [(("fast.py:1: f() is cached",), [1, 1, 2, 3, 4, 4]), ((), [1] * 6)]
)
def test_a_variant_that_keeps_something_is_loaded_for_every_stream_and_captured_call(
    make: Make, monkeypatch: Patch, keeps: tuple[str, ...], loaded: list[int]
) -> None:
    op = make(run=DOUBLE, reference=DOUBLE, calls=[{"x": torch.ones(4)}], keeps=keeps)
    now = {"stream": 0, "capturing": 0}
    current = lambda device: now["stream"]  # noqa: E731
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", current, raising=False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: bool(now["capturing"]))
    seen = []
    for now["stream"], now["capturing"] in ((7, 0), (7, 0), (8, 0), (7, 1), (7, 1), (7, 0)):
        called(op, torch.ones(4), strict=True)
        seen.append(op._loaded.cache_info().currsize)
    assert seen == loaded


@pytest.mark.parametrize("keeps", [(), ("fast.py:1: counter() is cached",)])
def test_inductors_own_graphs_leave_out_what_keeps_something(
    make: Make, keeps: tuple[str, ...]
) -> None:
    op = make(run=DOUBLE, reference=DOUBLE, calls=[{"x": torch.ones(4)}], keeps=keeps)
    assert (torch.Tag.cudagraph_unsafe in op.operator.tags) == bool(keeps)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("@cache\ndef counter(device):\n    return 1\n", "counter() is cached"),
        ("@functools.lru_cache(maxsize=1)\ndef f():\n    pass\n", "f() is cached"),
        ("buffer = torch.zeros(2)\n", "torch.zeros(...) is made once"),
        ("made = {}\ndef run(x):\n    made[1] = x\n", "made[1] is set"),
        ("made = []\ndef run(x):\n    made.append(x)\n", "made is changed"),
        ("def run(x, made={}):\n    pass\n", "run() has a default that can be changed"),
        ("n = 0\ndef run(x):\n    global n\n    n += 1\n", "n outlives a call"),
        ("def run(x):\n    run.last = x\n", "run.last is set"),
        ("class A:\n    def f(self, x):\n        self.x = x\n", "self.x is set"),
        ("class A:\n    x = torch.empty(1)\n", "torch.empty(...) is made once"),
        ("def run(x):\n    setattr(run, 'x', x)\n", "an attribute is set"),
    ],
)
def test_places_where_something_may_be_kept(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "fix.py"
    path.write_text(text)
    (found,) = kept_between_calls([path])
    assert re.fullmatch(rf"fix\.py:\d+: {re.escape(said)}", found)


def test_what_a_call_makes_for_itself_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "fix.py"
    path.write_text(
        "import torch\nkernels = {d: cuda.kernel('k.cu', 'k') for d in (1, 2)}\nTILES = {64: 4}\n"
        "def run(x):\n    out = torch.empty_like(x)\n    maps = []\n    maps.append(x)\n"
        "    out[0] = 1\n    sizes = {}\n    sizes['a'] = 1\n    x, y = 1, 2\n    return out\n"
    )
    assert kept_between_calls([path, tmp_path / "k.cu"]) == ()


# ---- for which inputs ------------------------------------------------------------------------
def test_relations_that_held_everywhere_are_asked_for(make: Make) -> None:
    run = "def run(q, k, scale):\n    return q + 1\n"
    reference = "def run(q, k, scale):\n    return q - 1\n"

    def call(b: int, s: int, other: int = 0, scale: float = 0.5) -> dict[str, Any]:
        return {"q": torch.ones(b, s, 4), "k": torch.ones(b, other or s, 4), "scale": scale}

    def why(op: Any, given: dict[str, Any]) -> str:
        op.counts.clear()
        called(op, *given.values())
        return str(next(iter(op.counts))).removeprefix("reference: ")

    op = make(run=run, reference=reference, calls=[call(2, 8), call(1, 3)])
    assert why(op, call(5, 6)) == "fast"
    assert why(op, call(5, 6, other=6)) == "fast"
    assert why(op, call(2, 8, scale=0.25)) == "scale is 0.25: it was only checked for [0.5]"
    mixed = {**call(2, 8), "k": torch.ones(2, 8, 4).half()}
    assert why(op, mixed).startswith("float32, float16 for q, k: it was checked")
    free = make(run="def run(q, k, scale):\n    return q.clone()\n", reference=reference,
                calls=[call(2, 8), call(1, 3, other=4)])  # fmt: skip
    assert why(free, call(2, 8, other=9)) == "fast"
    unequal = tuple(
        (x.dtype, x.shape, x.device) for x in (torch.ones(5, 6, 4), torch.ones(5, 7, 4))
    )
    assert op._why_not(unequal, (0.5,)) == "k.shape[1] is 7: for this call it was only checked as 6"
