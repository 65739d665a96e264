"""docs/guide.md as it is followed: files written and commands run, in the order of the page.

    python tests/guide.py record OUT    # on a machine with a GPU: every output into a file of OUT
    python tests/guide.py fill OUT      # what was recorded into the page

A fenced block is a command (``sh``), or a file that its first line names (``cuda``, ``python``,
``toml``): all of it, or of the ladder one step. Below ``<!-- recorded: COMMAND | REGEX -->`` stand
the lines of what the command printed that the expression finds, below ``<!-- rows: COMMAND -->``
its table.
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
_MARKED = (
    r"<!-- (?P<kind>recorded|rows): (?P<of>[^|\n]*?)(?: \| (?P<lines>[^\n]*?))? -->\n"
    r"(?P<said>```text\n.*?\n```\n|(?:\|[^\n]*\n)+)?"
)
_FENCED = r"```(?P<language>\w+)\n(?P<text>.*?)\n```"
_BLOCK = re.compile(f"{_MARKED}|{_FENCED}", re.DOTALL)
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
    """What a command printed, "" where it has not been recorded; ``rows``: of its table, else the
    ``lines`` that an expression finds.
    """

    command: str
    text: str
    rows: bool
    lines: str = ""


Item = File | Command | Recorded


def items(page: str) -> Iterator[Item]:
    for match in _BLOCK.finditer(page):
        if match["kind"]:
            said = (match["said"] or "").removeprefix("```text\n").removesuffix("```\n")
            yield Recorded(match["of"], said, match["kind"] == "rows", match["lines"] or "")
        elif match["language"] == "sh":
            yield from map(Command, match["text"].splitlines())
        elif match["language"] in ("cuda", "python", "toml"):
            named = _FILE.match(match["text"])
            assert named is not None, match["text"]
            yield File(named[1], f"{match['text']}\n", named[2] or "")


def write(file: File, here: Path) -> None:
    path = here / file.path
    if not file.step:
        path.write_text(file.text)
        return
    old = path.read_text()
    start = old.index(f'[[step]]\nvariant = "{file.step}"')
    ends = [old.find(word, start + 1) for word in ("[[step]]\n", "# What it is measured against")]
    end = min((found for found in ends if found > 0), default=len(old))
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
    """Every command's output into ``out``, by the number of its item on the page."""
    out.mkdir(parents=True, exist_ok=True)
    reader = Reader(here)
    for number, item in enumerate(items(GUIDE.read_text(encoding="utf-8"))):
        if isinstance(item, File):
            write(item, reader.here)
        elif isinstance(item, Command) and not item.installs:
            done = reader.run(item)
            (out / f"{number:02}.out").write_text(done.stdout)
            (out / f"{number:02}.err").write_text(done.stderr)
            print(f"{number:02} exit {done.returncode}: {item.line}", flush=True)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def rows_of(printed: str) -> str:
    """The first table of an output."""
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    width = len(cells(lines[0]))
    kept = lines[: next((n for n, one in enumerate(lines) if len(cells(one)) != width), None)]
    return "".join(f"{line}\n" for line in kept)


def lines_of(printed: str, wanted: str) -> str:
    found = [line for line in printed.splitlines() if re.search(wanted, line)]
    return "```text\n" + "".join(f"{line}\n" for line in found) + "```\n"


def filled(page: str, out: Path) -> str:
    """The page with what was recorded below its marks."""
    printed: dict[str, str] = {}
    said: list[str] = []
    for number, item in enumerate(items(page)):
        file = out / f"{number:02}.out"
        if isinstance(item, Command) and file.is_file():
            printed[item.line] = file.read_text()
        elif isinstance(item, Recorded):
            text = printed[item.command]
            said.append(rows_of(text) if item.rows else lines_of(text, item.lines))
    fresh = iter(said)

    def put(match: re.Match[str]) -> str:
        if not match["kind"]:
            return match[0]
        return match[0].removesuffix(match["said"] or "") + next(fresh)

    return _BLOCK.sub(put, page)


if __name__ == "__main__":
    import tempfile

    if sys.argv[1] == "record":
        with tempfile.TemporaryDirectory() as folder:
            record(Path(sys.argv[2]), Path(folder))
    else:
        GUIDE.write_text(filled(GUIDE.read_text(encoding="utf-8"), Path(sys.argv[2])))
