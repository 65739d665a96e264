"""What the verbs cost: CPU seconds for people, tokens for agents. Two Markdown tables.

    python -m benchmarks.verbs seconds    the table of docs/measuring.md
    python -m benchmarks.verbs tokens     the table of docs/agents.md, as bytes / 4

Seconds are user and system time of the whole process on the recorded attention study, in a fresh
clone of this repository: the median of three runs after one that compiles the bytecode. The exit
code is 1 where a verb takes longer than it may.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from mcp import Client
from tools.pages import ROOT, table

from workbench.cli import mcp

# Command, and the most seconds that it may take.
MOST = {
    "--help": 0.15, "list": 0.5, "show fix30 --study attention": 1.2,
    "profile fix30 --study attention": 1.2, "diff fix27 fix30 --study attention": 1.2,
    "advise fix30 --study attention": 1.2, "ablate --study attention": 2.0,
}  # fmt: skip
AGENTS = ROOT / "starters" / "agents"
STUDY = "--study attention"
ANSWERS = {
    "`list`": "list --brief",
    "`doctor`": "doctor --brief",
    "`build STEP`": f"build fix7 {STUDY} --brief",
    "`check STEP`": f"check fix7 {STUDY} --brief",
    "`ablate STEP`": f"ablate fix7 {STUDY} --brief",
    "`ablate`": f"ablate {STUDY} --brief",
    "`advise STEP`": f"advise fix7 {STUDY} --brief",
    "`diff A B`": f"diff fix6 fix7 {STUDY} --brief",
    "`show STEP`": f"show fix7 {STUDY} --brief",
    "an error": f"advise fix99 {STUDY} --brief",
    "`schema ablate`": "schema ablate",
    "`ablate --json`": f"ablate {STUDY} --json",
    "`list --json`": "list --json",
}


def printed(command: str, folder: Path = ROOT) -> bytes:
    """What a verb prints on stdout, of this environment and the workbench in the folder."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "profiler"), "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    verb = [sys.executable, "-m", "workbench", *command.split()]
    return subprocess.run(verb, cwd=folder, env=environment, stdout=subprocess.PIPE).stdout


def seconds(clone: Path, command: str) -> float:
    """User and system time of one run."""
    before = os.times()
    assert printed(command, clone), command
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])


async def tool_list() -> int:
    async def refuse(*_: object) -> tuple[dict[str, object], int]:
        raise AssertionError

    async with Client(mcp.server(refuse)) as client:
        told = await client.list_tools()
    return len(told.model_dump_json(by_alias=True, exclude_none=True))


def tokens() -> dict[str, int]:
    """By answer, to two digits."""
    found = {f"`{name}`": (AGENTS / name).stat().st_size for name in ("SKILL.md", "reference.md")}
    found["MCP's tool list"] = asyncio.run(tool_list())
    found |= {name: len(printed(command)) for name, command in ANSWERS.items()}
    return {name: int(float(f"{size / 4:.2g}")) for name, size in found.items()}


def main(what: str) -> int:
    if what == "tokens":
        print(table(("answer", "tokens"), [(name, f"{n:,}") for name, n in tokens().items()]))
        return 0
    took = {}
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        for command in MOST:
            took[command] = median([seconds(clone, command) for _ in range(4)][1:])
    rows = [(f"`workbench {verb}`", f"{took[verb]:.2f}", f"{MOST[verb]:g}") for verb in took]
    print(table(("command", "CPU (s)", "at most (s)"), rows))
    return int(any(took[command] > most for command, most in MOST.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
