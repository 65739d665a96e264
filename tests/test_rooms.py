"""Rooms import only from those before them, and one module knows NVIDIA's report reader."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import workbench
from workspaces import ROOT

ENGINE = Path(workbench.__file__).parent
ORDER = (
    *("errors", "words", "cuda", "study", "evidence", "ncu", "run"),
    *("derive", "judge", "render", "commands", "cli"),
)


def imported(path: Path) -> Iterator[str]:
    """The modules that a file imports, at its top or inside of functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def modules(room: str) -> list[Path]:
    alone = ENGINE / f"{room}.py"
    return [alone] if alone.is_file() else sorted((ENGINE / room).rglob("*.py"))


@pytest.mark.parametrize("room", ORDER)
def test_a_room_imports_only_from_those_before_it(room: str) -> None:
    later = ORDER[ORDER.index(room) + 1 :]
    for path in modules(room):
        for name in imported(path):
            first, _, rest = name.partition(".")
            used = rest.partition(".")[0] if first == "workbench" else ""
            assert used not in later, f"{path.relative_to(ROOT)}: {name}"


def test_reports_are_read_in_one_place() -> None:
    readers = {path.name for path in ENGINE.rglob("*.py") if "ncu_report" in imported(path)}
    assert readers == {"reader.py"}
