"""docs/guide.md as it is followed: files written and commands run, in the order of the page.

    python tests/guide.py OUT     # on a machine with a GPU: every output into a file of OUT

A fenced block is a command (``sh``), or a file that its first line names (``cuda``, ``python``,
``toml``): all of it, or of the ladder one step. Below ``<!-- recorded: COMMAND -->`` stands what
the command printed, ``...`` for what is left out, and below ``<!-- rows: COMMAND -->`` some rows
and columns of its table.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GUIDE = ROOT / "docs" / "guide.md"
INSTALLS = ("python3 -m venv", ". .venv", "pip install", "cd ..")
_BLOCK = re.compile(
    r"(?:<!-- (?P<kind>recorded|rows): (?P<of>[^>]*?) -->\n)?"
    r"(?:```(?P<language>\w+)\n(?P<text>.*?)\n```|(?P<table>(?:^\|.*\n)+))",
    re.DOTALL | re.MULTILINE,
)
_FILE = re.compile(r"(?:#|//) ([\w./]+\.\w+)(?:, the step (\w+))?")


@dataclass(frozen=True)
class File:
    """``step``: only this step of the ladder is replaced."""

    path: str
    text: str
    step: str = ""


@dataclass(frozen=True)
class Command:
    line: str

    @property
    def installs(self) -> bool:
        return self.line.startswith(INSTALLS)


@dataclass(frozen=True)
class Recorded:
    """What a command printed; ``rows``: columns and rows of its table."""

    command: str
    text: str
    rows: bool


Item = File | Command | Recorded


def items(page: str) -> Iterator[Item]:
    for match in _BLOCK.finditer(page):
        text = match["text"] or match["table"] or ""
        if match["kind"]:
            yield Recorded(match["of"], text, match["kind"] == "rows")
        elif match["language"] == "sh":
            yield from map(Command, text.splitlines())
        elif match["language"] in ("cuda", "python", "toml"):
            named = _FILE.match(text)
            assert named is not None, text
            yield File(named[1], f"{text}\n", named[2] or "")


def write(file: File, here: Path) -> None:
    path = here / file.path
    if not file.step:
        path.write_text(file.text)
        return
    old = path.read_text()
    start = old.index(f'[[step]]\nvariant = "{file.step}"')
    ends = [old.find(word, start + 1) for word in ("[[step]]\n", "# What it is measured against")]
    end = min(found for found in ends if found > 0)
    path.write_text(f"{old[:start]}{file.text.partition(chr(10))[2]}\n{old[end:]}")


@dataclass
class Reader:
    """Who follows the guide, in a folder of their own; ``cd`` counts."""

    here: Path

    def run(self, command: Command) -> subprocess.CompletedProcess[str]:
        if command.line.startswith("cd "):
            self.here = self.here / command.line.removeprefix("cd ")
            return subprocess.CompletedProcess(command.line, 0, "", "")
        line = re.sub(r"^workbench\b", f"{sys.executable} -m workbench", command.line)
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self.here,
            env={**os.environ, "PYTHONPATH": paths()},
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )


def paths() -> str:
    return os.pathsep.join([str(ROOT / "profiler"), os.environ.get("PYTHONPATH", "")])


def record(out: Path, here: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    reader = Reader(here)
    for number, item in enumerate(items(GUIDE.read_text(encoding="utf-8"))):
        if isinstance(item, File):
            write(item, reader.here)
        elif isinstance(item, Command) and not item.installs:
            done = reader.run(item)
            (out / f"{number:02}.out").write_text(f"$ {item.line}\n{done.stdout}")
            (out / f"{number:02}.err").write_text(f"exit {done.returncode}\n{done.stderr}")
            print(f"{item.line}: exit {done.returncode}", flush=True)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        record(Path(sys.argv[1]), Path(folder))
