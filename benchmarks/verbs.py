"""CPU seconds of the verbs on recorded evidence, as a Markdown table: see docs/measuring.md.

Run it as ``python -m benchmarks.verbs``. Each command is a process of its own in a fresh clone of
this repository: user and system time of the whole process, median of three runs. A first run that
does not count compiles the bytecode.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
RUNS = 3
STUDY = ["--study", "attention"]
# Command, and the most seconds that it may take.
COMMANDS: list[tuple[list[str], float]] = [
    (["--help"], 0.15),
    (["list"], 0.5),
    (["show", "fix30", *STUDY], 1.2),
    (["profile", "fix30", *STUDY], 1.2),
    (["diff", "fix27", "fix30", *STUDY], 1.2),
    (["advise", "fix30", *STUDY], 1.2),
    (["ablate", *STUDY], 2.0),
]


def seconds(folder: Path, command: Sequence[str], code: int = 0) -> float:
    """User and system time of one run in a folder, with its engine or else this one. Raises
    CalledProcessError if it ends in another code.
    """
    engine = next(top for top in (folder, ROOT) if (top / "profiler").is_dir()) / "profiler"
    environment = {**os.environ, "PYTHONPATH": str(engine), "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-m", "workbench", *command],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    after = os.times()
    if done.returncode != code:
        print(done.stderr, file=sys.stderr)
        done.check_returncode()
    return sum(after[2:4]) - sum(before[2:4])


def main() -> int:
    print("| command | CPU (s) | at most (s) |\n| --- | --: | --: |")
    slow = False
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        for command, most in COMMANDS:
            seconds(clone, command)
            took = median(seconds(clone, command) for _ in range(RUNS))
            slow |= took > most
            print(f"| `workbench {' '.join(command)}` | {took:.2f} | {most:g} |")
    return int(slow)


if __name__ == "__main__":
    raise SystemExit(main())
