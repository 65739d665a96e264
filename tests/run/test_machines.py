"""``doctor`` on broken machines: what failed, in the failing tool's words, and the way out."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from answers import Capsys, Patch
from remote_gpus import Install, card, listing
from workbench.cli.main import main
from workbench.cuda.compiler import compiler_version, ran
from workbench.errors import BadCapture, EnvironmentLacks
from workbench.ncu.command import known_error, known_errors
from workbench.run import machine, self_test
from workbench.run.process import worker_environment

WORKS = "done compilation\ndone allocation\ndone launch\n"
TORCH = "torch 2.13.0, CUDA 13.0\n"
Broken = dict[str, tuple[str, int]]
Tries = Callable[[Broken], dict[str, Any]]


@pytest.fixture
def tries(tmp_path: Path, monkeypatch: Patch) -> Tries:
    """What is tried with a Python and an ncu that print these and exit so."""

    def program(name: str, cases: Broken) -> str:
        path = tmp_path / name
        arms = "".join(
            f"  *{mark}*) printf %s {shlex.quote(text)}; exit {code};;\n"
            for mark, (text, code) in cases.items()
        )
        waits = f"*torch*) while [ -e {tmp_path}/hold ]; do sleep 0.01; done;;"
        leaves = f"*--set*) rm -f {tmp_path}/hold;;"
        both = f'case "$*" in\n{waits}\n{leaves}\nesac\ncase "$*" in\n{arms}esac\n'
        path.write_text(f"#!/bin/sh\n{both}exit 99\n")
        path.chmod(0o755)
        return str(path)

    def tried(broken: Broken) -> dict[str, Any]:
        python: Broken = {"torch": (TORCH, 0), "kernel": (WORKS, 0)}
        own = {mark: broken.get(mark, works) for mark, works in python.items()}
        tool = program("ncu", {mark: broken.get(mark, ("", 0)) for mark in ("--metrics", "--set")})
        monkeypatch.setattr(sys, "executable", program("python", own))

        def actions(report: Path, wanted: None) -> list[Any]:
            if report.stem in broken:
                raise BadCapture(f"there is no capture {report}")
            return [Action({"time": 1.0, "bytes": float("nan"), "hits": None})]

        monkeypatch.setattr(self_test, "actions", actions)
        return {one.step: one for one in self_test.outcomes(tool, "sm_90a", has_gpu=True)}

    return tried


class Action:
    """A launch with metrics of these values; None is a metric that has none."""

    def __init__(self, values: dict[str, float | None]) -> None:
        self.values = values

    def metric_names(self) -> list[str]:
        return list(self.values)

    def metric_by_name(self, name: str) -> Any:
        found = self.values[name]
        return SimpleNamespace(
            has_value=lambda: found is not None, value=lambda: found, unit=lambda: ""
        )


def test_a_machine_that_works_is_told_so(tries: Tries, tmp_path: Path) -> None:
    (tmp_path / "hold").touch()  # torch is imported until ncu has run
    found = tries({})
    assert [one.error for one in found.values()] == [""] * 6
    assert found["torch on this GPU"].found == TORCH.strip()
    assert found["ncu, full set"].found == "3 metrics, 1 of them without a number"


ERROR = "==PROF== Connected\n==ERROR== {}\n==ERROR== The application returned an error code (9).\n"
UNKNOWN = "the cause is not known"
REBOOT = "reboot, or reload the nvidia kernel modules"


def kernel(text: str, *done: str, hint: str = UNKNOWN) -> tuple[Broken, str, str, str]:
    """Its steps that were ``done``, and what the next of them says."""
    steps = ("compilation", "allocation", "launch")
    said = "".join(f"done {step}\n" for step in done) + text
    return {"kernel": (said, 1)}, steps[len(done)], f"{text} (exit code 1)", hint


def torch_says(text: str, hint: str) -> tuple[Broken, str, str, str]:
    return {"torch": (f"Traceback:\n{text}", 1)}, "torch on this GPU", f"{text} (exit code 1)", hint


def ncu_says(
    text: str, hint: str, code: int = 9, mark: str = "--metrics"
) -> tuple[Broken, str, str, str]:
    step = {"--metrics": "ncu, one counter", "--set": "ncu, full set"}[mark]
    is_error = "WARNING" not in text and "Failed to initialize" not in text
    said = f"==ERROR== {text}" if is_error else text
    log = ERROR.format(text) if is_error else text
    return {mark: (log, code)}, step, f"{said} (exit code {code})", hint


DEAD = {
    "NVRTC without its own library": kernel(
        "RuntimeError: nvrtc: error: failed to open libnvrtc-builtins.so.13.0"
    ),
    "a GPU whose memory is taken": kernel(
        "CUDAError: CUDA_ERROR_OUT_OF_MEMORY: out of memory", "compilation"
    ),
    "driver and library of two versions": kernel(
        "CUDAError: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: unsupported combination", hint=REBOOT
    ),
    "a kernel that hangs the GPU": kernel("CUDA_ERROR_LAUNCH_TIMEOUT", "compilation", "allocation"),
    "a torch for the CPU": torch_says(
        "AssertionError: Torch not compiled with CUDA enabled", "install a CUDA build of torch"
    ),
    "a driver that is too old for torch": torch_says(
        "RuntimeError: The NVIDIA driver on your system is too old (found 11040)",
        "update NVIDIA's driver, or install packages for an older CUDA",
    ),
    "a torch without this architecture": torch_says(
        "CUDA error: no kernel image is available for execution on the device",
        "for this compute capability",
    ),
    "root in a container without SYS_ADMIN": ncu_says(
        "ERR_NVGPUCTRPERM - The user does not have permission", "--cap-add=SYS_ADMIN", 1
    ),
    "the lock of another user": ncu_says(
        "InterprocessLockFailed: /tmp/nsight-compute-lock", "set TMPDIR to a folder of your own", 1
    ),
    "a GPU that this ncu does not support": ncu_says(
        "Profiling is not supported on device 0.", "`--no-profile` measures without ncu", 1
    ),
    "a driver that this ncu does not support": ncu_says(
        "Cuda driver is not compatible with Nsight Compute", "update NVIDIA's driver", 11
    ),
    "a sandbox without the profiling library": ncu_says(
        "Failed to initialize the profiler: LibraryNotLoaded",
        "the container or sandbox hides it",
        1,
    ),
    "another profiler": ncu_says(
        "because a driver resource was unavailable.", "dcgmi profile --pause"
    ),
    "an error that nobody knows": ncu_says("Unknown Error on device 0.", UNKNOWN),
    "an ncu that sees no kernel": ncu_says("==WARNING== No kernels were profiled.", UNKNOWN, 0),
    "one counter and no more": ncu_says(
        "Failed to prepare kernel for profiling", UNKNOWN, mark="--set"
    ),
}


@pytest.mark.parametrize("machine_of", DEAD)
def test_a_broken_machine_is_told_in_the_words_of_what_failed(
    machine_of: str, tries: Tries
) -> None:
    broken, step, said, hint = DEAD[machine_of]
    found = tries(broken)
    assert said in found[step].error
    assert hint in found[step].hint
    for other, outcome in found.items():
        assert other == step or not outcome.error


def test_a_tool_that_does_not_run_is_told(tmp_path: Path) -> None:
    (tmp_path / "no").touch()
    code, log = ran([str(tmp_path / "no")], tmp_path)
    assert (code, "Permission denied" in log) == (None, True)
    code, log = ran(["sleep", "9"], tmp_path, 0.1)
    assert "timed out after 0.1 seconds" in self_test.failed("ncu", code, log).error
    assert self_test.failed("ncu", 9, "").error == "nothing was printed (exit code 9)"


def test_a_tool_whose_child_hangs_is_left(tmp_path: Path, monkeypatch: Patch) -> None:
    """``ncu`` of the CUDA toolkit is a script, and the program that it starts outlives it."""
    tool = tmp_path / "ncu"
    tool.write_text("#!/bin/sh\nsleep 30\ntouch slept\necho Version 2026.1.0\n")
    tool.chmod(0o755)
    monkeypatch.setattr("workbench.bounds.TOOL_SECONDS", 0.2)
    monkeypatch.chdir(tmp_path)
    assert machine.ncu_version("./ncu") is None
    assert not (tmp_path / "slept").exists()
    tool.write_text("#!/bin/sh\necho Version 2026.1.0\n")
    machine.ncu_version.cache_clear()
    monkeypatch.setattr("workbench.bounds.TOOL_SECONDS", 20.0)
    assert machine.ncu_version("./ncu") == "2026.1.0"


# What NVML and the kernel say.


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: Patch) -> Install:
    """NVML that lists these; nvidia-smi and ncu are not on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(self_test, "outcomes", lambda *_, **named: iter(()))
    return listing(tmp_path, monkeypatch)


def doctors(capsys: Capsys) -> dict[str, Any]:
    main(["doctor", "--json"])
    return {row["name"]: row for row in json.loads(capsys.readouterr().out)["rows"]}


def test_a_mismatch_of_driver_and_library_is_no_missing_driver(
    listed: Install, tmp_path: Path, capsys: Capsys
) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\n")
    smi.chmod(0o755)
    rows = doctors(capsys)
    assert "reboot, or reload the nvidia kernel modules" in rows["driver"]["fix"]
    assert "Driver/library version mismatch" in rows["GPU"]["fix"]


def test_every_entry_has_its_source() -> None:
    for entry in known_errors():
        assert entry.source.startswith("https://")
        assert entry.hint
    assert known_error("all is well") is None
    assert compiler_version() == "" or compiler_version()[0].isdigit()


# Which GPU.


def test_a_worker_on_another_gpu_is_an_error(listed: Install) -> None:
    listed(card(0), card(1))
    machine.require_gpu("NVIDIA H200", "GPU-0")
    machine.require_gpu(None, None)
    with pytest.raises(EnvironmentLacks, match="runs on NVIDIA T4 ") as told:
        machine.require_gpu("NVIDIA T4", "GPU-1")
    assert told.value.exit_code == 3
    assert "CUDA_VISIBLE_DEVICES=GPU-0" in told.value.hint


def test_a_slice_is_another_gpu_than_the_whole(listed: Install) -> None:
    part = {"name": "NVIDIA H200 MIG 1g.18gb", "uuid": "MIG-a", "memory_mib": 16384}
    listed({**msgspec.to_builtins(card(0)), "slices": [part]})
    (one,) = machine.gpus()
    assert one.slug == "nvidia-h200-mig-1g-18gb"
    machine.require_gpu("NVIDIA H200 MIG 1g.18gb", "GPU-0")
    with pytest.raises(EnvironmentLacks, match="evidence is that of NVIDIA H200 MIG"):
        machine.require_gpu("NVIDIA H200", "GPU-0")


def test_workers_count_gpus_as_nvml_does(tmp_path: Path) -> None:
    assert worker_environment(tmp_path)["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
