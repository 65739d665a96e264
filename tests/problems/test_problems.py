"""Which format a file is of, what is read of it, and what a newcomer is told who got it wrong."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import structs

from answers import Capsys, Patch, json_of, not_none, python
from inprocess import calls_here
from workbench.app.executor import Local
from workbench.app.try_ import (
    UNCALLED,
    Attempt,
    as_script,
    in_words_of,
    naming,
    prepare,
    rounded_up,
    tolerance_of,
    write,
)
from workbench.cli.main import main
from workbench.errors import EnvironmentLacks, GateFailed, UsageError, WorkbenchError
from workbench.problems import detect
from workbench.problems.given import made, put
from workbench.problems.problem import Problem, Request, split
from workbench.problems.try_options import read_call, read_input, read_launch, read_output
from workbench.run.compilation import sources_of
from workbench.run.protocol import ErrorText, Learned, TrialJob
from workbench.run.worker.correctness import CallsMade, check_variant
from workbench.run.worker.device import on_cpu
from workbench.run.worker.loader import Opened
from workbench.run.worker.process_settings import load_kept
from workbench.run.worker.trial_worker import TrialRun
from workbench.study.sources import Fingerprints, source_files
from workbench.study.values import Tolerance
from workbench.study.workspace import find_workspace, load_module
from workbench.words import CheckResult

EXAMPLES = Path(__file__).parent / "examples"
SOFTMAX = "def softmax(x):\n    return x.softmax(-1)\n"
INPUTS = "def inputs(rows=8, cols=16):\n    return (torch.randn(rows, cols, device='cuda'),)\n"
CUDA = {
    "inputs": ("x=randn(64,128)", "n=128"),
    "outputs": ("out=empty_like(x)",),
    "launch": "softmax[(x.shape[0],), 256](x, out, n)",
    "versus": "torch.softmax(x, dim=-1)",
}


def file(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text if path.suffix in (".cu", ".cuh") else f"import torch\n\n\n{text}")
    return path


def problem(source: Path | str, **options: Any) -> Problem:
    path, function = split(str(source))
    return detect.read_problem(Request(source=path, function=function, **options))


def written(folder: Path, text: str, name: str = "", **options: Any) -> Problem:
    """Of a file with this text: of a ``name`` in it, or with a name of its own, as k.cu."""
    if Path(name).suffix in (".cu", ".cuh"):
        return problem(file(folder, text, name), **options)
    path = file(folder, text)
    return problem(f"{path}:{name}" if name else path, **options)


def task(folder: Path, reference: str, submission: str) -> Path:
    """One of GPU MODE, in a folder beside what it shares with others."""
    shutil.copy(EXAMPLES / "matching.py", folder)
    made = folder / "task"
    shutil.copytree(EXAMPLES / "histogram", made)
    (made / "reference.py").write_text(f"import torch\n\n\n{reference}")
    (made / "submission.py").write_text(f"import torch\n\n\n{submission}")
    return made


@pytest.fixture
def tried(tmp_path: Path, same_draws: None, monkeypatch: Patch) -> Callable[[Problem], Learned]:
    """Writes a problem and calls it once on the CPU, as the worker does."""

    def work(found: Problem) -> Learned:
        root = tmp_path / "made"
        write(found, root)
        smallest = min(found.shapes, key=lambda n: sum(
            v for v in found.shapes[n].parameters.values() if isinstance(v, int)))  # fmt: skip
        job = TrialJob(
            study=found.name,
            shapes=(smallest,),
            baseline=found.baseline.name,
            called=found.baseline.called,
            references=tuple(module.name for module in found.references),
            device="cpu",
        )
        monkeypatch.chdir(root)
        with on_cpu():
            told = TrialRun(job).run()
        write(found, root, told, tolerance_of(found, told))
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        with on_cpu():
            checked(root, found, smallest)
        return told

    return work


def checked(root: Path, found: Problem, shape: str) -> None:
    """What was written goes through the engine's own check, watched as every variant is."""
    study = find_workspace(root).study(found.name)
    names = [found.baseline.name, *(module.name for module in found.references)]
    opened, sources = Opened(study.folder.parent), sources_of(study, names)
    runs = {n: load_kept(study.folder / f"{n}.py", f"workbench_variant_{n}").run for n in names}
    peer = runs[names[1]] if len(names) > 1 else None
    for name in names:
        calls = calls_here(study.module, runs[name], study.shapes[shape])

        def watched(*given: Any, name: str = name, calls: Any = calls) -> CallsMade:
            with opened.require_covered(study.folder, sources[name]):
                made: CallsMade = calls(*given)
                return made

        outcome = check_variant(study.module, watched, study.shapes[shape], peer)
        assert (outcome.status, outcome.why) == (CheckResult.CORRECT, ""), name


@pytest.fixture
def learned(tmp_path: Path, tried: Callable[[Problem], Learned]) -> Callable[..., Learned]:
    """What is learned of a function of this text, with these inputs, in one call on the CPU."""

    def work(text: str, *inputs: str, name: str = "", **options: Any) -> Learned:
        return tried(written(tmp_path, text, name, inputs=inputs, **options))

    return work


def small(name: str, folder: Path, **sizes: int) -> Path:
    """An example with other sizes, for the CPU."""
    text = (EXAMPLES / name).read_text()
    for key, value in sizes.items():
        kept = [line for line in text.splitlines() if line.startswith(f"{key} = ")]
        text = text.replace(kept[0], f"{key} = {value}")
    path = folder / name
    path.write_text(text)
    return path


# Formats, each read and called.


def test_a_function_of_a_file_is_called_with_its_inputs(tmp_path: Path, tried: Any) -> None:
    found = problem(file(tmp_path, SOFTMAX + INPUTS), versus="torch.softmax")
    assert found.kind == "a Python function"
    assert found.what == "mine.py, a Python function: its function softmax(x)"
    told = tried(found)
    assert told.inputs == {"x": "float32[8, 16]"}
    assert told.exact
    assert set(told.errors) == {"baseline", "torch_softmax"}
    assert max(relative for _, relative in told.errors.values()) < 1e-6
    assert told.bytes == {"rows=8 cols=16": 2 * 8 * 16 * 4}


def test_a_kernelbench_solution_has_the_parameters_of_the_model(tmp_path: Path, tried: Any) -> None:
    path = small("rms_norm.py", tmp_path, rows=8, features=16)
    found = problem(path, solution=EXAMPLES / "rms_norm_new.py", versus="compile")
    assert found.kind == "a KernelBench problem"
    assert [m.called for m in found.references] == ["torch.compile of Model", "rms_norm.py:Model"]
    told = tried(problem(path, solution=EXAMPLES / "rms_norm_new.py"))
    assert told.errors["baseline"][1] < 1e-6  # its own weights are all ones
    assert told.exact


def test_a_kernelbench_model_alone_is_tried_itself(tmp_path: Path, tried: Any) -> None:
    found = problem(small("rms_norm.py", tmp_path, rows=8, features=16))
    assert found.itself
    assert found.references == ()
    assert tried(found).errors["baseline"][1] < 1e-6


def test_a_gpu_mode_task_has_tests_and_benchmarks_and_its_own_check(tried: Any) -> None:
    found = problem(EXAMPLES / "histogram")
    assert found.kind == "a GPU MODE task"
    timed = {name: shape.timed for name, shape in found.shapes.items()}
    assert timed == {"test0": False, "test1": False, "benchmark0": True, "benchmark1": True}
    assert found.default_shape == "benchmark1"
    told = tried(found)
    assert told.destinations == ("counts",)  # which it only writes into
    assert told.inputs == {"values": "uint8[1000]"}
    assert told.errors == {"baseline": (0.0, 0.0), "ref_kernel": (0.0, 0.0)}


@pytest.fixture
def histogram(tmp_path: Path) -> Iterator[Any]:
    """The study that is written of a task."""
    found = problem(EXAMPLES / "histogram" / "submission.py")
    write(found, tmp_path, structs.replace(UNCALLED, destinations=("counts",)))
    with on_cpu():
        yield load_module(tmp_path / "kernels/histogram/study.py", "workbench_study_histogram")


def test_a_gpu_mode_check_refuses_an_output(histogram: Any) -> None:
    inputs = histogram.inputs(histogram.shapes["test0"], torch.Generator())
    right = histogram.reference(**inputs).to(torch.int64)
    wrong = right.clone()
    wrong[3] += 1
    assert histogram.accepts(inputs, right) == ""
    assert "refuses it: 1 bins differ" in histogram.accepts(inputs, wrong)


def test_every_draw_of_a_gpu_mode_case_is_another(histogram: Any) -> None:
    one, other = (
        histogram.inputs(histogram.shapes["test0"], torch.Generator().manual_seed(seed))["values"]
        for seed in (1, 2)
    )
    assert not torch.equal(one, other)


def test_what_the_formats_own_check_accepts_is_right(
    tmp_path: Path, tried: Any, trials_here: None
) -> None:
    """As in tasks that allow results in half precision."""
    reference = (
        "def ref_kernel(data):\n    return data * 2\n\n\n"
        "def generate_input(size, seed):\n    return torch.randn(size, device='cuda')\n\n\n"
        "def check_implementation(data, output):\n"
        "    return torch.allclose(output, ref_kernel(data), rtol=2e-2), 'too far'\n"
    )
    text = "def custom_kernel(data):\n    return (data.half() * {by}).float()\n"
    folder = task(tmp_path, reference, text.format(by=2))
    found = problem(folder)
    told = tried(found)
    assert told.accepted
    assert tolerance_of(found, told).relative > told.errors["baseline"][1] > 1e-4
    (folder / "submission.py").write_text(text.format(by=2.5))
    trial = prepare(Local(), problem(folder), tmp_path / "other", None, on_gpu=False).trial
    assert trial.refused == "check_implementation() refuses it: too far"


def test_a_task_may_give_what_its_check_accepts_in_another_form(tmp_path: Path, tried: Any) -> None:
    """Named tuples, and another type than the reference's."""
    reference = (
        "def ref_kernel(data):\n    return torch.sort(data.double())\n\n\n"
        "def generate_input(size, seed):\n    return torch.randn(size, device='cuda')\n\n\n"
        "def check_implementation(data, output):\n"
        "    assert isinstance(output, tuple)\n"
        "    return torch.equal(output[0].double(), ref_kernel(data)[0]), 'not sorted'\n"
    )
    submission = "def custom_kernel(data):\n    return torch.sort(data)\n"
    assert tried(problem(task(tmp_path, reference, submission))).accepted


def flashinfer(folder: Path, **changes: Any) -> Path:
    """The example with a solution in plain torch that returns what it computes."""
    for each in (EXAMPLES / "flashinfer").iterdir():
        shutil.copy(each, folder)
    path = folder / "rmsnorm_triton_row.json"
    solution = json.loads(path.read_text())
    run = json.loads((folder / "rmsnorm_h4096.json").read_text())["reference"]
    solution["sources"][0]["content"] = run
    solution["spec"] |= {"language": "python", "destination_passing_style": False, **changes}
    path.write_text(json.dumps(solution))
    return folder / "rmsnorm_h4096.json"


def test_a_flashinfer_bench_definition_finds_workloads_and_solution(
    tmp_path: Path, tried: Any
) -> None:
    found = problem(flashinfer(tmp_path))
    assert found.kind == "a FlashInfer-Bench definition"
    assert dict(found.shapes["batch_size64"].parameters) == {"batch_size": 64, "eps": 1e-06}
    assert found.default_shape == "batch_size8192"
    told = tried(found)
    assert told.inputs == {"hidden_states": "bfloat16[64, 4096]", "weight": "bfloat16[4096]"}
    assert told.outputs == ("bfloat16[64, 4096]",)
    assert set(told.errors) == {"baseline", "definition"}


def test_a_flashinfer_bench_solution_may_write_into_its_outputs(tmp_path: Path, tried: Any) -> None:
    path = flashinfer(tmp_path, destination_passing_style=True)
    solution = tmp_path / "rmsnorm_triton_row.json"
    data = json.loads(solution.read_text())
    data["sources"][0]["content"] = (
        "def run(x, w, eps, out):\n"
        "    wide = x.float()\n"
        "    out.copy_(wide * (wide.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * w)\n"
    )
    solution.write_text(json.dumps(data))
    told = tried(problem(path))
    assert told.errors["baseline"][1] < 0.01
    assert told.outputs == ("bfloat16[64, 4096]",)


def test_a_flashinfer_bench_solution_alone_is_no_problem(tmp_path: Path) -> None:
    flashinfer(tmp_path)
    error = complaint(lambda: problem(tmp_path / "rmsnorm_triton_row.json"))
    assert "is a solution of 'rmsnorm_h4096', and no definition" in error.message


def test_a_function_for_nsight_python_needs_no_nsight(tmp_path: Path, tried: Any) -> None:
    text = (EXAMPLES / "matmul_nsight.py").read_text().replace("(10, 11)", "(4, 5)")
    path = tmp_path / "matmul_nsight.py"
    path.write_text(text)
    found = problem(path)
    assert found.kind == "a function for nsight-python"
    assert [dict(shape.parameters) for shape in found.shapes.values()] == [
        {"n": 16, "dtype": "torch.float16"},
        {"n": 32, "dtype": "torch.float16"},
    ]
    assert [m.called for m in found.references] == ["matmul"]  # normalize_against
    assert found.baseline.called == "matmul_nsight.py:einsum"
    told = tried(found)
    assert told.inputs == {"a": "float16[16, 16]", "b": "float16[16, 16]"}
    assert told.errors["baseline"][1] < 1e-3


def test_a_range_that_writes_into_a_tensor_gives_it(tmp_path: Path, tried: Any) -> None:
    text = (
        "import nsight\n\n\n@nsight.analyze.kernel\ndef bench(n):\n"
        "    x = torch.randn(n, device='cuda')\n    out = torch.empty_like(x)\n"
        "    with nsight.annotate('double'):\n        torch.mul(x, 2, out=out)\n\n\n"
        "if __name__ == '__main__':\n    bench(64)\n"
    )
    found = problem(file(tmp_path, text), versus="torch.add(x, x)")
    assert dict(found.shapes[found.default_shape].parameters) == {"n": 64}
    assert tried(found).destinations == ("out",)


def test_a_cuda_source_becomes_the_variant_one_would_write(
    tmp_path: Path, builds_here: None, capsys: Capsys
) -> None:
    launch = "softmax<<<x.shape[0], 256>>>(x, out, n)"
    found = problem(EXAMPLES / "row_softmax.cu", **CUDA | {"launch": launch})
    assert found.kind == "a CUDA source"
    write(found, tmp_path)
    text = (tmp_path / "kernels/softmax/baseline.py").read_text()
    assert 'kernel = cuda.kernel("row_softmax.cu", "::softmax", compiler="program")' in text
    assert "    out = torch.empty_like(x)\n    kernel[x.shape[0], 256](x, out, n)\n" in text
    built = json_of(capsys, "build", "baseline", project=tmp_path)["builds"][0]
    assert built["kernels"][0]["registers"] > 0


def test_flags_of_nvcc_belong_to_what_it_compiles(tmp_path: Path, monkeypatch: Patch) -> None:
    def prints(source: Path, **options: Any) -> str:
        write(found := problem(source, **options), tmp_path)
        return Fingerprints(find_workspace(tmp_path).study(found.name)).of_sources("baseline")

    plain = file(tmp_path, SOFTMAX + INPUTS)
    before = prints(EXAMPLES / "row_softmax.cu", **CUDA), prints(plain)
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-O1")
    after = prints(EXAMPLES / "row_softmax.cu", **CUDA), prints(plain)
    assert (before[0] != after[0], before[1] == after[1]) == (True, True)


# What comes along.


def test_what_a_file_imports_from_beside_it_comes_along(tmp_path: Path, tried: Any) -> None:
    (tmp_path / "helper.py").write_text("from parts import two\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("from .number import two\n")
    (tmp_path / "parts" / "number.py").write_text("two = 2\n")
    (tmp_path / "other.py").write_text("")
    text = "from helper import two\n\n\ndef twice(x):\n    return two * x\n"
    found = problem(file(tmp_path, text), inputs=("x=randn(8)",), versus="torch.mul(x, 2)")
    assert set(found.files) == {"mine.py", "helper.py", "parts/__init__.py", "parts/number.py"}
    assert tried(found).errors["baseline"] == (0.0, 0.0)
    root = tmp_path / "made"
    study = find_workspace(root).study(found.name)
    covered = {p.name for p in source_files(study, study.variants["baseline"])}
    assert {"mine.py", "helper.py", "number.py", "baseline.py"} <= covered


def test_the_users_file_stays_as_it_is(tmp_path: Path) -> None:
    path = file(tmp_path, SOFTMAX + INPUTS)
    found = problem(path)
    write(found, tmp_path / "made")
    assert (tmp_path / "made/kernels" / found.name / "mine.py").read_bytes() == path.read_bytes()


NORM = """def norm(x):
    return x / x.double().pow(2).sum().sqrt().to(x.dtype)


def reference(x):
    wide = x.to(torch.float32)
    return wide / wide.pow(2).sum().sqrt()
"""
ONLY_FLOAT32 = """def same(x):
    return x * 1


def reference(x):
    assert x.dtype == torch.float32, 'only float32'
    return x + 0
"""
FILLS = "def add(x, y, out):\n    torch.add(x, y, out=out)\n"
# The text, its inputs, --vs, and what is learned.
LEARNED: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "an output is made for every call": (
        FILLS, "x=randn(8) y=randn(8) out=empty(8)", "torch.add",
        {"destinations": ("out",), "in_place": ()},
    ),
    "an input of the shape gives another shape": (
        SOFTMAX + INPUTS, "rows=3", "torch.softmax", {"inputs": {"x": "float32[3, 16]"}},
    ),
    "what says float32 is computed in doubles": (NORM, "x=randn(4096)", "", {"exact": True}),
    "what takes no doubles is told of": (ONLY_FLOAT32, "x=randn(8)", "", {"exact": False}),
}  # fmt: skip


@pytest.mark.parametrize("what", LEARNED)
def test_what_is_learned_of_a_function(what: str, learned: Callable[..., Learned]) -> None:
    text, inputs, versus, expected = LEARNED[what]
    told = learned(text, *inputs.split(), versus=versus)
    assert {name: getattr(told, name) for name in expected} == expected
    assert told.errors
    assert all(relative < 1e-6 for _, relative in told.errors.values())
    if text == FILLS:
        assert told.errors["baseline"] == told.errors["torch_add"]
    assert ("only float32" in told.refusal) == (text == ONLY_FLOAT32)
    if text == NORM:  # its own rounding would else be the measure of others'
        assert min(relative for _, relative in told.errors.values()) > 0


def test_a_function_that_changes_its_input_says_so(
    tmp_path: Path, learned: Callable[..., Learned]
) -> None:
    told = learned("def double(x):\n    x.mul_(2)\n", "x=randn(8)", versus="torch.mul(x, 2)")
    assert told.in_place == ("x",)
    folder = tmp_path / "made/kernels/double"
    assert 'in_place = ("x",)' in (folder / "study.py").read_text()
    reference = (folder / "torch_mul.py").read_text()
    assert "given.put(inputs, (\"x\",), _versus(given.one(inputs, 'x'), 2))" in reference


@pytest.mark.parametrize(
    ("body", "outputs"),
    [("x.mul_(2)", 1), ("return x.mul_(2)", 1), ("x.mul_(2)\n    return x.sum(dim=-1)", 2)],
)
def test_what_works_in_place_is_compared_with_itself(
    body: str, outputs: int, tmp_path: Path, learned: Callable[..., Learned]
) -> None:
    told = learned(f"def double(x):\n    {body}\n", "x=randn(4,8)")
    assert (told.in_place, len(told.outputs)) == (("x",), outputs)
    assert told.errors["baseline"][1] < 1e-6

    study = load_module(tmp_path / "made/kernels/double/study.py", "study_in_place")
    x = torch.randn(4, 8)
    left = study.reference(x=x)
    parts = left if isinstance(left, tuple) else (left,)
    assert len(parts) == outputs
    assert torch.equal(parts[-1], 2 * x.double())


def test_a_reference_that_returns_nothing_left_its_result_in_the_input() -> None:
    """As torch.compile of what works in place does."""
    x = torch.ones(3)
    put({"x": x}, ("x",), None)
    assert torch.equal(x, torch.ones(3))
    put({"x": x}, ("x",), 2 * x)
    assert torch.equal(x, 2 * torch.ones(3))


# What is wrong, and the way out.


def complaint(work: Any) -> WorkbenchError:
    with pytest.raises(WorkbenchError) as caught:
        work()
    assert caught.value.hint
    return caught.value


AUTOTUNED = (
    "@triton.autotune(configs, key=['n'])\n@triton.jit\ndef k(x, n, B: tl.constexpr):\n    x\n"
)
LAUNCHED = (
    "import triton\nfrom triton import language as tl\n@triton.jit\ndef k(x_ptr, n, "
    "B: tl.constexpr):\n    x = tl.load(x_ptr)\n"
)
ENABLED = (
    "template <int N> __global__ void scale(int rows) {}\n"
    "template <int N> typename std::enable_if<N == 1, int>::type pick(int n) { return n; }\n"
    "template <int N> std::enable_if_t<N != 1 && N <= 4, int> pick(int n) { return n; }\n"
)


# The text, the name that is asked for, options, and what is found in the message and the hint.
def wrong(text: str, said: str, hint: str = "", name: str = "", **options: Any) -> Any:
    """A case: a text, and what is found in the message and the hint of its refusal."""
    return pytest.param(text, said, hint, name, options, id=said or hint)


X = ("x=randn(8)",)
MISTAKES = [
    wrong("x = 1\n", "defines no function to try"),
    wrong("def a(x): ...\ndef b(x): ...\n", "has several functions: a, b"),
    wrong("def test_op(m): ...\ndef is_hip(): ...\n", "functions: test_op, is_hip", ":test_op"),
    wrong(SOFTMAX, "has no inputs() and no --input gives x of softmax()"),
    wrong(SOFTMAX, "unknown function", "softmax", name="softmx"),
    wrong(SOFTMAX, "'z', which is no parameter of softmax()", inputs=(*X, "z=1")),
    wrong(
        SOFTMAX + "def inputs(rows):\n    return {}\n",
        "the default of 'rows' in inputs() is no number or text",
    ),
    wrong("def softmax(x)\n    return x\n", "mine.py:4: SyntaxError"),
    wrong(SOFTMAX, "package 'tortch' is not installed", inputs=X, versus="tortch.softmax"),
    wrong(SOFTMAX, "names no package and no file", inputs=X, versus="softmax"),
    wrong(SOFTMAX, "--solution says nothing to a Python function", solution=Path("a.py")),
    wrong(
        SOFTMAX + INPUTS,
        "'y', which is no parameter of softmax() or of inputs()",
        inputs=("y=randn(8)",),
    ),
    wrong(
        SOFTMAX + INPUTS,
        "--launch says nothing to a Python function, as mine.py is one",
        launch="softmax[1, 2](x)",
    ),
    wrong(SOFTMAX + INPUTS, "--output says nothing to", outputs=("out=empty_like(x)",)),
    wrong(SOFTMAX + INPUTS, "--workload says nothing to", workload=Path("a.jsonl")),
    wrong(
        (EXAMPLES / "rms_norm.py").read_text(),
        "--input says nothing to a KernelBench problem",
        inputs=X,
    ),
    wrong("class ModelNew(torch.nn.Module): ...\n", "has a ModelNew without the Model"),
    wrong("def f(x, *, by):\n    return x * by\n", "no --input gives by of f", inputs=X),
    wrong("ext = torch.ops\n", "", "return ext.scale(x)", name="ext.scale", inputs=X),
    wrong("import no_such\ndef f(x): ...\ndef g(x): ...\n", "no_such, which is", "g"),
    wrong("from ._ops import ops\ndef f(x): ...\n", "imports ._ops, which", "build the package"),
    wrong("def report():\n    print(1)\n", "takes no tensors", "profile -- python mine.py"),
    wrong(LAUNCHED, "no function that launches", "k[(blocks,)](x_ptr, n, B)"),
    # Triton takes no value of what its configurations set.
    wrong(AUTOTUNED, "", "def run(x, n, blocks):\n        k[(blocks,)](x, n)"),
    wrong(
        "import helion\n\n\n@helion.kernel\ndef k(x):\n    return x\n",
        "mine.py:7: helion.kernel is given no configuration",
        "helion.kernel(config=",
        name="k",
        inputs=X,
    ),
    wrong("", "-- ARGUMENTS says nothing to a CUDA source", name="a.cu", arguments=("--by", "2")),
    wrong(ENABLED, "how scale(int rows) is launched", "--input rows=", name="k.cuh"),
]


@pytest.mark.parametrize(("text", "said", "hint", "name", "options"), MISTAKES)
def test_a_mistake_in_a_file_or_an_option_is_named(
    text: str, said: str, hint: str, name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    error = complaint(lambda: written(tmp_path, text, name, **options))
    assert said in error.message
    assert hint in error.hint
    assert error.exit_code in (2, 3)


def test_what_is_not_there_or_unknown_is_named(tmp_path: Path) -> None:
    file(tmp_path, SOFTMAX)
    assert "'mine.py'" in complaint(lambda: problem(tmp_path / "mime.py")).hint
    (tmp_path / "empty").mkdir()
    assert complaint(lambda: problem(tmp_path / "empty" / "mine.py")).hint == (
        f"the folder {tmp_path / 'empty'} is empty"
    )
    assert "name a file in it, such as mine.py" in complaint(lambda: problem(tmp_path)).hint
    text = tmp_path / "notes.txt"
    text.write_text("")
    assert "nothing that can be tried" in complaint(lambda: problem(text)).message
    (tmp_path / "a.json").write_text("{}")
    assert "no definition" in complaint(lambda: problem(tmp_path / "a.json")).message


OF_A_PACKAGE = """
from workbench.problems import python_function
from workbench.problems.problem import Format

FORMAT = Format(
    label="a tile kernel",
    files=".tile",
    priority={priority},
    is_of=lambda request: {is_of},
    read=python_function.read_python_function,
    options=frozenset({{"inputs"}}),
)
"""


def installed(folder: Path, text: str = "", name: str = "tiles", **parts: object) -> None:
    """A package with a problem format, as pip leaves it in a folder of ``sys.path``."""
    of = "request.source.suffix == '.tile'"
    made = OF_A_PACKAGE.format(**{"priority": 10, "is_of": of, **parts})
    (folder / f"{name}_format.py").write_text(text or made)
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    entry = f"[workbench.problems]\n{name} = {name}_format:FORMAT\n"
    (info / "entry_points.txt").write_text(entry)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: Patch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "tiles_format", raising=False)
    return folder


def test_a_package_adds_a_format_by_its_entry_point(site: Path, tmp_path: Path) -> None:
    path = file(tmp_path, SOFTMAX + INPUTS, "mine.tile")
    assert "nothing that can be tried" in complaint(lambda: problem(path)).message
    installed(site)
    assert problem(path).name == "softmax"
    error = complaint(lambda: problem(path, launch="softmax[1, 2](x)"))
    assert error.message == "--launch says nothing to a tile kernel, as mine.tile is one"
    assert "a tile kernel (.tile)" in complaint(lambda: problem(file(tmp_path, "", "a.b"))).hint


@pytest.mark.parametrize("priority", [1, 70])
def test_the_highest_priority_reads_a_file(priority: int, site: Path, tmp_path: Path) -> None:
    installed(site, priority=priority, is_of="True")
    path = file(tmp_path, SOFTMAX + INPUTS)
    error = complaint(lambda: problem(path, launch="softmax[1, 2](x)"))
    assert ("a tile kernel" if priority == 70 else "a Python function") in error.message


OUTSIDE = """
from workbench.problems.problem import (
    DEFAULT_SHAPE, Format, GivenShape, Problem, Request, calling, require
)

def read(request: Request) -> Problem:
    text = require(request.source).read_text().split()[-1]
    return Problem(
        kind=FORMAT.label, what="mine.tile, a tile kernel", name="tiles", title="tiles", files={},
        shapes={DEFAULT_SHAPE: GivenShape({})}, default_shape=DEFAULT_SHAPE, loads="import torch",
        made="{'x': torch.ones(4)}", expression=f"inputs['x'] * {text}",
        baseline=calling("mine.tile", "import torch", f"inputs['x'] * {text}"),
    )

FORMAT = Format("a tile kernel", ".tile", 10, lambda request: True, read)
"""


def test_a_format_needs_one_module_of_the_engine(site: Path, tmp_path: Path) -> None:
    installed(site, OUTSIDE)
    found = problem(file(tmp_path, "2", "mine.tile"))
    scope: dict[str, Any] = {}
    exec(found.baseline.text, scope)
    assert (found.baseline.name, scope["run"](x=3)) == ("baseline", 6)


BROKEN = {
    "an import": ("import tilez", "No module named 'tilez'"),
    "an exit": ("import sys\nsys.exit(3)", "SystemExit: 3"),
    "no format": ("FORMAT = 3", "tiles_format:FORMAT is of type int, not Format"),
    "no object": ("", ""),
    "is_of": (OF_A_PACKAGE.format(priority=70, is_of="1 / 0"), "ZeroDivisionError"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_package_is_named_and_stops_no_other_format(
    how: str, site: Path, tmp_path: Path
) -> None:
    text, why = BROKEN[how]
    installed(site, text or "print('hello')")
    told: list[str] = []
    path = file(tmp_path, SOFTMAX + INPUTS)
    found = detect.read_problem(Request(source=path), told.append)
    assert found.kind == "a Python function"
    assert [text.startswith("tiles 1.2: ") and why in text for text in told] == [True]


def test_a_format_of_a_package_that_fails_to_read_is_named(site: Path, tmp_path: Path) -> None:
    made = OF_A_PACKAGE.format(priority=70, is_of="True")
    installed(
        site,
        made.replace("python_function.read_python_function", "lambda request: request.launches"),
    )
    error = complaint(lambda: problem(file(tmp_path, SOFTMAX + INPUTS)))
    assert error.message.startswith("tiles 1.2 fails to read mine.py: AttributeError")
    assert error.exit_code == 4


LACKING = "needs no_such_package, which is not installed (mine.py:{})"
# What is called all the same: the text, its inputs, --vs, why it fails, and what is learned.
CALLED: list[tuple[str, str, str, str, dict[str, Any]]] = [
    (
        "def product(x, y):\n    return x @ y\n",  # on a CPU, what fails may need a GPU
        "x=randn(4,8) y=randn(4,8)",
        "torch.add",
        "mine.py:5: mine.py:product fails: RuntimeError: mat1 and mat2",
        {},
    ),
    (
        "def softmax(x):\n    import no_such_package\n",
        "x=randn(8)",
        "torch.softmax",
        LACKING.format(5),
        {"outputs": ("float32[8]",)},  # not the doubles that it is checked in
    ),
    (
        "import no_such_package\n\n\n" + SOFTMAX,
        "x=randn(8)",
        "torch.softmax",
        LACKING.format(4),
        {},
    ),
    (
        "def length(n):\n    return torch.ones(n)\n",
        "n=3",
        "torch.ones",
        "",
        {"inputs": {}, "outputs": ("float32[3]",), "dtype": "float32"},
    ),
    (
        "def solve(x, out, N):\n    out.copy_(x.abs())\n",  # it is there before the call
        "x=ones(8) out=ones(8) N=8",
        "torch.abs(x)",
        "",
        {"refused": "", "destinations": ("out",)},
    ),
]


@pytest.mark.parametrize(("text", "inputs", "versus", "why", "expected"), CALLED)
def test_what_fails_in_a_call_or_takes_numbers_alone_is_learned_of(
    text: str, inputs: str, versus: str, why: str, expected: dict[str, Any], called: Any
) -> None:
    told = called(text, inputs, versus)
    assert {name: getattr(told, name) for name in expected} == expected
    assert set(told.failures) == ({"baseline"} if why else set())
    if why:
        failure = told.failures["baseline"]
        assert why in failure.message
        install = "install the package that `no_such_package` is of"
        assert failure.hint.startswith(install) == ("no_such" in why)


DROPPED = "def noisy(x):\n    return torch.nn.functional.dropout(x, 0.5)\n"
GAPS = (
    "def scale(q):\n    return q * 2\n\n\n"
    "def inputs():\n    return (torch.randn(8, 48, device='cuda')[:, :16],)\n"
)
ATOMIC = """import math
def unused():
    @triton.autotune(configs=[], key=[]{})
    def kernel(out): tl.atomic_add(out, 1)
def noisy(x):
    return x + torch.rand(x.shape)
"""


def refused(
    text: str, inputs: str, versus: str, said: str, kind: type = GateFailed, name: str = ""
) -> Any:
    return pytest.param(text, inputs, versus, said, kind, name, id=said)


TRIED = [
    refused(
        "def solve(x, out, N):\n    pass\n",
        "x=randn(8) out=zeros(8) N=8",
        "torch.sum(x)",
        "mine.py:solve returns nothing, and changes none of its inputs",
    ),
    refused(
        "def total(x):\n    return x.sum(-1)\n",
        "x=randn(4,8)",
        "torch.softmax",
        "mine.py:total returns float32[4], and the reference [4, 8]",
    ),
    refused(
        "def length(x):\n    return 3\n",
        "x=randn(4,8)",
        "torch.softmax",
        "mine.py:length returned int, not a tensor",
    ),
    refused(
        SOFTMAX + "def inputs():\n    return {}\n",
        "",
        "torch.softmax",
        "there are no inputs",
        UsageError,
    ),
    refused(
        SOFTMAX + "def inputs():\n    return {'x': torch.randn(-1)}\n",
        "",
        "torch.softmax",
        "mine.py:7: the inputs cannot be made: RuntimeError",
    ),
    refused(SOFTMAX, "x=randn('a')", "torch.softmax", "cannot be made", UsageError),
    refused(SOFTMAX, "x=ones(4)", "torch.softmx", "unknown name in torch 'softmx'", UsageError),
    refused(SOFTMAX, "x=ones(4)", "torch.softmax(y)", "unknown input in --vs 'y'", UsageError),
    refused(SOFTMAX, "x=ones(4)", "torch.mul", "no call with x: mul() missing", UsageError),
    refused(SOFTMAX, "x=randn(1048576,1048576)", "torch.softmax", "4398.0 GB", EnvironmentLacks),
    refused(DROPPED, "x=randn(64,8)", "", "mine.py:noisy is random, or reads"),
    refused(
        "def still(x):\n    return x * 1.0\n",
        "x=randn(64,8)",
        "torch.nn.functional.dropout(x,0.5)",
        "the reference is random",
        WorkbenchError,
    ),
    refused(
        "def both(x):\n    return x, x\n",
        "x=randn(4)",
        "torch.clone",
        "gives 2 tensors, the reference 1",
    ),
    refused(GAPS, "", "", "'q' has gaps: sizes [8, 16] with strides [48, 1]", UsageError),
    refused(ATOMIC.format(""), "x=randn(64)", "torch.clone", "kernel is autotuned", name="noisy"),
    refused(ATOMIC.format(", pre_hook=h"), "x=randn(64)", "torch.clone", "random", name="noisy"),
]


@pytest.fixture
def called(tmp_path: Path, monkeypatch: Patch) -> Callable[..., Learned]:
    """What one call of a function of this text says, with these inputs, and no check after it."""

    def work(
        text: str, inputs: str = "", versus: str = "", name: str = "", device: str = "cpu"
    ) -> Learned:
        found = written(tmp_path, text, name, inputs=tuple(inputs.split()), versus=versus)
        write(found, tmp_path / "made")
        job = TrialJob(
            study=found.name,
            shapes=(found.default_shape,),
            baseline="baseline",
            called=found.baseline.called,
            references=tuple(module.name for module in found.references),
            device="cpu",
        )
        monkeypatch.chdir(tmp_path / "made")
        with on_cpu():
            trial = TrialRun(job)
            trial.device = torch.device(device)
            return trial.run()

    return work


@pytest.mark.parametrize(("text", "inputs", "versus", "said", "kind", "name"), TRIED)
def test_a_mistake_that_only_a_call_shows_is_named(
    text: str,
    inputs: str,
    versus: str,
    said: str,
    kind: type[WorkbenchError],
    name: str,
    called: Callable[..., Learned],
) -> None:
    error = complaint(lambda: called(text, inputs, versus, name))
    assert said in error.message
    assert isinstance(error, kind)


@pytest.mark.parametrize("body", ["pass", "x + N"])
def test_one_that_does_nothing_is_wrong(body: str, called: Callable[..., Learned]) -> None:
    """What people are given to fill in; its result belongs in an input as large as it."""
    text = f"def solve(x, out, N):\n    {body}\n"
    learned = called(text, "x=randn(8) out=zeros(8) N=8", "torch.abs(x)")
    assert learned.refused == "it returns nothing, and changes none of its inputs"
    assert learned.errors["baseline"][1] == pytest.approx(1.0)


def test_tensors_on_the_cpu_are_refused_where_there_is_a_gpu(
    called: Callable[..., Learned], monkeypatch: Patch
) -> None:
    monkeypatch.setattr(TrialRun, "drawn", lambda trial, shape: {"x": torch.ones(3)})
    error = complaint(lambda: called(SOFTMAX + INPUTS, device="cuda"))
    assert "the input 'x' is on the CPU" in error.message
    assert "device='cuda'" in error.hint


def test_parts_of_other_formats_that_are_missing_are_named(tmp_path: Path) -> None:
    kernelbench = small("rms_norm.py", tmp_path, rows=8)
    empty = file(tmp_path, "", "empty.py")
    error = complaint(lambda: problem(kernelbench, solution=empty))
    assert "empty.py defines no ModelNew" in error.message

    folder = tmp_path / "task"
    shutil.copytree(EXAMPLES / "histogram", folder)
    error = complaint(lambda: problem(folder))
    assert "names ../matching.py, which is not there" in error.message
    shutil.copy(EXAMPLES / "matching.py", tmp_path)
    (folder / "submission.py").write_text("")
    assert "defines no custom_kernel" in complaint(lambda: problem(folder)).message
    (folder / "task.yml").write_text("tests: 3")
    assert "Expected `array | null`" in complaint(lambda: problem(folder)).message
    (folder / "task.yml").write_text("lang: [")
    assert "is no YAML" in complaint(lambda: problem(folder)).message
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "yaml", None)
        with pytest.raises(EnvironmentLacks) as lacks:
            problem(folder)
    assert "pip install pyyaml" in lacks.value.hint

    definition = flashinfer(tmp_path, entry_point="main.py::go.there")
    data = json.loads((tmp_path / "rmsnorm_triton_row.json").read_text())
    data["spec"]["entry_point"] = "run"
    (tmp_path / "rmsnorm_triton_row.json").write_text(json.dumps(data))
    assert "has no entry point among its sources" in complaint(lambda: problem(definition)).message
    line = '{"axes": {"batch_size": 8}, "inputs": {"weight": {"type": "constant"}}}'
    (tmp_path / "rmsnorm_h4096.jsonl").write_text(line)
    error = complaint(lambda: problem(definition))
    assert "rmsnorm_h4096.jsonl:1 is no workload" in error.message
    assert "constant" in error.message
    (tmp_path / "rmsnorm_h4096.jsonl").unlink()
    assert "batch_size and no workload" in complaint(lambda: problem(definition)).message


@pytest.mark.parametrize(
    ("without", "said"),
    [
        ({"launch": ""}, "needs --launch: how softmax(const float* x, float* out, int cols)"),
        ({"inputs": ()}, "needs --input"),
        ({"versus": ""}, "nothing says what softmax should compute"),
        ({"launch": "softmx[1, 256](x, out, n)"}, "unknown kernel of row_softmax.cu 'softmx'"),
        ({"launch": "softmax[1, 256](x, y, n)"}, "'y' is no input or output"),
        ({"launch": "softmax(x, out, n)"}, "is no launch"),
        ({"launch": "softmax[open('f'), 256](x, out, n)"}, "'open' is no input or output"),
        ({"outputs": ("out=load(x)",)}, "'load' makes no output"),
        ({"launch": "softmax[1, 256](x, out)"}, "softmax takes 3 arguments, --launch gives 2"),
        ({"launch": "softmax[1, 256](x, n, out)"}, "n of softmax is a number"),
        ({"launch": "softmax[1, 256](x, out, x)"}, "x of softmax is a tensor"),
        ({"inputs": ("x=randn(8)", "n=3000000000")}, "int cols holds -2147483648 to 2147483647"),
        (
            {"inputs": ("x=randn(8,dtype=float16)", "n=8")},
            "x of softmax is float16, and its parameter const float* x reads float32",
        ),
    ],
)
def test_what_a_cuda_source_needs_is_named(without: dict[str, Any], said: str) -> None:
    error = complaint(lambda: problem(EXAMPLES / "row_softmax.cu", **CUDA | without))
    assert said in error.message


PROGRAM = """\ufeff#define KERNEL(n) __global__ void __launch_bounds__(n)
KERNEL(64) twice(const float* in, float* out, unsigned int n) { out[0] = in[0]; }
template <class T> __global__ void all(T* o) { cooperative_groups::this_grid().sync(); }
int main() { twice<<<(n + 63) / 64,
                    64>>>(a, b, n); }
"""


def test_a_program_is_told_both_ways(tmp_path: Path) -> None:
    path = tmp_path / "prog.cu"
    path.write_text(PROGRAM)
    error = complaint(lambda: problem(path))
    assert "how twice(const float* in, float* out, unsigned int n) is launched" in error.message
    options, own, whole = error.hint.splitlines()
    assert options.startswith(
        "--launch 'twice<<<cdiv(n, 256), 256>>>(in_, out, n)' --input 'in_=randn(1048576)' "
        "--output 'out=empty_like(in_)' --input n=1048576"
    )
    assert "launches it as twice<<<(n + 63) / 64, 64>>>(a, b, n)" in own
    assert "nvcc -O3 -lineinfo -o prog prog.cu && workbench profile -- ./prog" in whole
    found = problem(
        path,
        launch="all<float><<<1, 32>>>(o)",
        inputs=("x=randn(8)",),
        outputs=("o=empty_like(x)",),
        versus="torch.neg",
    )
    assert "cooperative=True" in found.baseline.text


def test_the_kernel_of_a_name_that_takes_the_arguments_is_launched(tmp_path: Path) -> None:
    text = "__global__ void over(const float* x, float* o, int n = 1) {}\n"
    path = tmp_path / "over.cu"
    asked: dict[str, Any] = {
        "inputs": ("x=randn(8)",),
        "outputs": ("o=empty_like(x)",),
        "versus": "torch.neg",
        "launch": "over<<<1, 32>>>(x, o)",
    }
    path.write_text(text + text)  # by #ifdef, say
    assert '"::over", compiler' in problem(path, **asked).baseline.text
    one = '"(void (*)(const float* x, float* o, int n))&::over", compiler'
    double = text.replace("float", "double")
    for others in (text + double, double.replace(" {}", ";")):
        path.write_text(others + text)
        assert one in problem(path, **asked).baseline.text
    path.write_text(double + text.replace("int", "long") + text)
    error = complaint(lambda: problem(path, **asked))
    assert "(const float* x, float* o, long n = 1); (const float* x, float* o, int n = 1)" in (
        error.message
    )


def test_an_input_may_be_called_kernel(tmp_path: Path) -> None:
    path = tmp_path / "convolve.cu"
    path.write_text("__global__ void convolve(const float* x, const float* kernel, float* o) {}\n")
    inputs, outputs = ("x=randn(8)", "kernel=randn(3)"), ("o=empty_like(x)",)
    launch = "convolve<<<1, 32>>>(x, kernel, o)"
    made = problem(path, launch=launch, inputs=inputs, outputs=outputs, versus="torch.neg(x)")
    assert "launched = cuda.kernel(" in made.baseline.text
    assert "    launched[1, 32](x, kernel, o)\n" in made.baseline.text


@pytest.mark.parametrize(
    ("mark", "lines"),
    [
        ("cuda.jit", ("def run(a, b, c, blocks, threads):", "k[blocks, threads, stream](*views)")),
        ("triton.jit", ("def run(a, b, c, blocks):", "k[(blocks,)](a, b, c)")),
        ("ct.kernel", ("def run(a, b, c, blocks):", "(blocks,), k, (a, b, c,))")),
        ("wp.kernel", ("wp.init()", "def run(a, b, c):", "k, dim=c.shape, inputs=[a, b, c]")),
        (
            "cute.kernel",
            (
                "@cute.jit",
                "def run(a: array, b: float, c: array, blocks",
                "k(a, b, c).launch(grid=",
            ),
        ),
    ],
)
def test_a_kernel_of_python_has_the_lines_that_launch_it(
    mark: str, lines: tuple[str, ...], tmp_path: Path
) -> None:
    path = file(tmp_path, f"@{mark}\ndef k(a: array, b: float, c: array):\n    c[0] = a[0]\n")
    error = complaint(lambda: problem(f"{path}:k"))
    assert all(line in error.hint for line in ("try mine.py:run", *lines))
    ast.parse(textwrap.dedent("    " + error.hint.partition("\n    ")[2]))


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ("", ("def run(A, B, C, N):", "        return k(N)(A, B, C)")),
        ("(out_idx=[-1])", ("def run(A, B, N):", "        return k(N)(A, B)")),
        ("(out_idx=[0, 2], target='c')", ("def run(B, N):", "        return k(N)(B)")),
    ],
)
def test_what_makes_a_kernel_of_tilelang_has_the_lines_that_call_it(
    options: str, lines: tuple[str, ...], tmp_path: Path
) -> None:
    inner = "    @T.prim_func\n    def main(A, B, C):\n        pass\n    return main\n"
    path = file(tmp_path, f"@tilelang.jit{options}\ndef k(N, block=64):\n{inner}")
    error = complaint(lambda: problem(f"{path}:k"))
    assert all(line in error.hint.splitlines() for line in (f"    {lines[0]}", lines[1]))


@pytest.mark.parametrize("indent", ["", "    "])
def test_a_file_that_loads_an_extension_has_the_lines_that_call_it(
    indent: str, tmp_path: Path
) -> None:
    text = f"{indent}mod = tvm_ffi.cpp.load_inline(name='x', functions='add_one')\n"
    path = file(tmp_path, ("def main():\n" if indent else "") + text)
    error = complaint(lambda: problem(path))
    assert "line " in error.message
    said = "return mod.FUNCTION(x)" if indent else "name its function: mine.py:mod.FUNCTION"
    assert said in error.hint
    assert error.hint.endswith("outside of main()") == bool(indent)


# Expressions.


@pytest.mark.parametrize(
    ("text", "shape", "dtype"),
    [
        ("x=randn(4, 8)", (4, 8), torch.float32),
        ("x=rand((2,3), dtype=float16)", (2, 3), torch.float16),
        ("x=randn(16, dtype=float8_e4m3fn)", (16,), torch.float8_e4m3fn),
        ("x=full((2,), -1.5, dtype=torch.float64)", (2,), torch.float64),
        ("x=randint(0, 10, (5,), dtype=int32)", (5,), torch.int32),
        ("x=randperm(7)", (7,), torch.int64),
        ("x=arange(0, 12, 3)", (4,), torch.int64),
        ("x=zeros(2, dtype=bool)", (2,), torch.bool),
    ],
)
def test_inputs_are_made_as_they_are_written(
    text: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    call = not_none(read_input(text).call)
    tensor = made(call, torch.Generator())
    assert (tuple(tensor.shape), tensor.dtype) == (shape, dtype)


@pytest.mark.parametrize(
    "text",
    [
        "randn(4)",
        "x=",
        "x=randn",
        "x=random(4)",
        "x=randn(n)",
        "x=randn(4, device=cuda)",
        "x=randn(4, dtype=float17)",
        "x=__import__('os').system('true')",
        "x=randn(*open('f'))",
        "x=[1]*4",
        "x=randn(4",
        "1x=randn(4)",
    ],
)
def test_what_is_no_input_is_refused_and_never_run(text: str) -> None:
    assert complaint(lambda: read_input(text)).exit_code == 2


def test_plain_values_are_what_they_say() -> None:
    """A shell takes the quotes of a text away."""
    texts = ("n=-3", "eps=1e-6", "flag=True", "s='tanh'", "s=tanh")
    assert [read_input(text).value for text in texts] == [-3, 1e-6, True, "tanh", "tanh"]


def test_launches_are_read_in_both_ways() -> None:
    names, x = ("x", "out", "n"), read_input("x=arange(4)")
    one = read_launch("k[(cdiv(n, 256), 2), (32, 8), 4 * n](x, out, n - 1)", names)
    other = read_launch("k<<<(cdiv(n, 256), 2), (32, 8), 4 * n>>>(x, out, n - 1)", names)
    assert one == other
    assert one == ("k", "(cdiv(n, 256), 2), (32, 8), 4 * n", ["x", "out", "n - 1"])
    assert read_launch("k<float, 4><<<1, 32>>>(x)", names)[0] == "k<float, 4>"
    assert read_launch("k<float, 4>[x.shape[0], 32](x)", names)[1] == "x.shape[0], 32"
    output = read_output("out=empty(x.shape[0], n // 2, dtype=float16)", dict.fromkeys(names, x))
    assert output.call == "torch.empty(x.shape[0], n // 2, dtype=torch.float16, device='cuda')"
    assert (output.dtype, read_output("y=empty_like(x)", {"x": x}).dtype) == ("float16", "int64")


def test_a_call_to_compare_with_takes_inputs_and_plain_values_alone() -> None:
    assert read_call("torch.softmax(x, dim=-1)")[1] == ("given.one(inputs, 'x'), dim=-1")
    for text in ("torch.softmax(open('f'))", "f(x)(y)", "lambda: 1", "a.b(**c)", "torch.add(x+y)"):
        complaint(lambda text=text: read_call(text))


def test_tolerances_are_rounded_up_so_that_a_draw_changes_nothing() -> None:
    assert [rounded_up(v) for v in (0.0, 1e-4, 1.1e-4, 0.0021, 6.2, 3e-9)] == [
        0.0, 1e-4, 2e-4, 5e-3, 10.0, 5e-9,
    ]  # fmt: skip


def test_a_shape_that_is_none_of_a_problem_is_refused(tmp_path: Path) -> None:
    found = problem(EXAMPLES / "histogram")
    error = complaint(lambda: prepare(Local(), found, tmp_path, "benchmark7", on_gpu=False))
    assert "unknown shape" in error.message
    error = complaint(lambda: prepare(Local(), found, tmp_path, "test0", on_gpu=False))
    assert "timed are benchmark0, benchmark1" in error.hint


def test_doubles_do_not_load_torchs_compiler() -> None:
    """In every session of a ``try`` that took two seconds of six."""
    done = python(
        "-c",
        "import sys, torch\n"
        "from workbench.problems.given import exact\n"
        "out = exact(lambda given: given['x'] + torch.ones(3, dtype=torch.float32),\n"
        "            {'x': torch.ones(3)})\n"
        "assert out.dtype == torch.float64\n"
        "assert 'torch._dynamo' not in sys.modules\n",
    )
    assert done.returncode == 0, done.stderr


# A function of C in a .cu file.

SOLVE = """#include <cstdint>
{global}
extern "C" void solve(const float* source, float* out, int N) {{
  for (int i = 0; i < N; ++i) out[i] = 2 * source[i];
}}
"""
KERNEL = "__global__ void twice(const float* in, float* out, int N) { out[0] = in[0]; }"
TASK = """
import ctypes
import torch
from core.challenge_base import ChallengeBase, RandTensor


class Challenge(ChallengeBase):
    def __init__(self):
        super().__init__(name="Twice", atol=1e-05, rtol=1e-05)

    def reference_impl(self, source: torch.Tensor, out: torch.Tensor, N: int):
        assert source.dtype == out.dtype
        out.copy_(source * 2)

    def get_solve_signature(self):
        return {"source": (ctypes.POINTER(ctypes.c_float), "in")}

    def generate_performance_test(self):
        out = torch.empty(64, device="cuda")
        return {"N": 64, "out": out, "source": RandTensor((64,), -1.0, 1.0)}
"""
BASE = """
class ChallengeBase:
    def __init__(self, **settings):
        vars(self).update(settings)


class RandTensor:
    def __init__(self, shape, low, high, dtype="float32"):
        self.shape, self.low, self.high, self.dtype = shape, low, high, dtype
"""


@pytest.fixture
def solution(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A solution whose function g++ compiles, in place of nvcc."""
    from torch.utils import cpp_extension

    def load(name: str, sources: list[str], **_: object) -> str:
        text = Path(sources[0]).read_text().replace(KERNEL, "")
        (tmp_path / "plain.cpp").write_text(text)
        library = tmp_path / f"{name}.so"
        command = ["g++", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "plain.cpp")]
        subprocess.run(command, check=True)
        return str(library)

    monkeypatch.setattr(cpp_extension, "load", load)
    path = tmp_path / "twice.cu"
    path.write_text(SOLVE.format(**{"global": KERNEL}))
    return path


ALLOCATED = (
    ("float *a; cudaMalloc(&a, 4); cudaFree(a);", True),
    ("float *a; cudaMallocAsync(&a, 4, 0); cudaFreeAsync(a, 0); // not cudaMalloc()", False),
)


@pytest.mark.parametrize(("text", "allocates"), ALLOCATED)
def test_a_function_that_allocates_is_not_called_in_a_capture(
    text: str, allocates: bool, solution: Path, monkeypatch: Patch
) -> None:
    """What cudaMalloc leaves as it was, cudaFree frees: torch's memory, after a first call."""
    solution.write_text(SOLVE.format(**{"global": KERNEL + f"\nvoid more() {{ {text}\n}}"}))
    inputs = ("source=ones(4)", "out=empty(4)", "N=4")
    files = problem(solution, inputs=inputs, versus="torch.mul(source, 2)").files
    plain = solution.read_text().replace(f"void more() {{ {text}\n}}", "")
    solution.write_text(plain)
    module: dict[str, Any] = {"__file__": str(solution)}
    exec(files["twice_solve.py"], module)
    source, out = torch.ones(4), torch.empty(4)
    module["solve"](source, out, 4)
    assert out.tolist() == [2.0] * 4
    for name in ("is_available", "is_current_stream_capturing"):
        monkeypatch.setattr(torch.cuda, name, lambda: True)
    with pytest.raises(RuntimeError, match="it allocates memory") if allocates else nullcontext():
        module["solve"](source, out, 4)


def test_a_function_of_c_is_called_by_its_name(
    solution: Path, tried: Callable[[Problem], Learned]
) -> None:
    inputs = ("N=64", "source=randn(64)", "out=zeros(64)")
    beside = solution.with_name("plain.py")
    beside.write_text("def twice(x):\n    return x * 2\n")
    found = problem(f"{solution}:solve", inputs=inputs, versus=f"{beside}:twice")
    assert found.kind == "a function of C"
    assert tried(found).failures == {}


def test_a_function_of_c_may_add_to_its_output(
    solution: Path, tried: Callable[[Problem], Learned], monkeypatch: Patch
) -> None:
    """As on a GPU, where it can be called before its outputs are replaced."""
    monkeypatch.setattr("workbench.problems.given.uncalled", lambda inputs, *_: inputs)
    solution.write_text(solution.read_text().replace("out[i] = 2", "out[i] += 2"))
    beside = solution.with_name("plain.py")
    beside.write_text("def twice(source):\n    return source * 2\n")
    inputs = ("N=64", "source=randn(64)", "out=zeros(64)")
    told = tried(problem(solution, inputs=inputs, versus=f"{beside}:twice"))
    assert (told.in_place, told.destinations, told.failures) == (("out",), (), {})


def test_a_challenge_beside_it_gives_inputs_and_reference(
    solution: Path, tried: Callable[[Problem], Learned]
) -> None:
    solution.with_name("challenge.py").write_text(TASK)
    core = solution.parent / "core"
    core.mkdir()
    (core / "challenge_base.py").write_text(BASE)
    found = problem(solution)
    assert found.against == "challenge.py:Challenge"
    assert tried(found).failures == {}


def test_what_a_function_of_c_lacks_is_named(solution: Path) -> None:
    error = complaint(lambda: problem(solution))
    assert "no --input gives source, out, N of solve()" in error.message
    assert "--input 'out=zeros(1048576)' --input N=1048576 --vs" in error.hint
    inputs = ("N=64", "source=randn(64)", "out=zeros(64)")
    assert "needs --vs" in complaint(lambda: problem(solution, inputs=inputs)).message
    other = ("n=64", *inputs)
    error = complaint(lambda: problem(solution, inputs=other, versus="torch.neg"))
    assert "unknown parameter of solve() 'n'" in error.message
    assert "needs --launch" in complaint(lambda: problem(f"{solution}:twice")).message
    solution.write_text(SOLVE.format(**{"global": KERNEL}).replace("solve", "solution"))
    assert "N of solution()" in complaint(lambda: problem(solution)).message
    solution.write_text(SOLVE.format(**{"global": KERNEL}).replace("int N", "Sizes N"))
    assert "takes Sizes N" in complaint(lambda: problem(solution, inputs=inputs)).message


# Classes of torch.

CLASSES = """
class Scaled(torch.nn.Module):
    def __init__(self, width, bias=True):
        super().__init__()
        self.linear = torch.nn.Linear(width, width, bias)

    def forward(self, x, scale=1.0):
        return self.linear(x) * scale


class Same(Scaled): ...


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        return x * k

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def above(x):
    return x > 0
"""


@pytest.mark.parametrize(
    ("name", "inputs", "versus"),
    [
        ("Scaled", ("x=randn(4,8)", "width=8", "scale=2.0"), ""),
        ("Twice", ("k=2", "x=randn(8)"), "torch.mul(x, 2)"),
        ("Twice.apply", ("x=randn(8)", "k=2"), ""),
        ("above", ("x=randn(64)",), "torch.gt(x, 0)"),
        ("Scaled", ("x=randn(4,8)", "width=8"), "compile"),
        ("Same", ("x=randn(4,8)", "width=8"), "compile"),
    ],
)
def test_classes_are_called_as_functions_are(
    name: str,
    inputs: tuple[str, ...],
    versus: str,
    tmp_path: Path,
    tried: Callable[[Problem], Learned],
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function: function)
    path = file(tmp_path, CLASSES)
    assert tried(problem(f"{path}:{name}", inputs=inputs, versus=versus)).failures == {}


def test_a_name_of_the_apply_of_a_class_is_said(
    tmp_path: Path, tried: Callable[[Problem], Learned]
) -> None:
    path = file(tmp_path, f"class Twice{CLASSES.partition('class Twice')[2]}twice = Twice.apply\n")
    path.write_text(path.read_text().replace("def above", "def _above"))
    error = complaint(lambda: problem(path))
    assert error.message == "mine.py has no inputs() and no --input gives x, k of twice()"
    assert "a tensor of twice()" in error.hint
    found = problem(path, inputs=("k=2", "x=randn(8)"), versus="torch.mul(x, 2)")
    assert found.baseline.called == "mine.py:twice"
    assert tried(found).failures == {}
    setup = (
        "forward(x, k):\n        return x * k\n    def setup_context(ctx, inputs, output): ...\n"
    )
    path.write_text(path.read_text().replace("forward(ctx, x, k):\n        return x * k\n", setup))
    assert tried(problem(path, inputs=("x=randn(8)", "k=2"))).failures == {}
    path.write_text(f"{path.read_text()}class Thrice(torch.autograd.Function): ...\n")
    assert "has several classes: twice, Thrice" in complaint(lambda: problem(path)).message


def test_what_a_class_lacks_is_named(tmp_path: Path) -> None:
    path = file(tmp_path, CLASSES.partition("def above")[0])
    error = complaint(lambda: problem(path))
    assert "has several classes: Scaled, Same, Twice" in error.message
    error = complaint(lambda: problem(f"{path}:Scaled", inputs=("x=randn(4,8)",)))
    assert "Scaled needs width of its constructor" in error.message
    assert error.hint == "--input width=64"


def test_the_code_cells_of_a_notebook_are_a_file(tmp_path: Path) -> None:
    sources = [
        "pip install triton\nimport torch\n%matplotlib inline\n!pip list",
        "%%bash\nls",
        [SOFTMAX],
    ]
    path = notebook(tmp_path, sources)
    script, function = as_script(path, "softmax")
    assert script.read_text() == f"\nimport torch\n\n\n{SOFTMAX}"
    found = problem(f"{script}:{function}", inputs=("x=randn(8)",))
    assert found.what == "my_notes.py, a Python function: its function softmax(x)"
    path.write_text("[]")
    assert "is no notebook" in complaint(lambda: as_script(path)).message
    assert as_script(tmp_path) == (tmp_path, "")


def notebook(folder: Path, sources: list[Any], counts: tuple[int | None, ...] = ()) -> Path:
    cells: list[dict[str, Any]] = [{"cell_type": "code", "source": source} for source in sources]
    for cell, count in zip(cells, counts, strict=False):
        cell["execution_count"] = count
    path = folder / "My notes.ipynb"
    cells.insert(1, {"cell_type": "markdown", "source": "# A title"})
    path.write_text(json.dumps({"cells": cells}))
    return path


@pytest.mark.parametrize(
    ("source", "function", "message", "hint"),
    [
        (
            f"{SOFTMAX}def other(x): ...",
            "",
            "has several functions: softmax, other",
            "My notes.ipynb:other",
        ),
        ("x = 1", "", " defines no function to try", "a function of tensors"),
        ("y = 2\ndef f(x:", "1", ", line 2 of its code: SyntaxError", "fix this line"),
        ("import absent\ndef f(x): ...", "", "imports absent", "the package that `absent` is"),
        ("def f(): ...", "", "f() of My notes.ipynb takes no tensors", "/my_notes.py; or"),
    ],
)
def test_a_refused_notebook_has_the_name_that_was_typed(
    source: str, function: str, message: str, hint: str, tmp_path: Path, capsys: Capsys
) -> None:
    path = notebook(tmp_path, [source])
    assert main(["try", f"{path}:{function}" if function else str(path)]) in (2, 3)
    error, _, way_out = capsys.readouterr().err.partition("hint: ")
    assert message in error
    assert hint in way_out
    assert "My notes.ipynb" in error
    assert "my_notes.py" not in error


def test_a_problem_of_a_notebook_has_its_name(tmp_path: Path) -> None:
    path = notebook(tmp_path, [f"{SOFTMAX}def reference(x): ...\n"])
    script, _ = as_script(path)
    with naming(path, script) as renamed:
        found = in_words_of(problem(f"{script}:softmax", inputs=("x=randn(8)",)), renamed)
    assert found.what == "My notes.ipynb, a Python function: its function softmax(x)"
    assert (found.title, found.against) == ("softmax of My notes.ipynb", "My notes.ipynb:reference")
    assert [m.called for m in found.references] == ["My notes.ipynb:reference"]
    assert {*found.files} == {"my_notes.py"}
    why = ErrorText(kind="GateFailed", message="my_notes.py:5: it fails")
    told = Learned(inputs={}, outputs=(), failures={"baseline": why})
    done = Attempt(found, tmp_path, "softmax", "given", told, Tolerance(1.0, 1.0), renamed=renamed)
    said = "not called on the CPU: My notes.ipynb, line 5 of its code: it fails"
    assert done.uncalled == [f"My notes.ipynb:softmax: {said}"]
    with naming(tmp_path, tmp_path) as renamed:
        assert renamed("other.py:3") == "other.py:3"


SECOND = "def softmax(x): return x\ndef other(x): return x\n"


@pytest.mark.parametrize("counts", [(), (None, 5, 9, None)])
def test_a_cell_of_a_notebook_is_named_by_its_number(
    counts: tuple[int | None, ...], tmp_path: Path
) -> None:
    sources = ["%%bash\nls", f"import torch\n!ls\n{SOFTMAX}", SECOND, "def late(x): return x"]
    path = notebook(tmp_path, sources, counts)
    numbers = counts or (1, 2, 3, 4)
    script, function = as_script(path, str(numbers[1]))
    assert function == "softmax"
    assert "other" not in script.read_text()  # a later cell defines softmax anew
    error = complaint(lambda: as_script(path, str(numbers[2])))
    assert error.message == "My notes.ipynb has several functions: softmax, other"
    error = complaint(lambda: as_script(path, "7"))
    assert error.message == "My notes.ipynb has no one cell 7"
    assert error.hint == f"its cells: {', '.join(str(n) for n in numbers if n)}"
