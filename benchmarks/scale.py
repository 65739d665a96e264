"""CPU seconds of the verbs on the recorded attention study, as a Markdown table.

``python -m benchmarks.scale`` adds user and system time of the whole process, in a fresh clone of
this repository: the median of three runs after one that compiles the bytecode. The exit code is 1
where a verb takes longer than it may. The table is in docs/measuring.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tools.pages import ROOT, table

# Command, and the most seconds that it may take.
MOST = {
    "--help": 0.15, "list": 0.5, "show fix30 --study attention": 1.2,
    "profile fix30 --study attention": 1.2, "diff fix27 fix30 --study attention": 1.2,
    "advise fix30 --study attention": 1.2, "ablate --study attention": 2.0,
}  # fmt: skip


def seconds(clone: Path, command: Sequence[str]) -> float:
    """User and system time of one run. Raises CalledProcessError if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(clone / "profiler"), "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = os.times()
    verb = [sys.executable, "-m", "workbench", *command]
    subprocess.run(verb, cwd=clone, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])


def main() -> int:
    rows, slow = [], False
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        for command, most in MOST.items():
            took = median([seconds(clone, command.split()) for _ in range(4)][1:])
            slow |= took > most
            rows.append((f"`workbench {command}`", f"{took:.2f}", f"{most:g}"))
    print(table(("command", "CPU (s)", "at most (s)"), rows))
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
