"""``workbench ship``: what is refused, and what a package carries."""

from __future__ import annotations

import contextlib
import json
import pkgutil
import re
import shutil
import struct
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from benchmarks.shipped import page
from msgspec import structs

from answers import Capsys, Patch, error_of, not_none, python
from cli.test_mistakes import FILES
from shipped_packages import handmade, loaded, ops_of, passes_opcheck, quiet
from workbench.app import try_
from workbench.app.ratios import needed_by, reference_of
from workbench.app.try_ import UNCALLED
from workbench.cli import ship
from workbench.cli.main import main
from workbench.cli.ship import sources_of, unit
from workbench.cuda.compiler import find_nvcc
from workbench.derive.speedup import ratio_of, session_times, time_of
from workbench.errors import GateFailed, UsageError
from workbench.evidence import store
from workbench.evidence.records import Shipped, ShippedTime, Timing
from workbench.judge.rows import Row
from workbench.problems.flashinfer_bench import Solution
from workbench.problems.problem import Request
from workbench.problems.python_function import read_python_function
from workbench.run.protocol import Packable, ShipJob, ShippedKernel
from workbench.run.worker.shipping import packed
from workbench.study.model import Step
from workbench.study.workspace import find_workspace, load_module
from workbench.words import HEADLINE, Status
from workspaces import FIXTURE, ROOT, contents, make, put_in, told_in

NAME, MODULE = "transpose-h200", "transpose_h200"
EVIDENCE = FIXTURE / "ablations" / "transpose" / "evidence" / "nvidia-h200"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The best transpose of this repository, shipped."""
    folder = tmp_path_factory.mktemp("shipped") / NAME
    words = ["--study", "transpose", "--as", NAME, "--to", str(folder)]
    project = ["--definition", "transpose", "--project", str(FIXTURE)]
    assert main(["ship", "chosen", *words, *project]) == 0
    return folder


def shipped(package: Path) -> Shipped:
    return store.read_record(package / "torch-ext" / MODULE / "provenance.json", Shipped)


# ---- the package -----------------------------------------------------------------------------
@pytest.mark.parametrize("text", ["project = 1", "[project]\nlicense = 1", "[", "\x00"])
def test_a_project_file_without_a_licence_costs_no_package(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert ship.licence_of(tmp_path) == ("", None)


@pytest.fixture(scope="module")
def built(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The package as it is imported, with operators that launch nothing."""
    name = "built_transpose"
    folder = tmp_path_factory.mktemp("built") / name
    shutil.copytree(package / "torch-ext" / MODULE, folder)
    (folder / "_ops.py").write_text(ops_of(name))
    return loaded(folder, name)


def test_without_a_gpu_the_reference_answers(built: Any) -> None:
    x = torch.randn(3, 5)
    with pytest.warns(UserWarning, match="the inputs are on cpu"):
        assert torch.equal(built.transpose(x), x.t())
    assert list(built.op.counts) == ["reference: the inputs are on cpu, and not on one GPU"]


def test_its_benchmark_calls_the_operator_and_its_reference(
    built: Any, package: Path, monkeypatch: Patch
) -> None:
    of_kernels = SimpleNamespace(Benchmark=type("Benchmark", (), {}))
    monkeypatch.setitem(sys.modules, "kernels.benchmark", of_kernels)
    monkeypatch.setattr(built.op, "strict", lambda always: None)
    study = built.op.study()
    smallest = min(study.shapes.values(), key=lambda shape: study.work(shape).bytes)
    monkeypatch.setattr(study, "shapes", dict.fromkeys(study.shapes, smallest))
    module = load_module(package / "benchmarks" / f"benchmark_{MODULE}.py", "a_benchmark")
    benchmark = module.TransposeBenchmark()
    benchmark.kernel, benchmark.device = built, "cpu"
    shape = next(name for name in dir(benchmark) if name.startswith("benchmark_"))[10:]
    with quiet():
        for what in ("setup", "benchmark"):
            getattr(benchmark, f"{what}_{shape}")()
    assert torch.equal(benchmark.out, getattr(benchmark, f"verify_{shape}")())


def kernels_of(module: Any) -> list[Any]:
    parts = vars(module.op.cuda.variant("chosen")).values()
    return [kernel for part in parts for kernel in getattr(part, "kernels", {}).values()]


def test_every_kernel_is_exported_under_the_symbol_that_its_python_asks_for(
    built: Any, package: Path
) -> None:
    texts = [path.read_text() for path in sorted((package / "cuda").glob("k*.cu"))]
    exported = {not_none(re.search(r"WORKBENCH_KERNEL\((\w+), ", text))[1] for text in texts}
    assert {kernel.symbol for kernel in kernels_of(built)} == exported
    assert len(texts) == 4
    assert all(f"#define transpose k{index:02}_transpose\n" in t for index, t in enumerate(texts))


@pytest.mark.parametrize("name", find_workspace(ROOT).studies())
def test_every_kernel_of_a_source_gets_a_name_of_its_own(name: str) -> None:
    """Or two units of one source do not link: also where macros stand before a kernel's name."""
    study = find_workspace(ROOT).study(name)
    for path in study.folder.glob("*.cu"):
        kernels = re.sub(r"//.*", "", path.read_text()).count("__global__")
        kernel = ShippedKernel(source=path.name, name="", defines={}, options=())
        assert unit(7, kernel, study).count("#define") == kernels, path


def test_a_launch_has_the_words_of_its_arguments(built: Any, monkeypatch: Patch) -> None:
    cuda, sent = built.op.cuda, []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 9, raising=False)
    x = torch.ones(2)
    kernel = cuda.kernel("k.cu", "k", defines={"N": True}, cooperative=True)
    kernel._loaded = struct.Struct("=qqf4xd").pack, 5, lambda *words: sent.append(words)
    kernel[(4, 2), 128, 64](x, True, 1.5, 2)
    of_engine = ShippedKernel(source="k.cu", name="k", defines={"N": "1"}, options=())
    assert kernel.symbol == of_engine.symbol
    ((pointer, device, stream, where, words),) = sent
    assert (pointer, device, stream) == (5, 1, 9)
    assert struct.unpack("=10i", where) == (4, 2, 1, 128, 1, 1, 64, 0, 1, -1)
    assert struct.unpack("=qqf4xd", words) == (x.data_ptr(), 1, 1.5, 2.0)
    with pytest.raises(struct.error):
        kernel[1, 128](x, 1.5, 1.5, 2)


@pytest.mark.slow
@pytest.mark.skipif(not find_nvcc(), reason="nvcc is not installed")
def test_nvcc_builds_it_at_its_first_import(package: Path, tmp_path: Path) -> None:
    """The library finds every kernel and its parameters; without a GPU the launch says so."""
    build = tmp_path / "torch-cuda"
    shutil.copytree(package / "build" / "torch-cuda", build)
    module = loaded(build, json.loads((build / "metadata.json").read_text())["id"])
    assert len(list(build.glob("*.so"))) == 1
    cuda, kernels = module.op.cuda, kernels_of(module)
    assert kernels
    for kernel in kernels:
        pack, _, _ = kernel._loaded
        assert len(pack(1, 2, 3, 4)) == 32
    if not torch.cuda.is_available():
        pack, pointer, launch = kernels[0]._loaded
        assert b"CUDA" in launch(pointer, 0, 0, cuda._packed((1, 32), (0, 0, -1)), pack(1, 2, 3, 4))
    with pytest.raises(ValueError, match="undefined symbol"):
        _ = cuda.kernel("another.cu", "k")._loaded


def test_where_it_comes_from(package: Path) -> None:
    told = shipped(package)
    assert (told.variant, told.verdict) == ("chosen", "kept")
    sources = {path.name for path in (package / "cuda" / "src").iterdir()}
    assert sources == {"vectorised.cu", "padded.cu", "element.cuh"}
    assert told.environment.gpu == "NVIDIA H200"
    default = find_workspace(FIXTURE).study("transpose").default_shape
    at = next(time for time in told.times if time.shape == default)
    assert at.reference == "eager"
    assert not_none(at.low) < not_none(at.ratio)


def test_the_timings_that_it_names_give_its_figures(package: Path) -> None:
    for time in shipped(package).times:
        timing = store.read_record(EVIDENCE / time.file, Timing)
        times = session_times(timing.together, timing.wrong)
        mine, its = (times.get((name, HEADLINE, False), {}) for name in ("chosen", "eager"))
        again = not_none(time_of(mine, HEADLINE))
        assert (time.microseconds, time.sessions) == (again.value, again.sessions)
        ratio = ratio_of(its, mine, timing.first_planned) if its else None
        ends = (ratio.ratio, ratio.low, ratio.high) if ratio else (None, None, None)
        assert (time.ratio, time.low, time.high) == ends
        if time.shape == "8192x8192":
            followed = not_none(ratio_of(its, mine, planned=2))
            assert (time.level, followed.level) == (95, 99)
            assert not_none(followed.low) < not_none(time.low)


def test_the_card_tells_what_it_supports_and_what_was_measured(package: Path) -> None:
    text = (package / "CARD.md").read_text()
    told = shipped(package)
    time = next(time for time in told.times if time.shape == "8192x8192")
    assert f"| 8192x8192 | {round(time.microseconds, 2)} | {time.ratio:.3g}x [" in text
    assert "PyTorch, x.t().contiguous() answers all other calls" in text
    assert "**kept**, judged at 8192x8192, measured on NVIDIA H200" in text
    assert text.startswith("---\nlibrary_name: kernels\nlicense: apache-2.0\n---\n")


def test_kernel_builder_and_kernels_are_told_what_it_is(package: Path) -> None:
    assert (package / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    build = tomllib.loads((package / "build.toml").read_text())
    general = {"name": NAME, "version": 1, "edition": 5, "license": "Apache-2.0"}
    assert build["general"] == general | {"backends": ["cuda"]}
    assert build["kernel"]["kernels"]["cuda-capabilities"] == ["9.0a"]
    assert all((package / source).is_file() for source in build["kernel"]["kernels"]["src"])
    metadata = json.loads((package / "torch-ext" / MODULE / "metadata.json").read_text())
    assert metadata["backend"] == {"type": "cuda", "archs": ["9.0"]}
    assert metadata["id"].startswith(f"_{MODULE}_cuda_")


def test_triton_alone_is_python_only_and_built(
    tmp_path: Path, trials_here: None, monkeypatch: Patch
) -> None:
    folder = tmp_path / "softmax"
    arguments = ["--study", "softmax", "--as", "softmax", "--definition", "rows"]
    assert main(["ship", "fused", *arguments, "--to", str(folder), "--project", str(ROOT)]) == 0
    assert "torch-noarch" in tomllib.loads((folder / "build.toml").read_text())
    assert not (folder / "cuda").exists()
    build = folder / "build" / "torch-cuda"
    module = loaded(build, json.loads((build / "metadata.json").read_text())["id"])
    x = torch.randn(3, 5)
    with quiet():
        assert torch.equal(module.softmax(x), x.softmax(-1))
        passes_opcheck(module.op, x)
        layers = in_frameworks(folder, module, monkeypatch)
        assert all(torch.equal(layer(x), x.softmax(-1)) for layer in layers)
    solution = msgspec.json.decode((folder / "solution.json").read_bytes(), type=Solution)
    assert (solution.name, solution.definition) == ("softmax", "rows")
    assert solution.spec.language == "triton"
    files = (p.relative_to(build) for p in build.rglob("*.*") if p.suffix != ".pyc")
    told = {"main.py", *(f"softmax/{path}" for path in files if (build / path).is_file())}
    assert {source.path for source in solution.sources} == told - {"softmax/provenance.json"}


def in_frameworks(folder: Path, package: Any, monkeypatch: Patch) -> list[Any]:
    """Layers in which the integrations put the operator: registered as by vLLM, and patched."""

    class Layer(torch.nn.Module):
        other: type

        @classmethod
        def register_oot(cls, other: type) -> None:
            cls.other = other

    class Patched(torch.nn.Module):
        pass

    layers = SimpleNamespace(Layer=Layer, Patched=Patched)
    kernels = SimpleNamespace(get_local_kernel=lambda path: package)
    monkeypatch.setitem(sys.modules, "kernels", kernels)
    monkeypatch.setitem(sys.modules, "layers_of_a_model", layers)
    monkeypatch.setenv("SOFTMAX_LAYER", "layers_of_a_model:Layer")
    project = tomllib.loads((folder / "integrations" / "pyproject.toml").read_text())["project"]
    (entry,) = project["entry-points"]["vllm.general_plugins"].values()
    path = folder / "integrations" / "softmax_integrations.py"
    integrations = load_module(path, "softmax_integrations")
    pkgutil.resolve_name(entry)()
    assert issubclass(Layer.other, Layer)
    integrations.patch("layers_of_a_model:Patched")
    return [Layer.other(), Patched()]


def test_the_solution_is_one_of_flashinfer_bench(package: Path) -> None:
    text = (package / "solution.json").read_text()
    mine = msgspec.json.decode(text, type=Solution)
    assert (mine.spec.entry_point, mine.spec.binding) == ("main.py::run", "tvm-ffi")
    sources = {source.path: source.content for source in mine.sources}
    assert all(sources.values())
    assert f"{MODULE}/cuda/launch.h" in sources
    assert "TVM_FFI_DLL_EXPORT_TYPED_FUNC(launch" in sources[f"{MODULE}/cuda/binding.cu"]
    assert '_ARCH_LIST"] = "9.0a"' in sources[f"{MODULE}/_ops.py"]
    assert f"from .{MODULE} import op" in sources["main.py"]


def test_flashinfer_bench_reads_the_solution(package: Path) -> None:
    data = pytest.importorskip("flashinfer_bench.data")
    solution = data.Solution.model_validate_json((package / "solution.json").read_text())
    assert solution.get_entry_symbol() == "run"


def test_no_path_of_this_machine_travels(package: Path) -> None:
    for path, data in contents(package).items():
        assert str(ROOT).encode() not in data, path
        assert str(Path.home()).encode() + b"/" not in data, path


# ---- what is refused -------------------------------------------------------------------------
@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A copy of the repository's transpose, to be changed."""
    root = tmp_path / "workspace"
    for name in ("kernels", "ablations"):
        shutil.copytree(ROOT / name / "transpose", root / name / "transpose")
    (root / "workbench.toml").write_text('study = "transpose"\n')
    return root


def refused(capsys: Capsys, root: Path, *arguments: str, to: str = "out", code: int = 2) -> str:
    """And nothing is written."""
    given = arguments or ("chosen", "--as", NAME)
    before = contents(root.parent)
    told = error_of(capsys, "ship", *given, "--to", root.parent / to, project=root, code=code)
    assert contents(root.parent) == before
    return told


@pytest.mark.parametrize(
    ("variant", "said"),
    [
        ("baseline", "'baseline' is not kept (baseline)"),
        ("eager", "'eager' is not kept (not judged)"),
        ("tma", "'tma' is not kept (slower): faster: "),
    ],
)
def test_what_is_not_kept(variant: str, said: str, workspace: Path, capsys: Capsys) -> None:
    told = refused(capsys, workspace, variant, "--as", NAME, code=1)
    assert told.startswith(f"error: {said}")
    assert "hint: " in told


def other_header(root: Path) -> None:
    with (root / "kernels" / "transpose" / "element.cuh").open("a") as header:
        header.write("// another\n")


def other_check(root: Path) -> None:
    """At a shape that does not judge."""
    for path in root.glob("ablations/transpose/evidence/*/variants/chosen.json"):
        checks = told_in(path)
        checks["checks"]["odd-fp16"]["fingerprint"] = "0" * 64
        put_in(path, checks)


@pytest.mark.parametrize(
    ("change", "said"), [(other_header, "'chosen' is stale: "), (other_check, "check at odd-fp16")]
)
def test_what_is_stale(workspace: Path, capsys: Capsys, change: Any, said: str) -> None:
    change(workspace)
    told = refused(capsys, workspace, code=1)
    assert told.startswith("error: the evidence of ")
    assert said in told
    assert "of other sources than there are now" in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--as", NAME), "Missing argument 'VARIANT'"),
        (("chosen",), "Missing option '--as'"),
        (("chosen", "--as", "No Name"), "'No Name' is no name for a package"),
        (("nothing", "--as", NAME), "unknown variant 'nothing'"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], said: str, workspace: Path, capsys: Capsys) -> None:
    assert said in refused(capsys, workspace, *arguments)


def test_nothing_is_overwritten(workspace: Path, capsys: Capsys) -> None:
    (workspace.parent / "mine.txt").write_text("mine")
    told = refused(capsys, workspace, to=".")
    assert "is there already, and is no empty folder" in told


def test_more_of_the_workbench_than_travels(workspace: Path) -> None:
    study = find_workspace(workspace).study("transpose")
    path = workspace / "kernels" / "transpose" / "tma.py"
    for text in (
        "import workbench",
        "from workbench import Shape, study",
        "from workbench.errors import UsageError",
        "from workbench.problems import given\ngiven.Layer",
    ):
        path.write_text(f"{text}\n")
        with pytest.raises(UsageError, match=rf"tma.py has '{text.splitlines()[-1]}', and that"):
            sources_of(study, ["tma"])
    path.write_text(
        "from workbench.cuda import tensor_map\nfrom workbench import Shape, cuda\n"
        "from workbench.problems import given\ngiven.File\n"
    )
    moved = (
        "from ..cuda import tensor_map\nfrom ..cuda import Shape, cuda\n"
        "from ..cuda import given\ngiven.File\n"
    )
    assert sources_of(study, ["tma"])[0]["tma.py"] == moved


def test_what_it_needs_beside_torch() -> None:
    text = "import os\nimport torch\nimport triton\nimport einops\nfrom cutlass import cute\n"
    needed = needed_by([text, "import triton.language as tl\n"])
    assert needed == ["nvidia-cutlass-dsl", "einops", "triton"]


# ---- a file that was tried -------------------------------------------------------------------
def test_a_kept_file_answers_without_the_workbench(tmp_path: Path, monkeypatch: Patch) -> None:
    shutil.copytree(FILES / "tried", tmp_path, dirs_exist_ok=True)
    request = Request(source=tmp_path / "soft.py", versus="torch.softmax", name="mine")
    problem = read_python_function(request)
    try_.write(problem, tmp_path / "ws", structs.replace(UNCALLED, bytes={"rows=8": 256.0}))
    study = find_workspace(tmp_path / "ws").study(problem.name)
    reference = not_none(reference_of(study))
    python, _ = sources_of(study, ["study", "baseline", reference.name])
    assert not any("workbench.problems" in text for text in python.values())
    op = handmade(
        tmp_path, monkeypatch, run=python["baseline.py"], reference=python[f"{reference.name}.py"],
        study=python["study.py"], calls=[{"x": torch.ones(8, 4)}], files=python,
    )  # fmt: skip
    (made,) = op.study().inputs(op.study().shapes["given"], torch.Generator()).values()
    op.strict(True)
    torch.testing.assert_close(op.run(made), made.softmax(-1))
    assert torch.equal(op.reference(x=made)[0], made.softmax(-1))
    assert op.study().reference(x=made).dtype == torch.float64


@pytest.mark.parametrize(("low", "is_kept"), [(1.2, True), (0.9, False), (None, False)])
def test_a_kept_file_is_faster_than_its_reference(low: float | None, is_kept: bool) -> None:
    step = Step("baseline", key_change="as given: soft.py:softmax")
    row = Row("baseline", "", step, {}, Status.CURRENT)
    time = ShippedTime(
        shape="given", microseconds=1.0, sessions=5, file="", reference="torch_softmax",
        ratio=1.3, low=low, high=1.4,
    )  # fmt: skip
    evidence: Any = SimpleNamespace(check_states={})
    if is_kept:
        gates = ship.require_kept(row, evidence, [time])
        assert gates == {"faster": "1.3x of torch_softmax at given"}
    else:
        with pytest.raises(GateFailed, match="'baseline' is not kept"):
            ship.require_kept(row, evidence, [time])


# ---- other kinds of studies ------------------------------------------------------------------
SEVERAL = (FILES / "shipped" / "several.py").read_text()  # outputs of a study
CHANGES = "def run(x, y, scale, mode):\n    return x.sum(0), x.argmax(1)\n"


def test_several_outputs_words_and_strides(tmp_path: Path) -> None:
    found = learned(tmp_path, SEVERAL, CHANGES)
    kinds = {"x": "Tensor", "y": "Tensor", "scale": "float", "mode": "str"}
    assert dict(found.arguments) == kinds
    assert (found.outputs, found.strided, found.kernels) == (2, ("x",), ())
    large, odd = found.calls
    assert large == {
        "x.dtype": "float32", "x.shape[0]": 4, "x.shape[1]": 64,
        "y.dtype": "float32", "y.shape[0]": 4, "scale": 2.0, "mode": "sum",
    }  # fmt: skip
    assert odd == large | {"x.shape[1]": 33}


def test_inputs_whose_sizes_depend_on_values_are_drawn_without_them(tmp_path: Path) -> None:
    old = '    return {"x": draw(shape.n, 4).t(), '
    new = (
        "    many = torch.full((4,), shape.n // 4)\n"
        "    rows = torch.arange(4).repeat_interleave(many).view(4, shape.n // 4)\n"
        '    return {"rows": rows, "x": draw(shape.n, 4).t(), '
    )
    text = SEVERAL.replace(old, new).replace("reference(x,", "reference(rows, x,")
    text = text.replace("n=64", "n=1 << 40").replace("n=33", "n=36")  # too large for any memory
    found = learned(tmp_path, text, CHANGES)
    assert [found.calls[0][f"{name}.dtype"] for name in ("rows", "x")] == ["int64", "float32"]
    assert [call["rows.shape[1]"] for call in found.calls] == [1 << 38, 9]


def test_inputs_that_need_values_are_refused(tmp_path: Path) -> None:
    old = '    return {"x": draw(shape.n, 4).t(), '
    new = f"    count = torch.arange(4).sum().item()\n    assert count == 6\n{old}"
    with pytest.raises(UsageError, match="'large' cannot be had without values: Guard") as failed:
        learned(tmp_path, SEVERAL.replace(old, new), CHANGES)
    assert "on the generator's device" in failed.value.hint


def test_kernels_with_different_options_are_refused(tmp_path: Path) -> None:
    kernels = [f"cuda.kernel('k.cu', 'k', options=({option},))\n" for option in ("'-v'", "'-O1'")]
    told = f"from workbench import cuda\n{CHANGES}"
    assert len(learned(tmp_path / "same", SEVERAL, told + kernels[0] * 2).kernels) == 1
    with pytest.raises(UsageError, match="its kernels are compiled with different options"):
        learned(tmp_path / "two", SEVERAL, told + "".join(kernels))


def learned(root: Path, study: str, run: str) -> Packable:
    """As the worker has it, in this process."""
    make(root / "ws", {}, {"baseline": run, "fast": run})
    (root / "ws/kernels/scale/study.py").write_text(study)
    (root / "ws/kernels/scale/k.cu").write_text('extern "C" __global__ void k() {}\n')
    with contextlib.chdir(root / "ws"):
        return packed(
            ShipJob(
                study="scale",
                variant="fast",
                modules={"study": ("study", {}), "variant": ("fast", {})},
                checked=("large", "odd"),
                has_kernels="cuda.kernel" in run,
            )
        )


@pytest.mark.parametrize("shape", ["large", "odd"])
def test_what_is_returned_is_told_without_values_at_every_shape(tmp_path: Path, shape: str) -> None:
    """The package's fake implementation has no others, at whatever shape it is compiled."""
    reads = "x.sum() != 0" if shape == "large" else "x.shape[1] == 64 or x.sum() != 0"
    old = "    x, y = x.double()"
    asked = SEVERAL.replace(old, f"    assert {reads}\n{old}")
    with pytest.raises(UsageError, match=f"the result at '{shape}' cannot be had") as raised:
        learned(tmp_path, asked, CHANGES)
    assert "outputs(**inputs)" in (raised.value.hint or "")
    told = (
        "\n\ndef outputs(x, y, scale, mode):\n"
        '    return {"sum": x.new_empty(x.shape[1]), "most": x.new_empty(x.shape[0]).long()}\n'
    )
    assert learned(tmp_path / "told", asked + told, CHANGES).outputs == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"scale": 2.0', '"scale": [2.0]', "the input 'scale' is a list"),
        ("draw(4), ", "draw(4).requires_grad_(), ", "the input 'y' is a Tensor: an operator takes"),
        ("x.argmax(1)", "[x.argmax(1)]", "tensors that are not nested"),
        ("default_shape", 'in_place = ("y",)\ndefault_shape', "it changes its inputs"),
    ],
)
def test_what_an_operator_cannot_be(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        learned(tmp_path, SEVERAL.replace(old, new), CHANGES)


def test_the_page_has_what_the_packages_measured() -> None:
    two = {"package": 34.72, "reference": 129.4}
    package = {
        "name": "a kept file of `try`", "language": "Triton", "shape": "given",
        "sizes": "4096x8192", "checked": 1, "graph_us": two, "host_us": two,
        "benchmark": {"given": 1.28},
    }  # fmt: skip
    text = page((ROOT / "docs" / "ship.md").read_text(), [package])
    figures = "34.7 | 129 | 34.7 | 129 | 1.28x"
    assert f"| a kept file of `try` (Triton) | 4096x8192 | 1 | {figures} |" in text
    assert "| attention `fix30` (CUDA) |" not in text


# ---- on a GPU --------------------------------------------------------------------------------
BEST = {
    "transpose": "chosen", "attention": "fix30", "softmax": "fused",
    "attention_served": "chosen", "moe": "fix26",
}  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("study", BEST)
def test_on_a_gpu_its_tests_pass_where_there_is_no_workbench(study: str, tmp_path: Path) -> None:
    """Needs nvcc, and the package `kernels`."""
    folder = tmp_path / f"{study.replace('_', '-')}-here"
    arguments = ["--study", study, "--as", folder.name, "--to", str(folder)]
    assert main(["ship", BEST[study], *arguments, "--project", str(ROOT)]) == 0
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
