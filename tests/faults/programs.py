"""Programs that tests of faults run in processes of their own: what hangs, crashes or is killed."""

from __future__ import annotations

from pathlib import Path

from tools.folders import unpacked

PROGRAMS = unpacked(Path(__file__).with_name("programs.txtar"))


def program(name: str) -> str:
    return (PROGRAMS / f"{name}.py").read_text()
