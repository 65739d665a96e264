"""Runs the commands of docs/try.md on this machine's GPU and writes what they print below each.

    python benchmarks/tries.py              all of them
    python benchmarks/tries.py torch cuda   these

Every one runs in tests/problems, with a cache of its own, so that nothing is on record before.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "try.md"
COMMAND = re.compile(
    r"<!-- recorded: (?P<name>\w+) -->\n```sh\n(?P<command>.*?)```\n"
    r"(?P<old>\n```text\n.*?```\n)?",
    re.DOTALL,
)
SECONDS = 300
CACHE = re.compile(r"/\S*/workbench/try/")


def printed(command: str, cache: str) -> str:
    """What a command prints on stdout; progress is shown. Raises RuntimeError where it fails."""
    words = shlex.split(command.replace("\\\n", " "))
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT / "tests" / "problems",
        env={**os.environ, "XDG_CACHE_HOME": cache},
        stdout=subprocess.PIPE,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"exit {done.returncode}")
    return CACHE.sub("~/.cache/workbench/try/", done.stdout)


def main(wanted: list[str]) -> int:
    failed = 0
    with tempfile.TemporaryDirectory() as cache:
        for name, command in [m.group("name", "command") for m in
                              COMMAND.finditer(PAGE.read_text(encoding="utf-8"))]:  # fmt: skip
            if wanted and name not in wanted:
                continue
            started = time.monotonic()
            try:
                text = printed(command, cache)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{name}: {error}", file=sys.stderr)
                failed += 1
                continue
            print(f"{name}: {time.monotonic() - started:.0f} s")
            write(name, text)
    return 1 if failed else 0


def write(name: str, text: str) -> None:
    """Below its command, in place of what stood there."""

    def replaced(match: re.Match[str]) -> str:
        if match["name"] != name:
            return match[0]
        head = f"<!-- recorded: {name} -->\n```sh\n{match['command']}```\n"
        return f"{head}\n```text\n{text.strip()}\n```\n"

    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(COMMAND.sub(replaced, page), encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
