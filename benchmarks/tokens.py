"""Measures the answers for agents in tokens, as bytes / 4: the table of docs/agents.md.

python -m benchmarks.tokens
"""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
from pathlib import Path

from mcp import Client
from tools.pages import table

from workbench.cli import mcp

ROOT = Path(__file__).parents[1]
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


def printed(command: str) -> int:
    """Bytes on stdout."""
    arguments = [sys.executable, "-m", "workbench", *shlex.split(command)]
    return len(subprocess.run(arguments, cwd=ROOT, stdout=subprocess.PIPE, check=False).stdout)


async def tool_list() -> int:
    async def refuse(*_: object) -> tuple[dict[str, object], int]:
        raise AssertionError

    async with Client(mcp.server(refuse)) as client:
        told = await client.list_tools()
    return len(told.model_dump_json(by_alias=True, exclude_none=True))


def counts() -> dict[str, int]:
    """Tokens, to two digits."""
    found = {f"`{name}`": (AGENTS / name).stat().st_size for name in ("SKILL.md", "reference.md")}
    found["MCP's tool list"] = asyncio.run(tool_list())
    found |= {name: printed(command) for name, command in ANSWERS.items()}
    return {name: int(float(f"{size / 4:.2g}")) for name, size in found.items()}


def main() -> None:
    print(table(("answer", "tokens"), [(name, f"{n:,}") for name, n in counts().items()]))


if __name__ == "__main__":
    main()
