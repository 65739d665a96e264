"""``workbench mcp``: six verbs as tools of the Model Context Protocol, over stdio.

A tool runs its verb in a process of its own, with ``--brief``: what a kernel does to its process
stays there, and so does what it prints.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench import __version__
from workbench.cli.options import McpOptions
from workbench.errors import EnvironmentLacks, Interrupted, ToolFailed, UsageError
from workbench.words import OWN_EXTRA

if TYPE_CHECKING:
    from mcp.server import MCPServer

INSTRUCTIONS = """Measure GPU kernels: correctness against float64, time with an interval, Nsight
Compute profile, verdict. Change one thing a step. Answers are JSON of at most 4 KB, of show 8."""


def run(options: McpOptions) -> None:
    """Until stdin closes. Raises EnvironmentLacks without the SDK."""
    try:
        served = server()
    except ModuleNotFoundError as error:
        raise EnvironmentLacks(
            f"the Python package '{error.name}' is missing",
            hint=OWN_EXTRA.format("agents"),
        ) from error
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, stop)
    served.run("stdio")


def stop(*_: object) -> None:
    """At once: a thread of the SDK waits for stdin, and no exception ends it. Verbs end with us."""
    os._exit(Interrupted.exit_code)


async def answer(verb: str, names: Sequence[str], options: Sequence[str]) -> str:
    """What a verb prints; its stderr, as an error, where that is nothing. A name is no option."""
    from workbench.reporters.formats import failed

    command = [sys.executable, "-P", "-m", "workbench", verb, *options, "--", *names]
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
        )
    except (ValueError, OSError) as error:  # a null byte in a name, or too many letters
        why = f"these arguments cannot be passed to a command: {error}"
        return failed(UsageError.code, why, "name a file or a step")
    try:
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()  # the client gave up
    why, _, hint = err.decode(errors="replace").strip().partition("\nhint: ")
    said = out.decode(errors="replace").strip()
    kinds = {kind.exit_code: kind.code for kind in (UsageError, EnvironmentLacks)}
    code = kinds.get(process.returncode or 0, ToolFailed.code)
    return said or failed(code, why.removeprefix("error: "), hint)


def given(**options: str | None) -> list[str]:
    """Options of a verb: those that have a value."""
    return [part for name, value in options.items() if value for part in (f"--{name}", value)]


def server() -> MCPServer:
    from mcp.server import MCPServer
    from mcp.types import ToolAnnotations

    made = MCPServer("workbench", instructions=INSTRUCTIONS, version=__version__)
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    works = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)

    @made.tool("try", annotations=works, structured_output=False)
    async def try_(
        source: str,
        inputs: list[str] | None = None,
        versus: str | None = None,
        launch: str | None = None,
        quick: bool = True,
    ) -> str:
        """Check, time and profile FILE:FUNCTION that exists. inputs: 'x=randn(4096,8192)'; versus:
        'torch.softmax'; launch, for a .cu file: 'name[grid, block](x, out, n)'.
        """
        each = [part for one in inputs or [] for part in ("--input", one)]
        fast = ["--quick"] if quick else []
        return await answer(
            "try", [source], [*each, *given(vs=versus, launch=launch), *fast, "--brief"]
        )

    @made.tool(annotations=works, structured_output=False)
    async def new(
        name: str, parent: str, change: str, predict: str | None = None, study: str | None = None
    ) -> str:
        """Copy the step `parent` as the step `name`, to be edited. change: one line; predict:
        'time=0.7..0.9', a factor of the parent, written before it is measured.
        """
        more = given(change=change, predict=predict, study=study)
        return await answer("new", [name], ["--from", parent, *more, "--json"])

    @made.tool(annotations=works, structured_output=False)
    async def step(name: str, study: str | None = None, quick: bool = False) -> str:
        """Build, check, time and judge a step beside its parent; profile it if it is near the
        best one.
        """
        fast = ["--quick"] if quick else []
        return await answer("ablate", [name], [*given(study=study), *fast, "--brief"])

    @made.tool(annotations=reads, structured_output=False)
    async def diff(before: str, after: str, study: str | None = None) -> str:
        """Explain the time difference of two steps, or of two .ncu-rep files."""
        return await answer("diff", [before, after], [*given(study=study), "--brief"])

    @made.tool(annotations=reads, structured_output=False)
    async def advise(variant: str, study: str | None = None) -> str:
        """What limits a measured variant, the line, and the kinds of change to try next."""
        return await answer("advise", [variant], [*given(study=study), "--brief"])

    @made.tool(annotations=reads, structured_output=False)
    async def show(name: str) -> str:
        """All figures of a variant, an evidence id or an .ncu-rep file."""
        return await answer("show", [name], ["--brief"])

    return made
