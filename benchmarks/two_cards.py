"""What a second card is worth, on a machine that has two.

Steps of the attention ladder at all of its shapes, on one card and then over both, each on its own
where there is no time for the two, and whether the verdicts are the same:

    python3 -m benchmarks.two_cards ladder --cards 1
    python3 -m benchmarks.two_cards ladder --cards 2
    python3 -m benchmarks.two_cards compared

Whether one card can be timed while the other captures, and where the time goes when ncu profiles on
both at once; what there is no time for is left out, and named:

    python3 -m benchmarks.two_cards ncu --seconds 190
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "benchmarks" / "recorded"
STUDY = "attention"
CAPTURED = ("b2h8s512d64", "b2h8s512d64-causal")
STEPS = (  # those that support every shape, and one that does not
    ("fix7", "", "bulk copies into a ring"),
    ("fix10", "fix7", "warp specialisation, persistent blocks"),
    ("fix11", "fix7", "all keys at once"),
    ("fix14", "fix10", "four warpgroups, exponentials under the last product"),
)
CONFIG = f"""study = "{STUDY}"
[timing]
sessions = 3
max_sessions = 6
instances = 2
rounds = 4
seconds = 10
"""
LAUNCHES = 4
NCU = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
STARTED = time.monotonic()
REGIMES = ("alone", "both, one TMPDIR", "both, a TMPDIR each", "both, half the cores each")


def left(given: float) -> float:
    return given - (time.monotonic() - STARTED)


def say(text: str) -> None:
    print(f"[{time.monotonic() - STARTED:5.1f} s] {text}", file=sys.stderr, flush=True)


# ---- the ladder --------------------------------------------------------------------------------
def workspace(root: Path) -> Path:
    """A copy of the study with few steps, one reference and all of its shapes."""
    kernels, ladder = root / "kernels" / STUDY, root / "ablations" / STUDY
    shutil.copytree(ROOT / "kernels" / STUDY, kernels)
    ladder.mkdir(parents=True)
    (root / "workbench.toml").write_text(CONFIG)
    text = (kernels / "study.py").read_text()
    for name in CAPTURED:
        line = re.search(rf'^    "{name}": _shape\(.*\),$', text, flags=re.MULTILINE)
        assert line is not None
        text = text.replace(line[0], line[0].replace(", captured=False", ""))
    (kernels / "study.py").write_text(text)
    steps = tomllib.loads((ROOT / "ablations" / STUDY / "ablation.toml").read_text())["step"]
    drops = {step["variant"]: step.get("drops", []) for step in steps}
    told = "schema_version = 1\n"
    for variant, parent, change in STEPS:
        above = f'parent = "{parent}"\n' if parent else ""
        told += f'\n[[step]]\nvariant = "{variant}"\n{above}key_change = "{change}"\n'
        told += f"drops = {json.dumps(drops[variant])}\n"
    told += '\n[[reference]]\nvariant = "sdpa"\nprimary = true\n'
    (ladder / "ablation.toml").write_text(told)
    return root


@dataclass(frozen=True)
class Ladder:
    """The seconds of the whole command, and by shape and step what was found."""

    seconds: float
    found: dict[str, dict[str, Any]]

    @classmethod
    def told(cls, seconds: float, printed: str) -> Ladder:
        """As ``ablate --json`` printed it."""
        found: dict[str, dict[str, Any]] = {}
        for table in json.loads(printed)["tables"]:
            for row in table["versions"]:
                ratio = row.get("speedup_over_parent") or {}
                found[f"{table['shape']['name']} {row['variant']}"] = {
                    "verdict": row["verdict"],
                    **{end: ratio[end] for end in ("ratio", "low", "high") if ratio.get(end)},
                }
        return cls(seconds, found)


def ablate(root: Path, *options: str, cards: str) -> Ladder:
    command = [sys.executable, "-m", "workbench", "ablate", "--all-shapes", "--json", *options]
    began = time.monotonic()
    done = subprocess.run(
        [*command, "--project", str(root)],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": cards},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began
    if done.returncode not in (0, 1):
        raise SystemExit(f"ablate ended with {done.returncode}")
    return Ladder.told(seconds, done.stdout)


def compared(one: Ladder, two: Ladder) -> str:
    """Markdown."""
    same = sum(row["verdict"] == two.found[key]["verdict"] for key, row in one.found.items())
    lines = [
        f"One card took {one.seconds:.1f} s, two took {two.seconds:.1f} s: "
        f"{two.seconds / one.seconds:.3f} of the time. {same} of {len(one.found)} verdicts are "
        "the same.",
        "",
        "| shape | step | one card | [95 %] | two cards | [95 %] |",
        "| --- | --- | --- | ---: | --- | ---: |",
    ]
    for key, row in one.found.items():
        shape, step = key.split(maxsplit=1)
        cells = [word for each in (row, two.found[key]) for word in (each["verdict"], _ratio(each))]
        lines.append(f"| {shape} | `{step}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _ratio(found: Mapping[str, Any]) -> str:
    if "ratio" not in found:
        return "—"
    return "{ratio:.4g}x [{low:.4g}, {high:.4g}]".format(**found)


def ladder(cards: int) -> None:
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")[:cards]
    options = ("--on", "local") if cards > 1 else ()
    with tempfile.TemporaryDirectory(prefix="two-cards-") as scratch:
        found = ablate(workspace(Path(scratch)), *options, cards=",".join(given))
    say(f"{found.seconds:.1f} s")
    recorded(cards).write_text(json.dumps(vars(found), indent=1) + "\n")


def recorded(cards: int) -> Path:
    return RECORDED / f"ladder-cards-{cards}.json"


def read(path: Path) -> Ladder:
    return Ladder(**json.loads(path.read_text()))


# ---- two ncu at once ---------------------------------------------------------------------------
@dataclass
class Profiled:
    """Seconds of one ncu: until the process's main, until it has a context, a launch in the middle,
    from the process's end to ncu's, all; and CPU seconds of user and system.
    """

    start: float = 0.0
    context: float = 0.0
    first: float = 0.0
    launch: float = 0.0
    end: float = 0.0
    whole: float = 0.0
    user: float = 0.0
    system: float = 0.0


@dataclass
class Running:
    process: subprocess.Popen[bytes]
    began: float
    log: Path
    found: Profiled = field(default_factory=Profiled)


def start(app: Path, folder: Path, card: int, *, set_: str, tmp: Path, prefix: Sequence[str] = ()
          ) -> Running:  # fmt: skip
    tmp.mkdir(parents=True, exist_ok=True)
    log = folder / f"{time.time_ns()}-{card}.log"
    command = [
        *prefix,
        *(NCU, "--set", set_, "--clock-control", "none", "--cache-control", "none"),
        *("-f", "-o", str(folder / f"report-{card}"), str(app), "launch", str(LAUNCHES)),
    ]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(card), "TMPDIR": str(tmp)}
    began = time.time()
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    return Running(process, began, log)


def finish(running: Running) -> Profiled:
    _, status, usage = os.wait4(running.process.pid, 0)
    running.process.returncode = os.waitstatus_to_exitcode(status)
    ended = time.time()
    text = running.log.read_text(errors="replace")
    told = re.findall(r"^(main|context|launched|end) ([\d.]+)$", text, flags=re.MULTILINE)
    at: dict[str, list[float]] = {}
    for what, when in told:
        at.setdefault(what, []).append(float(when))
    if running.process.returncode or not {"main", "context", "launched", "end"} <= at.keys():
        print(f"  ncu ended with {running.process.returncode}: {text[-600:]}")
        return running.found
    launched = at["launched"]
    steps = [b - a for a, b in pairwise(launched)]
    return Profiled(
        start=at["main"][0] - running.began,
        context=at["context"][0] - at["main"][0],
        first=launched[0] - at["context"][0],
        launch=statistics.median(steps),
        end=ended - at["end"][0],
        whole=ended - running.began,
        user=usage.ru_utime,
        system=usage.ru_stime,
    )


def together(app: Path, folder: Path, regime: str, set_: str) -> list[Profiled]:
    cores = os.cpu_count() or 2
    half = (f"0-{cores // 2 - 1}", f"{cores // 2}-{cores - 1}")
    cards = (0,) if regime == REGIMES[0] else (0, 1)
    started = [
        start(
            app,
            folder,
            card,
            set_=set_,
            tmp=folder / ("tmp" if regime == REGIMES[1] else f"tmp{card}"),
            prefix=("taskset", "-c", half[card]) if regime == REGIMES[3] else (),
        )
        for card in cards
    ]
    return [finish(one) for one in started]


def table(app: Path, folder: Path, limit: float) -> None:
    print("\n| set | regime | whole | to main | context | first | a launch | end | user | system |")
    print("| --- | --- | --: | --: | --: | --: | --: | --: | --: | --: |")
    asked = [("full", regime) for regime in REGIMES]
    asked += [("basic", REGIMES[0]), ("basic", REGIMES[2])]
    for set_, regime in asked:
        if left(limit) < 20:
            say(f"no time for: --set {set_}, {regime}")
            continue
        for found in together(app, folder, regime, set_):
            numbers = (found.whole, found.start, found.context, found.first, found.launch,
                       found.end, found.user, found.system)  # fmt: skip
            cells = " | ".join(f"{n:.2f}" for n in numbers)
            print(f"| {set_} | {regime} | {cells} |", flush=True)


def timed(app: Path, card: int, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(app), "time", str(seconds)],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": str(card)},
        stdout=subprocess.PIPE,
        text=True,
    )


def disturbed(app: Path, folder: Path) -> None:
    """Times of a kernel on one card, while the other is idle and while ncu works on it."""
    quiet = timed(app, 1, 3.0).communicate()[0]
    running = start(app, folder, 0, set_="full", tmp=folder / "tmp0")
    time.sleep(2.0)  # ncu has started, and is in its passes
    busy = timed(app, 1, 3.0).communicate()[0]
    finish(running)
    for name, text in (("idle", quiet), ("in ncu", busy)):
        found = re.search(r"microseconds ([\d.]+) ([\d.]+) (\d+)", text)
        told = f"median {found[1]} µs, 95th percent {found[2]} µs of {found[3]}" if found else text
        print(f"- Other card {name}: {told}", flush=True)


def two_ncu(limit: float) -> None:
    with tempfile.TemporaryDirectory(prefix="two-cards-") as scratch:
        top = Path(scratch)
        app, source = top / "two_ncu", ROOT / "benchmarks" / "two_ncu.cu"
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        subprocess.run([nvcc, "-O2", "-arch=sm_90", "-o", str(app), str(source)], check=True)
        say("ready")
        disturbed(app, top)
        table(app, top, limit)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["ladder", "compared", "ncu"])
    parser.add_argument("--cards", type=int, choices=[1, 2], default=1, help="for a ladder")
    parser.add_argument("--seconds", type=float, default=190.0, help="for ncu")
    given = parser.parse_args()
    if given.part == "compared":
        print(compared(read(recorded(1)), read(recorded(2))))
        return 0
    subprocess.run(["nvidia-smi", "-L"], stdout=sys.stderr, check=False)
    if given.part == "ladder":
        ladder(given.cards)
    else:
        two_ncu(given.seconds)
    say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
