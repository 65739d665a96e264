"""Time two versions of NVRTC and Triton on a GPU that has neither: their binaries are carried.

python -m benchmarks.carried pack FOLDER --nvrtc 13.0.88 13.5.37 --triton 3.6.0 3.9.0
python -m benchmarks.carried time FOLDER OUT [--study attention] [--same] [--sessions 6]
python -m benchmarks.carried record OUT...

``pack`` needs no GPU. It compiles what TIMED lists, as a launch at that shape would. ``time`` makes
two environments that load these binaries, checks the variants, and times them in sessions that
alternate. ``--same`` times the older one twice, an A/A control. Each writes a JSON file into OUT.
Triton's kernels are launched by the installed version: their parameters must be the same.
``record`` puts what several OUT have into recorded/toolchains.json and a part of docs/gate.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import carried_load
from benchmarks.claims import at_most
from benchmarks.toolchains import ARCH, environment
from cuda.pathfinder import load_nvidia_dynamic_lib
from msgspec import structs
from tools.pages import DOCS, ROOT, table, with_parts, write

from workbench.app.executor import Local, Reporter, Task
from workbench.app.gate import build_all, side_of
from workbench.errors import Interrupted
from workbench.evidence.store import EvidenceFolder
from workbench.judge import open_verdicts
from workbench.judge.commits import time_verdict
from workbench.judge.findings import number_of
from workbench.load import fullest_timing, load
from workbench.run.measurement import Plan
from workbench.run.process import Toolchain, toolchain_of
from workbench.run.repository import Commit
from workbench.study.workspace import Workspace, find_workspace

LABELS = ("old", "new")
RECORDED = ROOT / "benchmarks" / "recorded" / "toolchains.json"
PAGE = DOCS / "gate.md"
# A study's variants, at the shape at which they are timed.
TIMED = {
    ("attention", "b2h8s512d64"): "fix1 fix2 fix3 fix4 fix5 fix6 fix7 fix8 fix9 fix10 "
    "fix10[pingpong=1] fix10[polynomial=4] fix11 fix11[early=1] fix11[stagger=1] fix12 fix13 fix14 "
    "fix16 fix17 fix18 fix22 fix23",
    ("moe", "qwen3-t1"): "fix12 fix17 fix23 fix24[leave=0] fix24 fused",
    ("softmax", "4096x8192"): "baseline online fused fused[warps=8] fused[warps=16] "
    "fused[warps=8,streaming=1] persistent split",
    ("transpose", "8192x8192"): "baseline tiled swizzled tma",
}
ASKED = """
import json
from workbench.cuda import compiler
print(json.dumps([compiler.compiler_version(), compiler.header_folders()]))
"""


# ---- without a GPU
def pack(folder: Path, nvrtc: Sequence[str], triton: Sequence[str]) -> None:
    workspace = find_workspace(ROOT)
    for label, of_nvrtc, of_triton in zip(LABELS, nvrtc, triton, strict=True):
        carried = folder / label
        shutil.rmtree(carried, ignore_errors=True)
        python = environment(folder, "nvrtc", of_nvrtc) / "bin" / "python3"
        links = folder / "links" / f"{label}-{os.getpid()}"
        toolchain = toolchain_of(label, python, links, carried / "builds")
        commit = Commit(label, label)
        sides = [
            (side_of(commit, workspace, study, toolchain=toolchain), names.split())
            for (study, _), names in TIMED.items()
        ]
        build_all(sides, ARCH, lambda event: None, folder)
        path = {**os.environ, "PYTHONPATH": str(ROOT / "profiler")}
        asked = subprocess.check_output([str(python), "-c", ASKED], env=path)
        version, headers = json.loads(asked)
        facts = {"version": version, "headers": headers, "nvrtc": of_nvrtc}
        (carried / "facts.json").write_text(json.dumps(facts))
        python = environment(folder, "triton", of_triton) / "bin" / "python3"
        path["PYTHONPATH"] += f":{ROOT}"
        launches = [str(python), "-m", "benchmarks.carried_launches", str(carried / "triton")]
        wanted = [f"{s}:{shape}:{n}" for (s, shape), names in TIMED.items() for n in names.split()]
        subprocess.run([*launches, *wanted], env=path, cwd=ROOT, check=True)


# ---- on a GPU
def loading(folder: Path, label: str, place: int, scratch: Path) -> Toolchain:
    """Make an environment whose workers load what is carried."""
    root = scratch / f"{label}{place}"
    venv.create(root)
    (packages,) = root.glob("lib/python3*/site-packages")
    ours = [entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    (packages / "base.pth").write_text("\n".join(ours))
    facts = json.loads((folder / label / "facts.json").read_text())
    facts["triton"] = str(folder / label / "triton")
    facts["library"] = load_nvidia_dynamic_lib("nvrtc").abs_path
    (packages / "carried.json").write_text(json.dumps(facts))
    shutil.copy(carried_load.__file__, packages / "carried.py")
    (packages / "zz_carried.pth").write_text("import carried\n")
    about = packages / f"nvidia_cuda_nvrtc-{facts['nvrtc']}.dist-info"
    about.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: nvidia-cuda-nvrtc\nVersion: {facts['nvrtc']}\n"
    (about / "METADATA").write_text(metadata)
    builds = scratch / f"builds-{label}{place}"
    shutil.copytree(folder / label / "builds", builds)
    links = scratch / f"links-{label}{place}"
    return toolchain_of(f"{label}{place}", root / "bin" / "python3", links, builds)


class Shown(Reporter):
    def note(self, text: str) -> None:
        print(text, file=sys.stderr)


def timed(
    workspace: Workspace,
    study_name: str,
    shape: str,
    names: Sequence[str],
    pair: Sequence[Toolchain],
    out: Path,
    sessions: int,
) -> Iterator[dict[str, Any]]:
    """A row for each variant and the reference. After Ctrl-C, of the sessions that ended."""
    study, executor = workspace.study(study_name), Local(Shown())
    timing = structs.replace(
        workspace.config.timing, sessions=sessions, max_sessions=sessions, instances=2, rounds=4,
        referee=False,
    )  # fmt: skip
    config = structs.replace(workspace.config, timing=timing)
    is_control = pair[0].name[:-1] == pair[1].name[:-1]
    checked = () if is_control else tuple(names)
    primary = study.ladder.primary_reference or ""
    plan = Plan(
        shape, checked=checked, timed=(primary, *names), others=(),
        known=tuple(names) if is_control else (),
    )  # fmt: skip
    gpu = executor.gpu
    assert gpu is not None, "this machine cannot measure"
    tasks = [
        Task(study, config, EvidenceFolder(out / each.name / gpu.slug), plan, toolchain=each)
        for each in pair
    ]
    try:
        for result in executor.measure(tasks):
            for name, why in {**result.failures, **result.unsupported}.items():
                print(f"failed: {name}: {why.splitlines()[0]}")
    except (Interrupted, KeyboardInterrupt):
        print("cut short")
    before, after = (load(study, t.folder, {shape: study.variants})[shape] for t in tasks)
    for name in (primary, *names):
        old, new = (fullest_timing(evidence, [name]) for evidence in (before, after))
        both = (
            old and new and open_verdicts.timed_pair(old.timing, name, name, new.timing, sessions)
        )
        if not both:
            continue
        ratio = both.ratio
        yield {
            "study": study_name, "shape": shape, "variant": name,
            "control": is_control or name == primary, "ratio": ratio.ratio, "low": ratio.low,
            "high": ratio.high, "sessions": ratio.sessions, "old_us": both.before_us,
            "new_us": both.after_us, "verdict": time_verdict(ratio, config.gate)[0].value,
            "gpu": gpu.name, "date": date.today().isoformat(),
        }  # fmt: skip


def time_all(folder: Path, out: Path, studies: Sequence[str], same: bool, sessions: int) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background
    vars(open_verdicts)["open_pairs"] = lambda *arguments: ()  # no more sessions than asked for
    labels = ("old", "old") if same else LABELS
    for (study, shape), names in TIMED.items():
        if study not in (studies or [study]):
            continue
        scratch = out / f"{study}-{shape}-{'-'.join(labels)}"
        scratch.mkdir(parents=True)
        pair = [loading(folder, label, place, scratch) for place, label in enumerate(labels)]
        rows = list(
            timed(find_workspace(ROOT), study, shape, names.split(), pair, scratch, sessions)
        )
        scratch.with_suffix(".json").write_text(json.dumps(rows, indent=1))
        for row in rows:
            interval = [row["low"], row["high"]] if row["sessions"] > 1 else "one session"
            print(row["variant"], f"{row['ratio']:.3f}", interval)


# ---- afterwards
CHANGED = 0.03


def as_text(rows: Sequence[dict[str, Any]]) -> str:
    """The variants that differ by more than 3 %, and what could have been seen."""
    compared = [row for row in rows if row["sessions"] > 1]  # one has no interval
    variants = [row for row in compared if not row["control"]]
    controls = [row for row in compared if row["control"]]
    if not variants:
        return "No variant was timed in two sessions.\n"
    changed = sorted(filter(is_changed, variants), key=lambda row: row["ratio"])
    middle, worst = median(map(half_width, variants)), max(variants, key=half_width)
    seen = [f"{100 * (CHANGED + 2 * width):.1f} %" for width in (middle, half_width(worst))]
    alarms, share = sum(map(is_changed, controls)), 100 * CHANGED
    text = (
        f"{values_of(rows, 'gpu')}, {values_of(rows, 'date')}, {values_of(compared, 'sessions')} "
        f"sessions in each environment: {len(changed)} of {number_of(len(variants), 'variant')} "
        f"changed by more than {share:.0f} %. "
        f"Intervals are ±{100 * middle:.1f} % in the median, and ±{100 * half_width(worst):.1f} % "
        f"at worst, of `{worst['variant']}` of {worst['study']}. "
        f"A change of {seen[0]} would have been named in half of the variants, and one of "
        f"{seen[1]} in all, each with a chance of 97.5 %. "
        f"Of {number_of(len(controls), 'A/A control')} {alarms} did: with 95 % confidence, at most "
        f"{100 * at_most(alarms, len(controls)):.0f} % do."
    )
    if left := len(rows) - len(compared):
        text += f" Left out: {number_of(left, 'row')} of a single session."
    head = ("study", "variant", "before (µs)", "after (µs)", "speed [95 % interval]")
    cells = (
        (
            row["study"],
            f"`{row['variant']}`",
            f"{row['old_us']:.3g}",
            f"{row['new_us']:.3g}",
            f"{row['ratio']:.3f}x [{row['low']:.3f}, {row['high']:.3f}]",
        )
        for row in changed
    )
    return f"{text}\n" + (f"\n{table(head, cells, left=2)}\n" if changed else "")


def values_of(rows: Sequence[dict[str, Any]], key: str) -> str:
    """Return what all rows have, or the least and the most."""
    values = sorted({row[key] for row in rows})
    return f"{values[0]}" if len(values) == 1 else f"{values[0]} to {values[-1]}"


def is_changed(row: dict[str, Any]) -> bool:
    """Whether its interval lies beyond 3 %: a chance of 2.5 % for a kernel that changed by that."""
    return bool(row["low"] > 1 + CHANGED or row["high"] < 1 / (1 + CHANGED))


def half_width(row: dict[str, Any]) -> float:
    return float(row["high"] / row["low"] - 1) / 2


def record(folders: Sequence[Path]) -> None:
    rows = [row for f in folders for path in sorted(f.glob("*.json")) for row in read_rows(path)]
    RECORDED.write_text(json.dumps(rows, indent=1) + "\n")
    write(written())


def written() -> dict[Path, str]:
    """The page with what was recorded."""
    return {PAGE: with_parts(PAGE, {"toolchains": as_text(read_rows(RECORDED))})}


def read_rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(path.read_text())
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    packing = verbs.add_parser("pack")
    packing.add_argument("folder", type=Path)
    packing.add_argument("--nvrtc", nargs=2, required=True)
    packing.add_argument("--triton", nargs=2, required=True)
    timing = verbs.add_parser("time")
    timing.add_argument("folder", type=Path)
    timing.add_argument("out", type=Path)
    timing.add_argument("--study", action="append", default=[])
    timing.add_argument("--same", action="store_true")
    timing.add_argument("--sessions", type=int, default=6)
    recording = verbs.add_parser("record")
    recording.add_argument("folder", type=Path, nargs="+")
    given = parser.parse_args()
    if given.verb == "pack":
        pack(given.folder.resolve(), given.nvrtc, given.triton)
    elif given.verb == "record":
        record(given.folder)
    else:
        folder, out = given.folder.resolve(), given.out.resolve()
        time_all(folder, out, given.study, given.same, given.sessions)


if __name__ == "__main__":
    main()
