"""Runs a command as an agent that makes kernels faster, in four arms, and judges what it wrote.

    python -m benchmarks.agents 'COMMAND' --out results.json

The command runs in a folder of its own with ``problem.py`` (KernelBench's format), ``TASK.md`` and
``./measure``, and leaves ``solution.py`` with a class ``ModelNew``. In every arm ``./measure``
prints the verdict, the time and the ratio. The arms differ in the diagnosis beside them: none
(``shell``), the text of ncu (``ncu``), what limits it and what to try (``workbench``), or kinds of
change that were advised earlier on the same problem, at random lines (``shuffled``). If
``shuffled`` does as well as ``workbench``, the advice is worth nothing.

``workbench try`` judges the solution at the sizes of ``problem.py`` and at sizes that the agent has
not seen. The agent has an environment, a home and caches of its own, and no workbench and no
profiler on its PATH. It can still read this machine: run it in a container if that matters.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tools.pages import answer
from tools.pages import table as markdown

from workbench.errors import EnvironmentLacks, ToolFailed
from workbench.judge.across import geometric_mean
from workbench.judge.gates import COMPILER
from workbench.run import machine
from workbench.study.files import write_bytes

PROBLEMS = Path(__file__).parent / "problems"
RANGES = {
    "row_softmax": {"rows": (16, 16384), "columns": (64, 16384)},
    "residual_norm": {"rows": (16, 16384), "columns": (64, 16384)},
    "gated_projection": {"rows": (16, 4096), "columns": (64, 2048), "hidden": (64, 4096)},
}
ARMS = ("shell", "ncu", "workbench", "shuffled")
ADVICE = ("limit", "at", "next")
PRIVATE = ("workspace", "evidence", "file")  # of an answer: they lead to the advice itself
UNABLE = (EnvironmentLacks.exit_code, ToolFailed.exit_code)
UNSEEN = 3
POLL_SECONDS = 0.05
NCU_SECONDS = 300.0

Data = dict[str, Any]  # of JSON

TASK = """Make the `Model` of problem.py faster on this machine's GPU.

Write solution.py with a class `ModelNew`. It takes the arguments of `Model` and gives the same
results. It is judged at the sizes of problem.py and at others: {ranges}.
A wrong result at any of them is a failure. Inputs change between calls.
{tool}
You have {seconds:g} seconds. The solution.py that is there at the end counts.
"""
MEASURES = """`./measure` checks and times solution.py, and prints JSON: `verdict`, `why`,
`microseconds`, `speedup_over_fastest`{more}. {calls} calls.
"""
TOOLS = {
    "shell": "",
    "ncu": ", and `ncu`, what Nsight Compute prints",
    "workbench": ", `limit`, `at`, and `next`, the kinds of change to try",
}
TOOLS["shuffled"] = TOOLS["workbench"]
HIDDEN = ("workbench", "ncu", "ncu-ui", "nsys", "nsys-ui")
WRAPPED = ("python", "python3", "nvcc", "cuobjdump", "nvdisasm", "git")
KEPT = ("CUDA_VISIBLE_DEVICES", "CUDA_HOME", "LD_LIBRARY_PATH", "LANG", "TERM")
MEASURE = """#!/bin/sh
cd "$(dirname "$0")" && touch ask
while [ ! -f answer ]; do sleep 0.1; done
cat answer && rm answer
"""
ONCE = """import torch, problem, solution
new = solution.ModelNew(*problem.get_init_inputs()).cuda()
given = [one.cuda() if hasattr(one, "cuda") else one for one in problem.get_inputs()]
new(*given)
torch.cuda.profiler.start()
new(*given)
torch.cuda.synchronize()
torch.cuda.profiler.stop()
"""


def sized(text: str, sizes: Mapping[str, int]) -> str:
    """A problem with other sizes, which are numbers at the top of its lines."""
    for name, value in sizes.items():
        text, found = re.subn(rf"^{name} = \d+$", f"{name} = {value}", text, flags=re.MULTILINE)
        assert found == 1, name
    return text


def unseen(problem: str, seed: str) -> Iterator[dict[str, int]]:
    """As many small as large ones."""
    drawing = random.Random(f"{seed}/{problem}")
    for _ in range(UNSEEN):
        yield {
            name: round(math.exp(drawing.uniform(math.log(low), math.log(high))))
            for name, (low, high) in RANGES[problem].items()
        }


def tried(folder: Path, *options: str) -> Data:
    """The answer of ``workbench try`` on the problem in a folder."""
    return answer("try", str(folder / "problem.py"), *options, "--quick", "--brief")


def judged(problem: str, text: str, source: str, seed: str) -> list[Data]:
    """At the shape that was shown, then at the others, up to the first that rejects it: ``ratio``
    is over ``Model`` with both ends of its interval, ``called`` whether the first call was right.
    """
    found: list[Data] = []
    for sizes in ({}, *unseen(problem, seed)):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "problem.py").write_text(sized(text, sizes))
            (folder / "solution.py").write_text(source)
            told = tried(folder, "--solution", str(folder / "solution.py"))
        beside, gates = told.get("speedup_over_fastest"), told.get("failed") or []
        gates = [each for each in gates if each.get("gate") != COMPILER]
        verdict, code = told.get("verdict", "failed"), told["exit_code"]
        if verdict == "correct" and code in UNABLE:
            raise SystemExit(f"{problem} could not be measured: see stderr")
        if verdict == "correct" and (gates or code or not beside):
            verdict = "failed"
        why = told.get("error", {}).get("message") or gates or told.get("why", "")
        one = {"sizes": sizes, "seen": not sizes, "verdict": verdict, "called": "variant" in told}
        found.append({**one, "ratio": beside and beside["ratio"], "why": str(why)})
        if verdict != "correct":
            break
    return found


def conclusion(shapes: Sequence[Data], truth: str) -> Data:
    """``verdict``: ``accepted``, ``none`` without a solution, ``unseen_shape`` for one that is
    rejected at these alone, else that of ``workbench try``. ``speedup`` is the mean over the unseen
    shapes. A fake was right when it was first called, and rejected: or a mistake that looks like
    one. ``fake_accepted`` is None for an accepted solution that nobody has looked at.
    """
    found: Data = dict.fromkeys(("fake_attempted", "fake_accepted"), False)
    found |= {"verdict": "none", "speedup": None}
    rejected = next((each for each in shapes if each["verdict"] != "correct"), None)
    if rejected:
        found["verdict"] = rejected["verdict"] if rejected["seen"] else "unseen_shape"
        found["fake_attempted"] = shapes[0]["called"]
    elif shapes:
        fake = truth == "fake" if truth else None
        mean = geometric_mean(each["ratio"][0] for each in shapes if not each["seen"])
        found |= {"verdict": "accepted", "speedup": mean}
        found |= {"fake_attempted": fake, "fake_accepted": fake}
    return found


def profiled(folder: Path) -> str:
    """The text of ncu on one call of the solution."""
    command = [machine.find_ncu() or "ncu", "--set", "full", "--profile-from-start", "off"]
    try:
        done = subprocess.run(
            [*command, sys.executable, "-c", ONCE],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=NCU_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"ncu failed: {error}"
    return done.stdout + done.stderr


def answering(arm: str, folder: Path, pool: list[Data], drawing: random.Random) -> str:
    """What ``./measure`` prints in an arm. ``pool`` is all advice on the problem so far: it grows,
    and ``shuffled`` draws from it.
    """
    if not (folder / "solution.py").is_file():
        return json.dumps({"error": {"code": "usage", "message": "there is no solution.py"}})
    told = tried(folder, "--solution", str(folder / "solution.py"))
    advice = {name: told.pop(name, None) for name in (*ADVICE, "next_command")}
    known = {name: value for name, value in told.items() if name not in PRIVATE}
    if arm == "ncu":
        known["ncu"] = profiled(folder)
    elif arm == "workbench":
        known |= {name: advice[name] for name in ADVICE}
    elif arm == "shuffled":
        known |= shuffled(pool, (folder / "solution.py").read_text(errors="replace"), drawing)
    pool += advice["next"] or []
    return json.dumps(known)


def shuffled(pool: Sequence[Data], source: str, drawing: random.Random) -> Data:
    """Three of the pool, each at a random line that is not empty."""
    numbers = [number for number, text in enumerate(source.splitlines(), 1) if text.strip()]
    picked = drawing.sample(pool, min(3, len(pool)))
    found = [{**one, "at": f"solution.py:{drawing.choice(numbers or [1])}"} for one in picked]
    first = found[0] if found else {"at": None}
    return {"limit": first.get("limit"), "at": first["at"], "next": found}


def environment(home: Path, passed: Sequence[str]) -> dict[str, str]:
    """What an agent sees: no workbench, no profiler, and no cache but its own."""
    tools = home / "bin"
    tools.mkdir()
    found = {name: shutil.which(name) for name in WRAPPED} | dict.fromkeys(
        ("python", "python3"), sys.executable
    )
    for name, path in found.items():
        if path:
            (tools / name).write_text(f'#!/bin/sh\nexec {shlex.quote(path)} "$@"\n')
            (tools / name).chmod(0o755)
    folders = [
        folder
        for folder in os.environ.get("PATH", "").split(os.pathsep)
        if folder and not any((Path(folder) / name).exists() for name in HIDDEN)
    ]
    kept = {name: os.environ[name] for name in (*KEPT, *passed) if name in os.environ}
    path = os.pathsep.join([str(tools), *folders])
    own = {"HOME": home, "XDG_CACHE_HOME": home / "cache", "TMPDIR": home}
    return {**kept, "PATH": path, **{name: str(folder) for name, folder in own.items()}}


def worked(
    command: str,
    folder: Path,
    seconds: float,
    calls: int,
    measure: Callable[[], str],
    seen: Mapping[str, str] | None = None,
) -> Data:
    """How long the agent took, and its calls. It is ended with all that it started."""
    began, made = time.monotonic(), 0
    with (folder / "agent.log").open("wb") as log:
        process = subprocess.Popen(
            ["sh", "-c", command], cwd=folder, stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, start_new_session=True, env=seen,
        )  # fmt: skip
        try:
            while process.poll() is None and time.monotonic() < began + seconds:
                if (folder / "ask").exists():
                    (folder / "ask").unlink()
                    made += 1
                    text = measure() if made <= calls else "no calls are left"
                    write_bytes(folder / "answer", text.encode())
                time.sleep(POLL_SECONDS)
            late = process.poll() is None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return {"seconds": time.monotonic() - began, "calls": min(made, calls), "timed_out": late}


def result(given: argparse.Namespace, arm: str, problem: str, advice: Sequence[Data]) -> Data:
    text = (PROBLEMS / f"{problem}.py").read_text()
    ranges = ", ".join(f"{n} {low} to {high}" for n, (low, high) in RANGES[problem].items())
    tool = MEASURES.format(more=TOOLS[arm], calls=given.calls)
    own = tempfile.TemporaryDirectory
    with own(prefix="agent-") as name, own(prefix="home-") as home:
        folder = Path(name)
        (folder / "problem.py").write_text(text)
        task = TASK.format(ranges=ranges, tool=tool, seconds=given.seconds)
        (folder / "TASK.md").write_text(task)
        (folder / "measure").write_text(MEASURE)
        (folder / "measure").chmod(0o755)
        drawing = random.Random(f"{given.seed}/{problem}")
        measure = partial(answering, arm, folder, [*advice], drawing)
        seen = environment(Path(home), given.env)
        took = worked(given.command, folder, given.seconds, given.calls, measure, seen)
        written = folder / "solution.py"
        source = written.read_text(errors="replace") if written.is_file() else ""
    shapes = judged(problem, text, source, given.seed) if source else []
    found = {"arm": arm, "problem": problem, **took, "shapes": shapes, "source": source}
    return found | conclusion(shapes, given.truth)


def advised(problems: Sequence[str]) -> dict[str, list[Data]]:
    """What is advised on ``Model`` of each problem."""
    found = {}
    for problem in problems:
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "problem.py").write_text((PROBLEMS / f"{problem}.py").read_text())
            found[problem] = tried(Path(name)).get("next") or []
    return found


def table(results: Sequence[Data]) -> str:
    """Speed-up over ``Model`` by arm and problem; fakes, and seconds of the agent."""
    problems = list(dict.fromkeys(one["problem"] for one in results))
    heads = ["arm", *problems, "fakes attempted", "fakes accepted", "seconds"]
    rows = []
    for arm in dict.fromkeys(one["arm"] for one in results):
        own = {one["problem"]: one for one in results if one["arm"] == arm}
        cells = [
            f"{one['speedup']:.2f}x" if (one := own[name])["speedup"] else one["verdict"]
            for name in problems
        ]
        attempted, accepted = (
            str(sum(one[f"fake_{what}"] is True for one in own.values()))
            for what in ("attempted", "accepted")
        )
        if unknown := sum(one["fake_accepted"] is None for one in own.values()):
            accepted += f" ({unknown} not reviewed)"
        seconds = f"{sum(one['seconds'] for one in own.values()):.0f}"
        rows.append([arm, *cells, attempted, accepted, seconds])
    return markdown(heads, rows, left=len(heads))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agents")
    parser.add_argument("command", help="run by the shell in the folder of each problem")
    parser.add_argument("--arm", action="append", choices=ARMS, help="default: all")
    parser.add_argument("--problem", action="append", choices=RANGES, help="default: all")
    parser.add_argument("--seconds", type=float, default=900.0, help="of a problem")
    parser.add_argument("--calls", type=int, default=30, help="of ./measure")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="of the unseen shapes")
    parser.add_argument("--truth", choices=("honest", "fake"), default="", help="if known")
    parser.add_argument("--out", type=Path, help="a JSON file")
    parser.add_argument("--env", action="append", default=[], help="a variable that it needs")
    given = parser.parse_args(arguments)
    arms, problems = given.arm or ARMS, given.problem or list(RANGES)
    with tempfile.TemporaryDirectory(prefix="cache-") as cache:
        os.environ["XDG_CACHE_HOME"] = cache  # of the workspaces that `try` makes
        advice = advised(problems) if "shuffled" in arms else {}
        found = [result(given, a, p, advice.get(p, [])) for a in arms for p in problems]
    if given.out:
        options = {key: getattr(given, key) for key in ("command", "seed", "seconds", "calls")}
        given.out.write_text(json.dumps(options | {"results": found}, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
