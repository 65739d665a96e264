"""Every front end on a real GPU: right, timed and profiled as it is, with the user's own lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from tools.folders import unpack

from answers import Capsys
from inprocess import calls_here
from workbench.cli.main import main
from workbench.cuda.compiler import package_version

pytestmark = pytest.mark.gpu

WORKSPACE = Path(__file__).parent / "frontends.txtar"
Rows = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Case:
    """``own`` is the file with the hottest line, "" where none is the user's; ``needs`` a package
    without which it fails with its name.
    """

    variant: str
    compiler: str
    own: str
    needs: str = ""
    spills: bool = False


CASES = (
    Case("with_nvrtc", "no warning, no spill", "silu.cu"),
    Case("with_load_inline", "no spills in the capture; compiled by nvcc", "with_load_inline.py"),
    Case("with_load", "that spill in the capture; compiled by nvcc", "extension.cu", spills=True),
    Case("with_triton", "no spills in the capture; compiled by Triton", "with_triton.py"),
    Case("with_autotune", "no spills in the capture; compiled by Triton", "with_autotune.py"),
    Case("with_compile", "no spills in the capture; compiled by torch.compile", ""),
    Case(
        "with_numba", "no spills in the capture; compiled by Numba", "with_numba.py", "numba-cuda"
    ),
    Case("with_cupy", "no spills in the capture; compiled by CuPy", "with_cupy.py", "cupy-cuda13x"),
    Case("with_cute", "compiled by CuTe DSL", "with_cute.py", "nvidia-cutlass-dsl"),
    Case("with_helion", "compiled by Helion", "", "helion"),
    Case("with_cutile", "compiled by cuTile", "with_cutile.py", "cuda-tile"),
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(WORKSPACE, tmp_path_factory.mktemp("frontends") / "ws")


def said(*arguments: str) -> tuple[int, Any]:
    printed = StringIO()
    with redirect_stdout(printed):
        code = main([*arguments, "--json"])
    return code, json.loads(printed.getvalue())


def rows_of(root: Path, study: str) -> Rows:
    code, found = said("ablate", "--full", "--project", str(root), "--study", study)
    assert code in (0, 1)
    return {row["variant"]: row for row in [*found["variants"], *found["references"]]}


@pytest.fixture(scope="module")
def silu(root: Path) -> Rows:
    return rows_of(root, "silu")


def there(case: Case) -> bool:
    return not case.needs or bool(package_version(case.needs))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.variant)
def test_it_is_right_and_what_is_profiled_is_what_was_timed(case: Case, silu: Rows) -> None:
    row = silu[case.variant]
    if not there(case):
        assert case.needs in row["problem"]["message"]
        return
    assert row["status"] == "current", row["problem"]
    for gate in ("correct", "kernels", "timed outputs"):
        assert row["gates"][gate]["passed"] is True, row["gates"][gate]
    assert row["gates"]["kernels"]["why"]["message"].startswith("1 kernel timed as captured")
    assert row["microseconds"]["value"] > 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.variant)
def test_the_compiler_gate_says_who_compiled_it_and_whether_it_spills(
    case: Case, silu: Rows
) -> None:
    if there(case):
        gate = silu[case.variant]["gates"]["compiler"]
        assert case.compiler in gate["why"]["message"]
        assert gate["passed"] is not case.spills


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.variant)
def test_the_hottest_line_is_one_of_the_users_own_file(case: Case, silu: Rows, root: Path) -> None:
    if not there(case):
        return
    if not case.own:
        assert silu[case.variant]["no_source_lines"]["message"].startswith("no source lines")
        return
    where = ("--project", str(root), "--study", "silu")
    code, found = said("show", case.variant, "--source", *where)
    assert code == 0
    first = next(iter(found["files"]))
    assert first == f"/workbench/kernels/silu/{case.own}"
    assert found["files"][first]
    assert silu[case.variant]["no_source_lines"] is None


def test_a_kernel_on_a_stream_of_its_own_is_told_how_to_leave_it(
    silu: Rows, root: Path, capsys: Capsys
) -> None:
    if not package_version("cupy-cuda13x"):
        pytest.skip("CuPy is not installed")
    assert silu["on_cupys_stream"]["verdict"] == "wrong"
    main(["check", "on_cupys_stream", "--project", str(root), "--study", "silu"])
    assert "hint: all of its work belongs on torch.cuda.current_stream()" in capsys.readouterr().err


# ---- outputs -----------------------------------------------------------------------------------
def test_inputs_changed_in_place_are_restored_timed_and_audited(root: Path) -> None:
    rows = rows_of(root, "momentum")
    for name in ("eager", "fused"):
        assert rows[name]["status"] == "current", rows[name]["problem"]
        assert rows[name]["gates"]["timed outputs"]["passed"] is True
        assert rows[name]["gates"]["kernels"]["passed"] is True
    assert rows["fused"]["speedup_over_parent"]["ratio"] > 2
    assert "changes its input 'gradient'" in rows["twice"]["problem"]["message"]


def test_gradients_are_captured_and_timed(root: Path) -> None:
    rows = rows_of(root, "gradient")
    for name in ("autograd", "by_hand", "compiled"):
        assert rows[name]["status"] == "current", rows[name]["problem"]
        for gate in ("timed outputs", "kernels"):
            assert rows[name]["gates"][gate]["passed"] is True, rows[name]["gates"][gate]
    assert "leaves a gradient in its input 'x'" in rows["keeps"]["problem"]["message"]


# ---- memory ------------------------------------------------------------------------------------
def test_a_check_of_a_large_shape_takes_three_times_its_operands() -> None:
    """1.6 GB of operands; what the reference takes is its own."""
    import torch

    from workbench.run.worker import correctness
    from workbench.study.values import Tolerance

    n, peaks = 1 << 28, []

    def inputs(shape: Any, generator: torch.Generator) -> dict[str, Any]:
        found = {k: torch.randn(n, device="cuda", generator=generator).half() for k in "xy"}
        torch.cuda.reset_peak_memory_stats()
        return found

    def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        peaks.append(torch.cuda.max_memory_allocated())
        out = torch.empty(n, dtype=torch.float64, device="cuda")
        for start in range(0, n, n // 16):
            part = slice(start, start + n // 16)
            out[part] = x[part].double() + y[part]
        torch.cuda.reset_peak_memory_stats()
        return out

    run: Callable[..., Any] = lambda x, y: x + y  # noqa: E731
    study: Any = type("study", (), {"tolerance": Tolerance(1e-2, 1e-3)})
    study.inputs, study.reference = staticmethod(inputs), staticmethod(reference)
    assert correctness.check_once(study, calls_here(study, run), None, peer=run).why == ""
    operands = 3 * 2 * n
    assert peaks[0] < 3 * operands
    assert torch.cuda.max_memory_allocated() - 8 * n < 3 * operands
