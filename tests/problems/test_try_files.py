"""Small files as strangers write them, each of one kind that ``workbench try`` once got wrong."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import torch

import workbench
from answers import Capsys, Patch, not_none
from made_records import sessions_job
from problems.test_problems import complaint, file, problem
from problems.test_problems import tried as tried
from workbench.app import ablate
from workbench.app.executor import Local
from workbench.app.try_ import Attempt, prepare, refusal, tolerance_of, write
from workbench.cli.main import main
from workbench.cli.try_ import finish
from workbench.errors import EnvironmentLacks, GateFailed, ToolFailed, UsageError
from workbench.evidence.store import EvidenceFolder
from workbench.judge.findings import Gate, finding
from workbench.judge.time_checks import OUTPUTS
from workbench.problems.given import Dotted, Empty, File, bound, call
from workbench.run import machine, process
from workbench.run.measurement import MeasuredPlan, Measurement, Plan
from workbench.run.process import compiler_environment
from workbench.run.protocol import ErrorText, TrialJob
from workbench.run.worker import correctness
from workbench.run.worker.correctness import Calls
from workbench.run.worker.device import on_cpu
from workbench.run.worker.loader import Loader
from workbench.run.worker.output import written
from workbench.run.worker.startup import keeping_bytecode
from workbench.run.worker.timing import instances
from workbench.study.config import Config
from workbench.study.sources import source_files
from workbench.study.workspace import find_workspace, load_module
from workbench.words import CheckResult, GateState, Status, TryVerdict
from workspaces import FIXTURE

X = torch.ones(2)
without_gpu = pytest.mark.skipif(machine.can_measure(), reason="there is a GPU here")


@pytest.fixture
def answer(trials_here: None, capsys: Capsys) -> Any:
    """The exit code of ``try --json`` on the CPU, what it printed, and stderr."""

    def work(*arguments: str) -> tuple[int, dict[str, Any], str]:
        code = main(["try", *arguments, "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else {}, err

    return work


def scaled(x: Any, factor: float = 1, offset: float = 0) -> Any:
    return x * factor + offset


def named(x: Any, *, weight: Any, eps: float = 1e-5) -> Any:
    return x * weight + eps


def positional(x: Any, factor: float = 2, offset: float = 0, /) -> Any:
    return x * factor + offset


@pytest.mark.parametrize(
    ("function", "inputs", "expected"),
    [
        (scaled, {"x": X, "offset": 3}, X + 3),
        (scaled, {"offset": 3, "x": X}, X + 3),
        (named, {"x": X, "weight": X * 2}, X * 2 + 1e-5),
        (positional, {"x": X, "offset": 3}, X * 2 + 3),
        (scaled, {"input_0": X}, X),
        (scaled, {"x": X, "rows": 7}, X),
        (lambda *given: given[0] - given[1], {"a": X, "b": X}, X * 0),
        (lambda x, **others: x + others["bias"], {"x": X, "bias": X}, X * 2),
        (lambda x, w, n: x * w * n, {"x": X, "weight": X * 3, "count": 2}, X * 6),
    ],
)
def test_arguments_go_to_the_parameters_of_their_names(
    function: Any, inputs: dict[str, Any], expected: Any
) -> None:
    given, keywords = bound(function, inputs)
    assert torch.equal(function(*given, **keywords), expected)


def test_a_tensor_that_no_parameter_takes_is_named() -> None:
    with pytest.raises(UsageError, match="takes no 'weight'"):
        bound(lambda x: x, {"x": X, "weight": X})


SQUARES = """def gradient(x):
    x = x.detach().requires_grad_()
    (x * x).sum().backward()
    return x.grad
"""
WITH_GRAD = """def inputs():
    return torch.randn(4, 8, device="cuda", requires_grad=True)


def slope(x):
    return 2 * x.detach()


def reference(x):
    return torch.autograd.grad((x * x).sum(), x)
"""
LAST = """last = []


def twice(x):
    for out in last:
        out.fill_(float('nan'))
    last[:] = [x * 2]
    return last[0]
"""
NONE = "def add(x, bias):\n    return x * 2 if bias is None else x + bias\n"
RELATIVE = "from .helpers import factor\n\n\ndef f(x):\n    return x * factor()\n"
# Beside its result the function hands back an input, a view of one and the block size.
BESIDE = "def scale(x):\n    return x, x * 2, x.view(-1), 128, None\n"
RIGHT: dict[str, tuple[str, tuple[str, ...], str, float]] = {
    "a parameter that is None": (NONE, ("x=randn(4,8)", "bias=None"), "", 0.0),
    "a relative import without an init file": (RELATIVE, ("x=randn(4)",), "", 0.0),
    "a backward pass by autograd": (SQUARES, ("x=randn(4,8)",), "torch.add(x, x)", 1e-6),
    "an input that requires a gradient": (WITH_GRAD, (), "", 1e-6),
    "a copy, which rounds nothing": (
        "def copy(x):\n    return x.clone()\n", ("x=randn(8,8,dtype=bfloat16)",), "", 0.0
    ),
    "the tensors that a call made": (BESIDE, ("x=randn(4,8)",), "torch.add(x, x)", 0.0),
    "an output that the next call overwrites": (LAST, ("x=randn(4)",), "", 1e-6),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_found_right(name: str, tmp_path: Path, tried: Any) -> None:
    text, inputs, versus, most = RIGHT[name]
    file(tmp_path, "def factor():\n    return 2\n", "helpers.py")
    told = tried(problem(file(tmp_path, text), inputs=inputs, versus=versus))
    assert max(told.errors["baseline"]) <= most
    assert told.exact
    assert len(told.outputs) == 1
    assert told.outputs == ("float32[4, 8]",) or text != BESIDE


def test_a_reference_need_not_take_the_plain_values(tmp_path: Path, tried: Any) -> None:
    file(tmp_path, "def ours(x):\n    return x * 2\n", "ours.py")
    path = file(tmp_path, "def mine(x, rows):\n    return x[:rows] + x[:rows]\n")
    found = problem(path, inputs=("x=randn(4,8)", "rows=4"), versus=f"{tmp_path}/ours.py:ours")
    assert tried(found).errors["baseline"] == (0.0, 0.0)


def test_two_files_of_one_name_are_not_taken_for_one(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    file(tmp_path / "other", "def twice(x):\n    return x * 3\n")
    path = file(tmp_path, "def twice(x):\n    return x * 2\n")
    with pytest.raises(UsageError, match=r"mine\.py of --vs mine\.py:twice has the name of a file"):
        problem(path, inputs=("x=randn(4)",), versus=f"{tmp_path}/other/mine.py:twice")


def test_an_attribute_error_while_a_file_loads_is_told_at_once(tmp_path: Path) -> None:
    text = "calls = []\ncalls.append(1)\nkind = torch.no_such_type\n\n\ndef f(x):\n    return x\n"
    path = file(tmp_path, text)
    loaded = File(str(tmp_path / "study.py"), path.name)
    with pytest.raises(GateFailed, match=r"mine\.py:6 fails while it is imported: AttributeErr"):
        loaded.f(X)


def package(folder: Path, imported: str, kernel: str) -> Path:
    """``mine/__init__.py``, which cannot be imported here, ``mine/helpers.py`` and a kernel."""
    inner = folder / "mine" / "ops"
    inner.mkdir(parents=True)
    (folder / "mine" / "__init__.py").write_text("import a_package_that_nobody_has\n")
    (inner / "__init__.py").write_text("NAME = 'ops'\n")
    (folder / "mine" / "helpers.py").write_text("def factor():\n    return 2\n")
    return file(inner, f"{imported}\n\n\ndef twice(x):\n    return {kernel}\n", "twice.py")


@pytest.mark.parametrize(
    ("imported", "kernel"),
    [
        ("from ..helpers import factor", "x * factor()"),
        ("from mine.helpers import factor", "x * factor()"),
        ("from . import NAME\nfrom .. import helpers", "x * helpers.factor() * len(NAME) / 3"),
    ],
)
def test_a_file_of_a_package_is_loaded_as_its_part(
    tmp_path: Path, tried: Any, imported: str, kernel: str
) -> None:
    found = problem(
        package(tmp_path, imported, kernel), inputs=("x=randn(4)",), versus="torch.add(x, x)"
    )
    assert tried(found).errors["baseline"][1] < 1e-6


def test_the_rest_of_a_package_is_loaded_once_for_a_variant(tmp_path: Path) -> None:
    """Instances have the user's file anew; two variants share no module."""
    package = tmp_path / "layers"
    package.mkdir()
    (package / "__init__.py").write_text("from . import mine\n")
    (package / "other.py").write_text("made = object()\n")
    file(package, "from .other import made\n\nown = object()\n")

    def loaded(variant: str) -> File:
        return File(str(tmp_path / f"{variant}.py"), "layers/mine.py")

    first, second, another = loaded("baseline"), loaded("baseline"), loaded("fix1")
    assert first.made is second.made
    assert first.made is not another.made
    assert len({id(one.own) for one in (first, second, another)}) == 3


ROUNDS = "def rounds(x, y):\n    return (x.float() @ y.float()).to(torch.bfloat16)\n"
PRECISE = "def precise(x, y):\n    return (x.double() @ y.double()).to(torch.bfloat16)\n"
GEMM = ("x=randn(32,64,dtype=bfloat16)", "y=randn(64,32,dtype=bfloat16)")


def test_a_reference_that_rounds_is_no_float64_reference(tmp_path: Path, tried: Any) -> None:
    file(tmp_path, ROUNDS, "theirs.py")
    path = file(tmp_path, PRECISE)
    given = problem(path, inputs=GEMM, versus=f"{tmp_path}/theirs.py:rounds")
    told = tried(given)
    assert not told.exact
    assert told.refusal == "it rounds its result to bfloat16"
    # What does not round float32 so is as right, and no nearer to it than that rounding.
    assert tolerance_of(given, msgspec.structs.replace(told, dtype="float32")).relative == 0.02


def test_a_default_device_without_a_gpu_is_the_cpu() -> None:
    with on_cpu():
        torch.set_default_device("cuda")
        try:
            assert torch.zeros(2).device == torch.tensor([1]).device == torch.device("cpu")
        finally:
            torch.set_default_device(None)


SIZES = ("x=randn(64,64)", "y=randn(64,64)")
LONG = ("x=randn(64,4096,dtype=bfloat16)", "y=randn(4096,64,dtype=bfloat16)")
NO_DRIVER = "raise RuntimeError('Found no NVIDIA driver on your system')"
DROPOUT = "return torch.nn.functional.dropout(x, 0.5)"
NO_GPU = "no NVIDIA GPU"
VERDICTS = [
    ("x, y", "return x @ y", SIZES, "torch.matmul", 0, "correct", f"not timed: {NO_GPU}"),
    ("x, y", "return x @ y.T", SIZES, "torch.matmul", 1, "wrong", "f is wrong"),
    (
        "x, y",
        "return x[:, :-1] @ y[:-1]",
        LONG,
        "torch.matmul",
        1,
        "inaccurate",
        "f is inaccurate:",
    ),
    ("x", NO_DRIVER, ("x=randn(8)",), "torch.clone", 3, "unchecked", f"was measured: {NO_GPU}"),
    ("x", DROPOUT, ("x=randn(64,8)",), "", 1, "failed", "f is random"),
]


def test_a_count_adds_to_what_stood_there() -> None:
    """One more is a hundredth of no large count."""

    def adds(x: torch.Tensor, out: torch.Tensor) -> None:
        out += (x == 7).sum()

    def writes(x: torch.Tensor, out: torch.Tensor) -> None:
        out[0] = (x == 7).sum()

    inputs = {"x": torch.full((5000,), 7), "out": torch.zeros(1, dtype=torch.int32)}
    assert written(adds, inputs) == ((), ("out",))
    assert written(writes, inputs) == (("out",), ())


@without_gpu
@pytest.mark.parametrize(
    ("names", "body", "inputs", "versus", "code", "verdict", "said"),
    VERDICTS,
    ids=[verdict for *_, verdict, _ in VERDICTS],
)
def test_every_verdict_has_its_exit_code_and_its_reason(
    names: str, body: str, inputs: Any, versus: str, code: int, verdict: str, said: str,
    tmp_path: Path, answer: Any,
) -> None:  # fmt: skip
    path = file(tmp_path, f"def f({names}):\n    {body}\n")
    options = [word for each in inputs for word in ("--input", each)]
    options += ["--vs", versus] if versus else []
    found, told, error = answer(str(path), *options)
    assert (found, told["verdict"]) == (code, verdict)
    assert f"{'mine.py:' if said[0] == 'f' else ''}{said}" in error
    if verdict == "wrong":  # a GPU would not help
        assert not any("not timed" in reason for reason in told["reasons"])
    if verdict == "inaccurate":
        assert told["times_reference_error"] > 2
    if verdict == "failed":
        assert told["why"] in error


NORM = (
    "class Model(torch.nn.Module):\n    def forward(self, x):\n"
    "        return x / x.square().mean(-1, keepdim=True).sqrt()\n\n\n"
    "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x * 1.0\n\n\n"
    "def get_inputs():\n    return [torch.randn(8, 1 << 16)]\n\n\n"
    "def get_init_inputs():\n    return []\n"
)


VALUES = """NAN, INF = float("nan"), float("inf")


def twice(x):
    return x * 2


def nan(x):
    return torch.full_like(x, NAN)


def one_nan(x):
    out = x * 2
    out[1, 2] = NAN
    return out


def masked(x):
    return torch.where(x > 0, x, -INF)


def finite(x):
    return torch.where(x > 0, x, -9.0)


def log(x):
    return torch.log(x.clone())


def overflows(x):
    return x * 2 if bool((x.abs() < 8).all()) else x * INF


class Later(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        args = [a.as_subclass(torch.Tensor) * 2 if type(a) is cls else a for a in args]
        return func(*args, **(kwargs or {}))


def subclass(x):
    return x.clone().as_subclass(Later)


def own_methods(x):
    out = torch.zeros_like(x)
    out.clone = out.double = out.to = lambda *given, **named: x.double() * 2
    return out


def in_its_input(x):
    x.clone = lambda *given, **named: x.detach() * 2


W = torch.randn(16, 4)


def weights(x):
    return x @ W.to(x)


def same_weights(x):
    return torch.mm(x, W.to(x))
"""
TWICE = "torch.mul(x, 2)"
# Function, --vs ("" for none), exit code, verdict, and what the reason says.
JUDGED = [
    ("one_nan", TWICE, 1, "wrong", "is wrong: 1 of 128 outputs differ in NaN"),
    ("finite", "values.py:masked", 1, "wrong", "-9, expected -inf"),
    ("overflows", TWICE, 1, "wrong", "is wrong: for larger inputs "),
    ("masked", "values.py:masked", 0, "correct", ""),
    ("log", "torch.log", 0, "correct", ""),
    ("log", "", 0, "correct", ""),
    ("nan", "", 5, "unchecked", "the reference is NaN everywhere"),
    ("twice", "values.py:nan", 5, "unchecked", "the reference is NaN everywhere"),
    ("subclass", TWICE, 1, "failed", "values.py:subclass returned Later, not a tensor"),
    ("own_methods", TWICE, 1, "failed", "returned a tensor with its own 'clone'"),
    ("in_its_input", TWICE, 1, "failed", "returned a tensor with its own 'clone'"),
    ("weights", "", 0, "correct", ""),
    ("weights", "values.py:same_weights", 0, "correct", ""),
]


@without_gpu
@pytest.mark.parametrize(("function", "versus", "code", "verdict", "said"), JUDGED)
def test_a_value_is_right_where_the_reference_has_the_same(
    function: str, versus: str, code: int, verdict: str, said: str, tmp_path: Path, answer: Any
) -> None:
    """NaN, infinity, values that are computed when they are looked at, and weights of a module."""
    path = file(tmp_path, VALUES, "values.py")
    against = ["--vs", versus.replace("values.py", str(path))] if versus else []
    told, out, err = answer(f"{path}:{function}", "--input", "x=randn(8,16)", *against)
    assert (told, out["verdict"]) == (code, verdict), err
    assert said in err
    if verdict == "wrong":
        assert out["wrong"] in err
        assert ("baseline" in out["trial_errors"]) == ("larger" in said)


def test_a_module_that_is_loaded_for_its_inputs_draws_weights_with_values(
    tmp_path: Path, answer: Any
) -> None:
    """How large inputs are is found out without their values."""
    text = "W = torch.randn(8, 8)\n\n\ndef f(x):\n    return x @ W.to(x)\n\n\n"
    path = file(tmp_path, text + "def inputs(rows=4):\n    return {'x': torch.randn(rows, 8)}\n")
    code, out, err = answer(str(path))
    assert (code, out["verdict"]) == (0, "correct"), err


def test_a_constant_in_place_of_a_norm_is_found_by_larger_inputs(
    tmp_path: Path, trials_here: None
) -> None:
    path = file(tmp_path, NORM)
    done = prepare(Local(), problem(path), tmp_path / "made", None, on_gpu=False)
    assert not_none(done.trial.larger)[1] > 1
    assert done.verdict == TryVerdict.WRONG


def test_an_answer_that_never_changes_is_noted(tmp_path: Path, tried: Any) -> None:
    text = "def zero(x):\n    return (x - x).sum(-1) + 1\n"
    assert tried(problem(file(tmp_path, text), inputs=("x=randn(8,8)",))).constant
    text = "def first(x):\n    return x.argmax(-1)\n"
    assert not tried(problem(file(tmp_path, text), inputs=("x=randn(64,64)",))).constant


RANGES = """import nsight


@nsight.analyze.kernel
def bench(n):
    x = torch.randn(n, n, device="cuda")
    with nsight.annotate("add"):
        x + x
    with nsight.annotate("product"):
        x @ x
    with nsight.annotate("double"):
        x * 2


if __name__ == "__main__":
    bench(configs=[(16,), (32,)])
"""


FACTORED = (
    "def inputs(n=24):\n    a = torch.randn(16, n, n, device='cuda')\n"
    "    return (a @ a.mT / n + 0.01 * torch.eye(n, device='cuda'),)\n\n\n"
    "def factored(a):\n    return torch.linalg.cholesky(a)\n\n\n"
    "def squared(a):\n    return a @ a\n"
)


@pytest.mark.parametrize(("function", "structured"), [("factored", True), ("squared", False)])
def test_a_matrix_that_must_be_definite_is_scaled_as_a_whole(
    tmp_path: Path, tried: Any, function: str, structured: bool
) -> None:
    found = problem(f"{file(tmp_path, FACTORED)}:{function}")
    told = tried(found)
    assert told.structured == structured
    write(found, tmp_path / "made", told, tolerance_of(found, told))
    text = (tmp_path / "made" / "kernels" / found.name / "study.py").read_text()
    assert f"structured = {structured}" in text


def attempted(monkeypatch: Patch, **own: Any) -> Attempt:
    """One that is what its ``row`` says, with these fields."""
    made = object.__new__(Attempt)
    row = {"variant": "baseline", "status": Status.CURRENT, "checks": {}, "gates": (), **own}
    monkeypatch.setattr(Attempt, "row", SimpleNamespace(**row))
    monkeypatch.setattr(Attempt, "wrong", None)
    called = SimpleNamespace(name="baseline", called="f.py:f")
    for name, value in {"failures": {}, "problem": SimpleNamespace(baseline=called)}.items():
        object.__setattr__(made, name, value)
    return made


def test_wrong_outputs_of_timed_calls_are_wrong(monkeypatch: Patch) -> None:
    why = finding("outputs.wrong", "wrong while it was timed: error 3", text="error 3")
    one = attempted(monkeypatch, gates=(Gate(OUTPUTS, GateState.FAILED, why),))
    assert one.verdict == TryVerdict.WRONG
    assert "f.py:f is wrong while it was timed: error 3" in str(refusal(one))


def test_ranges_that_do_other_work_are_not_compared(tmp_path: Path, trials_here: None) -> None:
    path = file(tmp_path, RANGES)
    done = prepare(Local(), problem(path), tmp_path / "made", None, on_gpu=False)
    found, told = done.problem, done.trial
    assert [dict(shape.parameters) for shape in found.shapes.values()] == [{"n": 16}, {"n": 32}]
    assert [module.called for module in found.references] == ["add"]
    assert found.baseline.called == "mine.py:double"
    assert "computes something else" in told.failures["product_range"].message


def test_configurations_may_be_made_where_they_are_given(tmp_path: Path) -> None:
    call = 'if __name__ == "__main__":\n    bench(configs=[(16,), (32,)])\n'
    assert call in RANGES
    main = "def main():\n    sizes = [(2**i,) for i in (4, 5)]\n    bench(configs=sizes)\n"
    found = problem(f"{file(tmp_path, RANGES.replace(call, main))}:bench")
    assert [dict(shape.parameters) for shape in found.shapes.values()] == [{"n": 16}, {"n": 32}]


def test_a_range_is_chosen_by_name(tmp_path: Path) -> None:
    path = file(tmp_path, RANGES)
    assert problem(path, range="product").baseline.called == "mine.py:product"
    with pytest.raises(UsageError, match="unknown range of bench"):
        problem(path, range="prodct")


def test_the_only_class_is_tried(tmp_path: Path) -> None:
    text = "class Net(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
    assert problem(file(tmp_path, text), inputs=("x=randn(4)",)).name == "net"


def test_the_file_of_a_reference_belongs_to_the_fingerprint(tmp_path: Path) -> None:
    file(tmp_path, "def ours(x):\n    return x * 2\n", "ours.py")
    path = file(tmp_path, "def mine(x):\n    return x + x\n")
    found = problem(path, inputs=("x=randn(4,8)",), versus=f"{tmp_path}/ours.py:ours")
    write(found, tmp_path / "made")
    study = find_workspace(tmp_path / "made").study(found.name)
    for variant in (found.baseline, *found.references):
        covered = {p.name for p in source_files(study, study.variants[variant.name])}
        assert {"mine.py", "ours.py"} <= covered


def test_a_write_past_an_output_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    like = torch.empty(8)
    empty = Empty((8,), (1,), torch.float32, like.device)

    def run(x: Any, out: Any) -> Any:
        out.copy_(x)
        out.as_strided((9,), (1,))[8] = 1.0
        return out

    with on_cpu():
        calls = Calls(lambda **given: call(run, given), {"x": torch.ones(8), "out": empty}, ())
        calls.call()
    assert calls.touched() == "writes out of bounds of 'out'"


def test_outputs_of_a_capture_that_failed_are_not_looked_at(monkeypatch: Patch) -> None:
    """A solve() that waits for the GPU was wrong: "writes out of bounds"."""
    empty = Empty((8,), (1,), torch.float32, torch.device("cpu"))

    def run(x: Any, out: Any) -> Any:
        return out.copy_(x)

    def captured(work: Any, side: Any) -> Any:
        work()
        calls.written[-1][1].zero_()  # what a capture fills, it fills at a replay
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(correctness, "captured", captured)
    with on_cpu():
        drawn = {"x": torch.ones(8), "out": empty}
        calls = Calls(lambda **inputs: call(run, inputs), drawn, ())
        assert calls.replayed(calls.call(), object) is None  # type: ignore[arg-type]
    assert calls.touched() == ""


def test_times_are_shown_before_ncu_is_blamed(monkeypatch: Patch) -> None:
    denied = EnvironmentLacks("ncu may not read the GPU's performance counters")
    here = Local()
    found = [MeasuredPlan(unprofiled=ErrorText.of(denied))]
    monkeypatch.setattr(here, "perform", lambda tasks, hear: found)
    assert here.measure([], showing=True) == found
    with pytest.raises(EnvironmentLacks, match="may not read"):
        here.require_profiled()
    with pytest.raises(EnvironmentLacks, match="may not read"):
        here.measure([])


def test_a_measurement_keeps_its_times_where_ncu_fails(tmp_path: Path, monkeypatch: Patch) -> None:
    def denied(*given: Any) -> None:
        raise ToolFailed("ncu failed: ==ERROR== unknown")

    study = find_workspace(FIXTURE).study("transpose")
    monkeypatch.setattr(Measurement, "capture", denied)
    monkeypatch.setattr(Measurement, "start_capture", lambda *given, **named: None)
    plan = Plan(study.default_shape)
    folder = EvidenceFolder(tmp_path / "gpu")
    result = Measurement(study, Config(), folder, plan, lambda event: None).run()
    assert not_none(result.unprofiled).message == "ncu failed: ==ERROR== unknown"


def test_the_line_that_waits_for_the_gpu_is_named(tmp_path: Path, monkeypatch: Patch) -> None:
    folder = tmp_path / "kernels" / "mine"
    folder.mkdir(parents=True)
    says = "raise RuntimeError('operation not permitted when stream is capturing')"
    path = file(folder, f"def count(x):\n    {says}\n\n\ndef run(x):\n    return count(x)\n")
    monkeypatch.setattr(instances, "microseconds", lambda work: 10.0)
    monkeypatch.setattr(instances, "captured", lambda work, side, beside: work())
    one = object.__new__(instances.Instance)
    one.unchecked, one.refused_at, one.graphs = False, "", {}
    one.side = cast(Any, None)
    monkeypatch.setattr(one, "call", lambda: load_module(path, "mine").run(X), raising=False)
    assert one.trial() == 10.0
    assert (one.unchecked, one.refused_at) == (True, "mine.py:5")


def test_what_clobbers_its_inputs_is_wrong(tmp_path: Path, trials_here: None) -> None:
    text = "def zero(x, y):\n    out = x + y\n    x.zero_()\n    y.zero_()\n    return out\n"
    found = problem(file(tmp_path, text), inputs=("x=randn(4)", "y=randn(4)"), versus="torch.add")
    done = prepare(Local(), found, tmp_path / "made", None, on_gpu=False)
    told = done.trial
    assert told.refused == "it changes its input x, which the reference does not"
    assert done.verdict == TryVerdict.WRONG
    assert "copies the input first" in not_none(refusal(done)).hint
    assert told.errors["baseline"][1] < 1e-6


def test_a_reference_may_change_the_same_inputs(tmp_path: Path, tried: Any) -> None:
    text = (
        "def step(state, x):\n    state += x\n    return state.sum(-1)\n\n\n"
        "def step_ref(state, x):\n    state.copy_(state + x)\n    return state.sum(-1)\n\n\n"
        "def step_new(state, x):\n    return (state + x).sum(-1), state + x\n"
    )
    for versus in ("step_ref", "step_new"):
        path = file(tmp_path, text)
        sizes = ("state=randn(4,8)", "x=randn(4,8)")
        told = tried(problem(f"{path}:step", inputs=sizes, versus=f"{path}:{versus}"))
        assert (told.in_place, told.refused) == (("state",), "")
        assert told.errors["baseline"][1] < 1e-6


def test_a_view_that_a_reference_gives_is_copied(tmp_path: Path, tried: Any) -> None:
    text = "def turned(x):\n    return x.t().contiguous()\n"
    found = problem(file(tmp_path, text), inputs=("x=randn(4,8)",), versus="torch.t(x)")
    assert tried(found).errors["baseline"] == (0.0, 0.0)
    x = torch.randn(4, 8)
    out = Dotted("torch.t")(x)
    assert out.is_contiguous()
    assert torch.equal(out, x.t())
    assert Dotted("torch.relu_")(x) is x


SCRIPT = """import triton_like as testing


def twice(x):
    return x * BY


@testing.perf_report(["sizes"])
def speed(size):
    raise SystemExit("a benchmark")


def test_twice(n):
    raise SystemExit("a test")


def time_of(f):
    raise SystemExit("a benchmark")


torch.manual_seed(0)
test_twice(4)
speed.run(print_data=True)
time_of(twice)
with torch.profiler.profile() as prof:
    raise SystemExit("a profiler")
prof.export_chrome_trace("trace.json")
print(prof.key_averages())
size = argparse.ArgumentParser()
size.add_argument("--by", type=int, required=True)
BY = size.parse_args().by
unittest.main()
sys.exit(0)
"""


def test_a_script_is_loaded_without_its_tests_and_benchmarks(tmp_path: Path, tried: Any) -> None:
    file(tmp_path, "def perf_report(sizes):\n    return lambda f: f\n", "triton_like.py")
    path = file(tmp_path, f"import argparse, sys, unittest\n{SCRIPT}")
    asked: Any = {"inputs": ("x=randn(4)",), "arguments": ("--by", "2"), "versus": "torch.add(x,x)"}
    assert tried(problem(f"{path}:twice", **asked)).errors["baseline"] == (0.0, 0.0)


def test_a_script_that_runs_for_minutes_is_stopped(tmp_path: Path, monkeypatch: Patch) -> None:
    path = file(tmp_path, "import time\n\ntime.sleep(60)\n")
    monkeypatch.setattr("workbench.problems.given.LOADING_SECONDS", 0.5)
    with pytest.raises(GateFailed, match=r"mine\.py:6 fails .*: it takes longer than 0\.5 s"):
        File(str(tmp_path / "study.py"), path.name).f(X)


def test_what_cannot_be_timed_is_not_called_wrong(monkeypatch: Patch) -> None:
    one = attempted(monkeypatch, status=Status.FAILED)
    assert one.verdict == TryVerdict.FAILED
    wrong = {"given": SimpleNamespace(status=CheckResult.WRONG)}
    one = attempted(monkeypatch, status=Status.FAILED, checks=wrong)
    assert one.verdict == TryVerdict.WRONG


def test_what_is_right_is_a_success_beside_a_reference_that_fails(
    monkeypatch: Patch, capsys: Capsys
) -> None:
    one = attempted(monkeypatch)
    monkeypatch.setattr(Attempt, "verdict", TryVerdict.CORRECT)
    monkeypatch.setattr("workbench.cli.try_.refusal", lambda done: None)
    for name, value in {"built": None, "kept": None, "judged": 1, "failures": {"t": "no"}}.items():
        object.__setattr__(one, name, value)
    assert finish(one, cast(Any, SimpleNamespace(require_profiled=lambda: None))) == 0
    assert "not compared with t: no" in capsys.readouterr().err


def test_launches_of_an_extension_go_to_a_stream_that_can_be_captured(tmp_path: Path) -> None:
    flags = compiler_environment(tmp_path, {})["NVCC_APPEND_FLAGS"]
    assert "--default-stream=per-thread" in flags
    (tmp_path / "inline.py").write_text("from torch.utils.cpp_extension import load_inline\n")
    (tmp_path / "plain.py").write_text("import torch\n")
    sources = {"inline": ("inline.py",), "plain": ("plain.py",)}
    loader = Loader(sessions_job(sources=sources), tmp_path)
    assert (loader.has_extension("inline"), loader.has_extension("plain")) == (True, False)


def test_a_torch_without_bytecode_is_compiled_once(tmp_path: Path, monkeypatch: Patch) -> None:
    """Packages that uv installs have none, and a command starts several processes."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with keeping_bytecode():
        monkeypatch.delitem(sys.modules, "torch")
        import_module("torch")
    assert len(list(package.rglob("__init__.*.pyc"))) == 1
    assert sys.dont_write_bytecode


ENDS_LATE = """import pathlib, sys, time
import msgspec
from workbench.run.protocol import Done, encode
pathlib.Path("events.jsonl").write_bytes(encode(Done()))
time.sleep(300)
"""


def test_nobody_waits_for_an_interpreter_that_has_done_its_work(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    (tmp_path / "ends_late.py").write_text(ENDS_LATE)
    monkeypatch.setattr(process, "MODULES", {TrialJob: "ends_late"})
    job = TrialJob(
        study="", shapes=(), baseline="", called="", references=(), device="cpu", ranges=False
    )
    worker = process.Worker(tmp_path, job)
    assert worker.watch(120.0, lambda event: None).finished
    assert worker.process.returncode == -9


@without_gpu
def test_a_wrong_function_raises_in_the_library(tmp_path: Path, trials_here: None) -> None:
    path = file(tmp_path, "def thrice(x):\n    return x * 3\n")
    with pytest.raises(GateFailed, match=r"mine\.py:thrice is wrong: error"):
        workbench.try_(path, inputs=["x=randn(64)"], versus="torch.add(x, x)")


def test_nothing_is_profiled_where_that_is_not_asked_for(monkeypatch: Patch) -> None:
    monkeypatch.setattr(ablate, "plan", lambda *_, **named: Plan("s", ("a",), ("a",), ("a",)))
    target = SimpleNamespace(
        executor=None, study=None, shape="s", load=lambda names: SimpleNamespace(variants={}),
        workspace=SimpleNamespace(config=Config()),
    )  # fmt: skip
    monkeypatch.setattr(ablate, "collectable", lambda executor, study, names: names)
    wanted = ablate.Wanted(cast(Any, target), ["a"], profile=False)
    assert wanted.plan(fresh=True).captured == ()
    assert replace(wanted, profile=True).plan(fresh=True).captured == ("a",)


KERNEL = "__global__ void twice(float* a, float* b, int n) { b[0] = LIMIT * a[0]; }\n"


def test_headers_come_from_other_folders(tmp_path: Path) -> None:
    for name in ("common/include/limits.cuh", "kernels/deep/twice.cu", "kernels/own.h", ".git/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "common/include/limits.cuh").write_text('#include "more.h"\n#define LIMIT 2\n')
    (tmp_path / "common/include/more.h").write_text("// it includes nothing\n")
    (tmp_path / "kernels/own.h").write_bytes(b"\xef\xbb\xbf// \xd6\xd0 is no UTF-8\n")
    path = tmp_path / "kernels/deep/twice.cu"
    path.write_bytes(b'#include "limits.cuh"\n#include "../own.h"\n// \xd6\xd0\n' + KERNEL.encode())
    files = problem(
        path,
        launch="twice<<<1, 1>>>(a, b, n)",
        inputs=("a=randn(8)", "n=8"),
        outputs=("b=empty_like(a)",),
        versus="torch.neg",
    )
    assert {*files.files} == {"deep/twice.cu", "deep/limits.cuh", "deep/more.h", "own.h"}
    assert 'cuda.kernel("deep/twice.cu"' in files.baseline.text
    assert files.files["own.h"].decode().startswith("// \ufffd")


def test_the_function_that_launches_is_tried(tmp_path: Path) -> None:
    text = "def add(x):\n    k[(1,)](x)\n    return x\ndef plain(x): ...\n"
    text += "def test_add(x):\n    k[1](x)\n"
    assert problem(file(tmp_path, text), inputs=("x=randn(8)",)).name == "add"


def test_a_reference_takes_the_inputs_that_it_names(tmp_path: Path) -> None:
    text = "def solve(a, out, n):\n    out.copy_(a * n)\n\ndef reference(n, a):\n    return a * n\n"
    found = problem(file(tmp_path, text), inputs=("a=randn(8)", "out=zeros(8)", "n=3"))
    assert "some=True" in found.expression
    inputs = {"a": X, "out": X * 0, "n": 3}
    assert torch.equal(call(lambda n, a: a * n, inputs, some=True), X * 3)
    with pytest.raises(UsageError, match="takes no 'out'"):
        call(lambda n, a: a * n, inputs)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ("void f(int *a, int *b, int *c)", "'b=randint(0,100,|'c=empty_like(a)'"),
        ("void f(void)", "cdiv(1048576, 256), 256>>>()' --vs"),
        ("void f(uint8_t* in, int m[N][N], int w, int h)", "w=1024|(1048576,dtype=int32)'"),
        ("void f(unsigned char* in, int n)", "in_=randint(0,100,(1048576,),dtype=uint8)"),
    ],
)
def test_the_hint_of_a_kernel_can_be_typed(kernel: str, options: str, tmp_path: Path) -> None:
    path = file(tmp_path, f"__global__ {kernel} {{ }}\n", "k.cu")
    error = complaint(lambda: problem(path))
    assert all(option in error.hint for option in options.split("|"))


KERNEL_FILES = {
    "app.cu": '#include "./parts/ops.cuh"\nint main() { twice<<<1, 1>>>(); }\n',
    "parts/ops.cuh": "__global__ void twice();\n__global__ void thrice();\n",
    "parts/a_thrice.cu": '#include "ops.cuh"\n__global__ void thrice() {}\n',
    "parts/twice.cu": '#include "ops.cuh"\nnamespace ops {\n__global__ void twice() {}\n}\n',
    "parts/gone.cu": '#include "ops.cuh"\n// __global__ void twice() {}\n',
    "parts/other/four.cu": "__global__ void four() {}\n",
    "alone/app.cu": "// __global__ none\nint main() {}\n",
    "alone/app.cuh": "void launch();\n",
    "launched/k.cuh": "void launch();\n",
    "launched/k.cu": '#include "k.cuh"\n__global__ void k() {}\n',
    "launched/other.cu": "__global__ void k() {}\n",
    "beside/app.cu": '#include "../parts/ops.cuh"\nint main() { thrice<<<1, 1>>>(); }\n',
}


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("app.cu", "name the file with one: parts/twice.cu"),
        ("parts/ops.cuh", "name the file with one: a_thrice.cu, twice.cu"),
        ("parts/gone.cu", "name the file with one: a_thrice.cu, twice.cu"),
        (
            "alone/app.cu",
            "the whole program: nvcc -O3 -lineinfo -o app app.cu && workbench profile -- ./app",
        ),
        ("alone/app.cuh", "name a file with one"),
        ("launched/k.cuh", "name the file with one: k.cu"),
        ("beside/app.cu", "name the file with one: ../parts/a_thrice.cu"),
    ],
)
def test_a_file_without_kernels_names_where_they_are(path: str, hint: str, tmp_path: Path) -> None:
    for name, text in KERNEL_FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError) as error:
        problem(tmp_path / path)
    assert error.value.message == f"{Path(path).name} has no __global__ function"
    assert error.value.hint == hint
