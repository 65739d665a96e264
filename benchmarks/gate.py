"""How long `workbench gate` takes without a GPU for the attention study: see docs/gate.md.

    python benchmarks/gate.py

Makes a git repository of a copy of the study in a temporary folder, with a commit a change.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KERNELS = Path("kernels/attention")
MORE = "inline __device__ int nobody_calls_this() { return 1; }\n"
IDENTITY = ["-c", "user.name=benchmark", "-c", "user.email=benchmark@example.org"]


def copied(top: Path) -> None:
    """The study as a workspace of its own."""
    for name in ("kernels", "ablations"):
        where = Path(name) / "attention"
        shutil.copytree(ROOT / where, top / where, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "workbench.toml", top)


def git(top: Path, *arguments: str) -> None:
    subprocess.run(["git", *IDENTITY, *arguments], cwd=top, check=True, capture_output=True)


def commit(top: Path) -> None:
    git(top, "add", "--all")
    git(top, "commit", "--quiet", "--message", "a change")


def edited(top: Path, file: str, old: str, new: str) -> None:
    path = top / KERNELS / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    commit(top)


def edited_everywhere(top: Path) -> None:
    for path in (top / KERNELS).glob("*.cu"):
        path.write_text(path.read_text() + MORE.replace("calls", "needs"))
    commit(top)


def gate(top: Path, cache: Path) -> tuple[float, float, int]:
    """Seconds that passed, seconds of all cores, and the exit code."""
    command = [sys.executable, "-m", "workbench", "gate", "HEAD~1", "--tier", "0"]
    started, used = time.monotonic(), cpu_seconds()
    done = subprocess.run(
        [*command, "--cache", str(cache)], cwd=top, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1, 5):
        raise SystemExit(done.stderr)
    return time.monotonic() - started, cpu_seconds() - used, done.returncode


def cpu_seconds() -> float:
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder) / "repository"
        copied(top)
        git(top, "init", "--quiet")
        commit(top)
        changes = (
            ("a comment in one kernel", "fix1.cu", "\n", "\n// a comment\n"),
            ("code of one kernel", "fix1.cu", "(kThreads)", "(kThreads, 2)"),
            ("a comment in a shared header", "attention.cuh", "\n", "\n// a comment\n"),
            ("code of a shared header", "attention.cuh", "#include", f"{MORE}#include"),
            ("code of every kernel", "", "", ""),
        )
        print(f"{os.cpu_count()} cores\n")
        print("| change | s | of all cores | again, with its cache (s) | exit code |")
        print("| --- | ---: | ---: | ---: | ---: |")
        for what, file, old, new in changes:
            if file:
                edited(top, file, old, new)
            else:
                edited_everywhere(top)
            cache = Path(folder) / "cubins"
            shutil.rmtree(cache, ignore_errors=True)
            cold, cores, code = gate(top, cache)
            warm, _, _ = gate(top, cache)
            print(f"| {what} | {cold:.1f} | {cores:.1f} | {warm:.1f} | {code} |", flush=True)


if __name__ == "__main__":
    main()
