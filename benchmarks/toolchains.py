"""Compile every kernel with each NVRTC or nvcc of a list, without a GPU, and compare machine code.

python -m benchmarks.toolchains FOLDER nvrtc 13.0.48 13.5.37 [--strangers CLONES]

FOLDER gets an environment, its builds and a JSON index for each version. Kernels are those of the
five studies and, with ``--strangers``, the .cu and .cuh files of strangers.toml that lie as
CLONES/owner/name. What pip installs is the wheel of that version, and for nvcc what it needs. A
table compares each version with the one before it, and the last with the first.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.strangers import strangers

from workbench.app.kernel_code import kept_cubins, listing_of
from workbench.app.sides import build_all, side_of
from workbench.derive.code_diff import CodeDiff, machine_code_diff
from workbench.derive.source_diff import Listing
from workbench.evidence.records import BuiltKernel
from workbench.ncu.nvdisasm import disassembled
from workbench.run.protocol import Built, Failed
from workbench.run.repository import Commit
from workbench.run.toolchains import Toolchain, toolchain_of
from workbench.study.workspace import find_workspace

ARCH = "sm_90a"
HEADERS = ("nvidia-cuda-runtime", "nvidia-cuda-cccl")  # of nvcc's own minor version
# Kernels of studies ask for NVRTC: in an environment of nvcc they are compiled by that.
BY_NVCC = """
try:
    from dataclasses import replace
    from workbench.cuda import compiler
except ImportError:
    pass
else:
    def compile(self, arch, by_its_own=compiler.Source.compile):
        return by_its_own(replace(self, compiler="nvcc", must_wait=False), arch)
    compiler.Source.compile = compile
"""


def environment(folder: Path, kind: str, version: str) -> Path:
    """Make a virtual environment with the wheel, and this one's packages behind it."""
    root = folder / f"{kind}-{version}"
    if (root / "bin" / "python3").is_file():
        return root
    venv.create(root)
    (packages,) = root.glob("lib/python3*/site-packages")
    ours = [entry for entry in sys.path if entry.endswith("site-packages")]
    (packages / "base.pth").write_text("\n".join(ours))
    wanted = [f"nvidia-cuda-nvrtc=={version}"]
    if kind == "nvcc":
        minor = ".".join(version.split(".")[:2])
        wanted = [
            f"{name}=={version}" for name in ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt")
        ]
        wanted += [f"{name}=={minor}.*" for name in HEADERS]
        (packages / "by_nvcc.py").write_text(BY_NVCC)
        (packages / "zz_by_nvcc.pth").write_text("import by_nvcc\n")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(packages)]
    subprocess.run([*pip, *wanted], check=True)
    return root


@dataclass(frozen=True)
class Compiled:
    """What one version made: kernels by workspace, study, variant, name and macros."""

    name: str
    kernels: Mapping[str, BuiltKernel]
    failed: Mapping[str, str]
    builds: Path

    @cached_property
    def binaries(self) -> Mapping[str, bytes]:
        return kept_cubins(self.builds)

    def listing(self, kernel: BuiltKernel) -> Listing:
        return listing_of(disassembled(self.binaries[kernel.code], kernel.kernel)[kernel.kernel])


def kept(folder: Path, clones: Path | None) -> Iterator[Path]:
    """Workspaces to compile: this repository's, and one of public files written by ``try``."""
    yield Path(__file__).parents[1]
    if clones is None:
        return
    root = folder / "public"
    (root / "kernels").mkdir(parents=True, exist_ok=True)
    (root / "workbench.toml").touch()
    for stranger in strangers():
        launched = re.search(r"--launch '(\w+)", stranger.arguments)
        is_cuda = stranger.path.endswith((".cu", ".cuh")) and "correct" in stranger.expected
        name = launched[1].lower() if launched else ""
        if not is_cuda or not launched or (root / "kernels" / name).exists():
            continue
        command = [*stranger.command(clones), "--keep", name, "--project", str(root)]
        done = subprocess.run(command, capture_output=True, text=True)
        if not (root / "kernels" / name).exists():
            print(f"left out: {stranger.label}: {done.stderr.strip()[-200:]}", flush=True)
    yield root


def compiled(folder: Path, kind: str, version: str, workspaces: Sequence[Path]) -> Compiled:
    """Build all variants, or read what an earlier call has built."""
    name, index = f"{kind}-{version}", folder / f"{kind}-{version}.json"
    builds = folder / "builds" / name
    if not index.is_file():
        python = environment(folder, kind, version) / "bin" / "python3"
        (links := folder / "links").mkdir(exist_ok=True)
        toolchain = toolchain_of(name, python, links / f"{name}-{os.getpid()}", builds)
        kernels: dict[str, dict[str, Any]] = {}
        failed: dict[str, str] = {}
        for label, key, event in built(toolchain, workspaces):
            if isinstance(event, Failed):
                failed[f"{label} {key}"] = event.error.message
                continue
            for kernel, defines in zip(event.kernels, event.defines, strict=True):
                if kernel.code:
                    name_of_it = f"{label} {kernel.source} {kernel.kernel} {defines}"
                    kernels.setdefault(name_of_it, {**fields_of(kernel), "variants": []})
                    kernels[name_of_it]["variants"].append(key)
        index.write_text(json.dumps({"kernels": kernels, "failed": failed}, indent=1))
    told = json.loads(index.read_text())
    every = {}
    for key, kernel in told["kernels"].items():
        del kernel["variants"]
        every[key] = BuiltKernel(**kernel)
    return Compiled(name, every, told["failed"], builds)


def fields_of(kernel: BuiltKernel) -> dict[str, object]:
    return {name: getattr(kernel, name) for name in kernel.__struct_fields__}


def built(
    toolchain: Toolchain, workspaces: Sequence[Path]
) -> Iterator[tuple[str, str, Built | Failed]]:
    for root in workspaces:
        workspace = find_workspace(root)
        for study in workspace.studies():
            commit = Commit(toolchain.name, toolchain.name)
            side = side_of(commit, workspace, study, toolchain=toolchain)
            names = [n for n in side.names if list(side.study.folder.glob("*.cu*"))]
            build_all([(side, names)], ARCH, lambda event: None, toolchain.builds)
            for name, event in side.built.items():
                yield study, name, event


@dataclass(frozen=True)
class Change:
    """A kernel that two versions compile to other code."""

    key: str
    before: BuiltKernel
    after: BuiltKernel
    diff: CodeDiff

    @property
    def spills(self) -> tuple[int, int]:
        old, new = ((k.spill_store_bytes + k.spill_load_bytes) for k in (self.before, self.after))
        return old, new

    def line(self) -> str:
        facts = [self.diff.sentence()]
        if self.before.registers != self.after.registers:
            facts.append(f"registers {self.before.registers} → {self.after.registers}")
        if self.spills[0] != self.spills[1]:
            facts.append(f"spills {self.spills[0]} → {self.spills[1]} bytes")
        return f"  {self.key}: {'; '.join(facts)}"


def changes(old: Compiled, new: Compiled) -> list[Change]:
    """Compare the kernels that both compile."""
    made = []
    for key, before in old.kernels.items():
        after = new.kernels.get(key)
        if after is not None and after.code != before.code:
            diff = machine_code_diff(old.listing(before), new.listing(after))
            made.append(Change(key, before, after, diff))
    return made


def table(every: Sequence[Compiled], shown: int) -> Iterator[str]:
    """A line for each version after the first, and the largest changes."""
    yield f"{'':26} kernels  same  other   instructions      registers   spills"
    yield f"{'':26}                code  fewer   more   fewer   more  other"
    pairs = [*pairwise(every), *([(every[0], every[-1])] if len(every) > 2 else [])]
    listed: list[str] = []
    for old, new in pairs:
        both = old.kernels.keys() & new.kernels.keys()
        moved = changes(old, new)
        count: Counter[str] = Counter()
        for change in moved:
            sizes = [sum(side.values()) for side in change.diff.numbers]
            count["fewer"] += sizes[1] < sizes[0]
            count["more"] += sizes[1] > sizes[0]
            count["less registers"] += change.after.registers < change.before.registers
            count["more registers"] += change.after.registers > change.before.registers
            count["spills"] += change.spills[0] != change.spills[1]
        name = f"{old.name} → {new.name.partition('-')[2]}"
        yield (
            f"{name:26} {len(both):7} {len(both) - len(moved):5} {len(moved):6}"
            f" {count['fewer']:6} {count['more']:6} {count['less registers']:7}"
            f" {count['more registers']:6} {count['spills']:6}"
        )
        moved.sort(
            key=lambda c: (
                abs(c.after.registers - c.before.registers) + abs(c.spills[1] - c.spills[0])
            )
        )
        listed += ["", name, *(change.line() for change in moved[::-1][:shown])]
        failed = {k: v for k, v in new.failed.items() if k not in old.failed}
        listed += [f"  fails: {k}: {v.splitlines()[0]}" for k, v in failed.items()]
    yield from listed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("kind", choices=("nvrtc", "nvcc"))
    parser.add_argument("version", nargs="+")
    parser.add_argument("--strangers", type=Path, dest="clones")
    parser.add_argument("--shown", type=int, default=12)
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    workspaces = list(kept(folder, given.clones))
    if given.kind == "nvrtc":  # programs are compiled by nvcc where there is one
        (folder / "none").mkdir(exist_ok=True)
        os.environ["PATH"] = str(folder / "none")
    every = []
    for version in given.version:
        every.append(compiled(folder, given.kind, version, workspaces))
        last = every[-1]
        print(
            f"{last.name}: {len(last.kernels)} kernels, {len(last.failed)} variants failed",
            flush=True,
        )
    print("\n".join(table(every, given.shown)))


if __name__ == "__main__":
    main()
