"""Write the golden files of the tests again: reports, pages and screens.

python -m benchmarks.goldens      then look at what changed
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from workbench.cli import main as workbench

ROOT = Path(__file__).resolve().parents[1]
STUDIES = ("attention", "attention_served", "moe", "softmax", "transpose")


def printed(command: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        workbench([*command.split(), "--project", str(ROOT)])
    return out.getvalue()


def main() -> int:
    for study in STUDIES:
        printed(f"report --study {study} --html")
    screens = [sys.executable, "-m", "pytest", "-q", "tests/test_terminal.py"]
    environment = {**os.environ, "WORKBENCH_REWRITE": "1"}
    return subprocess.run(screens, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
