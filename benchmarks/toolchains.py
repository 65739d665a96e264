"""Compile every kernel with each NVRTC or nvcc of a list, without a GPU, and compare machine code.

python -m benchmarks.toolchains FOLDER nvrtc 13.0.48 13.5.37 [--strangers CLONES]

FOLDER gets an environment and its builds for each version. Kernels are those of the
five studies and, with ``--strangers``, the .cu and .cuh files of strangers.toml that lie as
CLONES/owner/name. What pip installs is the wheel of that version, and for nvcc what it needs. A
table compares each version with the one before it, and the last with the first.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import venv
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pandas as pd
from benchmarks.strangers import REFERENCES, strangers
from tools.pages import batched

from workbench.app.gate import build_all, side_of
from workbench.app.show import kept_cubins
from workbench.app.try_ import write
from workbench.cuda.cubin import TEXT, sections
from workbench.derive.code_diff import sizes_and_summary
from workbench.errors import WorkbenchError
from workbench.evidence.records import BuiltKernel
from workbench.ncu.disassembly import disassembled, kind_of
from workbench.problems.detect import read_problem
from workbench.problems.problem import Request
from workbench.run.process import toolchain_of
from workbench.run.protocol import Built, Failed
from workbench.run.repository import Commit
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


FIGURES = ("instructions", "registers", "spills")


@dataclass(frozen=True)
class Compiled:
    """What one version made: kernels by study, source, name and macros; why variants failed."""

    name: str
    kernels: pd.DataFrame
    failed: Mapping[str, str]
    binaries: Mapping[str, bytes]

    def kinds(self, key: str) -> Counter[str]:
        name, code = self.kernels.kernel[key], self.kernels.code[key]
        return Counter(kind_of(text) for _, text in disassembled(self.binaries[code], name)[name])


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
            write(replace(problem, name=f"public{number}"), root)
        except WorkbenchError as error:
            print(f"left out: {stranger.label}: {error.message.splitlines()[0]}", flush=True)
    yield root


def compiled(folder: Path, kind: str, version: str, roots: Sequence[Path]) -> Compiled:
    """Build all variants; what an earlier call has built is not compiled again."""
    name, builds = f"{kind}-{version}", folder / "builds" / f"{kind}-{version}"
    python = environment(folder, kind, version) / "bin" / "python3"
    events: dict[tuple[str, str], Built | Failed] = {}
    for root in roots:
        links = folder / "links" / f"{name}-{os.getpid()}-{root.name}"
        toolchain = toolchain_of(name, python, links, builds)
        workspace, commit = find_workspace(root), Commit(name, name)
        sides = [
            side_of(commit, workspace, study, toolchain=toolchain) for study in workspace.studies()
        ]
        wanted = [(s, s.names) for s in sides if list(s.study.folder.glob("*.cu*"))]
        for some in batched(wanted, AT_ONCE):
            build_all(some, ARCH, lambda event: None, builds)
        events |= {(s.study.name, name): event for s in sides for name, event in s.built.items()}
    binaries = kept_cubins(builds)
    kernels: dict[str, dict[str, object]] = {}
    for (study, _), event in events.items():
        if isinstance(event, Built):
            for kernel, defines in zip(event.kernels, event.defines, strict=True):
                key = f"{study} {kernel.source} {kernel.kernel} {defines}".strip()
                if kernel.code:
                    kernels.setdefault(key, facts_of(kernel, binaries))
    failed = {
        " ".join(key): event.error.message
        for key, event in events.items()
        if isinstance(event, Failed)
    }
    return Compiled(name, pd.DataFrame.from_dict(kernels, orient="index"), failed, binaries)


def facts_of(kernel: BuiltKernel, binaries: Mapping[str, bytes]) -> dict[str, object]:
    """With instructions of 16 bytes, those of the padding at the end too."""
    code = sections(binaries[kernel.code])
    size = sum(section.size for section in code if section.name == f"{TEXT}{kernel.kernel}")
    return {
        "kernel": kernel.kernel,
        "code": kernel.code,
        "instructions": size // 16,
        "registers": kernel.registers,
        "spills": kernel.spill_store_bytes + kernel.spill_load_bytes,
    }


def line(key: str, old: Compiled, new: Compiled) -> str:
    facts = [sizes_and_summary(old.kinds(key), new.kinds(key))]
    for figure in FIGURES[1:]:
        before, after = (side.kernels[figure][key] for side in (old, new))
        facts += [f"{figure} {before} → {after}"] * bool(before != after)
    return f"  {key}: {'; '.join(facts)}"


def table(every: Sequence[Compiled], shown: int) -> Iterator[str]:
    """A line for each version after the first, and the largest changes."""
    yield f"{'':28} kernels   same  other   instructions     registers        spills"
    yield f"{'':28}           code   code  fewer   more  fewer   more  fewer   more"
    pairs = [*pairwise(every), *([(every[0], every[-1])] if len(every) > 2 else [])]
    listed: list[str] = []
    for old, new in pairs:
        both = old.kernels.join(new.kernels, how="inner", lsuffix=" before")
        other = both[both["code before"] != both.code]
        moved = pd.DataFrame({each: other[each] - other[f"{each} before"] for each in FIGURES})
        numbers = [len(both), len(both) - len(other), len(other)]
        numbers += [int((sign * moved[each] > 0).sum()) for each in FIGURES for sign in (-1, 1)]
        name = f"{old.name} → {new.name.partition('-')[2]}"
        yield f"{name:28} {numbers[0]:7}" + "".join(f"{number:7}" for number in numbers[1:])
        largest = moved.abs().sort_values(["spills", "registers"], ascending=False, kind="stable")
        listed += ["", name, *(line(str(key), old, new) for key in largest.index[:shown])]
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
        every.append(last := compiled(folder, given.kind, version, roots))
        counts = f"{len(last.kernels)} kernels, {len(last.failed)} variants failed"
        print(f"{last.name}: {counts}", flush=True)
    print("\n".join(table(every, given.shown)))


if __name__ == "__main__":
    main()
