"""The files for coding agents, and the tools of ``workbench mcp`` through the SDK's own client."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Awaitable, Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from answers import Capsys, Patch
from standin import StandIn
from workbench.app.new import AGENTS
from workbench.cli import mcp
from workbench.cli.main import VERBS, command, main
from workbench.render import brief
from workbench.run.protocol import SessionsJob
from workspaces import FIXTURE, GOOD, make

SKILL = AGENTS["SKILL.md"]


def test_init_writes_the_loop_in_sixty_lines(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path), "--agents"]) == 0
    text = (tmp_path / SKILL).read_text()
    assert len(text.splitlines()) <= 60
    head = re.match(r"---\nname: (\S+)\ndescription: (.+)\n---\n", text)
    assert head
    assert head[1] == SKILL.parent.name
    assert len(head[2]) <= 1024
    assert str(SKILL) in (tmp_path / "AGENTS.md").read_text()
    names_only_what_exists(text)


def test_a_workspace_that_exists_gets_them_and_keeps_its_own(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path)]) == 0
    assert not (tmp_path / SKILL).exists()
    (tmp_path / "AGENTS.md").write_text("mine")
    assert main(["init", str(tmp_path), "--agents"]) == 0
    assert (tmp_path / SKILL).exists()
    assert (tmp_path / "AGENTS.md").read_text() == "mine"


def test_they_are_written_all_or_none_and_through_no_link(tmp_path: Path) -> None:
    root, outside = tmp_path / "ws", tmp_path / "outside"
    assert main(["init", str(root)]) == 0
    outside.mkdir()
    (root / ".agents").symlink_to(outside)
    assert main(["init", str(root), "--agents"]) == 2
    assert not (root / "AGENTS.md").exists()
    assert list(outside.iterdir()) == []


def names_only_what_exists(text: str) -> None:
    """Verbs, options and verdicts."""
    for verb, options in re.findall(r"workbench ([a-z]+)([^`\n#]*)", text):
        assert verb in VERBS
        known = {name for p in command().commands[verb].params for name in p.opts}
        assert set(re.findall(r"--[a-z-]+", options)) <= known, verb
    verdicts = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert set(verdicts) == {
        "kept", "slower", "no_gain", "wrong", "inaccurate", "unseen_shape", "inconclusive"
    }  # fmt: skip


def with_client(asked: Callable[[Client], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        arguments = ["-m", "workbench", "mcp"]
        served = StdioServerParameters(
            command=sys.executable, args=arguments, cwd=str(FIXTURE), env=dict(os.environ)
        )
        async with Client(served) as client:
            return await asked(client)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the SDK leaves its process to the loop
        found = asyncio.run(run())
        gc.collect()
    return found


def test_six_tools_and_which_of_them_only_read() -> None:
    tools = with_client(lambda client: client.list_tools()).tools
    reads = {tool.name: tool.annotations.read_only_hint for tool in tools}
    assert reads == {
        "try": False, "new": False, "step": False, "diff": True, "advise": True, "show": True
    }  # fmt: skip
    assert all(tool.description for tool in tools)


def test_the_tools_answer_as_the_verbs_do(capsys: Capsys) -> None:
    async def asked(client: Client) -> list[str]:
        calls = [
            ("advise", {"variant": "fix2"}),
            ("diff", {"before": "fix1", "after": "fix2"}),
            ("advise", {"variant": "fix99"}),
            ("show", {"name": "--help"}),
            ("new", {"name": "a", "parent": "fix99", "change": "c"}),
            ("show", {"name": "a\0b"}),
            ("show", {"name": "x" * 200_000}),
            ("step", {"name": "fix3"}),
        ]
        return [(await client.call_tool(*call)).content[0].text for call in calls]  # type: ignore[union-attr]

    advised, compared, unknown, option, *refused, step = with_client(asked)
    capsys.readouterr()
    assert main(["advise", "fix2", "--brief", "--project", str(FIXTURE)]) == 0
    assert json.loads(advised) == json.loads(capsys.readouterr().out)
    assert json.loads(compared)["after"] == "fix2"
    assert json.loads(unknown)["error"]["code"] == "usage"
    assert "--help" in json.loads(option)["error"]["message"]
    assert json.loads(step)["verdict"] == "wrong"
    told = [json.loads(each)["error"] for each in refused]
    assert "unknown step 'fix99'" in told[0]["message"]
    assert told[0]["code"] == "usage"
    assert all("cannot be passed" in each["message"] for each in told[1:])
    assert max(map(len, (advised, compared, unknown, *refused, step))) <= brief.LIMIT


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_though_its_client_is_there(how: signal.Signals) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
    hello |= {"clientInfo": {"name": "a", "version": "1"}}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    with subprocess.Popen(
        [sys.executable, "-m", "workbench", "mcp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin
        assert server.stdout
        print(json.dumps(asked), file=server.stdin, flush=True)
        assert "serverInfo" in server.stdout.readline()
        server.send_signal(how)
        assert server.wait(10) == 130


def test_the_tool_step_has_the_two_stages_of_ablate(tmp_path: Path, monkeypatch: Patch) -> None:
    times = {"baseline": 20.0, "near": 9.0, "far": 25.0}
    monkeypatch.chdir(make(tmp_path / "ws", dict.fromkeys(times, GOOD)))
    gpu = StandIn(monkeypatch, lambda run: times[run.variant])

    async def here(verb: str, names: Sequence[str], options: Sequence[str]) -> str:
        with redirect_stdout(io.StringIO()) as printed:
            main([verb, *options, "--", *names])
        return printed.getvalue()

    async def called(arguments: dict[str, Any]) -> dict[str, Any]:
        async with Client(mcp.server()) as client:
            found = await client.call_tool("step", arguments)
        return dict(json.loads(found.content[0].text))  # type: ignore[union-attr]

    monkeypatch.setattr(mcp, "answer", here)
    for arguments, verdict, provisional, sessions in (
        ({"name": "near", "quick": True}, "kept", True, [3]),
        ({"name": "near"}, "inconclusive", None, [5]),  # nothing is captured here
        ({"name": "far"}, "slower", True, [3]),
    ):
        gpu.jobs.clear()
        told = asyncio.run(called(arguments))
        assert (told["verdict"], told.get("provisional")) == (verdict, provisional)
        assert [job.sessions for job in gpu.jobs if isinstance(job, SessionsJob)] == sessions
    assert "near" in gpu.captured
    assert "far" not in gpu.captured
