"""``workbench weigh``: operators of a trace, matched with their kernels."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from answers import Capsys, both_of, error_of, json_of
from workspaces import ROOT

Events = list[dict[str, Any]]
SOFTMAX = "aten::softmax"


def event(cat: str, name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur,
            "args": args}  # fmt: skip


def op(name: str, ts: float, dur: float, *dims: list[int], tid: int = 1) -> dict[str, Any]:
    return event("cpu_op", name, ts, dur, tid, **({"Input Dims": dims} if dims else {}))


def launch(number: int, ts: float, at: float, dur: float, *, kernel: str = "k", tid: int = 1,
           cat: str = "cuda_runtime") -> Events:  # fmt: skip
    """The call at ``ts``, and its kernel at ``at``."""
    return [
        event(cat, "cudaLaunchKernel", ts, 1, tid, correlation=number),
        event("kernel", kernel, at, dur, 7, correlation=number),
    ]


def trace(path: Path, events: Events) -> Path:
    text = json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def weights(
    capsys: Capsys, path: Path, *more: str
) -> dict[tuple[str, str], tuple[int, int, float]]:
    result = json_of(capsys, "weigh", path, *more, project=ROOT)["weighed"]
    return {
        (w["operator"], w["extents"]): (w["calls"], w["launches"], w["microseconds"])
        for w in result["weights"]
    }


def test_operators_of_one_name_are_told_apart_by_their_launches(
    tmp_path: Path, capsys: Capsys
) -> None:
    """Kernels run later than their operators, in another order; a thread has the same name."""
    events = [
        op(SOFTMAX, 0, 20, [4, 8], []),
        op("aten::_softmax", 2, 16, [4, 8], []),
        *launch(1, 5, 900, 30),
        *launch(2, 10, 300, 5),
        op(SOFTMAX, 30, 20, [2, 2], []),
        op("aten::_softmax", 31, 18, [2, 2], []),
        *launch(3, 40, 100, 7),
        op(SOFTMAX, 60, 20, [4, 8], []),
        *launch(4, 65, 500, 20),
        op(SOFTMAX, 4, 30, [64], tid=2),
        *launch(5, 12, 700, 3, tid=2, cat="cuda_driver"),
        *launch(6, 95, 800, 11, kernel="alone"),
    ]
    assert weights(capsys, trace(tmp_path / "t.json.gz", events)) == {
        (SOFTMAX, "[4, 8]"): (2, 3, 55),
        (SOFTMAX, "[2, 2]"): (1, 1, 7),
        (SOFTMAX, "[64]"): (1, 1, 3),
        ("alone", ""): (1, 1, 11),
    }


def test_the_outermost_operator_with_extents_has_the_kernel(tmp_path: Path, capsys: Capsys) -> None:
    events = [
        op("autograd::evaluate_function", 0, 50),
        op("aten::sdpa", 1, 40, [1, 8], [1, 8], [2, 8]),
        op("aten::empty", 2, 3, [9]),
        op("aten::flash", 6, 30, [1, 8]),
        *launch(1, 10, 20, 5),
        op("aten::copy_", 45, 3, [3]),
    ]
    assert weights(capsys, trace(tmp_path / "t.json", events)) == {
        ("aten::sdpa", "[1, 8] x2, [2, 8]"): (1, 1, 5)
    }


STEPS = [
    event("user_annotation", "ProfilerStep#1", 100, 100),
    event("user_annotation", "ProfilerStep#2", 200, 100),
    event("gpu_user_annotation", "ProfilerStep#2", 210, 900, 7),
    op(SOFTMAX, 10, 20, [9]),
    *launch(1, 15, 40, 30),
    op(SOFTMAX, 110, 20, [4]),
    *launch(2, 115, 130, 20),
    op(SOFTMAX, 210, 20, [4]),
    *launch(3, 215, 230, 20),
    op("aten::mm", 240, 20, [4, 4], [4, 4]),
    *launch(4, 245, 250, 100),
]


def test_shares_are_of_the_profilers_steps(tmp_path: Path, capsys: Capsys) -> None:
    """What is launched before them is left out; the last step ends with its kernels."""
    path = trace(tmp_path / "t.json", STEPS)
    result = json_of(capsys, "weigh", path, project=ROOT)["weighed"]
    assert (result["steps"], result["step_microseconds"]) == (2, 125)
    shares = {w["operator"]: (w["share"], w["most"]) for w in result["weights"]}
    assert shares == {"aten::mm": (0.4, None), SOFTMAX: (0.16, None)}


def test_what_a_variant_saves_at_most(tmp_path: Path, capsys: Capsys) -> None:
    path = trace(tmp_path / "t.json", STEPS)
    variant = ("fused", "--study", "softmax", "--operator", SOFTMAX)
    result = json_of(capsys, "weigh", path, *variant, project=ROOT)
    saved = next(w["most"] for w in result["weighed"]["weights"] if w["operator"] == SOFTMAX)
    assert saved == pytest.approx(0.16 * (1 - 1 / result["ratio"]))
    assert result["ratio"] > 2.5
    text = both_of(capsys, "weigh", path, *variant, project=ROOT).out
    assert "fused saves at most 11 % of a step: its largest recorded ratio is 3.02x" in text


def test_mistakes(tmp_path: Path, capsys: Capsys) -> None:
    path = trace(tmp_path / "t.json", STEPS)
    empty = trace(tmp_path / "cpu.json", STEPS[:4])
    wrong = tmp_path / "wrong.json.gz"
    wrong.write_bytes(b"{}")
    study = ("fused", "--study", "softmax")
    for arguments, said in (
        ((path, *study), "a variant is weighed where it replaces an operator"),
        ((path, *study, "--operator", "aten::soft"), "no kernel of t.json was launched by"),
        ((empty,), "cpu.json has no kernels of a GPU"),
        ((wrong,), "wrong.json.gz is no trace of torch.profiler"),
        ((tmp_path / "none.json",), "none.json"),
    ):
        text = error_of(capsys, "weigh", *arguments, project=ROOT, code=2)
        assert said in text
        assert "hint: " in text
