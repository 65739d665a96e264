"""The loop of a coding agent: the commands of the guide in their order, and on a real GPU from
nothing to a kept step and to rejected fakes, through ``--brief`` alone.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from answers import Capsys, Patch
from standin import StandIn, stand_in_for_jobs
from workbench.cli.main import main
from workbench.render import brief
from workspaces import ROOT

VECTOR = Path(__file__).parents[1] / "agent" / "vector.cu"
MODULE = '''"""{title}"""

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


class Agent:
    """Knows nothing but the answers of commands in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seconds = folder, 0.0

    def asks(
        self, *arguments: str, codes: Sequence[int] = (0,), limit: int = brief.LIMIT
    ) -> dict[str, Any]:
        command = [sys.executable, "-m", "workbench", *arguments]
        began = time.monotonic()
        path = os.pathsep.join([str(ROOT / "profiler"), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)},
            capture_output=True,
            text=True,
            timeout=280,
        )
        self.seconds = time.monotonic() - began
        assert done.returncode in codes, f"{arguments}: {done.stdout}\n{done.stderr}"
        assert len(done.stdout.encode()) <= limit + 1
        return {**json.loads(done.stdout), "exit code": done.returncode}

    def step(self, name: str) -> dict[str, Any]:
        """As the guide has it: one that is inconclusive is run again, once."""
        told = self.asks("ablate", name, "--brief", codes=(0, 1, 5))
        if told["verdict"] == "inconclusive":
            told = self.asks("ablate", name, "--brief", "--fresh", codes=(0, 1, 5))
        return told

    def fakes(self, name: str, module: Mapping[str, str]) -> dict[str, Any]:
        """A step on the baseline with the fast kernel."""
        self.asks("new", name, "--from", "baseline", "--change", "a fake", "--json", limit=1 << 20)
        study = self.folder / "kernels" / "rmsnorm"
        (study / f"{name}.py").write_text(MODULE.format(name=name, title="A fake.", **module))
        shutil.copy(VECTOR, study / f"{name}.cu")
        return self.step(name)


@pytest.mark.gpu
@pytest.mark.timeout(900)
def test_a_scripted_agent_keeps_a_step_and_no_fake(tmp_path: Path, capsys: Capsys) -> None:
    assert main(["init", str(tmp_path), "--template", "cuda", "--agents"]) == 0
    agent = Agent(tmp_path)

    def report(name: str, told: Mapping[str, Any]) -> tuple[str, bool, int]:
        with capsys.disabled():
            first = f"first verdict in {told['seconds']} s, all in {agent.seconds:.1f} s"
            print(f"\n{name}: {first}\n  {json.dumps(told)}")
        return told["verdict"], told.get("provisional", False), told["exit code"]

    assert agent.asks("doctor", "--brief")["works"]["measure"]
    baseline = agent.step("baseline")
    assert report("baseline", baseline) == ("baseline", False, 0)

    shutil.copy(VECTOR, tmp_path / "kernels" / "rmsnorm" / "fix1.cu")
    told = agent.asks("ablate", "fix1", "--brief", "--quick", codes=(0, 1, 5))
    assert report("fix1 --quick", told) == ("kept", True, 5)
    fix1 = agent.step("fix1")
    assert report("fix1", fix1) == ("kept", False, 0)
    told = agent.fakes("fix2", KEEPS)
    assert report("an output that is kept", told) == ("wrong", False, 1)
    told = agent.fakes("fix3", SHOWN)
    assert report("right at the study's own shapes", told) == ("unseen_shape", False, 1)

    more = agent.asks("show", fix1["evidence"], "--brief", limit=brief.MORE)
    assert more["gates"]["unseen"] == "passed"
    assert agent.asks("diff", "baseline", "fix1", "--brief")["speedup"][1] > 1.03
    assert agent.asks("advise", "fix1", "--brief")["verdict"] == "kept"
    assert fix1["speedup_over_parent"][1] > 1.03
    assert fix1["speedup_over_fastest"]["of"] == "builtin"
    assert baseline["limit"]
    assert baseline["next"]


PLACEHOLDERS = {"FILE.py:FUNCTION": "row.py:softmax", "4096,8192": "8,16", "DIR": "."}
GUIDES = {
    "SKILL.md": ROOT / "starters" / "agents" / "SKILL.md",
    "agents.md": ROOT / "docs" / "agents.md",
}

VERBS = {
    "SKILL.md": ["doctor", "try", "init", "ablate", "new", "build", "ablate", "show", "diff"],
    "agents.md": ["new", "ablate", "show", "init", "mcp", "schema"],
}


def commands_of(guide: Path) -> list[list[str]]:
    """Its commands in their order, each once, with this test's names."""
    text = guide.read_text()
    for placeholder, ours in PLACEHOLDERS.items():
        text = text.replace(placeholder, ours)
    found = re.findall(r"(?:^    |`)workbench ([a-z][^`\n#]*)", text, re.MULTILINE)
    return [shlex.split(each) for each in dict.fromkeys(map(str.strip, found))]


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES)
def test_the_commands_of_the_guides_work_in_their_order(
    guide: str, tmp_path: Path, monkeypatch: Patch, builds_here: None, capsys: Capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    StandIn(monkeypatch, lambda run: {"baseline": 20.0, "fix1": 15.0}.get(run.variant, 10.0))
    stand_in_for_jobs(monkeypatch)
    text = "import torch\n\n\ndef softmax(x):\n    return torch.softmax(x, -1)\n"
    (tmp_path / "row.py").write_text(text)
    if guide != "SKILL.md":
        assert main(["init", ".", "--agents"]) == 0
    known, verbs = "", []
    for command in commands_of(GUIDES[guide]):
        verbs.append(command[0])
        if command == ["mcp"]:  # serves until its client is gone: tests/cli/test_agents.py
            continue
        capsys.readouterr()
        code = main([known if word.endswith("ID") else word for word in command])
        out = capsys.readouterr().out
        step = command[0] == "ablate" and "baseline" not in command
        assert code == (5 if step else 0), (command, out)  # nothing is profiled here
        if "--brief" in command:
            assert len(out.encode()) <= (brief.MORE if command[0] == "show" else brief.LIMIT)
            known = json.loads(out).get("evidence", known)
    assert verbs == VERBS[guide]
