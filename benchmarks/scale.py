"""How the verbs grow with the ladder and with its history, as a Markdown table: docs/robustness.md.

Run it as ``python -m benchmarks.scale``. It makes workspaces of 20 to 320 steps with one timing,
and of 20 steps with 10 to 10,000 timed sessions, and runs verbs that read what is recorded on them.
An exponent is the slope of log(CPU seconds) over log(size), both without those of the smallest
workspace: 1 is linear, and 0 stands where less than 0.2 s come on top. The exit code is 1 where one
is above 1.1. The times in the made-up records are drawn, and are no measurement.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.verbs import seconds

from workbench.evidence import journal, store
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.records import Build, Check, Checks, Provenance
from workbench.evidence.timing import Series, Session, Timing
from workbench.study.sources import Fingerprints
from workbench.study.workspace import find_workspace
from workbench.words import CheckResult, Regime

STEPS, SESSIONS = (20, 40, 80, 160, 320), (10, 100, 1000, 10_000)
FEW, MOST, RUNS, A_FILE, ROUNDS = 20, 1.1, 3, 10, 6
NOISE = 0.2  # seconds
VERBS = ("list", "check", "ablate", "report", "status")
ORIGIN = Provenance(date="2026-01-02T03:04:05Z", gpu="NVIDIA H200", gpu_uuid="GPU-1", host="h")


def workspace(root: Path, steps: int, sessions: int) -> None:
    """A ladder of so many copies of a variant, each current, and so many sessions."""
    from workbench.cli.main import main as run

    with redirect_stdout(sys.stderr):
        run(["init", str(root), "--template", "torch"])
    study = root / "kernels" / "rmsnorm"
    names = ["baseline", *(f"fix{number}" for number in range(1, steps + 1))]
    ladder = root / "ablations" / "rmsnorm" / "ablation.toml"
    text = ladder.read_text().split("[[step]]")[-1].partition("[[reference]]")[2]
    made = [f'[[step]]\nvariant = "{names[0]}"\nkey_change = "none"\n']
    for parent, name in pairwise(names):
        (study / f"{name}.py").write_bytes((study / "baseline.py").read_bytes())
        made.append(f'[[step]]\nvariant = "{name}"\nparent = "{parent}"\nkey_change = "{name}"\n')
    head = 'schema_version = 1\ntitle = "Scale"\n\n'
    ladder.write_text(f"{head}{''.join(made)}\n[[reference]]{text}")
    record(root, names, sessions)


def record(root: Path, names: Sequence[str], sessions: int) -> None:
    study, draw = find_workspace(root).study(), random.Random(0)
    prints, shape = Fingerprints(study), study.default_shape
    folder = EvidenceFolder(root / "ablations" / study.name / "evidence" / "nvidia-h200")
    every = [*names, "builtin"]
    for name in every:
        build = Build(
            variant=name, fingerprint=prints.of_sources(name), sources=(f"{name}.py",), arch="",
            kernels=(), warnings=(), error="", provenance=ORIGIN,
        )  # fmt: skip
        store.write(folder.build(name), build)
        found = {
            each: Check(fingerprint=prints.of(name, each), status=CheckResult.CORRECT, max_abs=0.0)
            for each in study.shapes
        }
        store.write(folder.check(name), Checks(variant=name, shapes=found, provenance=ORIGIN))
    of_file = A_FILE if sessions > A_FILE else sessions
    for number in range(math.ceil(sessions / of_file)):
        held = (
            every if not number else ["baseline", names[1 + number % (len(names) - 1)], "builtin"]
        )
        timing = Timing(
            study=study.name,
            shape=shape,
            fingerprints={name: prints.of(name, shape) for name in held},
            nodes={},
            stride=1,
            sessions=tuple(session(each, held, draw) for each in range(of_file)),
            provenance=ORIGIN,
            planned=of_file,
        )
        name = f"20260102T{number:06d}Z.json"
        store.write(folder.timing(shape, name), timing)
        journal.append(folder, journal.timing_entry(name, timing))


def session(number: int, held: Sequence[str], draw: random.Random) -> Session:
    series = tuple(
        Series(
            variant=name, instance=0, regime=Regime.CHAINED, calls=2,
            microseconds=tuple(round(draw.gauss(20.0, 0.2), 3) for _ in range(ROUNDS)),
            around=tuple(round(draw.gauss(10.0, 0.1), 3) for _ in range(ROUNDS)),
        )
        for name in held
    )  # fmt: skip
    return Session(number=number, instances=1, series=series)


def exponent(sizes: Sequence[int], times: Sequence[float]) -> float:
    """Of what comes on top of the smallest size, where that is more than noise; 0 if it is not."""
    above = [
        (math.log(size - sizes[0]), math.log(time - times[0]))
        for size, time in zip(sizes, times, strict=True)
        if time - times[0] >= NOISE
    ]
    if len(above) < 2:
        return 0.0
    xs, ys = zip(*above, strict=True)
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    squares = sum((each - x) ** 2 for each in xs)
    slope: float = sum((a - x) * (b - y) for a, b in above) / squares
    return slope


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS)
    parser.add_argument("--sessions", type=int, nargs="+", default=SESSIONS)
    parser.add_argument("--verbs", nargs="+", default=VERBS)
    parser.add_argument("--runs", type=int, default=RUNS)
    given = parser.parse_args()
    steep = False
    for what, sizes in (("steps", given.steps), ("sessions", given.sessions)):
        print(f"| command | {' | '.join(f'{size:,} {what}' for size in sizes)} | exponent |")
        print("| --- |" + " --: |" * (len(sizes) + 1))
        with tempfile.TemporaryDirectory() as folder:
            roots = [Path(folder) / str(size) for size in sizes]
            for root, size in zip(roots, sizes, strict=True):
                workspace(root, *((size, A_FILE) if what == "steps" else (FEW, size)))
            for verb in given.verbs:
                command = [verb, "--project"]
                took = [
                    median(seconds(root, [*command, str(root)]) for _ in range(given.runs))
                    for root in roots
                ]
                found = exponent(sizes, took)
                steep |= found > MOST
                shown = " | ".join(f"{each:.2f} s" for each in took)
                print(f"| `workbench {verb}` | {shown} | {found:.2f} |", flush=True)
    return int(steep)


if __name__ == "__main__":
    sys.exit(main())
