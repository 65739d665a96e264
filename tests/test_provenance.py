"""The command that evidence has on record is the one that was typed, whatever program it was."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from answers import Patch
from workbench.evidence.records import Environment
from workbench.run import recording
from workbench.run.recording import provenance


@pytest.mark.parametrize(
    ("module", "typed", "told"),
    [
        ("", ["/usr/bin/workbench", "ablate", "fix1"], "workbench ablate fix1"),
        ("workbench.__main__", ["/x/workbench/__main__.py", "check"], "workbench check"),
        ("benchmarks.models", ["/x/models.py", "b?"], "python -m benchmarks.models 'b?'"),
        ("", ["/x/times.py", "--out=/x/out"], "python times.py --out=out"),
        ("", [""], "python"),
        ("", ["-c", "7"], "python -c 7"),
    ],
)
def test_of_each_program(monkeypatch: Patch, module: str, typed: list[str], told: str) -> None:
    started = ModuleType("__main__")
    started.__spec__ = ModuleSpec(module, None, origin=typed[0]) if module else None
    monkeypatch.setitem(sys.modules, "__main__", started)
    monkeypatch.setattr(sys, "argv", typed)
    assert provenance(Environment()).command == told


def test_of_a_process_that_acts_for_another(monkeypatch: Patch) -> None:
    monkeypatch.setattr(recording, "_elsewhere", [])
    recording.act_for(["python", "-m", "benchmarks.models", "b?"])
    assert provenance(Environment()).command == "python -m benchmarks.models 'b?'"


def test_of_another_machine() -> None:
    given = ["workbench", "check", "fix1"]
    assert provenance(Environment(), command=given).command == "workbench check fix1"
