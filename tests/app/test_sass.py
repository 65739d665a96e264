"""``diff --sass`` and what gate says of other machine code."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from answers import Capsys, Patch, error_of, json_of, published, text_of
from git_repository import repository
from workbench.app.show import kept_cubins
from workbench.cli.diff import code_of_binaries
from workbench.cuda.compiler import CUBIN_FOLDER, Source
from workbench.derive.code_diff import CodeChange
from workspaces import FIXTURE, GOOD, make

SOURCE = """extern "C" __global__ void scale(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2.5f * x[i] + 1.0f;
}
"""


@cache
def binary(text: str, folder: Path) -> bytes:
    (source := folder / "kernel.cu").write_text(text)
    return bytes(Source(source, "scale", {}, ()).compile("sm_90a")[1].code)


Cubin = Callable[..., Path]


@pytest.fixture
def cubin(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Cubin:
    def compiled(name: str, text: str = SOURCE) -> Path:
        path = tmp_path / f"{name}.cubin"
        path.write_bytes(binary(text, tmp_path_factory.getbasetemp()))
        return path

    return compiled


def test_two_builds_of_one_source_are_the_same(cubin: Cubin) -> None:
    shifted = f"// another line\n\n{SOURCE}"
    (kernel,) = code_of_binaries(cubin("one"), cubin("other", shifted)).kernels
    assert (kernel.kernel, kernel.is_same) == ("scale", True)
    assert kernel.sentence().startswith("the same machine code, ")
    assert kernel.numbers[0]["EXIT"] >= 1


@pytest.mark.parametrize(
    ("words", "instead", "changes", "kinds"),
    [
        ("+ 1.0f", "+ 3.0f", {CodeChange.CONSTANT}, set()),
        ("2.5f * x[i] + 1.0f", "rsqrtf(x[i])", None, {"MUFU"}),
    ],
)
def test_a_change_of_the_source_is_found_in_its_machine_code(
    words: str, instead: str, changes: set[CodeChange] | None, kinds: set[str], cubin: Any
) -> None:
    edited = SOURCE.replace(words, instead)
    (kernel,) = code_of_binaries(cubin("one"), cubin("other", edited)).kernels
    differing = {row.change for row in kernel.rows} - {CodeChange.SAME, CodeChange.REGISTER}
    assert differing == changes if changes else CodeChange.ADDED in differing
    before, after = kernel.numbers
    assert {kind for kind in kinds if after.get(kind, 0) > before.get(kind, 0)} == kinds


def test_cubins_on_the_command_line(cubin: Cubin, capsys: Capsys) -> None:
    files = (cubin("one"), cubin("other", SOURCE.replace("1.0f", "3.0f")))
    text = text_of(capsys, "diff", *files, "--sass")
    assert "1 with another constant" in text
    assert "+ " in text
    assert "warps ran" not in text  # nothing was counted
    (kernel,) = json_of(capsys, "diff", *files, "--brief")["kernels"]
    assert (kernel["same"], kernel["summary"], kernel["counts"]["constant"]) == (False, "", 1)


def test_what_is_no_cubin(tmp_path: Path, cubin: Cubin, capsys: Capsys) -> None:
    (text := tmp_path / "text.cubin").write_text("ELF?")
    assert "text.cubin is no CUDA binary" in error_of(capsys, "diff", cubin("one"), text)
    told = error_of(capsys, "diff", cubin("one"), "fix1", project=FIXTURE)
    assert "two cubin files or" in told


def test_a_cut_cubin_and_a_missing_tool(
    cubin: Cubin, tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    whole = cubin("one")
    (cut := tmp_path / "cut.cubin").write_bytes(whole.read_bytes()[:900])
    error = error_of(capsys, "diff", whole, cut, code=4)
    assert "nvdisasm could not read cut.cubin" in error
    assert "  ran: " in error
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("sys.path", [])
    error = error_of(capsys, "diff", whole, whole, code=3)
    assert "pip install nvidia-cuda-nvdisasm" in error


def test_variants_by_their_captures(capsys: Capsys) -> None:
    words = ("diff", "baseline", "tiled", "--sass", "--study", "transpose")
    told = json_of(capsys, *words, project=FIXTURE)
    published("diff", short=False).validate(told)
    (kernel,) = told["kernels"]
    assert "captures at" in told["origin"]
    assert any(kind["executed_after"] for kind in kernel["kinds"])
    changed = kernel["changed"]
    assert {row["change"] for row in changed} <= set(CodeChange) - {CodeChange.SAME}
    assert any(row["after"] and row["after"]["place"][1] for row in changed)
    assert "stall µs before" in text_of(capsys, *words, project=FIXTURE)


def test_variants_without_captures_are_compiled(
    tmp_path: Path, capsys: Capsys, builds_here: None
) -> None:
    root = make(tmp_path / "ws", {"baseline": GOOD, "fast": GOOD.replace("2", "3")})
    told = json_of(capsys, "diff", "baseline", "fast", "--sass", "--brief", project=root)
    assert told["origin"].startswith("compiled for sm_90a: no evidence is recorded for scale")
    assert [kernel["same"] for kernel in told["kernels"]] == [False]


def test_gate_says_what_the_machine_code_became(
    tmp_path: Path, capsys: Capsys, builds_here: None
) -> None:
    scale = repository(make(tmp_path / "repo", {"baseline": GOOD}))
    scale.edit("kernels/scale/baseline.cu", "2 * x[i]", "rsqrtf(x[i])")
    words = ("gate", "HEAD~1", "--tier", "0")
    told = json_of(capsys, *words, project=scale.workspace, code=5)
    (change,) = told["studies"][0]["changes"]
    (found,) = change["also"]
    assert found["code"] == "commit.machine_code"
    assert "more MUFU" in found["message"]
    told = json_of(capsys, *words, "--brief", project=scale.workspace, code=5)
    assert told["verdicts"] == {"cannot tell": 1}
    (change,) = told["changes"]
    assert (change["study"], change["variant"]) == ("scale", "baseline")
    assert change["also"] == [found["message"]]


def test_binaries_of_a_folder_of_builds(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv(CUBIN_FOLDER, str(tmp_path))
    (source := tmp_path / "one.cu").write_text(SOURCE)
    report, code = Source(source, "scale", {}, ()).compile("sm_90a")
    (kernel,) = report.kernels
    assert kept_cubins(tmp_path) == {kernel.code: bytes(code.code)}
    kept = json.loads(next(tmp_path.glob("*.build.json")).read_bytes())
    assert base64.b64decode(kept["cubin"]) == bytes(code.code)
