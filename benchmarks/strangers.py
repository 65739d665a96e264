"""Try the public kernel files of strangers.toml, and compare each result with what is expected.

    python -m benchmarks.strangers --draw CLONES           list files by the rule of strangers.toml
    python -m benchmarks.strangers FOLDER --files CLONES   copy them, with what stands beside them
    python -m benchmarks.strangers FOLDER --results FILE   try those that FILE has no result of
    python -m benchmarks.strangers --record FILE [FILE]    put results into recorded/strangers.jsonl
    python -m benchmarks.strangers --page --write docs/strangers.md

CLONES has CLONES/owner+name/repo, a git directory each; FOLDER gets FOLDER/owner/name/path. A line
each: as expected or not, verdict, time, seconds, file. ``--only`` is a part of labels and paths,
``--most`` files of a repository are drawn, 6 or in draw 3 four. ``--of-draw`` 1, 2 or 3; after
``--seconds`` none is begun, and 25 s later those that run are stopped, to be tried again with the
next call. ``--jobs`` run at once on ``--gpus``, in folders of their own: none waits for another
one's GPU. ``--alone`` repeats, one after the other, what ran beside others: the unexpected first,
then as many as there is time for. ``--gpus 0`` tries the files that are refused without one;
``--all`` tries all. ``--logs`` gets what unexpected ones printed. ``--page`` prints totals and
the unexpected, of the recording or of the files that it names. Other options are those of ``try``.
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
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path, PurePosixPath
from statistics import median

TABLE = Path(__file__).with_suffix(".toml")
RECORDING = Path(__file__).with_name("recorded") / "strangers.jsonl"
REFERENCES = Path(__file__).with_name("problems") / "strangers_vs.py"
SECONDS, GRACE = 120, 25  # of one file; of those that run at the end
MOST = 6  # files of a repository, unless --most says otherwise
REFUSED, FAILED = "refused: ", "failed: "
DEFINES = re.compile(
    rb"__global__|@triton\.jit|@cute\.(jit|kernel)|@tilelang\.jit|T\.prim_func|load_inline|"
    rb'@cuda\.jit|RawKernel|@ct\.kernel|@wp\.kernel|extern "C" void solve|@T\.'
)
INCLUDES = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
KINDS = (".cu", ".cuh", ".py", ".ipynb")
# The rows of the table of docs/strangers.md, by the total that they have.
ROWS = {
    "on a GPU": "79 files with inputs and a reference",
    "without a GPU, draw 2": "56 of the second draw, no GPU",
    "on a GPU, draw 2": "117 of the second draw, on a GPU",
    "without a GPU, draw 3": "45 of the third draw, no GPU",
    "on a GPU, draw 3": "92 of the third draw, on a GPU",
}
BESIDE = (*KINDS, ".h", ".hpp", ".inl")


@dataclass(frozen=True)
class Stranger:
    """A file at a commit; ``expected`` are verdicts, or words of a refusal and of its hint."""

    repository: str
    commit: str
    path: str
    arguments: str
    expected: tuple[str, ...]
    draw: int = 1

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
    """``verdict``: of the command, or that it refused. ``said``: its last error with its hint.
    ``beside``: so many others ran at once.
    """

    label: str
    verdict: str
    microseconds: float | None
    seconds: float
    silent: float
    said: str
    gpu: bool
    beside: int = 0

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
        beside = f", beside {self.beside}" if self.beside else ""
        taken = f"{self.seconds:5.1f} s{beside}"
        return f"{state:12} {self.verdict:10} {time:>10} {taken} {self.label}{said}"


def strangers(draw: int | None = None) -> Iterator[Stranger]:
    """Those of the table, or of one draw."""
    for one in tomllib.loads(TABLE.read_text(encoding="utf-8"))["repository"]:
        drawn_in = one.get("draw", 1)
        for path, arguments, expected in one["files"] if draw in (None, drawn_in) else ():
            wanted = tuple(each.strip() for each in expected.split("|"))
            yield Stranger(one["name"], one["commit"], path, arguments, wanted, drawn_in)


def git(clone: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", clone, *arguments], capture_output=True, check=True).stdout


def drawn(clones: Path, most: int = MOST) -> Iterator[tuple[str, str, str]]:
    """Repository, commit and path of the files that the rule takes."""
    for clone in sorted(clones.glob("*/repo")):
        commit = git(clone, "rev-parse", "HEAD").decode().strip()
        names = git(clone, "ls-tree", "-r", "-z", "--name-only", "HEAD").decode().split("\0")
        listed = (name for name in sorted(names) if name.endswith(KINDS))
        hits = [name for name in listed if DEFINES.search(git(clone, "show", f"{commit}:{name}"))]
        count = min(most, len(hits))
        for place in range(count):
            path = hits[place * len(hits) // count]
            yield clone.parent.name.replace("+", "/", 1), commit, path


def copy_files(clones: Path, folder: Path, draw: int | None = None) -> None:
    """Copy each file and the sources of its folder, of those above it, and of folders beside."""
    for stranger in strangers(draw):
        clone = clones / stranger.repository.replace("/", "+") / "repo"
        names = git(clone, "ls-tree", "-r", "-z", "--name-only", stranger.commit).decode()
        sources = [n for n in names.split("\0") if n.endswith(BESIDE)]
        top = PurePosixPath(stranger.file).parent
        near = [n for n in sources if PurePosixPath(n).parent in (top, *top.parents)]
        few = sources if len(sources) <= 300 else [n for n in near if n.endswith((".h", ".cuh"))]
        text = git(clone, "show", f"{stranger.commit}:{stranger.file}").decode(errors="replace")
        included = (os.path.normpath(top / name) for name in INCLUDES.findall(text))
        few += [name for name in included if name in sources]
        for name in {stranger.file, *few}:
            to = folder / stranger.repository / name
            if not to.exists():
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(git(clone, "show", f"{stranger.commit}:{name}"))


def tried(
    stranger: Stranger,
    folder: Path,
    options: Sequence[str],
    *,
    gpu: str = "",
    beside: int = 0,
    limit: float = SECONDS,
) -> tuple[Tried, str]:
    """Try it in a cache of its own; return also all that it printed. ``silent``: the longest time
    without a word.
    """
    began = latest = time.monotonic()
    silent, errors = 0.0, []
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "XDG_CACHE_HOME": cache, "CUDA_VISIBLE_DEVICES": gpu}
        environment |= {"TRITON_CACHE_DIR": f"{cache}/triton", "PYTHONUNBUFFERED": "1"}
        environment |= {"WORKBENCH_FOLDER": f"{cache}/own"} if beside else {}
        limited = ["timeout", "-k", "5", f"{limit:.0f}", *stranger.command(folder), *options]
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
    result = Tried(stranger.label, verdict, taken, seconds, silent, said, bool(gpu), beside)
    return result, f"{shlex.join(stranger.command(folder))}\nexit code {code}\n{error}\n{text}"


def recorded(*paths: Path) -> dict[str, Tried]:
    """The last result of each file."""
    texts = (path.read_text("utf-8") for path in paths if path.exists())
    every = (Tried(**json.loads(line)) for text in texts for line in text.splitlines())
    return {one.label: one for one in every}


def totals(results: Mapping[str, Tried], draw: int) -> Iterator[str]:
    """The totals of a draw; the lines of a later one name it."""
    every = [s for s in strangers(draw) if s.label in results]
    named = "" if draw == 1 else f", draw {draw}"
    for kind, needs_gpu in (("without a GPU", False), ("on a GPU", True)):
        if some := [s for s in every if s.needs_gpu == needs_gpu]:
            right = [s for s in some if results[s.label].is_right(s.expected)]
            yield f"{len(right)} of {len(some)} as expected {kind}{named}"
    tries = [results[s.label] for s in every]
    for kind, alone in (("alone", True), ("beside others", False)):
        ran = [r for r in tries if r.gpu and (r.beside == 0) == alone]
        if timed := sorted(r.seconds for r in ran if r.microseconds is not None):
            yield (
                f"{len(timed)} with a time ran {kind}{named}: median {median(timed):.0f} s, "
                f"slowest quarter from {timed[len(timed) * 3 // 4]:.0f} s, "
                f"longest silence {max(r.silent for r in ran):.0f} s"
            )


def shortened(result: Tried) -> Tried:
    """As the recording keeps it: what a correct kernel said is of no use, and figures are short."""
    time = result.microseconds and float(f"{result.microseconds:.4g}")
    said = "" if result.verdict == "correct" else result.said
    seconds, silent = round(result.seconds, 1), round(result.silent, 1)
    return replace(result, microseconds=time, seconds=seconds, silent=silent, said=said)


def record(paths: Sequence[Path], recording: Path = RECORDING) -> None:
    """Put results into the recording, a line a file in the order of the table."""
    results = recorded(recording, *paths)
    kept = (shortened(results[s.label]) for s in strangers() if s.label in results)
    recording.write_text("".join(f"{json.dumps(asdict(each))}\n" for each in kept), "utf-8")


def row(stranger: Stranger, result: Tried) -> str:
    """The line of an unexpected file: time or verdict, seconds, path, the rest of the message."""
    took = result.verdict if result.microseconds is None else f"{result.microseconds:.4g}"
    name = re.escape(PurePosixPath(stranger.file).name)
    said = re.sub(rf"^{name}\S* (?:is wrong: )?", "", result.said).partition("\n")[0]
    said = said[:80].rpartition(" ")[0] if len(said) > 80 else said or f"not {stranger.expected[0]}"
    return f"{took:>10} {result.seconds:4.0f} {stranger.path}: {said}"


def page(paths: Sequence[Path]) -> str:
    """Totals of each draw, and a line for each unexpected file below its repository."""
    results = recorded(*paths)
    every = [s for s in strangers() if s.label in results]
    lines = [line for draw in sorted({s.draw for s in every}) for line in totals(results, draw)]
    unexpected = (s for s in every if not results[s.label].is_right(s.expected))
    for repository, files in groupby(unexpected, key=lambda s: s.repository):
        lines += [repository, *(row(file, results[file.label]) for file in files)]
    return "\n".join(lines)


def write(paths: Sequence[Path], document: Path) -> None:
    """Replace the last block of a document by the page without how many were right, which the rows
    of its table say: of the first time in the first column, later in the second.
    """
    text = page(paths)
    before, fence, _ = document.read_text("utf-8").rpartition("\n```text\n")
    for total, title in ROWS.items():
        now = re.search(rf"^(\d+ of \d+) as expected {total}$", text, re.MULTILINE)
        line = re.compile(rf"^\| {title} \|([^|]*)\|([^|]*)\|$", re.MULTILINE)
        if now and (known := line.search(before)):
            first, later = known[1].strip(), known[2].strip()
            if first in ("not run yet", now[1]):
                first = now[1]
            else:
                later = now[1]
            before = line.sub(f"| {title} | {first} | {later} |", before)
    shown = re.sub(r"^\d+ of \d+ as expected .*\n?", "", text, flags=re.MULTILINE).rstrip("\n")
    document.write_text(f"{before}{fence}{shown}\n```\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--draw", type=Path)
    parser.add_argument("--most", type=int, default=MOST)
    parser.add_argument("--files", type=Path)
    parser.add_argument("--record", type=Path, nargs="+")
    parser.add_argument("--page", type=Path, nargs="*")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--logs", type=Path)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--of-draw", type=int)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    asked, options = parser.parse_known_args()
    if asked.draw:
        for row in drawn(asked.draw, asked.most):
            print(*row)
        return 0
    if asked.record:
        record(asked.record)
        return 0
    if asked.page is not None:
        paths = asked.page or [RECORDING]
        print(page(paths))
        if asked.write:
            write(paths, asked.write)
        return 0
    if asked.files:
        copy_files(asked.files, asked.folder, asked.of_draw)
        return 0
    results = asked.results or Path(tempfile.mkdtemp()) / "results.jsonl"
    done, began = recorded(results), time.monotonic()
    jobs = 1 if asked.alone else asked.jobs
    chosen = [s for s in strangers(asked.of_draw) if asked.only in s.label]
    chosen = [s for s in chosen if s.needs_gpu == bool(asked.gpus) or asked.all]
    # A part of them is a sample: the order has nothing to do with the repository.
    chosen.sort(key=lambda one: hashlib.sha256(one.label.encode()).digest())
    if asked.alone:
        chosen = [s for s in chosen if s.label in done and done[s.label].beside]
        chosen.sort(key=lambda one: done[one.label].is_right(one.expected))
    else:
        chosen = [s for s in chosen if s.label not in done]
    gpus: queue.SimpleQueue[str] = queue.SimpleQueue()
    for job in range(jobs):
        gpus.put(str(job % asked.gpus) if asked.gpus else "")

    def told(stranger: Stranger) -> bool | None:
        """Whether it is as expected; None where there was no time for it."""
        left = asked.seconds - (time.monotonic() - began)
        if left < 0:
            return None
        gpu, limit = gpus.get(), min(SECONDS, left + GRACE)
        result, printed = tried(
            stranger, asked.folder.resolve(), options, gpu=gpu, beside=jobs - 1, limit=limit
        )
        gpus.put(gpu)
        if limit < SECONDS and result.seconds > limit - 1:
            return None
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")
        print(result.line(stranger.expected), flush=True)
        right = result.is_right(stranger.expected)
        if asked.logs and not right:
            asked.logs.mkdir(parents=True, exist_ok=True)
            log = asked.logs / f"{re.sub(r'[^A-Za-z0-9]+', '-', stranger.label)}.txt"
            log.write_text(printed, encoding="utf-8")
        return right

    with ThreadPoolExecutor(jobs) as pool:
        answers = list(pool.map(told, chosen))
    print(f"{answers.count(True)} of {len(answers)} as expected, {answers.count(None)} not begun")
    return int(not all(answers) or not answers)


if __name__ == "__main__":
    sys.exit(main())
