"""Several cards for tests: a nvidia-smi and an ncu that say so, a stand-in under every block."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from workbench.run import machine
from workbench.run.cards import FIELDS, Card

HERE = Path(__file__).parent
ROWS = {
    "name": "NVIDIA H200",
    "driver": "580",
    "compute_capability": "9.0",
    "memory": "143771 MiB",
    "sm_clock": "1980 MHz",
    "memory_clock": "3201 MHz",
    "power": "700.00 W",
}
NVIDIA_SMI = """#!{python} -I
import os, sys
rows = {rows!r}
folder = {folder!r}
lost = open(folder + "/lost").read().split() if os.path.exists(folder + "/lost") else []
rows = [row for row in rows if row["uuid_"] not in lost]
asked = next((word for word in sys.argv if word.startswith("--query-gpu=")), "")
for number, row in enumerate(rows):
    if asked:
        print(", ".join(row[name] for name in asked.partition("=")[2].split(",")))
    else:
        print(f"GPU {{number}}: {{row['name']}} (UUID: {{row['uuid_']}})")
"""
NCU = """#!/bin/sh
echo "NVIDIA (R) Nsight Compute Command Line Profiler"
echo "Version 2025.3.1.0 (build 1)"
"""


def card(number: int, **changes: str) -> Card:
    return Card(uuid=f"GPU-{number}", **{**ROWS, **changes})


@dataclass
class Cards:
    """``folder`` is what the stand-in reads faults from and writes to."""

    folder: Path

    def fault(self, kind: str, number: int = 1) -> None:
        """It happens to so many blocks."""
        for i in range(number):
            (self.folder / f"fault-{kind}-{i}").touch()

    @property
    def ran(self) -> list[list[str]]:
        """Process, card and TMPDIR of every block that was begun."""
        path = self.folder / "ran"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def smi(found: Sequence[Card], folder: Path) -> str:
    """A nvidia-smi that lists these, but for those that ``folder`` says are lost."""
    rows = []
    for one in found:
        row = {query: str(getattr(one, name)) for name, query in FIELDS.items()}
        rows.append({**row, "uuid_": one.uuid})
    return NVIDIA_SMI.format(python=sys.executable, rows=rows, folder=str(folder))


def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: list[Card]) -> Cards:
    """Into the environment of this process, which workers inherit."""
    folder, tools = tmp_path / "standin", tmp_path / "tools"
    folder.mkdir()
    tools.mkdir()
    for name, text in {"nvidia-smi": smi(found, folder), "ncu": NCU}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    paths = [HERE / "onworkers", HERE, HERE.parent / "profiler"]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))
    monkeypatch.setenv("WORKBENCH_STANDIN", str(folder))
    monkeypatch.setenv("WORKBENCH_PLACE", str(tmp_path / "own"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for cached in (machine.find_gpu, machine.find_ncu):
        cached.cache_clear()
        monkeypatch.setattr(machine, cached.__name__, cached.__wrapped__)
    return Cards(folder)


def alive(cards: Cards) -> list[int]:
    """Processes of blocks that still run."""
    found = []
    for pid in (int(ran[0]) for ran in cards.ran):
        stat = Path(f"/proc/{pid}/stat")
        if stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
            found.append(pid)
    return found
