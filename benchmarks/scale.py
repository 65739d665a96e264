"""CPU seconds of the verbs, user and system time of the whole process, as Markdown tables.

``python -m benchmarks.scale --recorded`` runs them on the attention study in a fresh clone of this
repository, the median of three runs after one that compiles the bytecode: docs/measuring.md. The
exit code is 1 where one takes longer than it may.

``python -m benchmarks.scale`` says how they grow: docs/robustness.md. It makes workspaces of 20 to
320 steps with one timing, and of 20 steps with 10 to 10,000 timed sessions, every step with the
recorded capture of softmax's ``fused``, and runs all verbs that read what is recorded. An exponent
is the slope of log(CPU seconds) over log(size), both without those of the smallest workspace: 1 is
linear, and 0 stands where less than 0.2 s come on top. The exit code is 1 where one is above 1.1.
The times in the made-up records are drawn, and are no measurement. Of three runs the fastest
counts. Before verbs that check out commits it waits until ext4 has forgotten what the last run
deleted: that makes new files slow for five seconds.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import linear_regression, median

from msgspec import structs
from tools.pages import ROOT, row, table

from workbench.evidence import journal, store
from workbench.evidence.journal import SpentEntry
from workbench.evidence.records import (
    METHOD,
    Audit,
    Captures,
    Check,
    Series,
    Session,
    Timing,
    VariantRecord,
)
from workbench.evidence.store import EvidenceFolder, evidence_folders
from workbench.ncu.captures import LAUNCH, LAUNCHES
from workbench.study.files import compressed, decompressed, write_bytes
from workbench.study.model import base_name
from workbench.study.sources import Fingerprints
from workbench.study.workspace import find_workspace, including
from workbench.words import CheckResult, Regime

# Command, and the most seconds that it may take on the recorded study.
RECORDED = {
    "--help": 0.15, "list": 0.5, "show fix30 --study attention": 1.2,
    "profile fix30 --study attention": 1.2, "diff fix27 fix30 --study attention": 1.2,
    "advise fix30 --study attention": 1.2, "ablate --study attention": 2.0,
}  # fmt: skip
SIZES = {"steps": (20, 40, 80, 160, 320), "sessions": (10, 100, 1000, 10_000)}
FEW, MOST, A_FILE, A_REPORT, ROUNDS = 20, 1.1, 10, 20, 6
NOISE, FORGETS = 0.2, 6.0  # seconds
CHECK_OUT = ("gate", "bisect")
SPACE = "step1[warps=2|4|8]"
# Arguments, and the exit code: the step ``bad`` is wrong, and nothing can be measured here.
VERBS = {
    "list": 0, "check": 1, "check --brief": 1, "ablate": 0, "ablate --brief": 0,
    "report --html": 0, "status": 0,
    "show {last}": 0, "show {last} --source": 0, "profile {last}": 0, "diff {parent} {last}": 0,
    "advise {last}": 0, f"sweep {SPACE}": 0, "ship {last} --as it": 1, "gate HEAD~1": 1,
    "bisect {bad} HEAD~1": 0,
}  # fmt: skip
SOFTMAX = ROOT / "kernels" / "softmax"
EVIDENCE = evidence_folders(ROOT / "ablations", "softmax")[0]
SHAPE = "4096x8192"


def seconds(folder: Path, command: Sequence[str], code: int = 0) -> float:
    """User and system time of one run in a folder, with its engine or else this one. Raises
    CalledProcessError if it ends in another code.
    """
    engine = next(top for top in (folder, ROOT) if (top / "profiler").is_dir()) / "profiler"
    environment = {**os.environ, "PYTHONPATH": str(engine), "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-m", "workbench", *command],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    after = os.times()
    if done.returncode != code:
        print(done.stderr, file=sys.stderr)
        done.check_returncode()
    return sum(after[2:4]) - sum(before[2:4])


def fastest(folder: Path, command: Sequence[str], code: int) -> float:
    """Of three runs."""
    took = []
    for _ in range(3):
        time.sleep(FORGETS if command[0] in CHECK_OUT else 0)
        took.append(seconds(folder, command, code))
    return min(took)


def recorded() -> int:
    rows, slow = [], False
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        for command, most in RECORDED.items():
            took = median([seconds(clone, command.split()) for _ in range(4)][1:])
            slow |= took > most
            rows.append((f"`workbench {command}`", f"{took:.2f}", f"{most:g}"))
    print(table(("command", "CPU (s)", "at most (s)"), rows))
    return int(slow)


def workspace(root: Path, steps: int, sessions: int) -> dict[str, str]:
    """A ladder of so many copies of a variant, and so many sessions; the last commit makes the last
    step wrong. Returns what ``VERBS`` name.
    """
    study, ladder = root / "kernels" / "softmax", root / "ablations" / "softmax" / "ablation.toml"
    study.mkdir(parents=True)
    ladder.parent.mkdir(parents=True)
    (root / "workbench.toml").touch()
    for name in ("study.py", "eager.py"):
        (study / name).write_bytes((SOFTMAX / name).read_bytes())
    names, made = [f"step{number}" for number in range(steps + 1)], ""
    for at, name in enumerate(names):
        (study / f"{name}.py").write_bytes((SOFTMAX / "fused.py").read_bytes())
        parent = f'parent = "{names[at - 1]}"\n' if at else ""
        made += f'[[step]]\nvariant = "{name}"\n{parent}key_change = "{name}"\n'
    made += '[[reference]]\nvariant = "eager"\ntitle = "torch.softmax"\nprimary = true\n'
    ladder.write_text(f'schema_version = 1\ntitle = "Scale"\n{made}')
    record(root, names, sessions)
    git = ["git", "-C", str(root), "-c", "user.name=s", "-c", "user.email=s@s"]
    subprocess.run([*git, "init", "-q"], check=True)
    for text in ("as it was", "wrong"):
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-qm", text], check=True)
        if text == "as it was":
            changed = study / f"{names[-1]}.py"
            changed.write_text(changed.read_text().replace("PER_THREAD = 128", "PER_THREAD = 64"))
            record(root, names[-1:], 0, CheckResult.WRONG)
    return {"bad": names[-1], "last": names[-2], "parent": names[-3]}


def record(
    root: Path, names: Sequence[str], sessions: int, result: CheckResult = CheckResult.CORRECT
) -> None:
    study, draw = find_workspace(root).study("softmax"), random.Random(0)
    every = [*names, "eager"]
    if "step1" in names:
        study, combinations = including(study, [f"step1[warps={warps}]" for warps in (2, 8)])
        every += combinations
    prints, folder = Fingerprints(study), EvidenceFolder(root / EVIDENCE.root.relative_to(ROOT))
    build = store.variant_record(EVIDENCE, "fused").build
    assert build is not None
    for name in every:
        built = {"variant": name, "fingerprint": prints.of_sources(name)}
        found = {
            each: Check(
                fingerprint=prints.at_shape(name, study.shapes[each].parameters),
                status=result,
                max_abs=0.0,
            )
            for each in study.shapes
        }
        own, checked = structs.replace(build, **built), build.provenance
        record = VariantRecord(variant=name, build=own, checks=found, checked=checked)
        store.write(folder.variant(name), record)
    of_file = min(A_FILE, sessions)
    for number in range(math.ceil(sessions / A_FILE)):
        held = [names[0], names[1 + number % (len(names) - 1)], "eager"] if number else every
        timing = Timing(
            study=study.name, shape=SHAPE, nodes={}, stride=1, planned=of_file, method=METHOD,
            fingerprints={
                name: prints.at_shape(name, study.shapes[SHAPE].parameters) for name in held
            },
            sessions=tuple(session(each, held, names[-2], draw) for each in range(of_file)),
            provenance=build.provenance,
        )  # fmt: skip
        name = f"20260102T{number:06d}Z.json"
        store.write(folder.timing(SHAPE, name), timing)
        journal.append(folder, journal.timing_entry(name, timing))
        entry = SpentEntry(date=name[:16], verb="ablate", study=study.name, gpu="h", seconds=1.0)
        store.append(root / "ledger.jsonl", entry)
    for at in range(0, len(every) if sessions else 0, A_REPORT):
        capture(folder, every[at : at + A_REPORT], prints, f"{at:06d}.ncu-repz")


def session(number: int, held: Sequence[str], fast: str, draw: random.Random) -> Session:
    """``fast`` takes less time than the others."""
    series = []
    for name in held:
        middle = 36.0 if name == fast else 44.0
        times = tuple(round(draw.gauss(middle, 0.1), 3) for _ in range(ROUNDS))
        series.append(
            Series(
                variant=name, instance=0, regime=Regime.CHAINED, calls=2, gap=1.0,
                microseconds=times, by_events=times[::2],
            )
        )  # fmt: skip
    audits = tuple(Audit(variant=name, outputs=2, relative=1e-4) for name in held)
    return Session(number=number, instances=1, series=tuple(series), audits=audits)


def capture(
    folder: EvidenceFolder, names: Sequence[str], prints: Fingerprints, report: str
) -> None:
    """The recorded launch of ``fused`` for each variant, in the tables of one report."""
    index = store.captures_at(EVIDENCE, SHAPE)["fused"]
    text = decompressed(EVIDENCE.tables(index.report).read_bytes())
    launch = next(one for one in text.split(LAUNCH) if b'["%s"]' % str(index.range).encode() in one)
    sha256, launches, captures = hashlib.sha256(report.encode()).hexdigest(), [], {}
    for name in names:
        marked = str(index.range).replace("fused", name)
        of = {
            "variant": name,
            "fingerprint": prints.at_shape(name, prints.study.shapes[SHAPE].parameters),
            "range": marked,
        }
        found = structs.replace(index, **of, report=report, sha256=sha256)
        captures[name] = found
        own = launch.replace(str(index.range).encode(), marked.encode())
        own = own.replace(b"/fused.py", f"/{base_name(name)}.py".encode())
        launches.append(LAUNCH + own.removesuffix(b","))
    store.write(folder.captures(SHAPE), Captures(captures=captures))
    body = b"[" + b",".join(launches) + b"]}"
    head = b'{"of":{"report":"%s"}' % sha256.encode() + store.CONTENT
    whole = head + hashlib.sha256(body).hexdigest().encode() + LAUNCHES + body
    write_bytes(folder.tables(report), compressed(whole))


def exponent(sizes: Sequence[int], times: Sequence[float]) -> float:
    """Of what comes on top of the smallest size, where that is more than noise; 0 if it is not."""
    above = [
        (math.log(size - sizes[0]), math.log(each - times[0]))
        for size, each in zip(sizes, times, strict=True)
        if each - times[0] >= NOISE
    ]
    return linear_regression(*zip(*above, strict=True)).slope if len(above) > 1 else 0.0


def grown() -> int:
    steep = False
    for what, sizes in SIZES.items():
        print(table(("command", *(f"{size:,} {what}" for size in sizes), "exponent"), ()))
        with tempfile.TemporaryDirectory() as folder:
            roots = {Path(folder) / str(size): size for size in sizes}
            named = {
                root: workspace(root, *((size, A_FILE) if what == "steps" else (FEW, size)))
                for root, size in roots.items()
            }
            for verb, code in VERBS.items():
                took = [fastest(r, verb.format(**n).split(), code) for r, n in named.items()]
                found = exponent(sizes, took)
                steep |= found > MOST
                told = verb.format(last="fix", parent="parent", bad="fix")
                cells = (f"`workbench {told}`", *(f"{each:.2f} s" for each in took), f"{found:.2f}")
                print(row(cells), flush=True)
    return int(steep)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--recorded", action="store_true", help="of the recorded study")
    sys.exit(recorded() if parser.parse_args().recorded else grown())
