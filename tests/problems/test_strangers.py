"""A miniature of each class of file that strangers have, with stand-ins for what is not here."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from answers import Capsys, Patch, both_of
from problems.test_problems import TASK, complaint, file, flashinfer, problem
from problems.test_problems import tried as tried
from workbench.app.try_ import write
from workbench.cli import progress
from workbench.errors import WorkbenchError
from workbench.problems import given
from workbench.problems.given import exact
from workbench.problems.problem import Problem
from workbench.run import side_jobs
from workbench.run.process import WorkerEnd
from workbench.run.protocol import Broken, ErrorText, Learned, TrialJob
from workbench.study.workspace import find_workspace

Tried = Callable[[Problem], Learned]


def module(monkeypatch: Patch, name: str, **members: Any) -> ModuleType:
    """A stand-in for a package."""
    stand_in = ModuleType(name)
    vars(stand_in).update(members)
    monkeypatch.setitem(sys.modules, name, stand_in)
    return stand_in


# TVM FFI.

TWICE = b"\x7fELF\0__tvm_ffi_twice\0__tvm_ffi__metadata_twice\0twice.cold\0"


def twice(x: Any, out: Any) -> None:
    """It has no signature, as one of TVM FFI."""
    out.copy_(x * 2)


vars(twice)["__signature__"] = "none"


def test_a_function_of_a_tvm_ffi_library_is_called_in_order(
    tmp_path: Path, tried: Tried, monkeypatch: Patch
) -> None:
    module(monkeypatch, "tvm_ffi", load_module=lambda path: SimpleNamespace(twice=twice))
    library = tmp_path / "built.so"
    library.write_bytes(TWICE)
    file(tmp_path, "def double(x):\n    return x + x\n", "vs.py")
    asked: dict[str, Any] = {"inputs": ("x=randn(64)", "out=zeros(64)")}
    found = problem(library, versus="vs.py:double", **asked)
    assert found.what == "built.so, a library of TVM FFI: its function twice"
    assert tried(found).destinations == ("out",)
    assert "needs --input" in complaint(lambda: problem(library, versus="torch.neg")).message
    assert "and --vs" in complaint(lambda: problem(library, **asked)).message
    assert "unknown function" in complaint(lambda: problem(f"{library}:thrice")).message
    library.write_bytes(TWICE + b"\0__tvm_ffi_half\0")
    assert "name one: built.so:half" in complaint(lambda: problem(library)).hint


def test_a_module_that_a_file_loads_has_functions(
    tmp_path: Path, tried: Tried, monkeypatch: Patch
) -> None:
    loads = SimpleNamespace(load_inline=lambda **_: SimpleNamespace(twice=twice))
    module(monkeypatch, "tvm_ffi", cpp=loads)
    text = "from tvm_ffi import cpp\n\nmod = cpp.load_inline(name='x', functions='twice')\n"
    asked: dict[str, Any] = {
        "inputs": ("x=randn(64)", "out=zeros(64)"),
        "versus": "torch.mul(x, 2)",
    }
    assert tried(problem(f"{file(tmp_path, text)}:mod.twice", **asked)).destinations == ("out",)


def test_another_library_is_no_library_of_tvm_ffi(tmp_path: Path) -> None:
    library = tmp_path / "other.so.1"
    library.write_bytes(b"\x7fELF" + bytes(60))
    assert "is a compiled library" in complaint(lambda: problem(library)).message


@pytest.mark.parametrize("binding", [None, "tvm-ffi"])
def test_the_usual_binding_of_flashinfer_bench_is_built(
    binding: str | None, tmp_path: Path, tried: Tried, monkeypatch: Patch
) -> None:
    built: dict[str, Any] = {}

    def load(name: str, **options: Any) -> SimpleNamespace:
        built.update(options, name=name)
        return SimpleNamespace(row=row)

    def row(x: Any, w: Any, eps: float, out: Any) -> None:
        wide = x.float()
        out.copy_(wide * (wide.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * w)

    module(monkeypatch, "tvm_ffi", cpp=SimpleNamespace(load=load))
    spec: dict[str, Any] = {"language": "cuda", "entry_point": "main.py::row"}
    path = flashinfer(tmp_path, **spec, binding=binding, destination_passing_style=True)
    solution = tmp_path / "rmsnorm_triton_row.json"
    solution.write_text(solution.read_text().replace("main.py", "main.cu"))
    assert tried(problem(path)).failures == {}
    assert [Path(one).name for one in built["cuda_files"]] == ["main.cu"]
    assert built["cpp_files"] == []


def test_an_unknown_language_of_flashinfer_bench_is_named(tmp_path: Path) -> None:
    path = flashinfer(tmp_path, language="mojo", entry_point="main.py::row")
    assert "is in mojo" in complaint(lambda: problem(path)).message


# challenge.py beside a solution in Python.

SOLVE = """def helper(a):
    return a * 2


def solve(source: torch.Tensor, out: torch.Tensor, N: int):
    out.copy_(helper(source))
"""


PLAIN_TASK = TASK.replace(", RandTensor", "")
PLAIN_TASK = PLAIN_TASK.replace("RandTensor((64,), -1.0, 1.0)", "torch.ones(64)")


def test_a_challenge_beside_a_python_solution(tmp_path: Path, tried: Tried) -> None:
    (tmp_path / "challenge.py").write_text(PLAIN_TASK)
    path = file(tmp_path, SOLVE)
    found = problem(path)
    assert found.against == "challenge.py:Challenge"
    told = tried(found)
    assert (told.failures, told.destinations) == ({}, ("out",))
    (tmp_path / "challenge.py").write_text("class Empty: ...\n")
    assert "no class with reference_impl" in complaint(lambda: problem(path)).message
    (tmp_path / "challenge.py").unlink()
    assert "no --input gives source, out, N" in complaint(lambda: problem(path)).message


def test_a_challenge_with_other_names_gives_inputs_in_order(tmp_path: Path, tried: Tried) -> None:
    task = PLAIN_TASK.replace('{"N": 64, "out": out, "source": torch.ones(64)}', "[1]")
    task = task.replace("[1]", '{"source": torch.ones(64), "out": out, "N": 64}')
    (tmp_path / "challenge.py").write_text(task)
    text = "def solve(a, b, n):\n    b.copy_(a * 2)\n"
    assert tried(problem(file(tmp_path, text))).failures == {}


# CuPy.


@pytest.fixture
def cupy(monkeypatch: Patch) -> None:
    class ndarray:
        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor

    def multiply(array: Any, by: float) -> ndarray:
        if not isinstance(array, ndarray):
            raise TypeError(f"Unsupported type {type(array)}")
        return ndarray(array.tensor * by)

    def tensor_of(value: Any, device: str) -> Any:
        return value.tensor

    cuda = SimpleNamespace(
        PythonFunctionAllocator=lambda allocate, free: SimpleNamespace(malloc=allocate),
        ExternalStream=lambda handle: nullcontext(),
        using_allocator=lambda allocator: nullcontext(),
    )
    members = {"asarray": ndarray, "ndarray": ndarray, "multiply": multiply, "cuda": cuda}
    members |= dict.fromkeys(("RawKernel", "RawModule"), ndarray)
    module(monkeypatch, "cupy", **members)
    monkeypatch.setattr(torch, "as_tensor", tensor_of)
    stream = SimpleNamespace(cuda_stream=0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)


def test_a_function_of_cupy_gets_arrays(cupy: None, tmp_path: Path, tried: Tried) -> None:
    text = "import cupy as cp\n\n\ndef double(x):\n    return cp.multiply(x, 2)\n"
    found = problem(file(tmp_path, text), inputs=("x=randn(64)",), versus="torch.mul(x, 2)")
    assert tried(found).failures == {}


def test_an_error_of_a_function_without_cupy_stays() -> None:
    with pytest.raises(TypeError, match="no len"):
        given.call(lambda x: len(1), {"x": torch.ones(3)})  # type: ignore[arg-type]


# CuTe DSL, TileLang.

CUTE = """from cutlass import cute


@cute.kernel
def kernel(a):
    pass


@cute.jit
def scaled(a, by: "Constexpr", out{stream}):
    out[:] = a[:] * by
    kernel(a).launch(grid=(1, 1, 1){given})
"""


@pytest.fixture
def cute(monkeypatch: Patch) -> list[Any]:
    """A stand-in for CuTe DSL; its streams of launches."""
    streams: list[Any] = []
    launched = SimpleNamespace(launch=lambda grid, stream: streams.append(stream))

    class Array:
        def __init__(self, tensor: Any, assumed_align: int) -> None:
            assert assumed_align == given.ALIGNED
            self.tensor = tensor

        def __getitem__(self, index: Any) -> Any:
            return self.tensor[index]

        def __setitem__(self, index: Any, value: Any) -> None:
            self.tensor[index] = value

    def compiled(function: Any, a: Array, by: int, out: Array, stream: Any) -> Any:
        return lambda a, out, stream: function(a, by, out, stream)

    parts = {"jit": lambda function: function, "kernel": lambda _: lambda *values: launched}
    cute = module(monkeypatch, "cutlass.cute", compile=compiled, **parts)
    module(monkeypatch, "cutlass", cute=cute)
    module(monkeypatch, "cutlass.cute.runtime", from_dlpack=Array)
    module(monkeypatch, "cuda.bindings.driver", CUstream=lambda handle: f"stream {handle}")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=7))
    return streams


def test_a_function_of_cute_gets_tensors_by_dlpack(
    cute: list[Any], tmp_path: Path, tried: Tried
) -> None:
    path = file(tmp_path, CUTE.format(stream=", stream", given=", stream=stream"))
    inputs = ("a=randn(8)", "by=2", "out=zeros(8)")
    found = problem(path, inputs=inputs, versus="torch.mul(a, by)")
    assert "its function scaled(a, by, out)" in found.what
    assert tried(found).failures == {}
    assert {*cute} == {"stream 7"}


def test_a_function_of_cute_without_a_stream_is_refused(cute: list[Any], tmp_path: Path) -> None:
    path = file(tmp_path, CUTE.format(stream="", given=""))
    error = complaint(lambda: problem(path, inputs=("a=randn(8)",)))
    assert "scaled() takes no stream to launch on" in error.message
    assert "def scaled(..., stream)" in error.hint


TILELANG = """class tilelang:
    class jit:
        __hash__ = None

        def __init__(self, function):
            self.function = function

        def __call__(self, *arguments):
            self.function(*arguments)
            return []


@tilelang.jit
def twice(A, B):
    B.copy_(A * 2)
"""


def test_a_function_of_tilelang_gets_its_tensors(tmp_path: Path, tried: Tried) -> None:
    """Its objects cannot be hashed, and give an empty list where they make nothing."""
    inputs = ("A=randn(8)", "B=zeros(8)")
    found = problem(file(tmp_path, TILELANG), inputs=inputs, versus="torch.mul(A, 2)")
    assert tried(found).failures == {}


# References on the CPU.


def test_a_large_reference_stays_on_the_gpu() -> None:
    """The device "meta" stands for the GPU: nothing of it can go to the CPU."""
    large = {"x": torch.empty(given.LARGE, device="meta")}
    out = exact(lambda inputs: inputs["x"].cpu().float() * 2 + inputs["x"].to("cpu"), large)
    assert (out.dtype, out.device.type) == (torch.float64, "meta")
    calls: list[bool] = []

    def draws(inputs: Any) -> Any:
        calls.append(True)
        return inputs["x"].cpu() + torch.rand(given.LARGE)

    with pytest.raises(NotImplementedError, match="meta tensor"):
        exact(draws, large)
    small = {"x": torch.empty(4, device="meta")}
    with pytest.raises(NotImplementedError, match="meta tensor"):
        exact(draws, small)
    assert len(calls) == 3  # of the large one again on the CPU, whose numbers are others
    assert exact(draws, {"x": torch.ones(given.LARGE)}).dtype == torch.float64


def test_a_reference_that_takes_long_says_so(
    tmp_path: Path, trials_here: None, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.setattr(progress, "SILENT_S", 0.01)
    monkeypatch.setattr(progress, "LOOK_S", 0.01)
    text = "import time\n\n\ndef double(x):\n    return x * 2\n\n\n"
    text += "def reference(x):\n    time.sleep(0.1)\n    return x + x\n"
    err = both_of(capsys, "try", file(tmp_path, text), "--input", "x=randn(8)", code=0).err
    assert re.search(r"calling and checking it \(\d+ s\)", err)


# Illegal addresses.

FOUND = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at {at}
=========     by thread (0,0,0) in block (1,0,0)
"""
SANITIZER = """#!/bin/bash
[ -n "$CUDA_LAUNCH_BLOCKING" ] || exit 9
echo "{found}"
while [ "$1" != python3 ]; do shift; done
exec "$@"
"""
ILLEGAL = "CUDA error: an illegal memory access was encountered"
AT = "oob(float *, int)+0x70 in /workbench/kernels/x/a.cu:5"


def oob(study: str) -> TrialJob:
    return TrialJob(
        study=study, shapes=("given",), baseline="baseline", called="mine.py:double",
        references=(), device="cpu",
    )  # fmt: skip


def test_a_call_with_an_illegal_address_is_repeated_by_the_sanitizer(
    tmp_path: Path, trials_here: None, monkeypatch: Patch
) -> None:
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(SANITIZER.format(found=FOUND.format(at=AT)))
    tool.chmod(0o755)
    monkeypatch.setattr(side_jobs, "find_sanitizer", lambda: str(tool))
    text = f"def double(x):\n    return x\n\n\ndef inputs():\n    raise RuntimeError({ILLEGAL!r})\n"
    found = problem(file(tmp_path, text), versus="torch.add(x, x)")
    write(found, tmp_path / "made")
    study = find_workspace(tmp_path / "made").study(found.name)
    with pytest.raises(WorkbenchError) as error:
        side_jobs.try_once(study, oob(study.name))
    assert "oob(float *, int) (a.cu:5)" in error.value.message
    assert "compute-sanitizer" in error.value.hint


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("oob(float *):0x160 in a.cu:6", "in oob(float *) (a.cu:6)"),
        ("oob(float *)+0x70", "4 bytes in oob(float *)"),
        ("", ILLEGAL),
    ],
)
def test_the_line_of_an_illegal_address_is_named(
    at: str, said: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    first = WorkerEnd([Broken(error=ErrorText(kind="", message=ILLEGAL))], 1)
    again = replace(first, log=FOUND.format(at=at) if at else "")
    worker = SimpleNamespace(watch=lambda *limits: again)
    monkeypatch.setattr(side_jobs, "Worker", lambda *given: worker)
    monkeypatch.setattr(side_jobs, "find_sanitizer", lambda: "a tool" if at else "")
    (broken,) = side_jobs.located(tmp_path, oob("mine"), first).of(Broken)
    assert said in broken.error.message
    assert "compute-sanitizer" in broken.error.hint
