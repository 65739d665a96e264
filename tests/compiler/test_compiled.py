"""What is said of kernels that the workbench did not compile: registers, spills, source lines."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from answers import Patch
from made_records import build_of, built_kernel
from workbench import bounds
from workbench.cli.progress import Progress
from workbench.errors import BadCapture
from workbench.evidence.records import CapturedKernel
from workbench.judge.findings import sentence
from workbench.judge.gates import captured_gate, gate_of
from workbench.judge.rows import lines_missing
from workbench.ncu.capture import ColumnTable
from workbench.ncu.places import lasting_name
from workbench.ncu.reader import resources, resources_of
from workbench.run import measurement
from workbench.run.measurement import Plan
from workbench.run.process import Worker, compiler_environment
from workbench.run.protocol import Hello, Start
from workbench.study.config import Gates
from workbench.study.model import Variant
from workbench.words import GateState, Phase
from workspaces import FLUSHED, recorded_range

LIMITS = Gates()
CLEAN = CapturedKernel(kernel="f", registers=48, shared_bytes=0, spill_instructions=0)
SPILLS = CapturedKernel(kernel="g", registers=24, shared_bytes=4096, spill_instructions=512)
UNKNOWN = CapturedKernel(kernel="h", registers=32, shared_bytes=0)
BY = "in the capture; compiled by"
SPILLED = "4096 bytes of shared memory, 512 instructions that spill"
OPEN = "spills not collected"
FIGURES: Any = {"registers": SimpleNamespace(value=48.0)}


@pytest.mark.parametrize(
    ("kernels", "front_ends", "state", "why"),
    [
        ((CLEAN,), ("Triton",), "passed", f"48 registers, no spills {BY} Triton"),
        ((CLEAN, SPILLS), ("nvcc",), "failed", f"24 to 48 registers, {SPILLED} {BY} nvcc"),
        ((SPILLS,), ("torch",), "passed", f"24 registers, {SPILLED} {BY} torch's makers"),
        ((UNKNOWN,), ("Numba", "CuPy"), "passed", f"32 registers, {OPEN} {BY} Numba and CuPy"),
        (None, (), "passed", f"48 registers, {OPEN} in the capture; compiled elsewhere"),
    ],
)
def test_the_gate_speaks_of_what_the_capture_says(
    kernels: Any, front_ends: Any, state: str, why: str
) -> None:
    gate = captured_gate(kernels, FIGURES, front_ends, LIMITS)
    assert (gate.state, sentence(gate.why)) == (state, why)


def test_without_a_capture_it_is_open_and_decides_nothing() -> None:
    gate = captured_gate(None, {}, ("Triton",), LIMITS)
    assert (gate.state, gate.binding) == (GateState.OPEN, False)
    assert sentence(gate.why) == "not collected: compiled by Triton, and not captured"
    allowed = captured_gate((SPILLS,), FIGURES, ("Triton",), Gates(allow_spills=True))
    assert allowed.state == GateState.PASSED


def evidence(
    kernels: int = 0, resources: Any = (CLEAN,), front_ends: Any = ("Triton",), error: str = ""
) -> Any:
    built = built_kernel(kernel="own", registers=30, source="a.cu")
    build = build_of(*(built,) * kernels, variant="a", sources=("a.py",), error=error)
    index = SimpleNamespace(resources=resources)
    return SimpleNamespace(build=build, index=index, figures=FIGURES, front_ends=front_ends)


THEIRS = f"48 registers, no spills {BY} Triton"


@pytest.mark.parametrize(
    ("given", "state", "why"),
    [
        (evidence(1, front_ends=()), "passed", "no warning, no spill"),
        (evidence(1, (SPILLS,), ("torch",)), "passed", "no warning, no spill"),
        (evidence(0), "passed", THEIRS),
        (evidence(1), "passed", f"no warning, no spill; of the others: {THEIRS}"),
        (evidence(1, (SPILLS,)), "failed", f"24 registers, {SPILLED} {BY} Triton"),
        (evidence(0, error="at line 3\nmore"), "failed", "at line 3"),
    ],
)
def test_what_was_compiled_here_is_told_by_the_compiler(given: Any, state: str, why: str) -> None:
    gate = gate_of(given, LIMITS)
    assert (gate.state, sentence(gate.why)) == (state, why)


# ---- what a report says of a kernel -----------------------------------------------------------
class Action:
    """A launch of a report."""

    NameBase_FUNCTION = 0

    def __init__(self, **values: float) -> None:
        self.values = values

    def name(self, base: int) -> str:
        return "f"

    def metric_by_name(self, name: str) -> Any:
        if name not in self.values:
            return None
        value = self.values[name]
        return SimpleNamespace(has_value=lambda: True, value=lambda: value, unit=lambda: "")


def test_registers_shared_memory_and_spills_are_read() -> None:
    shared = "launch__shared_mem_per_block"
    whole = {
        "launch__registers_per_thread": 24.0,
        f"{shared}_static": 1024.0,
        f"{shared}_dynamic": 64.0,
        f"{shared}_driver": 1024.0,
        "sass__inst_executed_register_spilling": 512.0,
    }
    found = resources(Action(**whole))
    expected = CapturedKernel(kernel="f", registers=24, shared_bytes=1088, spill_instructions=512)
    assert found == expected
    del whole["sass__inst_executed_register_spilling"], whole[f"{shared}_dynamic"]
    assert resources(Action(**whole)) == CapturedKernel(kernel="f", registers=24)


# ---- source lines -----------------------------------------------------------------------------
def capture(*lines: tuple[str, int]) -> Any:
    return SimpleNamespace(lines=ColumnTable(lines, ["file", "line"]))


@pytest.mark.parametrize(
    ("lines", "front_ends", "said"),
    [
        ([("/workbench/kernels/a/b.py", 3), ("/x/triton/y.py", 4)], ("Triton",), ""),
        ([("/x/cute.py", 4)], ("CuTe DSL",), ""),
        (
            [("/workbench/inductor/ab/c.py", 3)],
            ("torch.compile",),
            "no source lines of its own files: those shown are of code generated by torch.compile",
        ),
        (
            [("", 0)],
            ("Numba",),
            "no source lines: it was compiled without line information: @cuda.jit(lineinfo=True), "
            "without debug, gives it",
        ),
        ([], ("torch",), "no source lines: torch's own kernels are compiled without line inf"),
        ([], (), "no source lines: its kernels were built without line information"),
    ],
)
def test_where_there_are_no_lines_the_reason_is_told(
    lines: Any, front_ends: Any, said: str
) -> None:
    found = lines_missing(capture(*lines), front_ends)
    assert sentence(found).startswith(said) if said else found is None


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/tmp/workbench-a1_b2c3d/kernels/silu/a.py", "/workbench/kernels/silu/a.py"),
        ("/tmp/workbench-a1_b2c3d/ncu/kernels/silu/a.py", "/workbench/kernels/silu/a.py"),
        ("/tmp/workbench-a1_b2c3d/timing/kernels/silu/a.py", "/workbench/kernels/silu/a.py"),
        ("/tmp/workbench-a1_b2c3d/inductor/ab/cab.py", "/workbench/inductor/ab/cab.py"),
        ("/workbench/kernels/silu/a.cu", "/workbench/kernels/silu/a.cu"),
        ("/home/me/workbench-copy/kernels/silu/a.cu", "/home/me/workbench-copy/kernels/silu/a.cu"),
        ("/opt/venv/lib/python3.12/site-packages/torch/autograd/function.py",
         "torch/autograd/function.py"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_source_compiled_in_a_measurement_has_a_lasting_name(file: str, name: str) -> None:
    assert lasting_name(file) == name


# ---- what workers tell compilers --------------------------------------------------------------
def test_compilers_are_told_to_keep_lines_and_where_to_build() -> None:
    told = compiler_environment(Path("/scratch"), {"NVCC_APPEND_FLAGS": "-O2"})
    assert told["NVCC_APPEND_FLAGS"] == "-O2 -lineinfo --default-stream=per-thread"
    assert told["CUTE_DSL_LINEINFO"] == "1"
    assert told["TRITON_DISABLE_LINE_INFO"] == "0"
    folders = {value for value in told.values() if value.startswith("/scratch/")}
    assert len(folders) == 10


def test_a_call_that_compiles_is_given_time() -> None:
    worker = object.__new__(Worker)
    worker.events = []
    assert worker.allowed(5) == bounds.STARTING_SECONDS  # importing is no variant's fault
    worker.events.append(Hello(pid=1))
    assert worker.allowed(5) == bounds.STARTING_SECONDS
    worker.events.append(Start(variant="a", phase=Phase.CHECK, compiling=True))
    assert worker.allowed(5) == bounds.COMPILING_SECONDS >= 300
    worker.events.append(Start(variant="a", phase=Phase.CHECK))
    assert worker.allowed(5) == 5


def test_what_compiles_is_shown_as_compiling(monkeypatch: Patch) -> None:
    shown: list[str] = []
    progress = cast(Any, Progress())
    monkeypatch.setattr(progress, "live", shown.append)
    progress(Start(variant="a", phase=Phase.CHECK, compiling=True))
    progress(Start(variant="a", phase=Phase.CHECK))
    assert shown == ["compiling a", "checking a"]


def test_only_what_others_compile_is_read_of_a_fresh_report(
    monkeypatch: Patch, tmp_path: Path
) -> None:
    """Decoding a report takes memory that is never given back."""
    texts = {"own": "import torch\nfrom workbench import cuda\n", "fused": "import triton\n"}
    variants = {name: Variant(name, tmp_path / f"{name}.py") for name in texts}
    for name, text in texts.items():
        variants[name].module.write_text(text)
    study = cast(Any, SimpleNamespace(name="s", folder=tmp_path, variants=variants))
    none = cast(Any, None)
    made = measurement.Measurement(study, none, none, Plan("large"), none)
    monkeypatch.setattr(measurement, "resources_of", lambda report, wanted: (wanted,))
    found: Any = made.resources(tmp_path, texts)
    assert found == {"fused": ("workbench:s/fused/large",)}

    def damaged(report: Path, wanted: str) -> Any:
        raise BadCapture("cut short")

    monkeypatch.setattr(measurement, "resources_of", damaged)
    assert made.resources(tmp_path, texts) == {}


def test_a_capture_waits_until_two_calls_launch_the_same(monkeypatch: Patch) -> None:
    """An autotuner's launches, and what a compiler does at the second call, stay outside."""
    graphs = pytest.importorskip("workbench.run.worker.timing.graphs")
    calls: list[str] = []

    def launches(graph: Any) -> tuple[str, ...]:
        return ("a",) * {1: 3, 2: 2}.get(calls.count("eager"), 1)

    monkeypatch.setattr(graphs, "captured", lambda call, side: None)
    monkeypatch.setattr(graphs, "nodes", launches)
    graphs.warm_up(lambda: calls.append("eager"), None)
    assert calls == ["eager"] * 4

    def fails(call: Any, side: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    calls.clear()
    monkeypatch.setattr(graphs, "captured", fails)
    monkeypatch.setattr("torch.cuda.synchronize", lambda: None)
    graphs.warm_up(lambda: calls.append("eager"), None)
    assert calls == ["eager"] * graphs.MOST_WARM_UP


def test_a_recorded_report_says_what_a_library_kernel_takes() -> None:
    (found,) = resources_of(*recorded_range(FLUSHED, "sdpa"))
    assert (found.registers, found.shared_bytes, found.spill_instructions) == (168, 134144, 0)
