"""Try the public kernel files of strangers.toml, and compare each result with what is expected.

python -m benchmarks.strangers FOLDER [--only TEXT] [--jobs 4] [--quick]

FOLDER has the files of the repositories, as FOLDER/owner/name/path, at the commits of the table. A
line each: as expected or not, verdict, time, seconds, file. ``--only`` is a part
of labels and paths. Other options are those of ``try``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_suffix(".toml")
SECONDS = 300  # of one file
REFUSED = "refused: "


@dataclass(frozen=True)
class Stranger:
    """A file at a commit; ``expected`` are verdicts, or words of a refusal."""

    repository: str
    commit: str
    path: str
    arguments: str
    expected: tuple[str, ...]

    def command(self, folder: Path) -> list[str]:
        root = folder / self.repository
        given = shlex.split(self.arguments.replace("{repo}", shlex.quote(str(root))))
        return [sys.executable, "-m", "workbench", "try", str(root / self.path), *given, "--json"]

    @property
    def name(self) -> str:
        """The file and, of several in it, which one."""
        words = shlex.split(self.arguments)
        known = dict(itertools.pairwise(words))
        more = known.get("--solution") or known.get("--launch", "").partition("<")[0]
        file = self.path.rpartition("/")[2]
        return f"{file}, {more.rpartition('/')[2]}" if more else file

    @property
    def label(self) -> str:
        return f"{self.repository}: {self.name}"


@dataclass(frozen=True)
class Tried:
    """``verdict``: of the command, or that it refused. ``said``: its last error."""

    stranger: Stranger
    verdict: str
    microseconds: float | None
    unchecked: bool
    seconds: float
    said: str

    @property
    def as_expected(self) -> bool:
        """A refusal has the words that were expected, and a hint; a correct file has a time."""
        told = self.said.partition("\nhint: ")
        for one in self.stranger.expected:
            if one.startswith(REFUSED):
                if self.verdict != "correct" and one[len(REFUSED) :] in told[0] and told[2]:
                    return True
            elif self.verdict == one and (one != "correct" or self.microseconds is not None):
                return True
        return False

    def line(self) -> str:
        state = "as expected" if self.as_expected else "NOT EXPECTED"
        time = "not collected" if self.microseconds is None else f"{self.microseconds:.4g} µs"
        time += " unchecked" * self.unchecked
        said = "" if self.verdict == "correct" else f": {self.said.partition(chr(10))[0]}"
        label = self.stranger.label
        return f"{state:12} {self.verdict:10} {time:>22} {self.seconds:5.1f} s {label}{said}"


def strangers() -> Iterator[Stranger]:
    for one in tomllib.loads(TABLE.read_text(encoding="utf-8"))["repository"]:
        for path, arguments, expected in one["files"]:
            every = f"{arguments} {one.get('inputs', '')}".strip()
            wanted = tuple(each.strip() for each in expected.split("|"))
            yield Stranger(one["name"], one["commit"], path, every, wanted)


def tried(stranger: Stranger, folder: Path, options: Sequence[str]) -> Tried:
    """In a cache of its own."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        command = [*stranger.command(folder), *options]
        environment = {**os.environ, "XDG_CACHE_HOME": cache}
        limited = ["timeout", str(SECONDS), *command]
        done = subprocess.run(limited, capture_output=True, text=True, env=environment)
    out, error = done.stdout, done.stderr or f"error: exit code {done.returncode}"
    seconds = time.monotonic() - began
    found = json.loads(out) if out.startswith("{") else {}
    verdict = found.get("verdict") or ("broken" if "Traceback" in error else "refused")
    if verdict == "correct" and done.returncode:
        verdict = f"exit {done.returncode}"
    row = found.get("tried") or {}
    chained = (row.get("microseconds") or {}).get("value")
    said = f"\n{error}".rpartition("\nerror: ")[2].strip()
    return Tried(stranger, verdict, chained, "is unchecked" in json.dumps(row), seconds, said)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=1)
    given, options = parser.parse_known_args()
    chosen = [o for o in strangers() if given.only in f"{o.label} {o.repository}/{o.path}"]

    def told(stranger: Stranger) -> Tried:
        found = tried(stranger, given.folder.resolve(), options)
        print(found.line(), flush=True)
        return found

    with ThreadPoolExecutor(given.jobs) as pool:
        results = list(pool.map(told, chosen))
    right = sum(one.as_expected for one in results)
    print(f"{right} of {len(results)} as expected")
    return int(right < len(results) or not results)


if __name__ == "__main__":
    sys.exit(main())
