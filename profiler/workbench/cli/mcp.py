"""``workbench mcp``: verbs as tools of the Model Context Protocol, over stdio.

A tool's arguments are options of its verb, with their help. It runs the verb in a process of its
own, with ``--brief``: what a kernel does to its process stays there, and so does what it prints.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from workbench import __version__
from workbench.cli.main import command
from workbench.cli.options import McpOptions
from workbench.errors import (
    EnvironmentLacks,
    Interrupted,
    ToolFailed,
    UsageError,
    WorkbenchError,
    unknown,
)
from workbench.words import OWN_EXTRA

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server.lowlevel import Server

INSTRUCTIONS = """Measure GPU kernels: correctness against float64, time with an interval, Nsight
Compute profile, verdict. Change one thing a step. Call `doctor`, then `try` for a file that exists,
or `list` and the loop `advise`, `new`, `step` in a workspace. Answers are JSON of at most 4 KB, of
show 8; `next_command` says how to go on."""
TEXTS = {  # of arguments, where the help of the option would mislead, or is long
    "study": "Default: of workbench.toml.",
    "shape": "Default: of study.py.",
    "fixes": "The step.",
    "quick": "Stop at the first verdict, of 3 sessions.",
}
OUTPUT = {"type": "object", "required": ["schema_version", "exit_code"]}
MOST_ARGUMENT = 1 << 17  # bytes: Linux takes no longer one
ANSWERS = (0, 1, 5)  # exit codes of an answer: yes, no, cannot tell
Data = dict[str, object]
Say = Callable[[str], Awaitable[None]]
Answer = Callable[[Sequence[str], Say], Awaitable[tuple[Data, int]]]


@dataclass(frozen=True)
class Tool:
    """A verb as a tool: ``options`` are those that a call may give, each under its own name or, one
    value of a list, under that in ``called``. ``defaults`` are of what a call does not give.
    """

    verb: str
    about: str
    options: tuple[str, ...]
    only_reads: bool = False
    called: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)


TOOLS: Mapping[str, Tool] = {
    "doctor": Tool("doctor", "What works on this machine. Call it first.", (), only_reads=True),
    "list": Tool("list", "Studies, variants, and their evidence.", ("study",), only_reads=True),
    "try": Tool(
        "try",
        "Check, time and profile a file that exists.",
        ("source", "inputs", "versus", "launch", "shape", "quick"),
        defaults={"quick": True},  # clients give up after a minute
    ),
    "new": Tool(
        "new",
        "Copy a step as a new one, to be edited. Predict before it is measured: time=0.7..0.9.",
        ("name", "parent", "change", "predict", "study"),
    ),
    "build": Tool("build", "Compile; needs no GPU.", ("variants", "study"), only_reads=True),
    "step": Tool(
        "ablate",
        "Build, check, time and judge a step beside its parent; profile it near the best one.",
        ("fixes", "study", "shape", "quick", "fresh"),
        called={"fixes": "name"},
    ),
    "advise": Tool(
        "advise",
        "What limits a measured variant, the line, and the kinds of change to try next.",
        ("name", "study", "shape"),
        only_reads=True,
    ),
    "diff": Tool(
        "diff",
        "Explain the time difference of two steps, or of two .ncu-rep files.",
        ("before", "after", "study", "shape"),
        only_reads=True,
    ),
    "show": Tool("show", "All figures of one.", ("name", "study", "shape"), only_reads=True),
}


def run(options: McpOptions) -> None:
    """Until stdin closes. Raises EnvironmentLacks without the SDK."""
    try:
        from mcp.server.stdio import stdio_server

        served = server(answer)
    except ModuleNotFoundError as error:
        raise EnvironmentLacks(
            f"the Python package '{error.name}' is missing", hint=OWN_EXTRA.format("agents")
        ) from error
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await served.run(read, write, served.create_initialization_options())

    asyncio.run(serve())


def stop(*_: object) -> None:
    """At once: a thread of the SDK waits for stdin, and no exception ends it. Verbs end with us."""
    os._exit(Interrupted.exit_code)


def parameters(tool: Tool) -> dict[str, Any]:
    """The arguments of a tool by name, as Typer knows the options of its verb."""
    of_verb = {each.name: each for each in command().commands[tool.verb].params}
    return {tool.called.get(name, name): of_verb[name] for name in tool.options}


def is_flag(of_typer: Any) -> bool:
    return bool(getattr(of_typer, "is_flag", False))


def is_list(name: str, of_typer: Any) -> bool:
    several = of_typer.nargs == -1 or getattr(of_typer, "multiple", False)
    return bool(several) and name == of_typer.name


def schema(tool: Tool) -> dict[str, object]:
    """JSON Schema of a tool's arguments."""
    properties: dict[str, object] = {}
    required = []
    for name, of_typer in parameters(tool).items():
        kind: dict[str, object] = {"type": "boolean" if is_flag(of_typer) else "string"}
        listed = {"type": "array", "items": kind} if is_list(name, of_typer) else kind
        default = {"default": tool.defaults[name]} if name in tool.defaults else {}
        about = TEXTS.get(of_typer.name, of_typer.help)
        properties[name] = {**listed, "description": about, **default}
        if of_typer.required or name != of_typer.name:
            required.append(name)
    more = {"required": required} if required else {}
    return {"type": "object", "properties": properties, **more}


def typed(tool: Tool, values: Mapping[str, object]) -> list[str]:
    """The command line of a call. Raises UsageError for an argument that the tool has not, and for
    one of another type.
    """
    taken, options, names = parameters(tool), list[str](), list[str]()
    for name, value in {**tool.defaults, **values}.items():
        if name not in taken:
            raise unknown("argument", name, taken)
        of_typer = taken[name]
        if is_flag(of_typer):
            if not isinstance(value, bool):
                raise UsageError(f"'{name}' is true or false, not {json.dumps(value)}")
            options += of_typer.opts[:1] if value else []
            continue
        every = value if isinstance(value, list) and is_list(name, of_typer) else [value]
        texts = [text for text in every if isinstance(text, str)]
        if len(texts) < len(every):
            raise UsageError(f"'{name}' is a text, not {json.dumps(value)}")
        if not all(map(is_passed, texts)):
            raise UsageError(f"'{name}' cannot be passed on: a null byte, or too many letters")
        if of_typer.param_type_name == "argument":
            names += texts
        else:
            options += [part for text in texts for part in (of_typer.opts[0], text)]
    return [tool.verb, *options, "--brief", "--", *names]


def is_passed(text: str) -> bool:
    """Whether a command line takes it."""
    try:
        data = os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return b"\0" not in data and len(data) < MOST_ARGUMENT


# Runs a verb that ends with the server, a process of this number.
VERB = """import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from workbench import children
children.end_with({}, signal.SIGTERM)
from workbench.__main__ import main
raise SystemExit(main())"""
LONGEST_LINE = 1 << 24  # bytes on stderr, such as a compiler's; asyncio's own 64 KiB are too few


async def answer(arguments: Sequence[str], say: Say) -> tuple[Data, int]:
    """What a verb prints, and its exit code; of one that printed nothing the error on its stderr.
    ``say`` is called with each line of stderr.
    """
    verb = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", VERB.format(os.getpid()), *arguments),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        limit=LONGEST_LINE,
    )
    assert verb.stdout is not None
    assert verb.stderr is not None
    try:
        out, lines = await asyncio.gather(verb.stdout.read(), lines_of(verb.stderr, say))
        code = await verb.wait()
    finally:
        if verb.returncode is None:  # the client gave up
            verb.terminate()
    with suppress(ValueError):
        return json.loads(out), code
    why, _, hint = "\n".join(lines).partition("\nhint: ")
    error = ToolFailed(why.removeprefix("error: "), hint=hint)
    return error_of(error), code if code >= 0 else error.exit_code


async def lines_of(stream: asyncio.StreamReader, say: Say) -> list[str]:
    lines = []
    async for data in stream:
        if text := data.decode(errors="replace").strip():
            lines.append(text)
            await say(text)
    return lines


def error_of(error: WorkbenchError) -> Data:
    from workbench.render import in_short

    return dict(json.loads(in_short.dumps(in_short.error(error))))


async def call(
    answered: Answer, context: Any, request: types.CallToolRequestParams
) -> types.CallToolResult:
    """Run a tool. Its failure is a result, which the model reads: it says how to go on."""
    import mcp_types as types

    count = itertools.count(1)

    async def say(line: str) -> None:
        await context.session.report_progress(next(count), message=line)

    try:
        if request.name not in TOOLS:
            raise unknown("tool", request.name, TOOLS)
        arguments = typed(TOOLS[request.name], request.arguments or {})
        data, code = await answered(arguments, say)
    except WorkbenchError as error:
        data, code = error_of(error), error.exit_code
    data["exit_code"] = code
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=json.dumps(data, separators=(",", ":")))],
        structured_content=data,
        is_error=code not in ANSWERS or set(data) <= {"schema_version", "error", "exit_code"},
    )


def server(answered: Answer) -> Server[Any]:
    import mcp_types as types
    from mcp.server.lowlevel import Server

    reads = types.ToolAnnotations(read_only_hint=True)
    writes = types.ToolAnnotations(destructive_hint=False)
    tools = [
        types.Tool(
            name=name,
            description=tool.about,
            input_schema=schema(tool),
            output_schema=OUTPUT,
            annotations=reads if tool.only_reads else writes,
        )
        for name, tool in TOOLS.items()
    ]

    async def list_tools(*_: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    return Server(
        "workbench",
        instructions=INSTRUCTIONS,
        version=__version__,
        on_list_tools=list_tools,
        on_call_tool=partial(call, answered),
    )
