"""What a shipped package runs: who answers a call, in which memory, and what a stream has."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from answers import Patch
from shipped_packages import domain_of, handmade
from workbench.shipped import dispatch
from workbench.shipped.dispatch import Instances
from workbench.shipped.facts import NAMED, NOTHING, SEVERAL, Domain, Facts, given_of, read, write
from workbench.shipped.op import Operator
from workbench.study.front_ends import kept_between_calls

Make = Callable[..., Operator]

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


def op_of(operator: Operator) -> Any:
    return getattr(torch.ops, operator.namespace).thing


def called(operator: Operator, *given: Any, strict: bool = False) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return op_of(operator)(*given, strict)


# ---- who answers -----------------------------------------------------------------------------


def test_the_variant_answers_where_it_was_checked(make: Make) -> None:
    operator = make(**UP_TO_3)
    x = torch.randn(5, 4)
    assert torch.equal(called(operator, x, 2, strict=True), x * 2 + 100)
    assert operator.counts == {"fast": 1}


def test_what_it_refuses_is_the_references_with_a_warning_a_reason(make: Make) -> None:
    operator = make(**UP_TO_3)
    x = torch.randn(5, 4)
    op = op_of(operator)
    with pytest.warns(UserWarning, match="the reference is used: n up to 3"):
        assert torch.equal(op(x, 4, False), x * 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        op(x, 5, False)
    assert operator.counts == {"reference: n up to 3": 2}
    with pytest.raises(NotImplementedError, match="fast is not run: n up to 3"):
        op(x, 4, True)


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (torch.randn(3, 5), r"x.shape\[1\] is 5: it was only checked for 4"),
        (torch.randn(3, 4, dtype=torch.float64), "float64 for x: it was checked for float32"),
        (torch.randn(2, 3, 4), r"tensors of \(3,\) dimensions"),
        (torch.randn(0, 4), "without elements"),
    ],
)
def test_inputs_unlike_those_that_were_checked_are_the_references(
    make: Make, x: torch.Tensor, said: str
) -> None:
    operator = make(**UP_TO_3)
    assert torch.equal(called(operator, x, 2), x * 2)
    with pytest.raises(NotImplementedError, match=said):
        called(operator, x, 2, strict=True)


FLAG = """
def run(x, flag):
    return x * 2 if flag else x
"""


def test_inputs_that_were_asked_about_before_are_told_from_those_that_only_look_like_them(
    make: Make, monkeypatch: Patch
) -> None:
    operator = make(run=FLAG, reference=FLAG, calls=[{"x": torch.ones(4), "flag": 1}])
    asked = []
    why_not = Domain.why_not

    def counted(self: Domain, *given: Any) -> str:
        asked.append(given)
        return why_not(self, *given)

    monkeypatch.setattr(Domain, "why_not", counted)
    x = torch.ones(4)
    assert called(operator, x, 1, strict=True).sum() == 8
    assert called(operator, x + 1, 1, strict=True).sum() == 16
    assert len(asked) == 1
    for other, flag in ((torch.ones(5), 1), (torch.ones(4).half(), 1), (x, 2)):
        for _ in range(2):
            with pytest.raises(NotImplementedError, match=r"only checked for|was checked for"):
                called(operator, other, flag, strict=True)
    assert len(asked) == 4
    assert called(operator, x, 1, strict=True).sum() == 8
    assert len(asked) == 4


def test_what_cannot_be_compiled_is_not_tried_at_every_call(make: Make) -> None:
    run = """
from workbench.errors import EnvironmentLacks
tries = []

def run(x):
    tries.append(1)
    raise EnvironmentLacks("NVRTC is not installed")
"""
    operator = make(run=run, reference=DOUBLE, calls=[{"x": torch.ones(4)}])
    for _ in range(3):
        assert torch.equal(called(operator, torch.ones(4)), torch.full((4,), 2.0))
    module = next(iter(operator._instances._made.values()))
    assert len(module.tries) == 1
    assert operator.counts == {"reference: NVRTC is not installed": 3}


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("raise OSError('there is no nvcc')", "OSError: there is no nvcc"),
    ],
)
def test_a_variant_that_cannot_be_loaded_is_told(make: Make, run: str, said: str) -> None:
    operator = make(run=run, reference=DOUBLE, calls=[{"x": torch.ones(4)}])
    with pytest.raises(NotImplementedError, match=f"fast.py cannot be loaded here: {said}"):
        called(operator, torch.ones(4), strict=True)
    assert torch.equal(called(operator, torch.ones(4)), torch.full((4,), 2.0))


def test_none_is_no_tensor(make: Make) -> None:
    operator = make(run=DOUBLE, reference=DOUBLE, calls=[{"x": torch.ones(4)}])
    with pytest.raises(TypeError, match="'x' is None, and no tensor"):
        called(operator, None)


def test_an_error_of_the_variant_is_no_reason_for_the_reference(make: Make) -> None:
    run = "def run(x):\n    raise RuntimeError('an illegal memory access')\n"
    operator = make(run=run, reference=DOUBLE, calls=[{"x": torch.ones(4)}])
    with pytest.raises(RuntimeError, match="an illegal memory access"):
        called(operator, torch.ones(4))


def test_without_a_reference_variant_the_studys_own_answers_in_the_inputs_type(make: Make) -> None:
    study = "def reference(x):\n    return x.double() * 2\n"
    x = torch.randn(4)
    operator = make(run=DOUBLE, reference="", study=study, calls=[{"x": x}], on_gpu=False)
    out = called(operator, x)
    assert out.dtype == torch.float32
    assert torch.equal(out, x * 2)


def test_on_the_cpu_it_says_so(make: Make) -> None:
    operator = make(run=DOUBLE, reference=DOUBLE, calls=[{"x": torch.ones(4)}], on_gpu=False)
    with pytest.raises(NotImplementedError, match="the inputs are on cpu, and not on one GPU"):
        called(operator, torch.ones(4), strict=True)


# ---- inputs and outputs ----------------------------------------------------------------------


def test_inputs_are_copied_only_where_they_do_not_lie_as_it_was_checked(make: Make) -> None:
    run = "seen = []\n\ndef run(x):\n    seen.append(x)\n    return x + 1\n"
    operator = make(run=run, reference=DOUBLE, calls=[{"x": torch.ones(4, 4)}])
    room = torch.randn(17)
    for x, copied in (
        (torch.randn(4, 4), False),
        (torch.randn(4, 4).t(), True),
        (room[1:].view(4, 4), True),
        (torch.randn(4, 4, dtype=torch.complex64).conj().imag, True),
    ):
        assert torch.equal(called(operator, x, strict=True), x + 1)
        seen = next(iter(operator._instances._made.values())).seen[-1]
        assert (seen is not x) == copied
        assert seen.is_contiguous()
        assert not seen.is_neg()


def test_what_was_checked_with_strides_is_given_them_and_keeps_its_layout(make: Make) -> None:
    run = "import torch\n\ndef run(x):\n    assert x.stride() == (1, 4)\n    return x + 1\n"
    calls = [{"x": torch.ones(4, 4).t()}]
    operator = make(run=run, reference=DOUBLE, calls=calls)
    out = called(operator, torch.randn(4, 4).t(), strict=True)
    assert out.stride() == (1, 4)
    torch.library.opcheck(op_of(operator).default, (torch.randn(4, 4).t(), True))


@pytest.mark.parametrize("in_order", [False, True])
def test_a_study_that_wants_results_in_order_gets_them_so(make: Make, in_order: bool) -> None:
    run = "def run(x):\n    return x.contiguous() + 1\n"
    study = f"contiguous = {in_order}\n"
    operator = make(run=run, reference=run, study=study, calls=[{"x": torch.ones(4, 4).t()}])
    out = called(operator, torch.randn(4, 4).t(), strict=True)
    assert out.is_contiguous() == in_order
    torch.library.opcheck(op_of(operator).default, (torch.randn(4, 4).t(), True))


def test_an_output_in_another_layout_or_in_an_inputs_memory_is_copied(make: Make) -> None:
    x = torch.randn(3, 4)
    for run in (
        "def run(x):\n    return x.t()\n",
        "def run(x):\n    return x.t().clone().t().t()\n",
    ):
        operator = make(run=run, reference=run, calls=[{"x": x}])
        out = called(operator, x, strict=True)
        assert out.is_contiguous()
        assert out.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
        assert torch.equal(out, x.t())
        checked = torch.library.opcheck(op_of(operator).default, (x, True))
        assert set(checked.values()) == {"SUCCESS"}


def test_several_outputs(make: Make) -> None:
    run = "def run(x):\n    return {'sum': x.sum(1), 'double': x * 2}\n"
    operator = make(
        run=run,
        reference=run,
        calls=[{"x": torch.ones(3, 4)}],
        outputs=("sum", "double"),
        returns=NAMED,
    )
    x = torch.randn(3, 4)
    one, other = called(operator, x, strict=True)
    assert torch.equal(one, x.sum(1))
    assert torch.equal(other, x * 2)
    checked = torch.library.opcheck(op_of(operator).default, (x, True))
    assert set(checked.values()) == {"SUCCESS"}


def test_too_few_outputs_are_an_error_and_no_fallback(make: Make) -> None:
    pair = "def run(x):\n    return x + 1, x + 2\n"
    operator = make(
        run="def run(x):\n    return x + 1\n",
        reference=pair,
        calls=[{"x": torch.ones(3)}],
        outputs=("", ""),
        returns=SEVERAL,
    )
    with pytest.raises(RuntimeError, match="fast returned 1 tensors"):
        called(operator, torch.ones(3))


@pytest.mark.parametrize("copied", [False, True])
def test_in_place(make: Make, copied: bool) -> None:
    run = "def run(x, y):\n    x.add_(y)\n    return x\n"
    calls = [{"x": torch.ones(4, 4), "y": torch.ones(4, 4)}]
    operator = make(
        run=run, reference=run, calls=calls, outputs=(), returns=NOTHING, in_place=("x",)
    )
    before, y = torch.randn(4, 4), torch.randn(4, 4)
    x = before.clone().t() if copied else before.clone()
    wanted = x + y
    assert called(operator, x, y, strict=True) is None
    assert torch.equal(x, wanted)
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(op_of(operator).default, (x, y, True), test_utils=checks)


# ---- torch.compile and gradients -------------------------------------------------------------


def test_it_compiles_into_one_graph_with_sizes_that_vary(make: Make) -> None:
    operator = make(**UP_TO_3)
    op = op_of(operator)
    compiled = torch.compile(
        lambda x: op(x.sin(), 2, True) + 1, backend="aot_eager", fullgraph=True, dynamic=True
    )
    for size in (3, 5, 6):
        x = torch.randn(size, 4)
        torch.testing.assert_close(compiled(x), x.sin() * 2 + 101)


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
def test_autocast_ends_at_the_operator_compiled_or_not(make: Make, given: torch.dtype) -> None:
    run = "def run(x, y):\n    return x @ y\n"
    calls = [{"x": torch.ones(4, 4), "y": torch.ones(4, 4)}]
    operator = make(run=run, reference=run, calls=calls, on_gpu=False)
    x, y = (torch.randn(4, 4, dtype=given, requires_grad=True) for _ in range(2))
    op = op_of(operator)
    for call in (op, torch.compile(op, backend="aot_eager", fullgraph=True)):
        with torch.autocast("cpu", torch.bfloat16), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = call(x, y, False)
        assert out.dtype == given
        assert torch.equal(out, x @ y)
        out.float().sum().backward()
        assert x.grad is not None
        assert torch.equal(x.grad, torch.ones(4, 4, dtype=given) @ y.T)
        x.grad = None


def test_gradients_go_through_the_reference(make: Make) -> None:
    run = "def run(x, y):\n    return x * y.exp() + 100\n"
    reference = "def run(x, y):\n    return x * y.exp()\n"
    calls = [{"x": torch.ones(4), "y": torch.ones(4)}]
    operator = make(run=run, reference=reference, calls=calls)
    op = op_of(operator)
    x = torch.randn(4, requires_grad=True)
    y = torch.randn(4)
    out = op(x, y, True)
    assert torch.equal(out, x * y.exp() + 100)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(gradient, y.exp())
    compiled = torch.compile(lambda x, y: op(x, y, True), backend="aot_eager", fullgraph=True)
    (again,) = torch.autograd.grad(compiled(x, y).sum(), x)
    torch.testing.assert_close(again, gradient)


def test_gradients_of_gradients(make: Make) -> None:
    run = "def run(x, y):\n    return x * y.exp()\n"
    calls = [{"x": torch.ones(4), "y": torch.ones(4)}]
    operator = make(run=run, reference=run, calls=calls, on_gpu=False)
    given = [torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    call = partial(called, operator)
    assert torch.autograd.gradcheck(call, given)
    assert torch.autograd.gradgradcheck(call, given)


def test_a_study_with_a_backward_of_its_own(make: Make) -> None:
    study = "def backward(gradients, x):\n    return {'x': gradients[0] * 7}\n"
    operator = make(run=DOUBLE, reference=DOUBLE, study=study, calls=[{"x": torch.ones(4)}])
    x = torch.randn(4, requires_grad=True)
    (gradient,) = torch.autograd.grad(called(operator, x).sum(), x)
    assert torch.equal(gradient, torch.full((4,), 7.0))


def test_a_study_may_say_what_its_outputs_look_like(make: Make) -> None:
    study = "import torch\n\ndef outputs(x):\n    return torch.empty_like(x)\n"
    reference = "def run(x):\n    return x * 2 if x.sum().item() else x * 2\n"
    operator = make(run=DOUBLE, reference=reference, study=study, calls=[{"x": torch.ones(4)}])
    op = op_of(operator)
    compiled = torch.compile(lambda x: op(x, True), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(4)), torch.full((4,), 2.0))


# ---- streams ---------------------------------------------------------------------------------


class Streams:
    """Stands for the current stream of CUDA and its capture."""

    def __init__(self, monkeypatch: Patch) -> None:
        self.stream, self.capture = 7, 0
        current = lambda index: SimpleNamespace(cuda_stream=self.stream)  # noqa: E731
        monkeypatch.setattr(torch.cuda, "current_stream", current)
        monkeypatch.setattr(dispatch, "_capture", lambda stream: self.capture)


def test_a_variant_that_keeps_something_is_loaded_for_every_stream_and_graph(
    monkeypatch: Patch,
) -> None:
    streams = Streams(monkeypatch)
    device = torch.device("cuda", 0)
    every = Instances(lambda: ModuleType("m"), keeps=True)
    first = every.at(device)
    assert every.at(device) is first
    streams.capture = 1
    captured = every.at(device)
    assert captured is not first
    assert every.at(device) is captured
    streams.stream, streams.capture = 8, 0
    other = every.at(device)
    assert other not in (first, captured)
    assert every.at(torch.device("cuda", 1)) not in (first, captured, other)
    streams.stream = 7
    assert every.at(device) is first


def test_one_that_keeps_nothing_is_loaded_once_a_device(monkeypatch: Patch) -> None:
    streams = Streams(monkeypatch)
    one = Instances(lambda: ModuleType("m"), keeps=False)
    first = one.at(torch.device("cuda", 0))
    streams.stream = 8
    assert one.at(torch.device("cuda", 0)) is first
    assert one.at(torch.device("cuda", 1)) is not first


def test_threads_that_come_at_once_get_the_same_module(monkeypatch: Patch) -> None:
    Streams(monkeypatch)
    barrier, found = threading.Barrier(8), []
    every = Instances(lambda: ModuleType("m"), keeps=True)

    def work() -> None:
        barrier.wait()
        found.append(every.at(torch.device("cuda", 0)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(module) for module in found}) == 1


def test_inductors_own_graphs_leave_out_what_keeps_something(make: Make) -> None:
    given = {"run": DOUBLE, "reference": DOUBLE, "calls": [{"x": torch.ones(4)}]}
    for keeps in ((), ("fast.py:1: counter() is cached",)):
        operator = make(**given, keeps=keeps)
        tags = op_of(operator).default.tags
        assert (torch.Tag.cudagraph_unsafe in tags) == bool(keeps)


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
    assert found.startswith("fix.py:")
    assert found.endswith(said)


def test_what_a_call_makes_for_itself_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "fix.py"
    path.write_text(
        "import torch\nkernels = {d: cuda.kernel('k.cu', 'k') for d in (1, 2)}\nTILES = {64: 4}\n"
        "def run(x):\n    out = torch.empty_like(x)\n    maps = []\n    maps.append(x)\n"
        "    out[0] = 1\n    sizes = {}\n    sizes['a'] = 1\n    x, y = 1, 2\n    return out\n"
    )
    assert kept_between_calls([path, tmp_path / "k.cu"]) == ()


# ---- for which inputs ------------------------------------------------------------------------


def attention(b: int, h: int, s: int, d: int, causal: bool, heads: int = 0) -> dict[str, Any]:
    q = torch.empty(b, h, s, d, dtype=torch.float16)
    k = torch.empty(b, heads or h, s, d, dtype=torch.float16)
    return {"q": q, "k": k, "causal": causal, "scale": 0.5}


def why_not(domain: Domain, call: dict[str, Any]) -> str:
    names = [n for n, v in call.items() if isinstance(v, torch.Tensor)]
    others = {n: v for n, v in call.items() if n not in names}
    return domain.why_not(names, [given_of(call[n]) for n in names], others)


CHECKED = [attention(2, 8, 512, 64, False), attention(1, 3, 197, 128, True)]


def test_relations_that_held_everywhere_are_asked_for() -> None:
    domain = domain_of(CHECKED)
    assert why_not(domain, attention(3, 5, 99, 64, True)) == ""
    fewer = why_not(domain, attention(2, 8, 512, 64, False, heads=2))
    assert fewer == (
        "k.shape[1] is 2, and q.shape[1] is 8: it was only checked where they are the same"
    )
    mixed = {**CHECKED[0], "k": CHECKED[0]["k"].float()}
    assert why_not(domain, mixed).startswith("float16, float32 for q, k: it was checked for")
    assert why_not(domain, {**CHECKED[0], "scale": 0.25}) == (
        "scale=0.25: it was only checked for 0.5"
    )


def test_what_varied_is_free() -> None:
    domain = domain_of([*CHECKED, attention(2, 8, 512, 64, False, heads=2)])
    assert why_not(domain, attention(2, 8, 512, 64, False, heads=4)) == ""
    only = domain_of(CHECKED[:1])
    assert (
        why_not(only, attention(2, 8, 512, 64, True))
        == "causal=True: it was only checked for False"
    )
    assert why_not(only, attention(2, 8, 500, 64, False)) == (
        "q.shape[2] is 500: it was only checked for 512"
    )


def test_facts_are_read_as_they_were_written(tmp_path: Path) -> None:
    facts = Facts(
        package="p", function="f", study="f", variant="v[a=1]", module="v", params={"a": 1},
        arguments=(("q", "Tensor"), ("k", "Tensor"), ("causal", "bool"), ("scale", "float")),
        outputs=("", ""), returns=SEVERAL, in_place=("k",), reference="", reference_params={},
        keeps=("v.py:1: x",), checked=("a", "b"), refused=(), default_shape="a",
        domain=domain_of(CHECKED),
    )  # fmt: skip
    write(tmp_path / "variant.json", facts)
    assert read(tmp_path / "variant.json") == facts
    assert facts.schema == (
        "(Tensor q_, Tensor(a1!) k_, bool causal_, float scale_, bool strict) -> (Tensor, Tensor)"
    )
