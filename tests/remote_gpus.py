"""GPUs for tests: an NVML and an ncu that report them, a stand-in under remote workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import fake_nvml
from answers import Patch
from workbench.run import machine
from workbench.run.machine import VISIBLE, Gpu

HERE = Path(__file__).parent
Install = Callable[..., None]
ROWS: dict[str, Any] = {
    "name": "NVIDIA H200",
    "driver": "580",
    "compute_capability": "9.0",
    "memory_mib": 143771,
    "sm_clock_mhz": 1980,
    "memory_clock_mhz": 3201,
    "power_w": 700.0,
}
NCU = """#!/bin/sh
echo "NVIDIA (R) Nsight Compute Command Line Profiler"
echo "Version 2025.3.1.0 (build 1)"
"""


# Stays on this machine: a shell runs the last argument.
SSH = """#!/bin/sh
for command; do :; done
sh -c "$command"
exit $?
"""
PYTHON = f"""#!/bin/sh
exec {sys.executable} "$@"
"""


def card(number: int, **changes: Any) -> Gpu:
    return Gpu(uuid=f"GPU-{number}", **{**ROWS, **changes})


@dataclass
class Cards:
    """``folder`` is what the stand-in reads faults from and writes to."""

    folder: Path

    def fault(self, kind: str) -> None:
        """It happens to one job."""
        (self.folder / f"fault-{kind}-0").touch()

    @property
    def ran(self) -> list[list[str]]:
        """Process, card and TMPDIR of every job that was begun."""
        path = self.folder / "ran"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def nvml(found: Sequence[Gpu], folder: Path) -> Path:
    """The file of ``fake_nvml`` that lists these, but for those in the file ``lost`` beside it."""
    path = folder / "nvml.json"
    path.write_bytes(msgspec.json.encode(found))
    return path


def listing(tmp_path: Path, monkeypatch: Patch) -> Install:
    """NVML that lists what it is called with."""
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml)
    monkeypatch.setenv(fake_nvml.FILE, str(tmp_path / "nvml.json"))
    monkeypatch.delenv(VISIBLE, raising=False)

    def install(*found: Any) -> None:
        nvml(found, tmp_path)
        machine.find_gpu.cache_clear()

    return install


def install(tmp_path: Path, monkeypatch: Patch, found: list[Gpu]) -> Cards:
    """Into the environment of this process, which workers inherit."""
    folder, tools = tmp_path / "standin", tmp_path / "tools"
    folder.mkdir()
    tools.mkdir()
    for name, text in {"ncu": NCU, "ssh": SSH, "python3": PYTHON}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml)
    monkeypatch.setenv(fake_nvml.FILE, str(nvml(found, folder)))
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    paths = [HERE / "onremote", HERE, HERE.parent / "profiler"]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))
    monkeypatch.setenv("WORKBENCH_STANDIN", str(folder))
    monkeypatch.setenv("WORKBENCH_FOLDER", str(tmp_path / "own"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for cached in (machine.find_gpu, machine.find_ncu):
        cached.cache_clear()
        monkeypatch.setattr(machine, cached.__name__, cached.__wrapped__)
    return Cards(folder)


def alive(cards: Cards) -> list[int]:
    """Processes of jobs that still run."""
    found = []
    for pid in (int(ran[0]) for ran in cards.ran):
        stat = Path(f"/proc/{pid}/stat")
        if stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
            found.append(pid)
    return found
