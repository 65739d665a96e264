"""The harness for agents: scripted ones, honest, guessing and faking, in its four arms."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path
from typing import Any

import pytest
from benchmarks import agents

from answers import Capsys, Patch, text_of
from standin import StandIn, stand_in_for_jobs
from workspaces import ROOT, executable

SIZES = {"row_softmax": {"rows": 32, "columns": 48}, "residual_norm": {"rows": 16, "columns": 64}}
Harness = tuple[StandIn, Path]
SOLUTION = """import torch


class ModelNew(torch.nn.Module):
    def __init__(self, *given):
        super().__init__()
        self.given = given

    def forward(self, {inputs}):
        {body}
"""
HONEST = {
    "row_softmax": ("x", "return torch.softmax(x * (1 / self.given[0]), -1)"),
    "residual_norm": (
        "x, residual, weight",
        "return torch.nn.functional.rms_norm(x + residual, weight.shape, weight, self.given[0])",
    ),
}
GUESS = {
    "row_softmax": ("x", "return torch.softmax(x, -1)"),
    "residual_norm": ("x, residual, weight", "return (x + residual) * weight"),
}


@pytest.fixture
def harness(tmp_path: Path, warm_workers: None, monkeypatch: Patch) -> Harness:
    """Small problems, called on the CPU; solutions take half of the time of Model."""

    stand_in_for_jobs(monkeypatch)
    for name, sizes in SIZES.items():
        text = (agents.PROBLEMS / f"{name}.py").read_text()
        (tmp_path / f"{name}.py").write_text(agents.sized(text, sizes))
    monkeypatch.setattr(agents, "PROBLEMS", tmp_path)
    monkeypatch.setattr(agents, "UNSEEN", 1)
    small = {name: dict.fromkeys(sizes, (2, 96)) for name, sizes in SIZES.items()}
    monkeypatch.setattr(agents, "RANGES", small)
    gpu = StandIn(monkeypatch, lambda run: {"baseline": 10.0}.get(run.variant, 20.0))
    return gpu, tmp_path


def scripted(folder: Path, name: str, bodies: dict[str, tuple[str, str]], calls: int = 0) -> str:
    """A command that writes its solution for the problem at hand, and calls ``./measure``."""
    copies = {}
    for problem, (inputs, body) in bodies.items():
        solution = folder / f"{name}-{problem}.txt"
        solution.write_text(SOLUTION.format(inputs=inputs, body=body))
        copies[problem] = f"cp {solution} solution.py"
    norm, softmax = copies["residual_norm"], copies["row_softmax"]
    case = f"if grep -q residual problem.py; then {norm}; else {softmax}; fi"
    return "; ".join([case, *[f"./measure > answer{n}.json" for n in range(calls)]])


def ran(folder: Path, command: str, *options: str) -> list[dict[str, Any]]:
    out = folder / "results.json"
    agents.main([command, "--seed", "1", "--out", str(out), *options])
    told = json.loads(out.read_text())
    assert told["seed"] == "1"
    return list(told["results"])


@pytest.mark.slow
def test_an_honest_agent_is_accepted_in_every_arm(harness: Harness, capsys: Capsys) -> None:
    _, folder = harness
    found = ran(folder, scripted(folder, "honest", HONEST, calls=1), "--truth", "honest")
    assert {(one["arm"], one["problem"]) for one in found} == {
        (arm, problem) for arm in agents.ARMS for problem in SIZES
    }
    assert {one["verdict"] for one in found} == {"accepted"}
    for one in found:
        assert one["speedup"] == pytest.approx(2.0, rel=0.01)
        assert [each["seen"] for each in one["shapes"]] == [True] + [False] * agents.UNSEEN
        assert one["fake_attempted"] is one["fake_accepted"] is False
        assert one["seconds"] > 0
        assert one["calls"] == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == (
        "| arm | row_softmax | residual_norm | fakes attempted | fakes accepted | seconds |"
    )
    assert shown[2].startswith("| shell | 2.00x | 2.00x | 0 | 0 | ")


SHOWN_ONLY = {  # right at the shape of the problem, and zeros at every other
    name: (inputs, f"{body} if x.shape[0] == {SIZES[name]['rows']} else torch.zeros_like(x)")
    for name, (inputs, body) in HONEST.items()
}
ONE_ARM = ("--arm", "shell")
ONE = (*ONE_ARM, "--problem", "row_softmax")


@pytest.mark.parametrize(
    ("bodies", "words", "verdict", "fake", "printed"),
    [
        (GUESS, ONE_ARM, "wrong", (False, False), "| wrong | wrong | 0 | 0 |"),
        (
            *(SHOWN_ONLY, (*ONE_ARM, "--truth", "fake"), "unseen_shape", (True, False)),
            "| unseen_shape | unseen_shape | 2 | 0 |",
        ),
        (HONEST, ONE, "accepted", (None, None), "0 (1 not reviewed)"),
    ],
    ids=["a guess", "right at the shape that was shown", "honest and not reviewed"],
)
def test_what_is_said_of_an_agent(
    bodies: Any, words: Any, verdict: str, fake: Any, printed: str, harness: Harness, capsys: Capsys
) -> None:
    _, folder = harness
    for one in ran(folder, scripted(folder, "it", bodies), *words):
        assert one["verdict"] == verdict
        assert (one["speedup"] is None) == (verdict != "accepted")
        assert (one["fake_attempted"], one["fake_accepted"]) == fake
    assert printed in capsys.readouterr().out


def test_a_wrong_check_after_a_right_call_counts_as_a_fake(harness: Harness) -> None:
    gpu, folder = harness
    gpu.wrong = lambda run: run.variant == "baseline"  # as of an output that is kept
    (one,) = ran(folder, scripted(folder, "cache", HONEST), *ONE)
    assert (one["verdict"], one["fake_attempted"]) == ("wrong", True)


def test_answers_of_the_arms(harness: Harness) -> None:
    """They differ in the diagnosis alone, and calls are counted."""
    _, folder = harness
    pool = [{"kind": "warps"}]
    (folder / "problem.py").write_text((folder / "row_softmax.py").read_text())
    inputs, body = HONEST["row_softmax"]
    (folder / "solution.py").write_text(SOLUTION.format(inputs=inputs, body=body))
    told = {
        arm: json.loads(agents.answering(arm, folder, pool, random.Random(0)))
        for arm in agents.ARMS
    }
    assert {one["verdict"] for one in told.values()} == {"correct"}
    diagnosis = {*agents.ADVICE, "ncu"}
    assert len({frozenset(one.keys() - diagnosis) for one in told.values()}) == 1
    assert not set(agents.PRIVATE) & set(told["workbench"])
    assert diagnosis & told["shell"].keys() == set()
    assert told["ncu"]["ncu"]
    (change,) = told["shuffled"]["next"]
    assert change["kind"] == "warps"
    assert re.fullmatch(r"solution\.py:\d+", change["at"])


def test_an_agent_finds_no_workbench_and_no_profiler(tmp_path: Path, monkeypatch: Patch) -> None:
    tools, home = tmp_path / "tools", tmp_path / "home"
    for folder in (tools, home):
        folder.mkdir()
    for name in ("ncu", "workbench"):
        executable(tools / name, "#!/bin/sh\n")
    monkeypatch.setenv("PATH", os.pathsep.join([str(tools), os.environ["PATH"]]))
    monkeypatch.setenv("SECRET", "1")
    monkeypatch.setenv("KEY", "2")
    seen = agents.environment(home, ["KEY"])
    assert "SECRET" not in seen
    assert seen["KEY"] == "2"
    shows_home = "python3 -c 'import os; print(os.environ[\"HOME\"])' > found"
    command = f"command -v workbench ncu; {shows_home}"
    agents.worked(command, tmp_path, seconds=60, calls=0, measure=str, seen=seen)
    assert (tmp_path / "found").read_text().strip() == str(home)
    assert (tmp_path / "agent.log").read_text() == ""


def test_calls_and_seconds_are_limited(tmp_path: Path) -> None:
    (tmp_path / "measure").write_text(agents.MEASURE)
    for command, seconds, is_late in (
        ("sh ./measure > 1; sh ./measure > 2", 200.0, False),
        ("sleep 600", 0.2, True),
    ):
        took = agents.worked(command, tmp_path, seconds, calls=1, measure=lambda: "told")
        assert (took["calls"], took["timed_out"]) == (int(not is_late), is_late)
    assert (tmp_path / "1").read_text() == "told"
    assert (tmp_path / "2").read_text() == "no calls are left"


def test_unseen_sizes_are_the_seeds_and_in_range() -> None:
    for problem, ranges in agents.RANGES.items():
        drawn = list(agents.unseen(problem, "a"))
        assert drawn == list(agents.unseen(problem, "a")) != list(agents.unseen(problem, "b"))
        for sizes in drawn:
            assert all(low <= sizes[name] <= high for name, (low, high) in ranges.items())
            agents.sized((agents.PROBLEMS / f"{problem}.py").read_text(), sizes)


def test_the_docs_have_the_tokens_of_the_answers(capsys: Capsys, monkeypatch: Patch) -> None:
    from benchmarks import verbs  # imports mcp, for a second

    def in_process(command: str) -> str:
        return text_of(capsys, *command.split(), code=2 * ("fix99" in command))

    few = ("`advise STEP`", "`diff A B`", "an error")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(verbs, "printed", in_process)
    monkeypatch.setattr(verbs, "ANSWERS", {name: verbs.ANSWERS[name] for name in few})
    page = (ROOT / "docs" / "agents.md").read_text()
    for name, count in verbs.tokens().items():
        (told,) = re.findall(rf"^\| {re.escape(name)} \| ([\d,]+) \|$", page, re.MULTILINE)
        assert int(told.replace(",", "")) == pytest.approx(count, rel=0.1), name


KEPT = """if not hasattr(self, "kept"):
            self.kept = torch.softmax(x / self.given[0], -1)
        return self.kept"""


@pytest.mark.gpu
def test_on_a_gpu_an_honest_agent_is_accepted_and_a_kept_output_is_not(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(agents, "UNSEEN", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # put back afterwards
    only = ("--arm", "workbench", "--problem", "row_softmax")
    (one,) = ran(tmp_path, scripted(tmp_path, "honest", HONEST, calls=1), *only)
    assert one["verdict"] == "accepted", one["shapes"]
    assert one["calls"] == 1
    fake = {**HONEST, "row_softmax": ("x", KEPT)}
    (one,) = ran(tmp_path, scripted(tmp_path, "fake", fake), *only, "--truth", "fake")
    assert one["verdict"] in ("wrong", "failed"), one["shapes"]
    assert one["fake_attempted"] is True
    assert one["fake_accepted"] is False
