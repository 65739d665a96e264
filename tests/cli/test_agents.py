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
import uuid
import warnings
from collections.abc import Awaitable, Callable, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest
from tools import reference

from answers import Capsys, Patch, json_of, not_none, text_of
from standin import StandIn
from test_children import MARK, marked, until
from workbench.cli import mcp
from workbench.cli.init import AGENTS, starters
from workbench.cli.main import VERBS, command, main
from workbench.cli.schema import ANSWERS
from workbench.render import in_short
from workbench.run.protocol import SessionsJob
from workbench.words import Change, Stage
from workspaces import FIXTURE, GOOD, make

if TYPE_CHECKING:
    from mcp import Client  # imported for a second: where it is used, and not in every process

SKILL = Path(".agents/skills/workbench/SKILL.md")


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
    for name in AGENTS:
        assert (tmp_path / name).is_file()
    copy = tmp_path / ".claude" / "skills" / "workbench" / "SKILL.md"
    assert copy.read_text() == text
    server = json.loads((tmp_path / ".mcp.json").read_text())["mcpServers"]["workbench"]
    assert {server["command"], *server["args"]} == {"workbench", "mcp"}


def test_the_reference_of_the_skill_has_every_kind_limit_and_key() -> None:
    """``python -m tools.reference`` writes it."""
    text = (starters() / "agents" / "reference.md").read_text()
    assert text == reference.skill()
    for word in (*Change, *Stage, *(key for keys in ANSWERS.values() for key in keys)):
        assert f"`{word}`" in text


def test_a_workspace_that_exists_gets_them_and_keeps_its_own(
    tmp_path: Path, capsys: Capsys
) -> None:
    assert main(["init", str(tmp_path)]) == 0
    assert not (tmp_path / SKILL).exists()
    (tmp_path / "AGENTS.md").write_text("mine")
    told = text_of(capsys, "init", tmp_path, "--agents")
    assert "left alone, since it was there: AGENTS.md" in told
    assert f"wrote {SKILL}" in told
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


def with_client(asked: Callable[[Client], Awaitable[Any]], root: Path = FIXTURE) -> Any:
    from mcp import Client, StdioServerParameters

    words = ["-m", "workbench", "mcp"]
    served = StdioServerParameters(
        command=sys.executable, args=words, cwd=str(root), env=dict(os.environ)
    )

    async def run() -> Any:
        async with Client(served) as client:
            return await asked(client)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the SDK leaves its process to the loop
        found = asyncio.run(run())
        gc.collect()
    return found


async def verb_here(arguments: Sequence[str], say: mcp.Say) -> tuple[dict[str, Any], int]:
    with redirect_stdout(io.StringIO()) as printed:
        code = main([*arguments])
    return json.loads(printed.getvalue()), code


def in_this_process(asked: Callable[[Client], Awaitable[Any]], verb: mcp.Answer = verb_here) -> Any:
    """What a client is answered whose server is here, and its verbs."""
    from mcp import Client

    async def run() -> Any:
        async with Client(mcp.server(verb)) as client:
            return await asked(client)

    return asyncio.run(run())


def test_tools_say_what_they_take_and_which_only_read() -> None:
    listed = in_this_process(lambda client: client.list_tools())
    writes = {tool.name for tool in listed.tools if not tool.annotations.read_only_hint}
    assert writes == {"try", "new", "step"}
    assert len(listed.tools) == 9
    for tool in listed.tools:
        assert tool.description
        assert all(each["description"] for each in tool.input_schema["properties"].values())
    text = listed.model_dump_json(by_alias=True, exclude_none=True)
    assert len(text) / 4 <= 1200, "tokens"


def test_a_try_is_quick_unless_it_is_asked_not_to_be() -> None:
    tool = mcp.TOOLS["try"]
    assert "--quick" in mcp.typed(tool, {"source": "a.py"})
    assert "--quick" not in mcp.typed(tool, {"source": "a.py", "quick": False})


def test_a_long_line_on_stderr_is_heard_whole() -> None:
    """As a compiler prints of a template: asyncio's own limit is 64 KiB."""

    async def heard() -> list[str]:
        stream, said = asyncio.StreamReader(mcp.LONGEST_LINE), list[str]()
        stream.feed_data(b"x" * 100_000 + b"\n")
        stream.feed_eof()

        async def say(line: str) -> None:
            said.append(line)

        return [*await mcp.lines_of(stream, say), *said]

    assert asyncio.run(heard()) == ["x" * 100_000] * 2


def test_a_call_that_is_cancelled_ends(tmp_path: Path, monkeypatch: Patch) -> None:
    root, began = make(tmp_path / "ws", {"baseline": GOOD}), tmp_path / "began"
    study = f"import pathlib, time\npathlib.Path({str(began)!r}).touch()\ntime.sleep(600)\n"
    (root / "kernels" / "scale" / "study.py").write_text(study)
    monkeypatch.setenv(MARK, mark := uuid.uuid4().hex)

    async def say(line: str) -> None:
        pass

    async def cancelled() -> bool:
        words = ["list", "--brief", "--project", str(root)]
        calling = asyncio.create_task(mcp.answer(words, say))
        while not began.exists():
            await asyncio.sleep(0.02)
        calling.cancel()
        with suppress(asyncio.CancelledError):
            await calling
        return until(lambda: not marked(mark))

    assert asyncio.run(cancelled())


def test_progress_comes_while_a_verb_works(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(make(tmp_path / "ws", {"baseline": GOOD}))

    async def asked(client: Client) -> list[str]:
        said: list[str] = []

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            said.append(message or "")

        await client.call_tool("build", {"variants": ["baseline"]}, progress_callback=hear)
        return said

    assert any("built baseline" in line for line in in_this_process(asked, mcp.answer))


def called(*calls: tuple[str, dict[str, Any]]) -> Callable[[Client], Awaitable[list[Any]]]:
    async def asked(client: Client) -> list[Any]:
        return [await client.call_tool(*call) for call in calls]

    return asked


def test_the_tools_answer_as_the_verbs_do(capsys: Capsys) -> None:
    """Of a verb that fails the answer is the error, with its exit code."""
    calls = [("advise", {"name": name}) for name in ("fix2", "fix99")]
    answers = with_client(called(*calls, ("step", {"name": "fix3"})))
    advised, unknown, wrong = (answer.structured_content for answer in answers)
    assert [answer.is_error for answer in answers] == [False, True, False]
    assert [json.loads(answer.content[0].text) for answer in answers[::2]] == [advised, wrong]
    assert max(len(answer.content[0].text) for answer in answers) <= in_short.LIMIT
    capsys.readouterr()
    told = json_of(capsys, "advise", "fix2", "--brief", project=FIXTURE)
    assert advised == {**told, "exit_code": 0}
    assert (wrong["verdict"], wrong["exit_code"]) == ("wrong", 1)
    assert (unknown["error"]["code"], unknown["exit_code"]) == ("usage", 2)


def test_what_a_tool_does_not_take_is_refused(monkeypatch: Patch) -> None:
    monkeypatch.chdir(FIXTURE)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("diff", {"before": "fix1", "after": "fix2"}),
        ("advise", {"name": "fix2", "studdy": "attention"}),
        ("step", {"name": "fix3", "quick": "yes"}),
        ("nosuch", {}),
        ("show", {"name": "--help"}),
        ("new", {"name": "a", "parent": "fix99", "change": "c"}),
        ("show", {"name": "a\0b"}),
        ("show", {"name": "x" * 200_000}),
    ]
    answers = in_this_process(called(*calls))
    compared, *refused = (answer.structured_content for answer in answers)
    assert [answer.is_error for answer in answers] == [False] + [True] * len(refused)
    assert max(len(answer.content[0].text) for answer in answers) <= in_short.LIMIT
    assert compared["after"] == "fix2"
    assert {(each["error"]["code"], each["exit_code"]) for each in refused} == {("usage", 2)}
    misspelt, _, _, option, parent, *letters = (each["error"] for each in refused)
    assert "did you mean 'study'" in misspelt["hint"]
    assert "--help" in option["message"]
    assert "unknown step 'fix99'" in parent["message"]
    assert all("too many letters" in each["message"] for each in letters)


INITIALIZE: dict[str, object] = {
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "a", "version": "1"},
    },
}


def ask(stdin: IO[str], *requests: dict[str, object]) -> None:
    for request in requests:
        print(json.dumps({"jsonrpc": "2.0", **request}), file=stdin, flush=True)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_though_its_client_is_there(how: signal.Signals) -> None:
    command, pipe = [sys.executable, "-m", "workbench", "mcp"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as server:
        ask(not_none(server.stdin), INITIALIZE)
        assert "serverInfo" in not_none(server.stdout).readline()
        server.send_signal(how)
        assert server.wait() == 130


def test_the_tool_step_has_the_two_stages_of_ablate(tmp_path: Path, monkeypatch: Patch) -> None:
    times = {"baseline": 20.0, "near": 9.0, "far": 25.0}
    monkeypatch.chdir(make(tmp_path / "ws", dict.fromkeys(times, GOOD)))
    gpu = StandIn(monkeypatch, lambda run: times[run.variant])

    for arguments, verdict, provisional, sessions in (
        ({"name": "near", "quick": True}, "kept", True, [3]),
        ({"name": "near"}, "inconclusive", None, [5]),  # nothing is captured here
        ({"name": "far"}, "slower", True, [3]),
    ):
        gpu.jobs.clear()
        (answer,) = in_this_process(called(("step", arguments)))
        told = json.loads(answer.content[0].text)
        assert (told["verdict"], told.get("provisional")) == (verdict, provisional)
        assert [job.sessions for job in gpu.jobs if isinstance(job, SessionsJob)] == sessions
    assert "near" in gpu.captured
    assert "far" not in gpu.captured
