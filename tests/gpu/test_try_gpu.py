"""On a real GPU with ncu: a file in every format goes from nothing to times and bottlenecks."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from answers import Capsys, Patch, error_of, json_of
from gpu.test_gpu import STUDIES

pytestmark = pytest.mark.gpu

EXAMPLES = Path(__file__).parents[1] / "problems" / "examples"
SIZES = "x=randn(4096,8192)"
CASES = {
    "torch": ["row_softmax.py", "--vs", "torch.softmax"],
    "triton": ["fused_softmax.py", "--input", SIZES, "--vs", "torch.softmax"],
    "kernelbench": ["rms_norm.py", "--solution", f"{EXAMPLES}/rms_norm_new.py", "--vs", "compile"],
    "gpu mode": ["histogram"],
    "flashinfer-bench": ["flashinfer/rmsnorm_h4096.json"],
    "nsight-python": ["matmul_nsight.py"],
    "load_inline": [
        "inline_scale.py", "--input", "x=randn(67108864)", "--input", "by=2.5", "--vs", "torch.mul",
    ],
    "cuda": [
        "row_softmax.cu", "--input", SIZES, "--input", "n=8192", "--output", "out=empty_like(x)",
        "--launch", "softmax<<<x.shape[0], 256>>>(x, out, n)", "--vs", "torch.softmax(x, dim=-1)",
    ],
}  # fmt: skip
LINES = {"triton": "fused_softmax.py", "cuda": "row_softmax.cu", "flashinfer-bench": "main.py"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tried(capsys: Capsys, *given: str) -> dict[str, Any]:
    found: dict[str, Any] = json_of(capsys, "try", *given, "--quick")
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_file_is_checked_timed_and_profiled(name: str, folder: Path, capsys: Capsys) -> None:
    file, *options = CASES[name]
    found = tried(capsys, str(EXAMPLES / file), *options)
    row = found["tried"]
    assert row["status"] == "current", row["problem"]
    assert row["microseconds"]["value"] > 0
    assert row["speedup_over_reference"]["ratio"] > 0
    assert row["bottlenecks"]
    if name in LINES:
        lines = [limit["hot_line"] for limit in row["bottlenecks"] if limit["hot_line"]]
        assert any(line["file"].endswith(LINES[name]) for line in lines), lines


def test_who_widens_the_tolerance_is_wrong_all_the_same(folder: Path, capsys: Capsys) -> None:
    """Its process says nothing of the errors that the reference has."""
    shutil.copy(STUDIES / "tried/mine.py", folder)
    given = ("mine.py", "--input", "x=randn(4096,4096)", "--vs", "torch.add(x, x)", "--quick")
    found = json_of(capsys, "try", *given, code=1)
    assert found["verdict"] == "wrong", found


def test_a_definite_matrix_is_still_one_in_timed_calls(folder: Path, capsys: Capsys) -> None:
    shutil.copy(STUDIES / "tried/definite.py", folder)
    found = tried(capsys, "definite.py:factored")
    assert found["verdict"] == "correct"
    assert found["tried"]["microseconds"]["value"] > 0


def test_an_infinity_is_wrong_and_weights_of_a_module_are_right(
    folder: Path, capsys: Capsys
) -> None:
    shutil.copy(STUDIES / "tried/values.py", folder)
    given = ["--input", "x=randn(4096,64)", "--quick"]
    found = json_of(capsys, "try", "values.py:infinite", *given, "--vs", "torch.mul(x, 2)", code=1)
    assert found["verdict"] == "wrong"
    assert "the first at [0, 0]: inf, expected" in found["wrong"]
    assert json_of(capsys, "try", "values.py:weighted", *given)["verdict"] == "correct"


def test_what_is_kept_has_its_evidence(folder: Path, capsys: Capsys) -> None:
    (folder / "workbench.toml").touch()
    source = str(EXAMPLES / "fused_softmax.py")
    tried(capsys, source, "--input", SIZES, "--vs", "torch.softmax", "--keep", "softmax")
    kept = json_of(capsys, "profile", "baseline")
    assert kept["evidence"]["source"] == "recorded"
    assert kept["variants"][0]["status"] == "current"


def test_a_triton_compile_error_shows_the_users_line(folder: Path, capsys: Capsys) -> None:
    text = (EXAMPLES / "fused_softmax.py").read_text()
    broken = folder / "broken.py"
    broken.write_text(text.replace("tl.exp(x - tl.max", "tl.expp(x - tl.max"))
    err = error_of(capsys, "try", str(broken), "--input", SIZES, "--vs", "torch.softmax", code=1)
    assert "Triton cannot compile `powers = tl.expp(x" in err
    assert "(broken.py:14)" in err
    assert "hint:" in err
