"""CUDA programs as other people write them, compiled as they are by nvcc and by NVRTC."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tools.folders import unpacked

from answers import Patch
from workbench import cuda
from workbench.cli.build import source_of
from workbench.cuda import compiler as nvcc
from workbench.cuda.compiler import NVCC, PROGRAM, KernelBuild, Source, kept_cubin
from workbench.cuda.programs import (
    CompileError,
    entries,
    is_host,
    items,
    masked,
    without,
    without_host_code,
)
from workbench.errors import EnvironmentLacks, UsageError
from workbench.evidence.records import BuiltKernel
from workbench.judge.findings import sentence
from workbench.judge.gates import compiler_gate
from workbench.problems import cuda_file
from workbench.problems.problem import Request
from workbench.study.config import Gates

CU = unpacked(Path(__file__).parent / "cuda_sources.txtar")
needs_nvrtc = pytest.mark.skipif(
    not pytest.importorskip("cuda.core", reason="cuda-core is not installed"), reason="no NVRTC"
)
needs_nvcc = pytest.mark.skipif(not nvcc.find_nvcc(), reason="nvcc is not installed")


@pytest.fixture(params=["nvrtc", pytest.param("nvcc", marks=needs_nvcc)])
def compiler(request: Any, monkeypatch: Patch) -> str:
    """What compiles programs; NVRTC where nvcc is not installed."""
    if request.param == "nvrtc":
        monkeypatch.setattr(nvcc, "find_nvcc", lambda: "")
    monkeypatch.delenv("CPATH", raising=False)
    return str(request.param)


def registers(file: str, kernel: str, by: str = "", **defines: int) -> int:
    report, code = Source(CU / file, kernel, defines, (), False, PROGRAM).compile("sm_90a")
    (built,) = report.kernels
    assert built.code
    assert built.compiler.lower().startswith(by)
    assert code.symbol_mapping.get(kernel, kernel.encode()).decode() == built.kernel
    return built.registers


@needs_nvrtc
@pytest.mark.parametrize(
    ("file", "kernel"),
    [
        ("program.cu", "::softened"),
        ("instances.cuh", "outer::inner::scale<float, 2>"),
        ("instances.cuh", "::hidden"),
        ("instances.cuh", "plain"),
    ],
)
def test_a_program_compiles_as_it_is(file: str, kernel: str, compiler: str) -> None:
    assert registers(file, kernel, f"{compiler} 1") > 0


@needs_nvrtc
@pytest.mark.parametrize(
    ("file", "kernel"),
    [("summed.cu", "::summed"), ("halves.cu", "::widened"), ("of_torch.cu", "twice<half>")],
)
def test_headers_of_cuda_are_found(file: str, kernel: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(nvcc, "find_nvcc", lambda: "")
    assert registers(file, kernel, "nvrtc 1") > 0


@needs_nvrtc
@pytest.mark.parametrize("variable", ["CPATH", "CPLUS_INCLUDE_PATH"])
def test_a_missing_header_is_named_with_the_way_out(
    variable: str, compiler: str, monkeypatch: Patch
) -> None:
    with pytest.raises(CompileError) as told:
        registers("needs_header.cu", "::tiled")
    assert 'needs_header.cu(3): error: name followed by "::" must be a class' in told.value.message
    assert told.value.message.endswith("not found: <elsewhere/tiles.h>")
    assert "CPATH=FOLDER" in told.value.hint
    monkeypatch.setenv(variable, str(CU / "include"))
    assert registers("needs_header.cu", "::tiled") > 0


@needs_nvrtc
def test_an_error_of_device_code_is_at_its_own_line(tmp_path: Path, compiler: str) -> None:
    file = tmp_path / "kernels" / "mine" / "wrong.cu"
    file.parent.mkdir(parents=True)
    file.write_text("#include <vector>\nint main() {}\n__global__ void k(float* x) { x[0] = y; }\n")
    with pytest.raises(CompileError) as told:
        Source(file, "::k", {}, (), False, PROGRAM).compile("sm_90a")
    assert '/kernels/mine/wrong.cu(3): error: identifier "y" is undefined' in told.value.message


def compiled_by(found: KernelBuild) -> str:
    """What gate and table print of a build."""
    names = ("kernel", "registers", "compiler")
    built = BuiltKernel(source="one.cu", **{name: getattr(found, name) for name in names})
    row = SimpleNamespace(error="", warnings=(), kernels=(built,))
    assert source_of(built) in f"one.cu by {built.compiler}"
    return sentence(compiler_gate(cast(Any, row), Gates()).why)


@needs_nvcc
def test_nvcc_is_asked_for_by_name(tmp_path: Path) -> None:
    file = tmp_path / "one.cu"
    file.write_text('extern "C" __global__ void one(float* x) { x[0] = VALUE; }\n')
    source = Source(file, "one", {"VALUE": 3}, (), False, NVCC)
    report, code = source.compile("sm_90a")
    (built,) = report.kernels
    assert (built.kernel, built.compiler) == ("one", nvcc.nvcc_version(nvcc.find_nvcc()))
    assert re.fullmatch(r"nvcc \d+\.\d+\.\d+", built.compiler)
    assert f"by {built.compiler}" in compiled_by(built)
    assert str(tmp_path).encode() not in bytes(code.code)
    with pytest.raises(CompileError, match='error: identifier "VALUE" is undefined'):
        Source(file, "one", {}, (), False, NVCC).compile("sm_90a")


@needs_nvrtc
def test_nvcc_that_does_not_work_is_replaced_or_quoted(tmp_path: Path, monkeypatch: Patch) -> None:
    broken = tmp_path / "nvcc"
    broken.write_text(
        "#!/bin/sh\necho \"nvcc fatal   : Unsupported gpu architecture 'sm_90a'\"\nexit 1\n"
    )
    broken.chmod(0o755)
    monkeypatch.setattr(nvcc, "find_nvcc", lambda: str(broken))
    assert registers("instances.cuh", "::outer::add") > 0, "NVRTC compiles it"
    with pytest.raises(CompileError, match="nvcc fatal   : Unsupported gpu architecture"):
        Source(CU / "instances.cuh", "::outer::add", {}, (), False, NVCC).compile("sm_90a")
    monkeypatch.setattr(nvcc, "find_nvcc", lambda: "")
    with pytest.raises(EnvironmentLacks, match="nvcc with a host compiler was not found"):
        Source(CU / "instances.cuh", "::outer::add", {}, (), False, NVCC).compile("sm_90a")


def test_nvcc_without_a_host_compiler_is_none(tmp_path: Path, monkeypatch: Patch) -> None:
    alone = tmp_path / "nvcc"
    alone.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("NVCC_CCBIN", raising=False)
    assert shutil.which("nvcc") == str(alone)
    assert nvcc.find_nvcc.__wrapped__() == ""
    (tmp_path / "g++").touch(mode=0o755)
    assert nvcc.find_nvcc.__wrapped__() == str(alone)


def test_builds_of_studies_keep_their_keys(tmp_path: Path, monkeypatch: Patch) -> None:
    """A compiler counts where it is not NVRTC alone."""
    file = tmp_path / "one.cu"
    file.write_text("")
    before, program = Source(file, "one", {}, ()), Source(file, "one", {}, (), False, PROGRAM)
    assert before._toolchain == ()
    assert program._toolchain[0] == PROGRAM
    monkeypatch.setenv("WORKBENCH_CUBINS", str(tmp_path))
    assert kept_cubin("", *before._toolchain) != kept_cubin("", *program._toolchain)


def test_only_a_known_compiler_can_be_declared() -> None:
    with pytest.raises(UsageError, match="there is no compiler 'gcc'"):
        cuda.kernel("one.cu", "one", compiler="gcc")
    with pytest.raises(UsageError, match="NVRTC alone is asked whether a kernel waits"):
        cuda.kernel("one.cu", "one", compiler=NVCC, early_start=True)


# Host code.


def test_host_code_is_told_from_device_code() -> None:
    text = (CU / "program.cu").read_text()
    host = [item.head.partition("(")[0].split()[-1] for item in items(text) if is_host(item, text)]
    assert host == ["check", "main", "PYBIND11_MODULE"]
    left = without_host_code(text)
    assert len(left.splitlines()) == len(text.splitlines())
    assert "softened(const float" in left
    assert "cudaMalloc" not in left
    assert "#define CHECK" in left


def test_entries_have_namespaces_templates_and_linkage() -> None:
    found = entries((CU / "instances.cuh").read_text())
    assert list(found) == ["outer::inner::scale", "outer::add", "hidden", "plain"]
    assert found["outer::inner::scale"].template == "typename T, int N = (3 > 2)"
    assert found["outer::inner::scale"].parameters == "const T *x, T *out, uint n"
    assert [one.c_linkage for one in found.values()] == [False, False, False, True]
    (only,) = entries((CU / "program.cu").read_text()).values()
    assert (only.name, only.parameters) == ("softened", "const float *x, float *out, int n")


def test_a_macro_may_end_the_file() -> None:
    text = "CUB_NAMESPACE_BEGIN\nstruct S {};\n__global__ void k(int n) {}\n\nCUB_NAMESPACE_END\n"
    assert [*entries(text)] == ["k"]


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("constexpr int two() { return 2; }", 0),
        ("#define ON_GPU __device__ inline\nON_GPU int two() { return 2; }", 0),
        ("HOST_DEVICE int two() { return 2; }", 0),
        ("struct __align__(8) Pair { int two() { return 2; } } pairs[] = {{}};", 0),
        ("int numbers[] = {1, 2};\nauto two = [](int x) { return x; };", 0),
        ("template <int N = 3> int three(int a = 2) { return N; }", 1),
        ("bool operator==(const int& a, const P& b) { return a == b.a; }", 1),
        ("P::P() : a(1), b{2} { }", 1),
        ('const char* brace() { return R"x({")x"; }  // }', 1),
        ("int letter() { return '\\'' + '{' + 1'000; }", 1),
        ("void broken() { {", 0),
    ],
)
def test_functions_of_the_host_are_found_by_their_tokens(text: str, host: int) -> None:
    found = [item for item in items(text) if is_host(item, text)]
    assert len(found) == host
    for item in found:
        assert masked(without(text, [item])).strip() == ""


# What a launch names.


def problem(file: str, launch: str) -> Any:
    asked = Request(
        source=CU / file, inputs=("x=randn(64)", "n=64"), outputs=("out=empty_like(x)",),
        launch=launch, versus="torch.mul(x, 2)",
    )  # fmt: skip
    return cuda_file.read_cuda_file(asked)


@pytest.mark.parametrize(
    ("launch", "called"),
    [
        ("outer::inner::scale<float,2><<<1, 64>>>(x, out, n)", "outer::inner::scale<float,2>"),
        ("scale<float,2><<<1, 64>>>(x, out, n)", "outer::inner::scale<float,2>"),
        ("add<<<1, 64>>>(x)", "::outer::add"),
        ("plain<<<1, 64>>>(x)", "plain"),
    ],
)
def test_a_launch_names_a_kernel_with_its_namespace_or_without(launch: str, called: str) -> None:
    found = problem("instances.cuh", launch)
    assert f'cuda.kernel("instances.cuh", "{called}", compiler="program")' in found.baseline.text


def test_a_template_is_launched_as_an_instance() -> None:
    with pytest.raises(UsageError, match="is a template of typename T, int N") as told:
        problem("instances.cuh", "scale<<<1, 64>>>(x, out, n)")
    assert "'outer::inner::scale<...><<<grid, block>>>(...)'" in told.value.hint


def test_kernels_of_local_headers_are_found() -> None:
    assert "lanes.cuh" in problem("program.cu", "softened<<<1, 64>>>(x, out, n)").files
    with pytest.raises(UsageError, match=r"unknown kernel of program\.cu 'soft'"):
        problem("program.cu", "soft<<<1, 64>>>(x, out, n)")


def test_one_of_several_kernels_of_a_name_is_named_by_its_parameters(
    compiler: str, tmp_path: Path
) -> None:
    file = tmp_path / "over.cu"
    file.write_text(
        "__global__ void over(double* x);\n__global__ void over(float* x) { x[0] = 1; }\n"
        "__global__ void over(int* x) { x[threadIdx.x] = 1 / x[1]; }\n"
    )
    built = {}
    for kind in ("float", "int"):
        source = Source(file, f"(void (*)({kind}* x))&::over", {}, (), False, PROGRAM)
        (kernel,) = source.compile("sm_90a")[0].kernels
        built[kind] = kernel.kernel
    assert built == {"float": "_Z4overPf", "int": "_Z4overPi"}
