"""``NAME[param=value]``, and what a fingerprint covers."""

from __future__ import annotations

from pathlib import Path

import pytest

from answers import Patch, not_none
from workbench import cuda
from workbench.cuda.compiler import kept_cubin, parse_log
from workbench.errors import UsageError
from workbench.study.model import Variant
from workbench.study.params import declared, find_variant, including
from workbench.study.sources import Fingerprints, source_files
from workbench.study.workspace import find_workspace, load_module
from workspaces import FIXTURE, GOOD, make

MODULE = """from workbench import cuda
from workbench.cuda.compiler import kept_cubin
params = cuda.params(warps=4, label="a", fast=False)
kernel = cuda.kernel("k.cu", "f", defines=params)
def run(x):
    return x
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fix.py").write_text(MODULE)
    (tmp_path / "plain.py").write_text("def run(x):\n    return x\n")
    (tmp_path / "k.cu").write_text('extern "C" __global__ void f() {}\n')
    return tmp_path


def known(folder: Path) -> dict[str, Variant]:
    return {name: Variant(name, folder / f"{name}.py") for name in ("fix", "plain")}


@pytest.mark.parametrize(
    ("name", "full", "params"),
    [
        ("fix", "fix", ()),
        ("fix[warps=12]", "fix[warps=12]", (("warps", 12),)),
        ("fix[warps=4]", "fix", ()),
        ("fix[fast=true, warps=8]", "fix[warps=8,fast=1]", (("warps", 8), ("fast", True))),
        ("fix[label=b]", "fix[label=b]", (("label", "b"),)),
        ("fix[]", "fix", ()),
    ],
)
def test_a_name_is_its_module_and_what_differs(
    folder: Path, name: str, full: str, params: tuple[tuple[str, object], ...]
) -> None:
    found = find_variant(folder, name, known(folder))
    assert (found.name, found.params, found.module) == (full, params, folder / "fix.py")


@pytest.mark.parametrize(
    ("name", "told", "hint"),
    [
        ("fix[wraps=4]", "fix has no parameter 'wraps'", "warps"),
        ("fix[warps=x]", "parameter 'warps' is int, not 'x'", ""),
        ("fix[fast=2]", "parameter 'fast' is bool, not '2'", ""),
        ("fix[warps]", "'warps' gives no parameter a value", "name="),
        ("fix[warps=4|8]", "'warps' has several values", "`workbench sweep` takes several values"),
        ("plain[warps=4]", "plain has no parameters", "cuda.params"),
        ("fxi[warps=4]", "unknown variant 'fxi'", "fix"),
        ("fix[warps=4", "is no variant", "NAME[param=value,...]"),
    ],
)
def test_a_wrong_name_says_what_is_wrong(folder: Path, name: str, told: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        find_variant(folder, name, known(folder))
    assert told in error.value.message
    assert hint in error.value.hint


def test_parameters_are_read_without_importing(folder: Path) -> None:
    (folder / "fix.py").write_text("import no_such_module\n" + MODULE)
    assert declared(folder / "fix.py") == {"warps": 4, "label": "a", "fast": False}


def test_a_module_gets_the_values_and_its_kernels_the_definitions(folder: Path) -> None:
    cuda.take_declared()
    with cuda.overridden({"warps": 12, "fast": True}):
        load_module(folder / "fix.py", "params_fix")
    assert cuda.take_declared()[0].defines == {"WARPS": 12, "LABEL": "a", "FAST": 1}
    load_module(folder / "fix.py", "params_fix")
    assert cuda.take_declared()[0].defines["WARPS"] == 4


def test_a_cubin_is_passed_on_only_for_the_same_definitions(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """Kernels of one source and other definitions once got the cubin of the first."""
    monkeypatch.setenv(cuda.CUBIN_FOLDER, str(tmp_path))
    paths = {
        kept_cubin("source", "sm_90a", defines, options, "f")
        for defines in ({"D": 64}, {"D": 128})
        for options in ((), ("-O1",))
    }
    assert len(paths) == 4


def test_a_variant_that_calls_others_is_made_of_their_sources_too() -> None:
    study = find_workspace(FIXTURE).study("attention")
    names = {path.name for path in source_files(study, study.variants["fix15"])}
    assert {"fix15.py", "fix11.py", "fix11.cu", "fix14.py", "fix14.cu", "hopper.cuh"} <= names


def test_other_parameters_are_other_evidence_and_a_step_of_their_own() -> None:
    study, names = including(find_workspace(FIXTURE).study("attention"), ["fix2[warps=8]", "fix2"])
    assert names == ["fix2[warps=8]", "fix2"]
    step = not_none(study.ladder.step("fix2[warps=8]"))
    assert (step.parent, step.key_change) == ("fix2", "warps = 8")
    shape = study.default_shape
    prints, parameters = Fingerprints(study), study.shapes[shape].parameters
    assert prints.at_shape("fix2[warps=8]", parameters) != prints.at_shape("fix2", parameters)


def test_a_serialised_wgmma_counts_as_a_warning() -> None:
    (warning,) = parse_log(
        "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are "
        "serialized due to insufficient register resources for the wgmma pipeline in the function "
        "'attention_forward'\n"
    )[1]
    assert "serialized" in warning


@pytest.mark.parametrize(("named", "wanted"), [("", 4), (", warps=2", 2)])
def test_parameters_of_a_variant_are_not_those_of_a_part_of_it(
    folder: Path, named: str, wanted: int
) -> None:
    """Whichever it imports first."""
    whole = f'from workbench import cuda\npart = cuda.variant("fix"{named})\n'
    (folder / "whole.py").write_text(whole + "params = cuda.params(warps=8)\n")
    with cuda.overridden({"warps": 16}):
        found = load_module(folder / "whole.py", "whole")
    assert found.params == {"warps": 16}
    assert found.part.params["warps"] == wanted


# ---- sources
KERNEL = 'kernel = cuda.kernel("k.cu", "scale")'


@pytest.mark.parametrize(
    ("module", "files"),
    [
        ('kernel = cuda.kernel("a b.cu", "scale")', {"a b.cu": ""}),
        ('kernel = cuda.kernel("[x]+é.cu", "scale")', {"[x]+é.cu": ""}),
        (f'x = ["a"]; {KERNEL}', {"k.cu": ""}),
        (KERNEL, {"k.cu": '#include"h.cuh"\n', "h.cuh": ""}),
        (
            KERNEL,
            {"k.cu": '#include "in/a.cuh"\n', "in/a.cuh": ' # include "b.cuh"\n', "in/b.cuh": ""},
        ),
        (KERNEL, {"k.cu": '#include "a.inc"\n', "a.inc": '#include "b.inl"\n', "b.inl": ""}),
    ],
)
def test_every_file_that_is_compiled_counts(
    tmp_path: Path, module: str, files: dict[str, str]
) -> None:
    root = make(tmp_path, {"baseline": GOOD})
    folder = root / "kernels" / "scale"
    (folder / "baseline.py").write_text(module)
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    study = find_workspace(root).study()
    found = source_files(study, study.variants["baseline"])
    assert {p.relative_to(folder).as_posix() for p in found} == {"baseline.py", *files}
    seen, parameters = set(), study.shapes["large"].parameters
    for name in ("", *files):
        if name:
            (folder / name).write_text(f"{files[name]}// other\n")
        seen.add(Fingerprints(study).at_shape("baseline", parameters))
    assert len(seen) == len(files) + 1


def test_words_that_are_no_files_are_passed_over(tmp_path: Path) -> None:
    root = make(tmp_path, {"baseline": GOOD})
    (root / "kernels" / "scale" / "baseline.py").write_text(
        f'"{"word " * 100}end.of"\nx = "../y.z"\n'
    )
    study = find_workspace(root).study()
    assert [p.name for p in source_files(study, study.variants["baseline"])] == ["baseline.py"]
