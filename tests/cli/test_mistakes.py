"""What a newcomer does wrong ends in an error with a hint, which names the line that is theirs."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from tools.folders import unpacked
from torch.utils import cpp_extension

from answers import Patch
from workbench.errors import UsageError
from workbench.run.protocol import ErrorText, TrialJob, VariantsJob
from workbench.run.worker import lines
from workbench.run.worker.event_log import EventLog, describe
from workbench.run.worker.job_worker import JobWorker
from workbench.run.worker.lines import lines_of_users, marked
from workbench.run.worker.loader import Opened
from workbench.run.worker.trial_worker import TrialRun
from workbench.study.front_ends import FRONT_ENDS, front_ends_of, package_of, require_configuration
from workbench.study.workspace import load_module

FILES = unpacked(Path(__file__).with_name("files.txtar"))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    folder = tmp_path / "kernels" / "scale"
    folder.mkdir(parents=True)
    return folder


def told(folder: Path, text: str) -> ErrorText:
    """What is said of a module that fails when it is imported or called."""
    path = folder / "fix1.py"
    path.write_text(textwrap.dedent(text))
    try:
        load_module(path, "workbench_variant_of_a_test").run(3)
    except Exception as error:
        return describe(error)
    raise AssertionError("it does not fail")


@pytest.mark.parametrize(
    ("module", "package"),
    [("helion", "helion"), ("cutlass.cute", "nvidia-cutlass-dsl"), ("warp", "warp-lang")],
)
def test_a_missing_package_is_named_as_pip_calls_it(
    study: Path, module: str, package: str, monkeypatch: Patch
) -> None:
    monkeypatch.setitem(sys.modules, module.partition(".")[0], None)
    error = told(study, f"import os\nimport {module}\n")
    assert "which is not installed (fix1.py:2)" in error.message
    assert error.hint == f"pip install {package}"


# ---- Triton, by stand-ins of its own classes ---------------------------------------------------
@pytest.fixture
def triton(study: Path, monkeypatch: Patch) -> Iterator[Path]:
    """A package that raises what Triton 3 does, from files of its own."""
    folder = study.parents[1] / "triton"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "errors.py").write_text(
        textwrap.dedent("""
        class CompilationError(Exception):
            def __init__(self, src, node, error_message=None):
                self.src, self.node, self.error_message = src, node, error_message
                super().__init__("at 3:8:\\ndef scale(x):\\n        ^\\n" + str(error_message))
        CompilationError.__module__ = "triton.compiler.errors"
        """)
    )
    monkeypatch.syspath_prepend(str(study.parents[1]))
    for name in imported():
        monkeypatch.delitem(sys.modules, name)
    yield folder
    for name in imported():
        del sys.modules[name]


def imported() -> list[str]:
    """Triton's modules, or those of what stands for it."""
    return [name for name in sys.modules if name == "triton" or name.startswith("triton.")]


def test_a_triton_error_names_the_users_line_and_not_the_launch(study: Path, triton: Path) -> None:
    why = "module 'triton.language' has no attribute 'nothing'"
    error = told(
        study,
        f"""
        import ast
        from triton.errors import CompilationError

        def scale(x):
            y = x + 1
            return tl.nothing(y)

        def run(x):
            import inspect
            source = inspect.getsource(scale)
            raise CompilationError(source, ast.parse(source).body[0].body[1], "{why}")
        """,
    )
    assert error.message == f"Triton cannot compile `return tl.nothing(y)` (fix1.py:7): {why}"
    assert error.hint.startswith("fix fix1.py:7; it is launched at fix1.py:12")
    assert "\n" not in error.message


AT = "at 2:4:\\ndef scale(a, b):\\n    a @ b\\n    ^"  # as Triton 3.6 quotes the line


@pytest.mark.parametrize(
    ("raised", "why"),
    [
        (f"CompilationError(\"{AT}\\nTypeError('no b')\") from None", "TypeError('no b')"),
        (f'CompilationError("{AT}") from error', "AssertionError: assert a.dtype == b.dtype"),
        (f'CompilationError("{AT}") from ValueError("too\\nlarge")', "ValueError: too"),
        (f'CompilationError("{AT}")', "AssertionError: assert a.dtype == b.dtype"),
        (f'CompilationError("{AT}\\n")', "it gives no reason"),
        ('CompilationError(" <source unavailable>")', "<source unavailable>"),
    ],
)
def test_the_reason_of_a_triton_error_is_no_caret(raised: str, why: str, study: Path) -> None:
    is_alone = why == "it gives no reason"
    error = told(
        study,
        f"""
        import torch

        class CompilationError(Exception):
            error_message = ""
        CompilationError.__module__ = "triton.compiler.errors"

        def dot(a, b):
            assert a.dtype == b.dtype

        def run(x):
            if {is_alone}:
                raise {raised}
            try:
                dot(torch.ones(1), torch.ones(1).half())
            except Exception as error:
                raise {raised}
        """,
    )
    assert error.message.startswith(f"Triton cannot compile it: {why} (fix1.py:")
    assert "^" not in error.message


def test_too_little_memory_is_told_in_a_line(study: Path) -> None:
    kind = "class OutOfMemoryError(RuntimeError):\n    pass\n"
    why = "CUDA out of memory. Tried to allocate 7.5 GiB"
    error = told(study, f'{kind}raise OutOfMemoryError("{why}. GPU 0 has ...")\n')
    assert error.message == f"{why} (fix1.py:3)"
    assert "fewer variants" in error.hint


# ---- nvcc --------------------------------------------------------------------------------------
def test_load_inline_without_nvcc_is_told(study: Path) -> None:
    why = "CUDA_HOME environment variable is not set. Please set it to your root."
    error = told(study, f'raise OSError("{why}")')
    assert error.message == "load_inline needs nvcc, which is not found (fix1.py:1)"
    assert "cuda.kernel" in error.hint
    ninja = told(study, 'raise RuntimeError("Ninja is required to load C++ extensions")')
    assert ninja.hint == "pip install ninja"


def test_cupys_functions_get_the_line_that_calls_them() -> None:
    told = describe(TypeError("Unsupported type <class 'torch.Tensor'>"))
    assert told.message == "CuPy takes no tensor of torch"
    assert "torch.from_dlpack(NAME(cupy.from_dlpack(x)))" in told.hint
    assert "cupy.cuda.ExternalStream" in told.hint


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ("/workbench/kernels/scale/fix1.py(9): error: identifier", "scale/fix1.py:9: identifier"),
        ("/tmp/workbench-a1_b2c3d/kernels/scale/k.cu(9): error: i", "scale/k.cu:9: i"),
        ("/tmp/workbench-a1_b2c3d/kernels/scale/k.cu:9:5: fatal error: i", "scale/k.cu:9: i"),
    ],
)
def test_an_error_of_nvcc_is_that_of_the_users_line(study: Path, said: str, place: str) -> None:
    error = told(
        study,
        f'''
        raise RuntimeError("""Error building extension 'x': [1/3] nvcc -c cuda.cu
        /usr/include/torch/x.h(12): error #1: nothing
        {said}
        1 error detected in the compilation of "cuda.cu".
        ninja: build stopped: subcommand failed.""")
        ''',
    )
    assert error.message == f"nvcc cannot compile /workbench/kernels/{place}"


def test_code_of_another_file_has_its_lines(study: Path) -> None:
    (study / "fix1.py").write_text('SOURCE = open("scale.cu").read()\n')
    (study / "scale.cu").write_text("// one\n__global__ void f() {\n}\n")
    text = marked((study / "scale.cu").read_text(), study / "fix1.py")
    assert text.startswith('#line 1 "/workbench/kernels/scale/scale.cu"\n// one\n')
    assert marked("int other;\n", study / "fix1.py") == "int other;\n"


def test_front_ends_are_prepared_before_a_module_imports_them(
    study: Path, monkeypatch: Patch
) -> None:
    """Also for a file that the module names, and loads itself."""
    heard: list[dict[str, Any]] = []
    numba = SimpleNamespace(jit=lambda *given, **named: heard.append(named))
    monkeypatch.setattr(lines, "import_module", lambda name: numba)
    (study / "theirs.py").write_text("from numba import cuda\n")
    (study / "fix1.py").write_text('SOURCE = "theirs.py"\n')
    lines.prepare(study / "fix1.py")
    jit = numba.jit
    lines.prepare(study / "fix1.py")
    assert numba.jit is jit
    numba.jit("void()")
    numba.jit("void()", debug=True)
    assert heard == [{"lineinfo": True}, {"debug": True}]


@pytest.mark.parametrize("kind", ["variants", "trial"])
def test_what_study_and_variant_both_build_is_built_alike(
    kind: str, study: Path, monkeypatch: Patch
) -> None:
    """Or every process would build it once for each."""
    built: list[str] = []
    monkeypatch.setattr(cpp_extension, "load_inline", lambda name, code, *rest: built.append(code))
    shutil.copytree(FILES / "extension", study, dirs_exist_ok=True)
    monkeypatch.chdir(study.parents[1])
    name, nothing = study.name, dict[str, Any]()
    if kind == "trial":
        TrialRun(TrialJob(study=name, shapes=(), baseline="theirs", called="it", references=(),
                       device="cpu")).load("theirs")  # fmt: skip
    else:
        with EventLog(study) as journal:
            job = VariantsJob(study=name, variants=("theirs",), params=nothing, phases=())
            JobWorker(job, journal).load_study()
        lines.prepare(study / "theirs.py")
        load_module(study / "theirs.py", "workbench_variant_of_a_test")
    assert len(built) == 2
    assert built[0] == built[1]
    assert f'#line 5 "/workbench/kernels/{name}/theirs.py"' in built[0]


def test_all_workers_load_an_extension_from_the_same_files(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """Beside the folder of its builds; and what is loaded so is still heard of as a source."""
    loaded: list[Any] = []

    def load(name: str, sources: Any, **named: Any) -> None:
        loaded.append((sources, named["extra_include_paths"]))

    monkeypatch.setattr(cpp_extension, "load", load)
    monkeypatch.setattr(cpp_extension, "load_inline", lambda name: None)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "kept" / "extensions"))
    folders = [tmp_path / name / "kernels" / "scale" for name in ("kept", "w", "w/timing")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "theirs.cu").touch()
        (folder / "fix1.py").write_text("from torch.utils.cpp_extension import load\n")
    elsewhere = str(tmp_path / "elsewhere.cu")
    for folder in folders[1:]:
        monkeypatch.chdir(folder.parents[1])
        lines.prepare(folder / "fix1.py")
        opened = Opened(folder.parent)
        source = str(folder / "theirs.cu")
        cpp_extension.load("it", source, extra_include_paths=[str(folder), "/usr/include"])
        with (
            pytest.raises(UsageError, match=r"opens theirs\.cu, which"),
            opened.require_covered(folder, []),
        ):
            cpp_extension.load("it", [source, elsewhere], extra_include_paths=None)
    own = str(folders[0] / "theirs.cu")
    assert loaded == [([own], [str(folders[0]), "/usr/include"]), ([own, elsewhere], None)] * 2


def test_cupys_classes_are_given_lines_and_all_else_as_it_was(
    study: Path, monkeypatch: Patch
) -> None:
    class Raw:
        def __init__(self, code: str, name: str, options: Any = (), backend: str = "nvrtc") -> None:
            self.told = (code, name, options, backend)

    class RawModule:
        def __init__(self, *, code: Any = None, path: Any = None, options: Any = ()) -> None:
            self.told = (code, path, options)

    cupy = SimpleNamespace(RawKernel=type("RawKernel", (Raw,), {}), RawModule=RawModule)
    monkeypatch.setattr(lines, "import_module", lambda name: cupy)
    path = study / "fix1.py"
    path.write_text(
        "import cupy\nCODE = '''\nint a;\nint b;\n'''\n"
        "def run(kernel, module):\n"
        "    return [kernel(CODE, 'f'), kernel(CODE, 'f', ('-DA',), 'nvcc'), module(code=CODE),\n"
        "            module(path='x.cubin')]\n"
    )
    lines.prepare(path)
    monkeypatch.setitem(sys.modules, "cupy", cast(ModuleType, cupy))
    run = load_module(path, "workbench_variant_of_a_test").run
    code = '\n#line 3 "/workbench/kernels/scale/fix1.py"\nint a;\nint b;\n'
    assert [one.told for one in run(cupy.RawKernel, cupy.RawModule)] == [
        (code, "f", ("-lineinfo",), "nvrtc"),
        (code, "f", ("-DA", "-lineinfo"), "nvcc"),
        (code, None, ("-lineinfo",)),
        (None, "x.cubin", ()),
    ]


LLVM = (FILES / "triton.ll").read_text()


def test_what_triton_inlines_of_its_library_belongs_to_the_users_line() -> None:
    """As Triton 3.6 writes it. The user's own helper keeps its line, and what is reached through
    no call of the user's stays.
    """
    before, after = LLVM.splitlines(), lines_of_users(LLVM).splitlines()
    assert len(before) == len(after)
    changed = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
    assert [other for _, other in changed] == [
        "!14 = !DILocation(line: 15, column: 17, scope: !19)",
        "!17 = !DILocation(line: 15, column: 17, scope: !19)",
        "!28 = !DILocation(line: 7, column: 26, scope: !19, inlinedAt: !30)",
    ]


def test_triton_is_asked_once_and_its_own_hook_is_kept(monkeypatch: Patch) -> None:
    heard: list[Any] = []
    runtime = SimpleNamespace(add_stages_inspection_hook=lambda *given: heard.append(given))
    monkeypatch.setattr(lines, "import_module", lambda name: SimpleNamespace(runtime=runtime))
    lines.prepare_triton()
    hook = runtime.add_stages_inspection_hook
    lines.prepare_triton()
    assert runtime.add_stages_inspection_hook is hook
    stages: dict[str, Any] = {"llir": lambda source, metadata: LLVM, "ptx": None}
    hook("backend", stages, "options", "language", 90)
    assert stages["llir"]("", {}) == lines_of_users(LLVM)
    assert len(heard) == 1


# ---- which front end ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import torch\n", ("torch",)),
        ("import torch\nf = torch.compile(g)\n", ("torch.compile",)),
        ("import torch\n\n@torch.compile\ndef f(x):\n    return x\n", ("torch.compile",)),
        ("import triton.language as tl\nimport torch\n", ("Triton",)),
        ("from torch.utils.cpp_extension import load_inline\n", ("nvcc",)),
        ("import torch\nfrom torch.utils import cpp_extension\n", ("nvcc",)),
        ("from numba import cuda\n", ("Numba",)),
        ("import cutlass.cute as cute\nimport cuda.bindings.driver as cuda\n", ("CuTe DSL",)),
        ("import cuda.tile as ct\n", ("cuTile",)),
        ("from workbench import cuda\n", ()),
        ("import math\nimport numpy\nimport torch\nfrom workbench import cuda\n", ("torch",)),
        ("import torch\nfrom flash_attn.cute import flash_attn_func\n", ()),
        ("import torch\nimport cupy\nimport triton\n", ("Triton", "CuPy")),
        ("def broken(:\n", ()),
    ],
)
def test_a_front_end_is_known_by_what_is_imported(
    text: str, found: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "fix1.py"
    path.write_text(text)
    assert front_ends_of([path]) == found


def test_every_front_end_names_its_package() -> None:
    for known in FRONT_ENDS:
        assert re.fullmatch(r"[a-z0-9-]+", known.package)
        assert all(package_of(module) == known.package for module in known.modules)
    assert package_of("einops.layers") == "einops"


@pytest.mark.parametrize(
    ("decorator", "line"),
    [
        ("@helion.kernel", 2),
        ("@helion.kernel()", 2),
        ("@helion.kernel(static_shapes=True)", 2),
        ("@helion.kernel(config=helion.Config(num_warps=4))", 0),
        ("@helion.kernel(**settings)", 0),
        ("@helion.kernel(autotune_effort='none')", 0),
        ("@helion.kernel(autotune_effort='quick')", 2),
        ("@triton.jit", 0),
    ],
)
def test_a_kernel_of_helion_has_a_configuration(decorator: str, line: int) -> None:
    text = f"import helion\n{decorator}\ndef f(x):\n    return x\n"
    with pytest.raises(UsageError, match=f"a.py:{line}: ") if line else nullcontext():
        require_configuration("a.py", text)
