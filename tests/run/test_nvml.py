"""GPU facts from NVML: visible GPUs, slices, unknown values, and NVML that does not work."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fake_nvml
from answers import Patch
from remote_gpus import ROWS, Install, card, listing
from workbench.cli.doctor import driver_row, gpu_row, slices_row, works
from workbench.errors import EnvironmentLacks
from workbench.run import machine

SLICED = [
    {"name": "NVIDIA H200 MIG 1g.18gb", "uuid": "MIG-a", "memory_mib": 16384},
    {"name": "odd", "uuid": "MIG-b", "memory_mib": None},
]


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: Patch) -> Install:
    return listing(tmp_path, monkeypatch)


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: Patch) -> Callable[[str], None]:
    """The only program on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def install(text: str) -> None:
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    return install


def test_a_gpu_is_what_nvml_reports(listed: Install) -> None:
    listed(card(0), card(1, name="NVIDIA T4", compute_capability="7.5"))
    first, second = machine.gpus()
    assert first == card(0)
    assert (second.name, second.arch) == ("NVIDIA T4", "sm_75")
    assert machine.look().driver == "580"
    assert gpu_row().found == "NVIDIA H200, compute capability 9.0, GPU-0"
    assert driver_row().found == "580"


def test_what_nvml_refuses_is_unknown(listed: Install) -> None:
    listed({**dict.fromkeys(ROWS), "uuid": "GPU-0", "driver": "580"})
    (only,) = machine.gpus()
    assert only == machine.Gpu("unknown", "580", "", "GPU-0")
    with pytest.raises(EnvironmentLacks, match="compute capability of unknown"):
        _ = only.arch
    row = gpu_row()
    assert (row.result, row.found) == ("ok", "unknown, compute capability unknown, GPU-0")


@pytest.mark.parametrize(
    ("named", "found"),
    [
        (None, "GPU-0 GPU-1 GPU-2"),
        ("2,0", "GPU-2 GPU-0"),
        ("GPU-1", "GPU-1"),
        ("1,7,0", "GPU-1"),
        ("-1", ""),
        ("", ""),
    ],
)
def test_gpus_are_those_that_the_process_may_use(named: str | None, found: str) -> None:
    every = [card(0), card(1), card(2)]
    assert [one.uuid for one in machine.usable(every, named)] == found.split()


@pytest.mark.parametrize(
    ("visible", "name"),
    [
        (None, "NVIDIA T4"),
        ("", None),
        ("-1", None),
        ("1", "NVIDIA H200"),
        ("1,0", "NVIDIA H200"),
        ("2", None),
        ("GPU-1", "NVIDIA H200"),
        ("GPU-7", None),
    ],
)
def test_the_first_gpu_is_the_one_that_is_visible(
    visible: str | None, name: str | None, listed: Install, monkeypatch: Patch
) -> None:
    listed(card(0, name="NVIDIA T4"), card(1))
    if visible is not None:
        monkeypatch.setenv(machine.VISIBLE, visible)
    found = machine.find_gpu()
    assert (found and found.name) == name
    hidden = "CUDA_VISIBLE_DEVICES names none" in gpu_row().fix
    assert hidden == (found is None)
    if found is None:
        assert f"names none: '{visible}'" in machine.why_not_measuring().message


def test_slices_are_described_by_their_gpu(listed: Install, monkeypatch: Patch) -> None:
    whole = card(0)
    listed({**msgspec.to_builtins(whole), "slices": SLICED}, card(1))
    assert [one.uuid for one in machine.look().gpus] == ["GPU-0", "MIG-a", "MIG-b", "GPU-1"]
    one, other = machine.gpus()
    assert (one.uuid, one.profile, one.memory_mib) == ("MIG-a", "MIG 1g.18gb", 16384)
    assert (other.uuid, other.profile, other.memory_mib) == ("MIG-b", "MIG", None)
    assert (one.name, one.slug) == (whole.name, "nvidia-h200-mig-1g-18gb")
    monkeypatch.setenv(machine.VISIBLE, "MIG-b")
    assert machine.gpus() == [other]
    monkeypatch.setenv(machine.VISIBLE, "1")
    assert machine.gpus() == [card(1)]
    row = slices_row()
    assert (row.result, row.found) == ("warn", "on: a GPU is divided into slices")
    assert works([row])["measure"]
    listed(whole)
    assert slices_row().found == "off"


def test_a_lost_gpu_leaves_the_others(listed: Install, tmp_path: Path, monkeypatch: Patch) -> None:
    listed(card(0), card(1))
    (tmp_path / "lost").write_text("GPU-0")
    assert machine.gpus() == [card(1)]
    row = gpu_row()
    assert row.result == "warn"
    assert row.found.endswith("GPU-1; GPU 0: NVML: GPU is lost")
    (tmp_path / "lost").write_text("GPU-0 GPU-1")
    monkeypatch.setenv("PATH", "")
    assert machine.why_none() == "NVML: GPU is lost; nvidia-smi is not on PATH"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("echo; echo 'Failed to initialize NVML'; exit 9", "nvidia-smi: Failed to initialize NVML"),
        ("echo 'no driver' >&2; exit 9", "nvidia-smi: no driver"),
        ("exit 9", "nvidia-smi: exit code 9"),
    ],
)
def test_nvidia_smi_is_quoted_if_nvml_fails(
    text: str, says: str, listed: Install, smi: Callable[[str], None]
) -> None:
    smi(text)
    assert machine.look() == machine.ListedGpus(error="NVML: Driver Not Loaded")
    assert machine.why_none() == f"NVML: Driver Not Loaded; {says}"
    assert machine.find_gpu() is None
    assert f"no NVIDIA GPU was found (NVML: Driver Not Loaded; {says})" in str(
        machine.why_not_measuring()
    )
    assert says in gpu_row().fix
    row = driver_row()
    assert (row.result, row.found) == ("fail", "none")
    assert "`nvidia-smi`" in row.fix


def test_an_nvidia_smi_that_hangs_is_given_up(
    listed: Install, smi: Callable[[str], None], monkeypatch: Patch, tmp_path: Path
) -> None:
    smi(f"echo >> {tmp_path}/asked; exec /bin/sleep 600")
    monkeypatch.setattr("workbench.bounds.TOOL_SECONDS", 0.5)
    why = "nvidia-smi does not run: nvidia-smi timed out after 0.5 seconds"
    assert why in machine.why_none()
    assert why in gpu_row().fix
    assert "reboot" in driver_row().fix
    assert (tmp_path / "asked").read_text() == "\n"  # a doctor waits for it once


def test_a_working_nvml_runs_no_nvidia_smi(
    listed: Install, smi: Callable[[str], None], monkeypatch: Patch
) -> None:
    smi("exit 0")

    def run(*given: Any, **named: Any) -> Any:
        raise AssertionError(given)

    monkeypatch.setattr(subprocess, "Popen", run)
    listed(card(0))
    assert machine.gpus()
    monkeypatch.setenv(machine.VISIBLE, "7")
    assert machine.why_none() == "CUDA_VISIBLE_DEVICES names none: '7'"
    monkeypatch.delenv(machine.VISIBLE)
    assert "try again" in machine.why_none()


def test_nvml_that_lists_nothing_or_breaks_is_an_error(listed: Install, monkeypatch: Patch) -> None:
    listed()
    assert machine.look().error == "NVML lists no GPU"
    monkeypatch.setattr(fake_nvml, "nvmlInit", lambda: 1 / 0)
    assert machine.look().error == "NVML: division by zero"


def test_a_missing_library_or_package_is_named(
    smi: Callable[[str], None], monkeypatch: Patch
) -> None:
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)

    def none(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", none)
    assert machine.look().error == "NVML is not installed: libnvidia-ml.so.1 was not found"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert machine.look().error == "the package nvidia-ml-py is not installed"
    monkeypatch.setattr(machine, "missing_packages", lambda: ["torch", "nvidia-ml-py"])
    machine.find_gpu.cache_clear()
    assert "no NVIDIA GPU was found (the package" in machine.why_not_measuring().message
    smi("echo 'GPU 0: NVIDIA H200 (UUID: GPU-0)'")
    assert "packages are missing: torch, nvidia-ml-py" in machine.why_not_measuring().message
    assert machine.missing_to_run() == ["torch"]


@pytest.mark.parametrize("number", [1, 2])
def test_clocks_are_of_the_gpu_that_measures(number: int, listed: Install) -> None:
    """With another one before it, which CUDA does not see."""
    listed(*[{**msgspec.to_builtins(card(0)), "reasons": 5}, card(1)][-number:])
    gauge = machine.Gauge("GPU-1")
    assert gauge.load() == machine.Load(30, throttled=False)
    listed({**msgspec.to_builtins(card(1)), "reasons": 5})
    assert machine.Gauge("GPU-1").load().reasons == ("SwPowerCap",)


def test_without_nvml_no_clock_is_collected(listed: Install) -> None:
    gauge = machine.Gauge("GPU-0")
    assert gauge.load() == machine.Load()
