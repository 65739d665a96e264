"""``workbench ship``: what is refused, and what a package carries."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch
from msgspec import structs

from answers import Capsys, Patch, error_of, not_none
from shipped_packages import alone, without_cubins
from standin import StandIn
from workbench import cuda
from workbench.app import packaging, ship, shipped_subject
from workbench.app.shipped_subject import other_code, timed
from workbench.cli.main import main
from workbench.cuda import cubin_folder
from workbench.cuda.cubin import code_digests
from workbench.cuda.launch import Kernel
from workbench.errors import EnvironmentLacks, UsageError
from workbench.evidence import store
from workbench.evidence.records import Shipped, ShippedCubin, Timing
from workbench.evidence.store import EvidenceFolder
from workbench.run.protocol import Packable, ShipJob
from workbench.run.worker.shipping import Shipping
from workbench.shipped import op
from workbench.study.workspace import find_workspace, load_module
from workspaces import FIXTURE, ROOT, make

NAME, MODULE = "transpose-h200", "transpose_h200"
EVIDENCE = FIXTURE / "ablations" / "transpose" / "evidence" / "nvidia-h200"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The best transpose of this repository, shipped."""
    folder = tmp_path_factory.mktemp("shipped") / NAME
    assert (
        main(["ship", "chosen", "--study", "transpose", "--as", NAME, "--to", str(folder),
              "--project", str(FIXTURE)]) == 0
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def installed(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its wheel, in a folder of its own."""
    site, dist = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("dist")
    python(package, "build", "--wheel", "--no-isolation", "--outdir", str(dist))
    (wheel,) = dist.glob("*.whl")
    python(package, "pip", "install", "-q", "--no-deps", "--no-index", "--no-compile",
           "--target", str(site), str(wheel))  # fmt: skip
    return site


def python(cwd: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def passes(package: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """The tests of a package where there is no workbench."""
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    done = alone(*command, path=[site], cwd=package)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def shipped(package: Path) -> Shipped:
    return shipped_at(package, MODULE)


def shipped_at(folder: Path, module: str) -> Shipped:
    return store.read_record(folder / "torch-ext" / module / "provenance.json", Shipped)


# ---- the package -----------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["project = 1", "[project]\nlicense = 1", "[", "\x00"])
def test_a_project_file_without_a_licence_costs_no_package(tmp_path: Path, text: str) -> None:
    for name in ("workbench.toml", "pyproject.toml"):
        (tmp_path / name).write_text(text if name[0] == "p" else "")
    assert shipped_subject.licence_of(find_workspace(tmp_path)) == ("", None)


@pytest.mark.slow
def test_installed_it_passes_its_tests_where_there_is_no_workbench(
    package: Path, installed: Path
) -> None:
    done = passes(package, installed)
    passed = not_none(re.search(r"(\d+) passed", done.stdout))
    assert int(passed[1]) >= 8


@pytest.mark.slow
def test_the_runtime_loads_with_torch_and_cuda_core_alone(installed: Path) -> None:
    code = f"""
import importlib, pathlib, sys
import {MODULE} as package
top = pathlib.Path(package.__file__).parent
for path in sorted(top.rglob("*.py")):
    name = ".".join([package.__name__, *path.relative_to(top).with_suffix("").parts])
    importlib.import_module(name.removesuffix(".__init__"))
run = importlib.import_module("{MODULE}.kernels.transpose.chosen").run
assert sys.modules["workbench"] is None
roots = {{name.partition(".")[0] for name in sys.modules}}
assert not roots & {{"msgspec", "typer", "pandas", "jinja2", "ncu_report", "zstandard"}}, roots
print(package.provenance()["variant"])
"""
    done = alone("-c", code, path=[installed])
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "chosen"


def test_the_runtime_is_the_engines_own_code(package: Path) -> None:
    cubin = package / "torch-ext" / MODULE / "_runtime"
    engine = ROOT / "profiler" / "workbench"
    same = {"__init__.py", "words.py", "study/__init__.py"}
    for path in sorted(cubin.rglob("*.py")):
        inside = path.relative_to(cubin).as_posix()
        if inside in same:
            continue
        mine, its = ast.parse(path.read_text()), ast.parse((engine / inside).read_text())
        for tree in (mine, its):
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and (
                    node.level or (node.module or "").startswith("workbench")
                ):
                    node.module, node.level = (node.module or "").removeprefix("workbench."), 0
        assert ast.dump(mine) == ast.dump(its), inside


def declared(folder: Path) -> list[Kernel]:
    """The kernels of the best transpose, from the sources in a folder."""
    cuda.take_declared()
    load_module(folder / "chosen.py", "workbench_test_chosen")
    return cuda.take_declared()


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "kernels" / "transpose"
    shutil.copytree(FIXTURE / "kernels" / "transpose", folder)
    return folder


@pytest.fixture
def cubins(package: Path, tmp_path: Path, monkeypatch: Patch) -> Path:
    """A copy of the package's, from which kernels are loaded."""
    folder = tmp_path / "cubins"
    shutil.copytree(package / "torch-ext" / MODULE / "cubins", folder)
    monkeypatch.setattr(cubin_folder, "_codes", {})
    monkeypatch.setattr(cubin_folder, "_folder", folder)
    return folder


@pytest.mark.slow
def test_a_second_one_of_the_same_kernels_in_a_repository_that_ignores_its_files(
    package: Path, tmp_path: Path
) -> None:
    for name in (".git", "site"):
        (tmp_path / name).mkdir()
    (tmp_path / ".gitignore").write_text("*.cubin\nkernels/\nevidence/\n")
    folder = tmp_path / "again"
    arguments = ["chosen", "--study", "transpose", "--as", "again", "--to", str(folder)]
    assert main(["ship", *arguments, "--project", str(FIXTURE)]) == 0
    for kind in ("--wheel", "--sdist"):
        python(folder, "build", kind, "--no-isolation", "--outdir", str(tmp_path))
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    files = {p.relative_to(folder / "torch-ext") for p in (folder / "torch-ext").rglob("*.*")}
    with zipfile.ZipFile(wheel) as found:
        assert files <= {Path(name) for name in found.namelist()}
        found.extractall(tmp_path / "site")
    with tarfile.open(sdist) as found:
        inside = {Path(*Path(name).parts[1:]).as_posix() for name in found.getnames()}
    assert {*shipped_at(folder, "again").files} <= inside
    code = f"""
import torch, again, {MODULE}
x = torch.randn(3, 5)
assert torch.equal(again.transpose(x), {MODULE}.transpose(x))
assert again.transpose is not {MODULE}.transpose
assert list(again.counts().values()) == list({MODULE}.counts().values()) == [1]
"""
    done = alone("-W", "ignore", "-c", code, path=[tmp_path / "site", package / "torch-ext"])
    assert done.returncode == 0, done.stderr


def test_every_kernel_finds_its_cubin_and_no_other_source_does(cubins: Path, sources: Path) -> None:
    def found(arch: str) -> list[bool]:
        keys = [cubin_folder.key_of(kernel.source, arch) for kernel in declared(sources)]
        return [cubin_folder._carried(cubins, key) is not None for key in keys]

    assert found("sm_90a") == [True] * 4
    assert found("sm_80") == [False] * 4
    header = sources / "element.cuh"
    header.write_text(header.read_text() + "// another\n")
    assert found("sm_90a") == [False] * 4


def test_a_carried_cubin_is_what_was_compiled(cubins: Path, sources: Path) -> None:
    kernel = declared(sources)[0]
    code = cubin_folder.code_of(kernel.source, "sm_90a")
    assert cubin_folder.code_of(kernel.source, "sm_90a") is code  # loaded once
    compiled = kernel.compile("sm_90a")[1]
    assert code_digests(bytes(code.code)) == code_digests(bytes(compiled.code)) != {}


def test_a_cubin_that_is_another_is_refused(cubins: Path, sources: Path) -> None:
    for path in cubins.glob("*.cubin"):
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(UsageError, match="is not the cubin that was shipped"):
        cubin_folder.code_of(declared(sources)[0].source, "sm_90a")


def test_without_nvrtc_other_architectures_say_so(
    cubins: Path, sources: Path, package: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(cubin_folder, "compiler_version", lambda: "")
    said = r"there is no cubin of \w+.cu for sm_80, and NVRTC is not installed"
    with pytest.raises(EnvironmentLacks, match=said):
        cubin_folder.code_of(declared(sources)[0].source, "sm_80")
    words = (package / "torch-ext" / MODULE / "_runtime" / "words.py").read_text()
    assert "INSTALL = \"pip install 'transpose-h200[nvrtc]'\"" in words


def test_where_it_comes_from(package: Path) -> None:
    told = shipped(package)
    study = find_workspace(FIXTURE).study("transpose")
    assert told.variant == "chosen"
    assert told.verdict == "kept"
    assert set(told.sources) == {
        "chosen.py", "vectorised.py", "vectorised.cu", "padded.py", "padded.cu", "element.cuh"
    }  # fmt: skip
    assert told.environment.gpu == "NVIDIA H200"
    at = next(time for time in told.times if time.shape == study.default_shape)
    assert at.reference == "eager"
    assert at.ratio is not None
    assert not_none(at.low) < at.ratio
    assert {cubin.arch for cubin in told.cubins} == {"sm_90a"}
    assert len(told.cubins) == 4
    build = not_none(store.variant_record(EvidenceFolder(EVIDENCE), "chosen").build)
    codes = {kernel.code for kernel in build.kernels}
    codes -= {""}
    measured = [cubin.code in codes if codes else None for cubin in told.cubins]
    assert [cubin.measured for cubin in told.cubins] == measured
    assert told.files == {
        name: digest
        for name, digest in packaging.digests(package).items()
        if not name.endswith("provenance.json")
    }


def test_the_timings_that_it_names_give_its_figures(package: Path) -> None:
    for time in shipped(package).times:
        timing = store.read_record(EVIDENCE / time.file, Timing)
        again = timed(timing, "chosen", "eager", file=time.file)
        assert again == structs.replace(time, times_reference=None)  # which is of its check
        if time.shape == "8192x8192":
            followed = not_none(timed(structs.replace(timing, planned=2), "chosen", "eager"))
            assert (time.level, followed.level) == (95, 99)
            assert not_none(followed.low) < not_none(time.low)


def test_the_readme_tells_what_it_supports_and_what_was_measured(package: Path) -> None:
    text = (package / "README.md").read_text()
    told = shipped(package)
    at = next(time for time in told.times if time.shape == "8192x8192")
    assert f"| 8192x8192 | {at.microseconds:.0f} | {at.ratio:.3g}x [" in text
    assert "Tensors x [any, any] on one GPU." in text
    assert "Types: float32; bfloat16; float16." in text
    assert "PyTorch, x.t().contiguous()" in text
    assert ("the measured ones: built with NVRTC" in text) == bool(other_code(told))


def test_machine_code_that_was_not_measured_is_told(package: Path) -> None:
    told = shipped(package)
    known = structs.replace(told, cubins=tuple(c(told, True) for _ in told.cubins))
    assert other_code(known) == ""
    mixed = structs.replace(told, cubins=(c(told, True), c(told, False)), compiler="13.5 13.5.37")
    assert other_code(mixed) == (
        "1 of 2 cubins differ from the measured ones: built with NVRTC 13.5 13.5.37, "
        "measured with 13.0"
    )
    unknown = structs.replace(told, cubins=(c(told, None),), compiler="13.5 13.5.37")
    assert other_code(unknown).startswith("the cubins may differ")
    assert other_code(structs.replace(unknown, compiler="13.0 13.0.88")) == ""


def c(told: Shipped, measured: bool | None) -> ShippedCubin:
    return structs.replace(told.cubins[0], measured=measured)


def test_pip_and_kernels_are_told_what_it_is(package: Path) -> None:
    project = tomllib.loads((package / "pyproject.toml").read_text())
    assert project["project"]["name"] == NAME
    assert project["project"]["license"] == "Apache-2.0"
    assert project["project"]["dependencies"][0].startswith("torch")
    assert not any("workbench" in each for each in project["project"]["dependencies"])
    assert (package / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    build = tomllib.loads((package / "build.toml").read_text())
    assert build["general"] == {
        "name": NAME, "version": 1, "edition": 5, "backends": ["cuda"]
    }  # fmt: skip
    assert build["torch-noarch"]["cuda-capabilities"] == ["9.0a"]
    metadata = json.loads((package / "torch-ext" / MODULE / "metadata.json").read_text())
    assert metadata["name"] == NAME
    assert metadata["backend"] == {"type": "cuda"}
    assert metadata["license"] == "Apache-2.0"
    assert metadata["id"].startswith(f"_{MODULE}_cuda_")


def test_what_is_written_is_as_the_engines_own_code_should_be(
    package: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "ruff.toml"
    settings.write_text(f'extend = "{ROOT / "pyproject.toml"}"\nsrc = ["torch-ext"]\n')
    for command in (["check"], ["format", "--check"]):
        python(package, "ruff", *command, "--no-cache", "--config", str(settings), ".")


def test_no_path_of_this_machine_travels(package: Path) -> None:
    for path in package.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert str(ROOT).encode() not in data, path
            assert str(Path.home()).encode() + b"/" not in data, path


# ---- what is refused -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository's transpose, to be changed."""
    root = tmp_path_factory.mktemp("workspace")
    for name in ("kernels", "ablations"):
        shutil.copytree(ROOT / name / "transpose", root / name / "transpose")
    (root / "workbench.toml").write_text('study = "transpose"\n')
    return root


def refused(capsys: Capsys, root: Path, to: Path, *arguments: str, code: int = 2) -> str:
    given = arguments or ("chosen", "--as", NAME)
    return error_of(capsys, "ship", *given, "--to", str(to), project=root, code=code)


@pytest.mark.parametrize(
    ("variant", "said"),
    [
        ("baseline", "'baseline' is not kept (baseline)"),
        ("eager", "'eager' is not kept (not judged)"),
        ("tma", "'tma' is not kept (slower): faster: "),
    ],
)
def test_what_is_not_kept(
    variant: str, said: str, workspace: Path, capsys: Capsys, tmp_path: Path
) -> None:
    to = tmp_path / "out"
    told = refused(capsys, workspace, to, variant, "--as", NAME, code=1)
    assert told.startswith(f"error: {said}")
    assert "hint: " in told
    assert not to.exists()


def test_what_is_stale(workspace: Path, capsys: Capsys, tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    shutil.copytree(workspace, root)
    header = root / "kernels" / "transpose" / "element.cuh"
    header.write_text(header.read_text() + "// another\n")
    told = refused(capsys, root, tmp_path / "out", code=1)
    assert told.startswith("error: the evidence of 'chosen' is stale: ")
    assert "of other sources than there are now" in told
    assert list(tmp_path.iterdir()) == [root]


def test_a_check_elsewhere_that_is_stale(workspace: Path, capsys: Capsys, tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    shutil.copytree(workspace, root)
    path = root / "ablations/transpose/evidence/nvidia-h100-80gb-hbm3/variants/chosen.json"
    checks = json.loads(path.read_text())
    checks["checks"]["odd-fp16"]["fingerprint"] = "0" * 64
    path.write_text(json.dumps(checks))
    told = refused(capsys, root, tmp_path / "out", code=1)
    assert "check at odd-fp16" in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--as", NAME), "Missing argument 'VARIANT'"),
        (("chosen",), "Missing option '--as'"),
        (("chosen", "--as", "No Name"), "'No Name' is no name for a package"),
        (("chosen", "--as", "torch"), "'torch' is the name of another package"),
        (("chosen", "--as", "json"), "'json' is the name of another package"),
        (("chosen", "--as", "numpy"), "'numpy' is the name of another package"),
        (("chosen", "--as", "prim"), "'prim' is the name of another package"),
        (("nothing", "--as", NAME), "unknown variant 'nothing'"),
        (("chosen", "--as", NAME, "--arch", "hopper"), "'hopper' is no architecture"),
    ],
)
def test_mistakes(
    arguments: tuple[str, ...], said: str, workspace: Path, capsys: Capsys, tmp_path: Path
) -> None:
    assert said in refused(capsys, workspace, tmp_path / "out", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(workspace: Path, capsys: Capsys, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert "is there already, and is no empty folder" in refused(capsys, workspace, tmp_path)


def test_more_of_the_workbench_than_travels(tmp_path: Path) -> None:
    path = tmp_path / "fix.py"
    path.write_text("from workbench.problems import given\n")
    with pytest.raises(UsageError, match=r"fix.py:1 imports problems of the workbench"):
        packaging.localised(path)
    path.write_text("import workbench\n")
    with pytest.raises(UsageError, match="imports itself of the workbench"):
        packaging.localised(path)


def test_imports_are_of_the_runtime(tmp_path: Path) -> None:
    path = tmp_path / "fix.py"
    text = (
        "from workbench import cuda\nfrom workbench.cuda import tensor_map\n\n"
        "def run(x):\n    from workbench import cuda\n"
    )
    path.write_text(text)
    there = packaging.localised(path)
    assert there.splitlines()[:2] == [
        "from ..._runtime import cuda",
        "from ..._runtime.cuda import tensor_map",
    ]
    assert there.count("workbench") == 0


def test_a_package_carries_all_that_its_runtime_imports() -> None:
    """Of the workbench, a module that does not travel is missed only where there is none."""
    carried = {
        ".".join(path.relative_to(packaging.ENGINE).with_suffix("").parts).removesuffix(".__init__")
        for pattern in packaging.RUNTIME
        for path in packaging.ENGINE.glob(pattern)
        if path.suffix == ".py"
    }
    assert "cuda.nvcc" in carried
    written = {"words"}  # the few that a package needs
    for name in carried:
        path = packaging.ENGINE / name.replace(".", "/")
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        wanted = re.findall(r"^ *from workbench\.([\w.]+) import", path.read_text(), re.MULTILINE)
        assert set(wanted) <= carried | written, name


def test_what_pip_has_to_install() -> None:
    text = "import os\nimport torch\nimport triton\nimport einops\nfrom cutlass import cute\n"
    assert packaging.dependencies({"a.py": text}, kernels=False) == [
        packaging.TORCH, "nvidia-cutlass-dsl", "einops"
    ]  # fmt: skip
    with_kernels = packaging.dependencies({"a.py": "import torch\n"}, kernels=True)
    assert with_kernels == [packaging.TORCH, *packaging.NEEDED_BY_CUDA]


# ---- other kinds of studies ------------------------------------------------------------------

SEVERAL = """
from workbench import Shape, Tolerance, Work

shapes = {"large": Shape(n=64), "odd": Shape(profiled=False, n=33)}
default_shape = "large"
tolerance = Tolerance(absolute=1e-6, relative=1e-6)
in_place = ("y",)


def inputs(shape, generator):
    import torch

    def draw(*size):
        return torch.randn(size, generator=generator, device=generator.device)

    return {"x": draw(shape.n, 4).t(), "y": draw(4), "scale": 2.0, "mode": "sum"}


def reference(x, y, scale, mode):
    x, y = x.double(), y.double()
    return {"sum": x.sum(0), "most": x.argmax(1), "y": y * scale}


def work(shape):
    return Work(flops=shape.n, bytes=shape.n, dtype="float32")
"""
CHANGES = "def run(x, y, scale, mode):\n    y.mul_(scale)\n    return x.sum(0), x.argmax(1)\n"


def test_several_outputs_words_and_strides(tmp_path: Path) -> None:
    found = learned(tmp_path, SEVERAL, CHANGES)
    assert found.arguments == (
        ("x", "Tensor"), ("y", "Tensor"), ("scale", "float"), ("mode", "str")
    )  # fmt: skip
    assert (found.outputs, found.returns) == (("sum", "most"), "dict")
    assert found.domain.strided == ("x",)
    assert found.domain.values == {"scale": (2.0,), "mode": ("sum",)}
    (case,) = found.domain.cases
    assert (0, 0, 4) in case.fixed
    assert (1, 0, 4) in case.fixed
    assert found.kernels == 0


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
    (case,) = found.domain.cases
    assert case.dtypes == (("int64", "float32", "float32"),)
    assert not any((which, at) == (0, 1) for which, at, _ in case.fixed)


def test_inputs_that_need_values_are_refused(tmp_path: Path) -> None:
    old = '    return {"x": draw(shape.n, 4).t(), '
    new = f"    count = torch.arange(4).sum().item()\n    assert count == 6\n{old}"
    with pytest.raises(UsageError, match="'large' cannot be drawn without values: Guard") as failed:
        learned(tmp_path, SEVERAL.replace(old, new), CHANGES)
    assert "on the device of the generator" in failed.value.hint


def learned(root: Path, study: str, run: str) -> Packable:
    """As the worker has it, in this process."""
    make(root / "ws", {}, {"baseline": run, "fast": run})
    (root / "ws/kernels/scale/study.py").write_text(study)
    job = ShipJob(study="scale", variant="fast", params={}, archs=(), shapes=("large", "odd"),
                  reference="", reference_params={})  # fmt: skip
    before = Path.cwd()
    os.chdir(root / "ws")
    try:
        return Shipping(job).run()
    finally:
        os.chdir(before)


@pytest.mark.parametrize("shape", ["large", "odd"])
def test_what_is_returned_is_told_without_values_at_every_shape(tmp_path: Path, shape: str) -> None:
    """The package's fake implementation has no others, at whatever shape it is compiled."""
    reads = "x.sum() != 0" if shape == "large" else "x.shape[1] == 64 or x.sum() != 0"
    old = "    x, y = x.double()"
    asked = SEVERAL.replace(old, f"    assert {reads}\n{old}")
    with pytest.raises(UsageError, match=f"the result at '{shape}' is not known") as raised:
        learned(tmp_path, asked, CHANGES)
    assert "outputs(**inputs)" in (raised.value.hint or "")
    told = (
        "\n\ndef outputs(x, y, scale, mode):\n"
        '    return {"sum": x.new_empty(x.shape[1]), "most": x.new_empty(x.shape[0]).long()}\n'
    )
    assert learned(tmp_path / "told", asked + told, CHANGES).outputs == ("sum", "most")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"scale": 2.0', '"scale": [2.0]', "the input 'scale' is a list"),
        ("draw(4), ", "draw(4).requires_grad_(), ", "the input 'y' requires a gradient"),
        ('"mode": "sum"', '"strict": "sum"', "an operator can have no argument 'strict'"),
        ("x.argmax(1)", "[x.argmax(1)]", "what is returned is nested"),
    ],
)
def test_what_an_operator_cannot_be(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = SEVERAL.replace(old, new)
    if "strict" in new:
        text = text.replace("mode):", "strict):")
    with pytest.raises(UsageError, match=re.escape(said)):
        learned(tmp_path, text, CHANGES)


IN_PLACE = """
def run(x, y, scale, mode):
    y.mul_(scale)
    return {"sum": x.sum(0), "most": x.argmax(1)}
"""


@pytest.mark.slow
def test_a_package_of_such_a_study_passes_its_tests(tmp_path: Path, monkeypatch: Patch) -> None:
    root = make(tmp_path / "ws", {}, {"baseline": CHANGES, "fast": CHANGES, "eager": IN_PLACE})
    (root / "kernels/scale/study.py").write_text(SEVERAL)
    ladder = root / "ablations/scale/ablation.toml"
    steps, _, _ = ladder.read_text().partition('[[step]]\nvariant = "eager"')
    reference = '[[reference]]\nvariant = "eager"\ntitle = "eager"\nprimary = true\n'
    ladder.write_text(steps + reference)
    with monkeypatch.context() as patch:
        StandIn(patch, lambda run: {"baseline": 20.0, "fast": 10.0, "eager": 15.0}[run.variant])
        assert main(["ablate", "--project", str(root)]) == 0
    # Nothing was captured, so that nothing is kept.
    monkeypatch.setattr(shipped_subject, "require_kept", lambda row, evidence: None)
    folder = tmp_path / "several"
    arguments = ["fast", "--as", "several", "--to", str(folder), "--project", str(root)]
    assert main(["ship", *arguments]) == 0
    passes(folder, folder / "torch-ext")
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == [packaging.TORCH]
    assert "license" not in project
    assert "has no `LICENSE`" in (folder / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("study", "variant"), [("attention_served", "chosen")])
def test_a_package_of_a_study_that_is_not_measured_yet_passes_its_tests(
    study: str, variant: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    """On the CPU, of a made-up card: what waits for evidence is stopped by nothing else."""
    root = tmp_path / "ws"
    shutil.copytree(ROOT / "kernels" / study, root / "kernels" / study)
    (root / "ablations" / study).mkdir(parents=True)
    shutil.copy(ROOT / "ablations" / study / "ablation.toml", root / "ablations" / study)
    (root / "workbench.toml").write_text(f'study = "{study}"\n')
    with monkeypatch.context() as patch:
        StandIn(patch, lambda run: 10.0)
        assert main(["ablate", "--project", str(root)]) == 0
    monkeypatch.setattr(shipped_subject, "require_kept", lambda row, evidence: None)
    monkeypatch.setattr(ship, "report_of", lambda subject: {})
    monkeypatch.setattr(ship, "packable", without_cubins)
    folder = tmp_path / "package"
    arguments = [variant, "--as", "unmeasured", "--to", str(folder), "--project", str(root)]
    assert main(["ship", *arguments]) == 0
    passes(folder, folder / "torch-ext")


@pytest.mark.parametrize("keeps", [True, False])
def test_an_operators_tags_are_in_a_list(keeps: bool, monkeypatch: Patch) -> None:
    facts = SimpleNamespace(keeps=keeps, function="f", in_place=["x"], in_schema=str, schema="()")
    vars(facts).update(study="s", arguments=[("x", "Tensor")])
    monkeypatch.setattr(op, "read", lambda path: facts)
    monkeypatch.setattr(op, "carry", lambda folder: None)
    made = MagicMock()
    monkeypatch.setattr(torch.library, "custom_op", made)
    op.Operator("here", Path())
    assert made.call_args.kwargs["tags"] == [torch.Tag.cudagraph_unsafe] * keeps


# ---- on a GPU --------------------------------------------------------------------------------


BEST = {
    "transpose": "chosen",
    "attention": "fix30",
    "softmax": "fused",
    "attention_served": "chosen",
    "moe": "fix26",
}


@pytest.fixture(scope="module", params=list(BEST))
def on_gpu(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The best of a study, shipped on this machine."""
    variant = BEST[request.param]
    if not (ROOT / "ablations" / request.param / "evidence").is_dir():
        pytest.skip(f"{request.param} has not been recorded yet")
    folder = tmp_path_factory.mktemp("shipped") / f"{request.param}-here"
    arguments = ["--study", request.param, "--as", folder.name, "--to", str(folder)]
    assert main(["ship", variant, *arguments, "--project", str(ROOT)]) == 0
    return folder


@pytest.mark.gpu
def test_on_a_gpu_its_tests_pass_where_there_is_no_workbench(on_gpu: Path) -> None:
    done = passes(on_gpu, on_gpu / "torch-ext")
    assert "skipped" not in done.stdout
