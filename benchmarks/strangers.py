"""Try the public kernel files of strangers.toml, and compare each result with what is expected.

    python -m benchmarks.strangers --draw CLONES           list files by the rule of strangers.toml
    python -m benchmarks.strangers FOLDER --files CLONES   copy them, with what stands beside them
    python -m benchmarks.strangers FOLDER --results FILE   try those that FILE has no result of
    python -m benchmarks.strangers --page FILE             print totals and a line a file

CLONES has CLONES/owner+name/repo, a git directory each; FOLDER gets FOLDER/owner/name/path. A line
each: as expected or not, verdict, time, seconds, file. ``--only`` is a part of labels and paths;
after ``--seconds`` none is begun. ``--jobs`` run at once on ``--gpus``, and ``--gpus 0`` tries the
files that are refused without one; ``--all`` tries all. Other options are those of ``try``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import re
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from statistics import median

TABLE = Path(__file__).with_suffix(".toml")
REFERENCES = Path(__file__).with_name("problems") / "strangers_vs.py"
SECONDS = 120  # of one file
MOST = 6  # files of a repository
REFUSED, FAILED = "refused: ", "failed: "
DEFINES = re.compile(
    rb"__global__|@triton\.jit|@cute\.(jit|kernel)|@tilelang\.jit|T\.prim_func|load_inline|"
    rb'@cuda\.jit|RawKernel|@ct\.kernel|@wp\.kernel|extern "C" void solve|@T\.'
)
KINDS = (".cu", ".cuh", ".py", ".ipynb")
BESIDE = (*KINDS, ".h", ".hpp", ".inl")


@dataclass(frozen=True)
class Stranger:
    """A file at a commit; ``expected`` are verdicts, or words of a refusal and of its hint."""

    repository: str
    commit: str
    path: str
    arguments: str
    expected: tuple[str, ...]

    @property
    def needs_gpu(self) -> bool:
        return not all(one.startswith(REFUSED) for one in self.expected)

    @property
    def file(self) -> str:
        return re.sub(r":\w+$", "", self.path)

    def command(self, folder: Path) -> list[str]:
        arguments = shlex.split(self.arguments.replace("{vs}", shlex.quote(str(REFERENCES))))
        path = str(folder / self.repository / self.path)
        return [sys.executable, "-m", "workbench", "try", path, *arguments]

    @property
    def label(self) -> str:
        return f"{self.repository}: {self.path}"


@dataclass(frozen=True)
class Tried:
    """``verdict``: of the command, or that it refused. ``said``: its last error with its hint."""

    label: str
    verdict: str
    microseconds: float | None
    seconds: float
    silent: float
    said: str
    gpu: bool

    def is_right(self, expected: Sequence[str]) -> bool:
        error, _, hint = self.said.partition("\nhint: ")
        for one in expected:
            if one.startswith(REFUSED):
                words, _, hinted = one[len(REFUSED) :].partition("; hint: ")
                if self.verdict == "refused" and words in error and hint and hinted in hint:
                    return True
            elif one.startswith(FAILED):
                if self.verdict == "failed" and one[len(FAILED) :] in self.said:
                    return True
            elif self.verdict == one and (one != "correct" or self.microseconds is not None):
                return True
        return False

    def line(self, expected: Sequence[str]) -> str:
        state = "as expected" if self.is_right(expected) else "NOT EXPECTED"
        time = "-" if self.microseconds is None else f"{self.microseconds:.4g} µs"
        said = "" if self.verdict == "correct" else f": {self.said.partition(chr(10))[0][:150]}"
        return f"{state:12} {self.verdict:10} {time:>10} {self.seconds:5.1f} s {self.label}{said}"


def strangers() -> Iterator[Stranger]:
    for one in tomllib.loads(TABLE.read_text(encoding="utf-8"))["repository"]:
        for path, arguments, expected in one["files"]:
            wanted = tuple(each.strip() for each in expected.split("|"))
            yield Stranger(one["name"], one["commit"], path, arguments, wanted)


def git(clone: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", clone, *arguments], capture_output=True, check=True).stdout


def drawn(clones: Path) -> Iterator[tuple[str, str, str]]:
    """Repository, commit and path of the files that the rule takes."""
    for clone in sorted(clones.glob("*/repo")):
        commit = git(clone, "rev-parse", "HEAD").decode().strip()
        names = git(clone, "ls-tree", "-r", "-z", "--name-only", "HEAD").decode().split("\0")
        listed = (name for name in sorted(names) if name.endswith(KINDS))
        hits = [name for name in listed if DEFINES.search(git(clone, "show", f"{commit}:{name}"))]
        count = min(MOST, len(hits))
        for place in range(count):
            path = hits[place * len(hits) // count]
            yield clone.parent.name.replace("+", "/", 1), commit, path


def copy_files(clones: Path, folder: Path) -> None:
    """Copy each file and the sources of its folder, of those above it, and of folders beside."""
    for stranger in strangers():
        clone = clones / stranger.repository.replace("/", "+") / "repo"
        names = git(clone, "ls-tree", "-r", "-z", "--name-only", stranger.commit).decode()
        sources = [n for n in names.split("\0") if n.endswith(BESIDE)]
        top = PurePosixPath(stranger.file).parent
        near = [n for n in sources if PurePosixPath(n).parent in (top, *top.parents)]
        few = sources if len(sources) <= 300 else [n for n in near if n.endswith((".h", ".cuh"))]
        for name in {stranger.file, *few}:
            to = folder / stranger.repository / name
            if not to.exists():
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(git(clone, "show", f"{stranger.commit}:{name}"))


def tried(stranger: Stranger, folder: Path, options: Sequence[str], gpu: str) -> Tried:
    """Try it in a cache of its own. ``silent``: the longest time without a word."""
    began = latest = time.monotonic()
    silent, errors = 0.0, []
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "XDG_CACHE_HOME": cache, "CUDA_VISIBLE_DEVICES": gpu}
        environment |= {"TRITON_CACHE_DIR": f"{cache}/triton", "PYTHONUNBUFFERED": "1"}
        limited = ["timeout", "-k", "5", str(SECONDS), *stranger.command(folder), *options]
        limited += ["--json"]
        with (
            tempfile.TemporaryFile("w+") as out,
            subprocess.Popen(
                limited, stdout=out, stderr=subprocess.PIPE, text=True, env=environment,
                stdin=subprocess.DEVNULL, errors="replace",
            ) as child,
        ):  # fmt: skip
            for line in child.stderr or ():
                now = time.monotonic()
                silent, latest = max(silent, now - latest), now
                errors.append(line)
            code = child.wait()
            out.seek(0)
            text = out.read()
    seconds = time.monotonic() - began
    silent = max(silent, time.monotonic() - latest)
    result = json.loads(text) if text.startswith("{") and code not in (124, 137) else {}
    error = "".join(errors)
    verdict = result.get("verdict") or ("broken" if "Traceback" in error else "refused")
    if verdict == "correct" and code:
        verdict = f"exit {code}"
    said = f"\n{error}".rpartition("\nerror: ")[2].strip() or f"exit code {code}"
    taken = ((result.get("tried") or {}).get("microseconds") or {}).get("value")
    return Tried(stranger.label, verdict, taken, seconds, silent, said, bool(gpu))


def recorded(path: Path) -> dict[str, Tried]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {one.label: one for one in (Tried(**json.loads(line)) for line in lines)}


def page(path: Path) -> str:
    """The page: the rule, totals, and a line a file."""
    results = recorded(path)
    every = [s for s in strangers() if s.label in results]
    right = [s for s in every if results[s.label].is_right(s.expected)]
    timed = sorted(r.seconds for r in results.values() if r.microseconds is not None)
    lines = [
        f"{len(right)} of {len(every)} as expected",
        f"{len(timed)} with a time: median {median(timed or [0]):.0f} s, "
        f"slowest quarter from {timed[len(timed) * 3 // 4] if timed else 0:.0f} s",
        f"longest silence {max(r.silent for r in results.values()):.0f} s",
    ]
    for stranger in every:
        lines.append(results[stranger.label].line(stranger.expected))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--draw", type=Path)
    parser.add_argument("--files", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    asked, options = parser.parse_known_args()
    if asked.draw:
        for row in drawn(asked.draw):
            print(*row)
        return 0
    if asked.page:
        print(page(asked.page))
        return 0
    if asked.files:
        copy_files(asked.files, asked.folder)
        return 0
    results = asked.results or Path(tempfile.mkdtemp()) / "results.jsonl"
    done, began = recorded(results), time.monotonic()
    chosen = [s for s in strangers() if asked.only in s.label and s.label not in done]
    chosen = [s for s in chosen if s.needs_gpu == bool(asked.gpus) or asked.all]
    # A part of them is a sample: the order has nothing to do with the repository.
    chosen.sort(key=lambda one: hashlib.sha256(one.label.encode()).digest())
    gpus: queue.SimpleQueue[str] = queue.SimpleQueue()
    for job in range(asked.jobs):
        gpus.put(str(job % asked.gpus) if asked.gpus else "")

    def told(stranger: Stranger) -> bool | None:
        if time.monotonic() - began > asked.seconds:
            return None
        gpu = gpus.get()
        result = tried(stranger, asked.folder.resolve(), options, gpu)
        gpus.put(gpu)
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")
        print(result.line(stranger.expected), flush=True)
        return result.is_right(stranger.expected)

    with ThreadPoolExecutor(asked.jobs) as pool:
        answers = list(pool.map(told, chosen))
    print(f"{answers.count(True)} of {len(answers)} as expected, {answers.count(None)} not begun")
    return int(not all(answers) or not answers)


if __name__ == "__main__":
    sys.exit(main())
