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
import shlex
import subprocess
import sys
import venv
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.strangers import REFERENCES, strangers

from workbench.app.kernel_code import kept_cubins
from workbench.app.sides import build_all, side_of
from workbench.cuda.cubin import TEXT, sections
from workbench.derive.code_diff import sizes_and_summary
from workbench.errors import WorkbenchError
from workbench.evidence.records import BuiltKernel
from workbench.ncu.disassembly import kind_of
from workbench.ncu.nvdisasm import disassembled
from workbench.problems.detect import read_problem
from workbench.problems.problem import Request
from workbench.problems.writing import TrialFacts, write
from workbench.run.protocol import Failed
from workbench.run.repository import Commit
from workbench.run.toolchains import Toolchain, toolchain_of
from workbench.study.workspace import find_workspace

ARCH, AT_ONCE = "sm_90a", 3
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
    wanted = [f"{'nvidia-cuda-nvrtc' if kind == 'nvrtc' else kind}=={version}"]
    if kind == "nvcc":
        minor = ".".join(version.split(".")[:2])
        wanted = [
            f"{name}=={version}" for name in ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt")
        ]
        wanted += [f"nvidia-cuda-runtime=={minor}.*", "nvidia-cuda-cccl"]  # headers
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

    def size(self, kernel: BuiltKernel) -> int:
        """Instructions of 16 bytes, with the padding at the end."""
        name = f"{TEXT}{kernel.kernel}"
        return sum(s.size for s in sections(self.binaries[kernel.code]) if s.name == name) // 16

    def kinds(self, kernel: BuiltKernel) -> Counter[str]:
        code = disassembled(self.binaries[kernel.code], kernel.kernel)[kernel.kernel]
        return Counter(kind_of(text) for _, text in code)


def workspaces(folder: Path, clones: Path | None) -> Iterator[Path]:
    """This repository's, and one of public CUDA files written as ``try`` writes them."""
    yield Path(__file__).parents[1]
    if clones is None:
        return
    root = folder / "public"
    for number, stranger in enumerate(strangers()):
        is_cuda = stranger.path.endswith((".cu", ".cuh")) and "correct" in stranger.expected
        if not is_cuda or "--launch" not in stranger.arguments:
            continue
        words = shlex.split(stranger.arguments.replace("{vs}", str(REFERENCES)))
        options: dict[str, list[str]] = defaultdict(list)
        for option, value in zip(words[::2], words[1::2], strict=True):
            options[option].append(value)
        request = Request(
            source=clones / stranger.repository / stranger.path,
            inputs=tuple(options["--input"]),
            outputs=tuple(options["--output"]),
            versus="".join(options["--vs"]),
            launch="".join(options["--launch"]),
            name=f"public{number}",
        )
        try:
            problem = read_problem(request)
            write(replace(problem, name=f"public{number}"), root, TrialFacts())
        except WorkbenchError as error:
            print(f"left out: {stranger.label}: {error.message.splitlines()[0]}", flush=True)
    yield root


def compiled(folder: Path, kind: str, version: str, roots: Sequence[Path]) -> Compiled:
    """Build all variants, or read what an earlier call has built."""
    name, builds = f"{kind}-{version}", folder / "builds" / f"{kind}-{version}"
    kernels: dict[str, BuiltKernel] = {}
    failed: dict[str, str] = {}
    for root in roots:
        index = folder / f"{name}-{root.name}.json"
        if not index.is_file():
            python = environment(folder, kind, version) / "bin" / "python3"
            links = folder / "links" / f"{name}-{os.getpid()}-{root.name}"
            toolchain = toolchain_of(name, python, links, builds)
            index.write_text(json.dumps(built(toolchain, root), indent=1))
        told = json.loads(index.read_text())
        failed |= told["failed"]
        for key, kernel in told["kernels"].items():
            kernels[key] = BuiltKernel(**{k: v for k, v in kernel.items() if k != "variants"})
    return Compiled(name, kernels, failed, builds)


def built(toolchain: Toolchain, root: Path) -> dict[str, dict[str, Any]]:
    """Build a workspace: kernels with the variants that launch them, and what failed."""
    workspace, commit = find_workspace(root), Commit(toolchain.name, toolchain.name)
    sides = [
        side_of(commit, workspace, study, toolchain=toolchain) for study in workspace.studies()
    ]
    wanted = [(s, s.names) for s in sides if list(s.study.folder.glob("*.cu*"))]
    for first in range(0, len(wanted), AT_ONCE):
        build_all(wanted[first : first + AT_ONCE], ARCH, lambda event: None, toolchain.builds)
    kernels: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    for side, variant, event in ((s, v, e) for s in sides for v, e in s.built.items()):
        if isinstance(event, Failed):
            failed[f"{side.study.name} {variant}"] = event.error.message
            continue
        for kernel, defines in zip(event.kernels, event.defines, strict=True):
            if kernel.code:
                key = f"{side.study.name} {kernel.source} {kernel.kernel} {defines}".strip()
                kernels.setdefault(key, {**fields_of(kernel), "variants": []})
                kernels[key]["variants"].append(variant)
    return {"kernels": kernels, "failed": failed}


def fields_of(kernel: BuiltKernel) -> dict[str, object]:
    return {name: getattr(kernel, name) for name in kernel.__struct_fields__}


@dataclass(frozen=True)
class Change:
    """A kernel that two versions compile to other code."""

    key: str
    sides: tuple[tuple[Compiled, BuiltKernel], tuple[Compiled, BuiltKernel]]

    def both(self, figure: str) -> tuple[int, int]:
        """Instructions, registers or bytes of spills before and after."""
        old, new = (
            {
                "instructions": by.size(kernel),
                "registers": kernel.registers,
                "spills": kernel.spill_store_bytes + kernel.spill_load_bytes,
            }[figure]
            for by, kernel in self.sides
        )
        return old, new

    def moved(self, figure: str) -> int:
        old, new = self.both(figure)
        return new - old

    def line(self) -> str:
        kinds = [by.kinds(kernel) for by, kernel in self.sides]
        facts = [sizes_and_summary(*kinds)]
        for figure in ("registers", "spills"):
            if self.moved(figure):
                facts.append("{} {} → {}".format(figure, *self.both(figure)))
        return f"  {self.key}: {'; '.join(facts)}"


def changes(old: Compiled, new: Compiled) -> list[Change]:
    """Compare the kernels that both compile."""
    return [
        Change(key, ((old, kernel), (new, new.kernels[key])))
        for key, kernel in old.kernels.items()
        if key in new.kernels and new.kernels[key].code != kernel.code
    ]


def table(every: Sequence[Compiled], shown: int) -> Iterator[str]:
    """A line for each version after the first, and the largest changes."""
    yield f"{'':28} kernels   same  other   instructions     registers        spills"
    yield f"{'':28}           code   code  fewer   more  fewer   more  fewer   more"
    pairs = [*pairwise(every), *([(every[0], every[-1])] if len(every) > 2 else [])]
    listed: list[str] = []
    for old, new in pairs:
        both = len(old.kernels.keys() & new.kernels.keys())
        moved = changes(old, new)
        counts = [
            sum(sign * change.moved(figure) > 0 for change in moved)
            for figure in ("instructions", "registers", "spills")
            for sign in (-1, 1)
        ]
        name = f"{old.name} → {new.name.partition('-')[2]}"
        numbers = (both, both - len(moved), len(moved), *counts)
        yield f"{name:28} {numbers[0]:7}" + "".join(f"{number:7}" for number in numbers[1:])
        moved.sort(key=lambda c: (abs(c.moved("spills")), abs(c.moved("registers"))), reverse=True)
        listed += ["", name, *(change.line() for change in moved[:shown])]
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
    roots = list(workspaces(folder, given.clones))
    if given.kind == "nvrtc":  # programs are compiled by nvcc where there is one
        (folder / "none").mkdir(exist_ok=True)
        os.environ["PATH"] = str(folder / "none")
    every = []
    for version in given.version:
        every.append(compiled(folder, given.kind, version, roots))
        last = every[-1]
        print(
            f"{last.name}: {len(last.kernels)} kernels, {len(last.failed)} variants failed",
            flush=True,
        )
    print("\n".join(table(every, given.shown)))


if __name__ == "__main__":
    main()
