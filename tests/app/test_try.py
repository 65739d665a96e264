"""``workbench try``: what it says where there is no GPU, what it keeps, and how results read."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from answers import Capsys, Patch, both_of, error_of, json_of, text_of
from workbench.app.executor import Local
from workbench.app.try_ import AttemptOptions, attempt, kept
from workbench.cli.main import main
from workbench.cli.try_ import blocks, data, finish, times_and_limits
from workbench.errors import EnvironmentLacks, UsageError, WorkbenchError
from workbench.problems.problem import Problem
from workbench.render import as_json, markdown
from workbench.run import machine
from workspaces import ROOT, recorded_ladder

SOFTMAX = """import torch


def softmax(x):
    e = torch.exp(x - x.max(dim=-1, keepdim=True).values)
    return e / e.sum(dim=-1, keepdim=True)


def inputs(rows=8, cols=16):
    return {"x": torch.randn(rows, cols, device="cuda")}
"""
without_gpu = pytest.mark.skipif(machine.can_measure(), reason="there is a GPU here")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "softmax.py"
    path.write_text(SOFTMAX)
    return path


@without_gpu
def test_without_a_gpu_it_is_checked_on_the_cpu_and_kept(
    mine: Path, tmp_path: Path, capsys: Capsys
) -> None:
    (tmp_path / "workbench.toml").touch()
    out, err = both_of(capsys, "try", mine, "--vs", "torch.softmax", "--keep", "softmax")
    assert out.splitlines()[0] == "**correct**"
    assert out.splitlines()[2] == "**softmax.py, a Python function: its function softmax(x)**"
    assert "takes x float32[8, 16]; gives float32[8, 16]" in out
    assert "checked against torch.softmax in float64" in out
    for tried in ("softmax.py:softmax", "torch.softmax"):
        assert f"- {tried}: on the CPU its largest error is" in out
    assert "kept as kernels/softmax" in err
    assert "not timed: no NVIDIA GPU" in err
    listed = text_of(capsys, "list", "--json")
    assert all(f'"{name}"' in listed for name in ("softmax", "torch_softmax"))
    told = error_of(capsys, "try", mine, "--keep", "softmax")
    assert "kernels/softmax is there already" in told


def test_what_is_kept_is_whole_or_not_there(tmp_path: Path, monkeypatch: Patch) -> None:
    names = ("ablations/s/ablation.toml", "kernels/s/a.py", "kernels/s/study.py")
    for name in names:
        path = tmp_path / "made" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    done: Any = SimpleNamespace(folder=tmp_path / "made", study="s")
    (root := tmp_path / "workspace").mkdir()
    left = iter(names[:2])

    def full(handle: int) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(EnvironmentLacks, match="no space left"):
            kept(done, root)
    assert list(root.iterdir()) == []
    kept(done, root)
    assert [(root / name).read_text() for name in names] == list(names)


@without_gpu
def test_what_is_wrong_on_the_cpu_is_wrong(mine: Path, trials_here: None, capsys: Capsys) -> None:
    mine.write_text(SOFTMAX.replace("dim=-1", "dim=0"))
    told = error_of(capsys, "try", mine, "--vs", "torch.softmax", code=1)
    assert "error: softmax.py:softmax is wrong: error" in told


CU = 'extern "C" __global__ void twice(const float* x, float* out, int n) {{ {} }}\n'


@without_gpu
def test_a_cuda_source_is_compiled_where_there_is_no_gpu(
    mine: Path, trials_here: None, builds_here: None, capsys: Capsys
) -> None:
    given = ["--input", "x=randn(64)", "--input", "n=64", "--output", "out=empty_like(x)"]
    launch = ["--launch", "twice[1, 64](x, out, n)", "--vs", "torch.mul(x, 2)"]
    for body, code, said in (
        ("int i = threadIdx.x; if (i < n) out[i] = 2 * x[i];", 3, "built for sm_90a"),
        ("out[0] = y;", 4, 'twice.cu(1): error: identifier "y" is undefined'),
    ):
        mine.with_name("twice.cu").write_text(CU.format(body))
        out, err = both_of(capsys, "try", "twice.cu", *given, *launch, code=code)
        assert said in out + err
        assert "twice.cu:twice: not called on the CPU: needs a GPU" in out
        assert "/workbench/kernels" not in err


@without_gpu
def test_json_says_the_same(mine: Path, trials_here: None, capsys: Capsys) -> None:
    shown = text_of(capsys, "try", f"{mine}:softmax")
    assert "against itself in float64: only rounding errors are checked" in shown.splitlines()[0]
    found = json_of(capsys, "try", f"{mine}:softmax")
    assert found["kind"] == "a Python function"
    assert found["inputs"] == {"x": "float32[8, 16]"}
    assert found["reference"] == {"exact": True, "refusal": "", "itself": True, "variants": []}
    assert found["tried"] is None
    assert Path(found["workspace"]).is_dir()


REASON = re.compile(
    r"(?:error: nothing was measured|error|not timed|not compared with \w+|its own precision): "
    r"(.*?)(?:: --vs names another)?$|(warning: .*|[\w.:]+: not called on the CPU: .*)",
    re.MULTILINE,
)
MINIATURES = {
    "not timed": (SOFTMAX, "torch.softmax"),
    "is wrong": (SOFTMAX.replace("dim=-1", "dim=0"), "torch.softmax"),
    "warning": (SOFTMAX.replace("return e", "return 0 * e"), ""),
    "its own precision": (SOFTMAX.replace("    e =", "    assert x.itemsize == 4\n    e ="), ""),
    "not called": (SOFTMAX.replace("torch.exp", "torch.cuda.comm.broadcast"), "torch.softmax"),
}


@without_gpu
@pytest.mark.parametrize("name", MINIATURES)
def test_json_has_every_reason_of_the_text(
    name: str, mine: Path, trials_here: None, capsys: Capsys
) -> None:
    text, versus = MINIATURES[name]
    mine.write_text(text)
    done = attempt(here := Local(), mine, AttemptOptions(versus=versus))
    shown = [markdown.blocks(blocks(done, SimpleNamespace(no_profile=False)))]
    try:
        finish(done, here)
    except WorkbenchError as error:
        shown.append(f"error: {error.message}")
    told = "\n".join([*shown, capsys.readouterr().err])
    reasons = [one or other for one, other in REASON.findall(told)]
    assert name in told
    assert reasons
    printed = as_json.dumps(data(done))
    assert [why for why in reasons if json.dumps(why)[1:-1] not in printed] == []


def test_mistakes_end_in_a_hint_before_anything_is_made(
    mine: Path, tmp_path: Path, capsys: Capsys
) -> None:
    for given, code, said in (
        (["sofmax.py"], 2, "there is no file or folder sofmax.py"),
        ([f"{mine}:softmx"], 2, "unknown function of softmax.py 'softmx'"),
        ([str(mine), "--vs", "tortch.softmax"], 3, "'tortch' is not installed"),
        ([str(mine), "--input", "x=random(4)"], 2, "'random' makes no input"),
        ([str(mine), "--keep", "mine"], 2, "--keep mine needs a workspace"),
    ):
        out, err = both_of(capsys, "try", *given, code=code)
        assert out == ""
        assert said in err.splitlines()[0]
        assert "hint:" in err
    assert not (tmp_path / "cache").exists()


def test_a_name_that_no_study_can_have_is_refused(mine: Path, tmp_path: Path) -> None:
    (tmp_path / "workbench.toml").touch()
    with pytest.raises(UsageError, match="no name of a study"):
        attempt(Local(), mine, AttemptOptions(keep="a b"))


def test_a_result_has_the_time_the_bottlenecks_and_their_lines() -> None:
    """On the recorded ladder: what it says of a kernel as if it had been tried."""
    judged = recorded_ladder()
    row = judged.row("fix4")
    text = markdown.blocks(times_and_limits(row, judged, profiled=True))
    named = [f"| {reference.variant} " for reference in judged.references]
    for part in ("the speed of", "hottest line `fix4.cu:", "What limits it:", "1. **", "3. **"):
        assert part in text
    assert all(name in text for name in named)
    bare = replace(row, bottlenecks=(), figures={})
    text = markdown.blocks(times_and_limits(bare, judged, profiled=False))
    assert "profile: not asked for" in text


COMMAND = re.compile(
    r"<!-- recorded: (\w+) -->\n```sh\nworkbench (.*?)```\n(\n```text\n.*?```)?", re.S
)
PAGE = (ROOT / "docs" / "try.md").read_text(encoding="utf-8")
COMMANDS = {name: (command, told) for name, command, told in COMMAND.findall(PAGE)}
PROBLEMS = {  # where the page shows no output
    "triton": "fused_softmax.py, a Python function: its function softmax(x)",
    "inline": "inline_scale.py, a Python function: its function scale(x, by)",
    "kernelbench": "rms_norm.py, a KernelBench problem, with the ModelNew of rms_norm_new.py",
    "gpumode": "histogram/, a GPU MODE task: 2 tests, 2 benchmarks, submission.py",
    "flashinfer": "rmsnorm_h4096.json, a FlashInfer-Bench definition, 2 workloads, "
    "with the solution rmsnorm_triton_row",
    "nsight": "matmul_nsight.py, a function for nsight-python: multiply(n, dtype), "
    "2 configurations, ranges matmul, einsum",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_commands_of_the_page_are_read_as_it_says(name: str, monkeypatch: Patch) -> None:
    """And an output that it shows is of the same problem."""
    found: list[Problem] = []

    def stop(executor: object, problem: Problem, *given: object, **options: object) -> None:
        found.append(problem)
        raise UsageError("read", hint="far enough")

    monkeypatch.setattr("workbench.app.try_.prepare", stop)
    monkeypatch.chdir(ROOT / "tests" / "problems" / "examples")
    command, told = COMMANDS[name]
    assert main(shlex.split(command.replace("\\\n", " "))) == 2
    assert len(found) == 1
    first = told.strip().splitlines()[1] if told else f"**{PROBLEMS[name]}**"
    assert first == f"**{found[0].what}**"


def test_the_page_shows_the_function_that_it_tries() -> None:
    shown = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    text = (ROOT / "tests" / "problems" / "examples" / "row_softmax.py").read_text()
    assert shown
    assert all(block in text for block in shown)


def test_a_link_in_a_loop_is_an_error(tmp_path: Path, capsys: Capsys) -> None:
    for name, to in (("a.py", "b.py"), ("b.py", "a.py"), ("folder", "folder")):
        (tmp_path / name).symlink_to(to)
    for source in ("a.py", "a.py:f", "a.py/c.py", "folder", "folder/c.py"):
        assert "is a link in a loop" in error_of(capsys, "try", str(tmp_path / source))
