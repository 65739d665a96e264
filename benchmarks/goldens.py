"""Write the golden files of the tests again: reports, pages, screens and figures.

python -m benchmarks.goldens      then look at what changed
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import zstandard

from workbench.cli import main as workbench

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "tests" / "recorded" / "figures.json.zst"
STUDIES = ("attention", "attention_served", "moe", "softmax", "transpose")
sys.path.insert(0, str(ROOT / "tests"))


def printed(command: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        workbench([*command.split(), "--project", str(ROOT)])
    return out.getvalue()


def main() -> int:
    from test_same_figures import COMMANDS

    for study in STUDIES:
        printed(f"report --study {study} --html")
    figures = {command: json.loads(printed(command)) for command in COMMANDS}
    text = json.dumps(figures, sort_keys=True).encode()
    FIGURES.write_bytes(zstandard.ZstdCompressor(level=19).compress(text))
    screens = [sys.executable, "-m", "pytest", "-q", "tests/test_terminal.py"]
    environment = {**os.environ, "WORKBENCH_REWRITE": "1"}
    return subprocess.run(screens, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
