"""ruff and mypy are part of the test command: of the engine always, of the rest as a slow test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = (
    pytest.param("mypy profiler/workbench", id="mypy of the engine"),
    pytest.param("mypy", marks=pytest.mark.slow, id="mypy of everything"),
    pytest.param("ruff check .", id="ruff check"),
    pytest.param("ruff format --check .", id="ruff format"),
)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("command", COMMANDS)
def test_the_checkout_passes(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
