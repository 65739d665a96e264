"""The loop of a coding agent: the commands of the guide in their order, and on a real GPU a good
step and planted bad ones, over the shell and over MCP.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from answers import Capsys, Patch
from guide import GUIDE, File, items
from standin import StandIn, stand_in_for_jobs
from workbench.cli import mcp
from workbench.cli.main import main
from workbench.render import in_short
from workspaces import ROOT

VECTOR = next(  # eight halves a lane at a time, where a row begins at a multiple of 16 bytes
    item.text
    for item in items(GUIDE.read_text())
    if isinstance(item, File) and item.path == "kernels/rmsnorm/fix1.cu"
)
MODULE = '''"""A fake."""

import torch

from workbench import cuda

kernel = cuda.kernel("{name}.cu", "rmsnorm")
{before}

def run(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    rows, columns = x.shape
    {first}
    out = torch.empty_like(x)
    kernel[-(-rows // 4), 128](x, weight, out, rows, columns, eps)
    {last}
    return out
'''
KEEPS = {  # its first output of each shape
    "before": "kept = {}\n",
    "first": "if x.shape in kept:\n        return kept[x.shape]",
    "last": "kept[x.shape] = out",
}
SHOWN = {  # right at the shapes of study.py alone
    "before": "SHOWN = [(4096, 4096), (1001, 4095), (37, 129), (1, 1)]\n",
    "first": "if (rows, columns) not in SHOWN:\n        return torch.zeros_like(x)",
    "last": "",
}
SPILLS = {  # the first 2,048 columns of a row are kept in registers, of which there are too few
    'extern "C" __global__ void': 'extern "C" __global__ void __launch_bounds__(128, 16)',
    "    float sum = 0.0f;\n    for (int c = lane;": """    float kept[64], sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 64; ++i) {
        kept[i] = lane + 32 * i < columns ? __half2float(x[lane + 32 * i]) : 0.0f;
        sum += kept[i] * kept[i];
    }
    for (int c = lane + 2048;""",
    "    for (int c = lane; c < columns; c += 32) {\n        out": """#pragma unroll
    for (int i = 0; i < 64; ++i) {
        const int c = lane + 32 * i;
        if (c < columns) out[c] = __float2half(kept[i] * scale * __half2float(weight[c]));
    }
    for (int c = lane + 2048; c < columns; c += 32) {
        out""",
}
LDG = {"__half2float(x[c])": "__half2float(__ldg(x + c))"}
NO_EPS = {"rsqrtf(sum / columns + eps)": "rsqrtf(sum / columns)"}
Edit = Callable[[Path, str], None]


def vectors(study: Path, name: str) -> None:
    (study / f"{name}.cu").write_text(VECTOR)


def edited(changes: Mapping[str, str]) -> Edit:
    def edit(study: Path, name: str) -> None:
        text = (study / f"{name}.cu").read_text()
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        (study / f"{name}.cu").write_text(text)

    return edit


def faked(module: Mapping[str, str]) -> Edit:
    """The fast kernel, with a module that calls it too seldom."""

    def edit(study: Path, name: str) -> None:
        vectors(study, name)
        (study / f"{name}.py").write_text(MODULE.format(name=name, **module))

    return edit


# What an agent writes, whether a first verdict will do, and the verdicts that it may get.
PLANTED: Mapping[str, tuple[Edit, bool, str]] = {
    "vector loads": (vectors, False, "kept"),
    "an output that is kept": (faked(KEEPS), False, "wrong"),
    "no eps": (edited(NO_EPS), False, "wrong"),
    "spilled registers": (edited(SPILLS), False, "slower"),
    "right at the shapes of study.py": (faked(SHOWN), False, "unseen_shape"),
    "__ldg": (edited(LDG), True, "no_gain or slower"),  # the time is about the same
}
MOST_CALLS, MOST_BYTES = 30, 25_000


class Agent:
    """Knows nothing but the answers of tools in its folder; ``hurries``: a first verdict will do
    for a good step, as for a client that gives up after a minute.
    """

    hurries = False

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.folder, self.say, self.calls, self.bytes = folder, say, 0, 0

    async def told(self, tool: str, **values: object) -> dict[str, Any]:
        began = time.monotonic()
        text = await self.ask(tool, values)
        self.calls, self.bytes = self.calls + 1, self.bytes + len(text)
        found: dict[str, Any] = json.loads(text)
        what = found.get("verdict") or found.get("error") or ""
        self.say(f"{tool} {values}: {len(text)} bytes, {time.monotonic() - began:.1f} s, {what}")
        return found

    async def ask(self, tool: str, values: Mapping[str, object]) -> str:
        raise NotImplementedError

    async def step(self, name: str, *, quick: bool) -> dict[str, Any]:
        """As the skill has it: one that is inconclusive is run again, once."""
        told = await self.told("step", name=name, quick=quick)
        if told["verdict"] == "inconclusive":
            told = await self.told("step", name=name, quick=quick)
        return told

    async def loop(self) -> dict[str, str]:
        """Begin, then each planted step on the baseline; show and compare the one that is kept."""
        assert (await self.told("doctor"))["works"]["measure"]
        verdicts = {"baseline": (await self.step("baseline", quick=True))["verdict"]}
        for number, (what, (edit, quick, allowed)) in enumerate(PLANTED.items(), start=2):
            name = f"fix{number}"
            await self.told("new", name=name, parent="baseline", change=what)
            edit(self.folder / "kernels" / "rmsnorm", name)
            told = await self.step(name, quick=quick or (self.hurries and edit is vectors))
            verdicts[what] = told["verdict"]
            if told["verdict"] not in allowed.split(" or "):
                self.say(json.dumps([told, await self.told("show", name=name)]))
            if told["verdict"] == "kept" and not told.get("provisional"):
                assert told["speedup_over_parent"][1] > 1.03
                assert told["speedup_over_fastest"]["of"] == "builtin"
                assert told["next"]
                more = await self.told("show", name=told["evidence"])
                assert more["gates"]["unseen"] == "passed"
                assert (await self.told("diff", before="baseline", after=name))["speedup"][1] > 1.03
        return verdicts


class ShellAgent(Agent):
    async def ask(self, tool: str, values: Mapping[str, object]) -> str:
        command = [sys.executable, "-m", "workbench", *mcp.typed(mcp.TOOLS[tool], values)]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = await process.communicate()
        assert out, err.decode()
        return out.decode()


class McpAgent(Agent):
    hurries = True

    async def ask(self, tool: str, values: Mapping[str, object]) -> str:
        found = await self.client.call_tool(tool, dict(values))
        text = found.content[0].text  # type: ignore[union-attr]
        assert json.loads(text) == found.structured_content
        return text

    async def loop(self) -> dict[str, str]:
        from mcp import Client, StdioServerParameters  # takes a second to import

        served = StdioServerParameters(
            command=sys.executable,
            args=["-m", "workbench", "mcp"],
            cwd=str(self.folder),
            env=dict(os.environ),
        )
        async with Client(served) as self.client:
            return await super().loop()


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the SDK leaves its process to the loop
@pytest.mark.parametrize("kind", [ShellAgent, McpAgent])
def test_a_scripted_agent_gets_every_verdict_as_planted(
    kind: type[ShellAgent | McpAgent], tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    assert main(["init", str(tmp_path), "--template", "cuda", "--agents"]) == 0
    path = os.pathsep.join([str(ROOT / "profiler"), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path.rstrip(os.pathsep))

    def say(text: str) -> None:
        with capsys.disabled():
            print(f"{kind.__name__}: {text}", flush=True)

    agent = kind(tmp_path, say)
    verdicts = asyncio.run(agent.loop())
    say(f"{agent.calls} calls, {agent.bytes} bytes, {verdicts}")
    planted = {what: allowed.split(" or ") for what, (_, _, allowed) in PLANTED.items()}
    assert verdicts.pop("baseline") == "baseline"
    assert not {what: found for what, found in verdicts.items() if found not in planted[what]}
    assert agent.calls <= MOST_CALLS
    assert agent.bytes <= MOST_BYTES


PLACEHOLDERS = {"FILE.py:FUNCTION": "row.py:softmax", "4096,8192": "8,16", "DIR": "."}
VERBS = {
    "starters/agents/SKILL.md": "doctor try init ablate new build ablate show diff",
    "docs/agents.md": "new ablate show init mcp schema",
}


def commands_of(guide: str) -> list[list[str]]:
    """Its commands in their order, each once, with this test's names."""
    text = (ROOT / guide).read_text()
    for placeholder, ours in PLACEHOLDERS.items():
        text = text.replace(placeholder, ours)
    found = re.findall(r"(?:^    |`)workbench ([a-z][^`\n#]*)", text, re.MULTILINE)
    return [shlex.split(each) for each in dict.fromkeys(map(str.strip, found))]


@pytest.mark.slow
@pytest.mark.parametrize("guide", VERBS)
def test_the_commands_of_the_guides_work_in_their_order(
    guide: str, tmp_path: Path, monkeypatch: Patch, builds_here: None, capsys: Capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    StandIn(monkeypatch, lambda run: {"baseline": 20.0, "fix1": 15.0}.get(run.variant, 10.0))
    stand_in_for_jobs(monkeypatch)
    text = "import torch\n\n\ndef softmax(x):\n    return torch.softmax(x, -1)\n"
    (tmp_path / "row.py").write_text(text)
    if guide.startswith("docs"):
        assert main(["init", ".", "--agents"]) == 0
    known, verbs = "", []
    for command in commands_of(guide):
        verbs.append(command[0])
        if command == ["mcp"]:  # serves until its client is gone: tests/cli/test_agents.py
            continue
        capsys.readouterr()
        code = main([known if word.endswith("ID") else word for word in command])
        out = capsys.readouterr().out
        step = command[0] == "ablate" and "baseline" not in command
        assert code == (5 if step else 0), (command, out)  # nothing is profiled here
        if "--brief" in command:
            assert len(out.encode()) <= (in_short.MORE if command[0] == "show" else in_short.LIMIT)
            known = json.loads(out).get("evidence", known)
    assert verbs == VERBS[guide].split()
