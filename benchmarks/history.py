"""Changes planted in a copy of the attention study's history: are they found? See docs/gate.md.

    python -m benchmarks.history gate      on a GPU with ncu, in minutes: a Markdown table
    python -m benchmarks.history searches  another, of `bisect` and `check --against`
    python -m benchmarks.history build     only whether every commit compiles without a warning

A comment, a break of correctness, a slowdown that counters show and one that only time shows, each
a commit of its own. ``gate`` is asked about each, ``bisect`` and ``check --against`` about all.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.gate import commit, copied, edited, git

RESCALE = "if (softmax.move_reference(score)) multiply(acc, softmax.rescale);"
TILE = "const __half* k_tile = ring"
ADDED = """float spin = first;
        for (int i = 0; i < 110; ++i) spin = fmaf(spin, 0.5f, 0.25f);
        row_sum[0] += 0.0f * spin;  // which the compiler cannot know to be nothing
        """
BEGIN = "copy_tile(s.q[0], q + head, first_row, seq_len);"


@dataclass(frozen=True)
class Planted:
    """One commit: ``old`` becomes ``new`` in the kernel of a variant."""

    what: str
    variant: str
    old: str
    new: str

    @property
    def file(self) -> str:
        return f"{self.variant}.cu"


HISTORY = (
    Planted("a comment", "fix7", "// tiles in shared memory", "// tiles of the ring"),
    Planted("110 additions a tile, which counters show", "fix5", TILE, ADDED + TILE),
    Planted("sums that are not rescaled: wrong", "fix7", RESCALE, "softmax.move_reference(score);"),
    Planted("a block sleeps first, which only time shows", "fix6", BEGIN,
            f"__nanosleep(800);\n    {BEGIN}"),
    Planted("another comment", "fix4", "#include", "// nothing new\n#include"),
)  # fmt: skip


def repository(top: Path) -> list[str]:
    """The commits, the first without any change, then one for each of ``HISTORY``."""
    copied(top)
    git(top, "init", "--quiet")
    commit(top)
    for planted in HISTORY:
        edited(top, planted.file, planted.old, planted.new)
    return listed(top, "--reverse", "HEAD")


def listed(top: Path, *arguments: str) -> list[str]:
    """What ``git rev-list`` says."""
    command = ["git", "rev-list", *arguments]
    done = subprocess.run(command, cwd=top, capture_output=True, text=True, check=True)
    return done.stdout.split()


def asked(top: Path, *arguments: str) -> tuple[int, Any, float]:
    """Exit code, what a verb says as JSON, and seconds. Raises SystemExit where it says nothing."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "workbench", *arguments, "--json"],
        cwd=top, capture_output=True, text=True, check=False,
    )  # fmt: skip
    seconds = time.monotonic() - began
    print(f"{' '.join(arguments)}: {seconds:.0f} s", file=sys.stderr, flush=True)
    try:
        return done.returncode, json.loads(done.stdout), seconds
    except ValueError:
        raise SystemExit(f"{' '.join(arguments)}: {done.stderr}") from None


def gate_row(top: Path, planted: Planted, before: str, after: str) -> str:
    """What ``gate`` says of a commit."""
    code, told, seconds = asked(top, "gate", before, after)
    (changes,) = (study["changes"] for study in told["studies"])
    (own,) = (change for change in changes if change["variant"] == planted.variant)
    others = {change["verdict"] for change in changes if change is not own}
    moved = [one["what"] for one in own["moved"] if one["tier"] == 1]
    timed = own["time"]
    ratio = "not timed"
    if timed:
        ratio = f"{timed['ratio']:.3f}x [{timed['low']:.3f}, {timed['high']:.3f}]"
    cells = [
        planted.what,
        f"`{planted.variant}`: {own['verdict']}",
        str(own["tier"]),
        ratio,
        ", ".join(moved) or "none",
        ", ".join(sorted(others)) or "none",
        str(code),
        f"{seconds:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def named(top: Path, sha: str) -> str:
    """What was planted in a commit."""
    number = len(listed(top, sha))
    return HISTORY[number - 2].what if number > 1 else "the first commit"


def bisect_row(top: Path, first: str, variant: str, what: str) -> str:
    """Of which commit ``bisect`` says that it made a variant wrong or slow."""
    code, told, seconds = asked(top, "bisect", variant, first, "--what", what)
    found = told["first_bad"]
    said = named(top, found["commit"]) if found else "none found"
    asked_of = f"{told['tested']} of {told['commits']}"
    return f"| `bisect {variant} --what {what}` | {said} | {asked_of} | {code} | {seconds:.0f} |"


def against_row(top: Path, commits: list[str]) -> str:
    """Which commit ``check --against`` says was the last good one of a variant."""
    against = [word for sha in commits[:-1] for word in ("--against", sha)]
    code, told, seconds = asked(top, "check", "fix7", *against)
    sha = told["last_good"]["fix7"]
    said = f"last correct: {named(top, sha)}" if sha else "never correct"
    checks = f"{len(told['checks'])} of {len(commits)}"
    return f"| `check fix7 --against ...` | {said} | {checks} | {code} | {seconds:.0f} |"


def tell_gate(top: Path, commits: list[str]) -> None:
    print("| planted | `gate` said | tier | time | counters | others | exit code | seconds |")
    print("| --- | --- | ---: | --- | --- | --- | ---: | ---: |")
    for planted, (before, after) in zip(HISTORY, pairwise(commits), strict=True):
        print(gate_row(top, planted, before, after), flush=True)


def tell_searches(top: Path, commits: list[str]) -> None:
    print("| asked of all of them | found | commits asked of | exit code | seconds |")
    print("| --- | --- | ---: | ---: | ---: |")
    print(against_row(top, commits), flush=True)
    for variant, what in (("fix7", "wrong"), ("fix5", "slow"), ("fix6", "slow")):
        print(bisect_row(top, commits[0], variant, what), flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["gate", "searches", "build"])
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder) / "repository"
        commits = repository(top)
        if given.part == "build":
            names = sorted({planted.variant for planted in HISTORY})
            code, told, _ = asked(top, "build", *names)
            print(json.dumps(told, indent=1))
            return code
        tell = {"gate": tell_gate, "searches": tell_searches}[given.part]
        tell(top, commits)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
