"""ruff and mypy are part of the test command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"])


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_checkout_passes(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
