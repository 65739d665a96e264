"""What a second card is worth, on a machine that has two: ``python -m benchmarks.two_cards``.

A part of the attention ladder over four shapes, on one card and then over both, and whether the
verdicts are the same; then where the time goes when ncu profiles on both at once, and whether one
card can be timed while the other captures. What there is no time for is left out, and named.

    python3 -m benchmarks.two_cards --out DIR --seconds 190
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
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STUDY = "attention"
CAPTURED = ("b2h8s512d64", "b2h8s512d64-causal")
TIMED = (*CAPTURED, "b1h8s128d64", "b4h16s2048d64")
STEPS = (
    ("baseline", "", "one thread per query row"),
    ("fix4", "baseline", "both products on the tensor cores"),
    ("fix7", "fix4", "bulk copies into a ring"),
    ("fix11", "fix7", "all keys at once"),
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
    print(f"[{time.monotonic() - STARTED:5.1f} s] {text}", flush=True)


# ---- the ladder --------------------------------------------------------------------------------
def workspace(root: Path) -> Path:
    """A copy of the study with few steps, one reference and four shapes."""
    kernels, ladder = root / "kernels" / STUDY, root / "ablations" / STUDY
    shutil.copytree(ROOT / "kernels" / STUDY, kernels)
    ladder.mkdir(parents=True)
    (root / "workbench.toml").write_text(CONFIG)
    text = (kernels / "study.py").read_text()
    for name in re.findall(r'^    "([\w-]+)": _shape\(', text, flags=re.MULTILINE):
        line = re.search(rf'^    "{name}": _shape\((.*)\),$', text, flags=re.MULTILINE)
        assert line is not None
        if name in TIMED:
            captured = "True" if name in CAPTURED else "False"
            inner = re.sub(r", captured=\w+", "", line[1])
            text = text.replace(line[0], f'    "{name}": _shape({inner}, captured={captured}),')
        elif "profiled=False" not in line[1]:
            text = text.replace(line[0] + "\n", "")
    (kernels / "study.py").write_text(text)
    told = "schema_version = 1\n"
    for variant, parent, change in STEPS:
        above = f'parent = "{parent}"\n' if parent else ""
        told += f'\n[[step]]\nvariant = "{variant}"\n{above}key_change = "{change}"\n'
    told += '\n[[reference]]\nvariant = "sdpa"\nprimary = true\n'
    (ladder / "ablation.toml").write_text(told)
    return root


@dataclass(frozen=True)
class Ladder:
    """The seconds of the whole command, and by shape and step the ratio over the parent with its
    interval, and the verdict.
    """

    seconds: float
    verdicts: dict[str, dict[str, Any]]


def ablate(root: Path, out: Path, *options: str, cards: str, limit: float) -> Ladder:
    command = [sys.executable, "-m", "workbench", "ablate", "--all-shapes", "--json", *options]
    began = time.monotonic()
    done = subprocess.run(
        [*command, "--project", str(root)],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": cards},
        capture_output=True,
        text=True,
        timeout=max(5.0, limit),
        check=False,
    )
    seconds = time.monotonic() - began
    name = "two" if options else "one"
    (out / f"{name}.json").write_text(done.stdout)
    (out / f"{name}.err").write_text(done.stderr)
    if done.returncode not in (0, 1):
        raise SystemExit(f"ablate ended with {done.returncode}: {done.stderr[-2000:]}")
    found: dict[str, dict[str, Any]] = {}
    for table in json.loads(done.stdout)["tables"]:
        for row in table["versions"]:
            found[f"{table['shape']['name']} {row['variant']}"] = row
    return Ladder(seconds, found)


def compare(one: Ladder, two: Ladder) -> None:
    say(f"one card {one.seconds:.1f} s, two cards {two.seconds:.1f} s: share "
        f"{two.seconds / one.seconds:.3f} of the time")  # fmt: skip
    same = 0
    for key, row in one.verdicts.items():
        other = two.verdicts.get(key, {})
        is_same = row.get("verdict") == other.get("verdict")
        same += is_same
        told = [_ratio(each) for each in (row, other)]
        print(f"  {key}: {row.get('verdict')} {told[0]} / {other.get('verdict')} {told[1]}"
              f"{'' if is_same else '   DIFFERENT'}")  # fmt: skip
    say(f"{same} of {len(one.verdicts)} verdicts are the same")


def _ratio(row: dict[str, Any]) -> str:
    found = row.get("speedup_over_parent") or {}
    ends = (found.get(key) or float("nan") for key in ("ratio", "low", "high"))
    return "{:.4g} [{:.4g}, {:.4g}]".format(*ends) if found else ""


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
    print("  set | regime | whole | to main | context | first | a launch | end | user | system")
    asked = [("full", regime) for regime in REGIMES]
    asked += [("basic", REGIMES[0]), ("basic", REGIMES[2])]
    for set_, regime in asked:
        if left(limit) < 20:
            say(f"no time for: --set {set_}, {regime}")
            continue
        for found in together(app, folder, regime, set_):
            numbers = (found.whole, found.start, found.context, found.first, found.launch,
                       found.end, found.user, found.system)  # fmt: skip
            print(f"  {set_} | {regime} | " + " | ".join(f"{n:.2f}" for n in numbers), flush=True)


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
        print(f"  other card {name}: {told}", flush=True)


# ---- all of it ---------------------------------------------------------------------------------
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("two-cards"))
    parser.add_argument("--seconds", type=float, default=190.0)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    subprocess.run(["nvidia-smi", "-L"], check=False)
    with tempfile.TemporaryDirectory(prefix="two-cards-") as scratch:
        top = Path(scratch)
        app = top / "two_ncu"
        source = ROOT / "benchmarks" / "two_ncu.cu"
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        subprocess.run([nvcc, "-O2", "-arch=sm_90", "-o", str(app), str(source)], check=False)
        say("ready")
        one = ablate(workspace(top / "one"), given.out, cards="0", limit=left(given.seconds))
        say(f"one card: {one.seconds:.1f} s")
        two = ablate(
            workspace(top / "two"), given.out, "--on", "local", cards="0,1",
            limit=left(given.seconds),
        )  # fmt: skip
        print((given.out / "two.err").read_text()[-3000:])
        compare(one, two)
        for name in ("one", "two"):
            kept = top / name / "ablations" / STUDY / "evidence"
            ignored = shutil.ignore_patterns("reports", "tables")
            shutil.copytree(kept, given.out / name, ignore=ignored, dirs_exist_ok=True)
        if app.exists() and left(given.seconds) > 15:
            disturbed(app, top)
        if app.exists():
            table(app, top, given.seconds)
    say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
