"""What ``benchmarks.on_card`` runs: the steps of ``on_card.toml``, and what they need of a machine.

Nothing but the standard library, as nothing else is there when this is read.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STEPS = Path(__file__).with_name("on_card.toml")
PROGRAMS = {
    "python": (),
    "pytest": ("-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider"),
    "workbench": ("-m", "workbench"),
}
PLACES = ("/usr/sbin", "/usr/local/sbin", "/usr/local/cuda/bin")  # beside PATH
NCU = Path("/opt/nvidia/nsight-compute")
DSL = Path("nvidia_cutlass_dsl", "dsl_packages")  # of nvidia-cutlass-dsl, named in a .pth file
# What packages are there for that come in many wheels, one of which may be missing.
IMPORTED = {"flash-attn-4": "flash_attn.cute"}
DRAWN = re.compile(r"<(\w+)(?::(\w+))?>")


class Unusable(Exception):
    """A step, or what it names, that is not there."""


@dataclass(frozen=True)
class Step:
    """A piece of work of at most ``limit`` seconds, ``expected`` to take fewer.

    ``what`` it measures, and which documents or evidence that ``fills``. ``commands`` run one after
    the other until one fails: ``workbench``, ``pytest`` and ``python`` are those of this Python,
    ``<last:STUDY>`` is the last step of a ladder, ``<fresh>`` an empty folder. What the last of
    them prints is put below a mark of a page, ``into`` ``"PAGE MARK"``. Without one of its
    ``programs``, ``packages`` or ``cards`` it is left out; ``optional`` packages make it tell more.
    Where one that it comes ``after`` is run as well, it goes on with what that one has left.

    In the file, an entry with ``each`` is one step a line of that list, whose words stand for
    ``{0}``, ``{1}``.
    """

    name: str
    what: str
    fills: str
    expected: int
    limit: int
    commands: tuple[str, ...]
    programs: tuple[str, ...] = ("ncu",)
    packages: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    cards: int = 1
    into: str = ""
    after: str = ""

    @property
    def needs(self) -> str:
        """Beside one card and ncu, in words."""
        cards = [f"{self.cards} cards"] if self.cards > 1 else []
        own = [name for name in self.programs if name != "ncu"]
        return ", ".join([*cards, *own, *self.packages, *(f"({one})" for one in self.optional)])

    def arguments(self, drawn: Mapping[str, str]) -> list[list[str]]:
        """Of its commands, with ``drawn`` for what stands in angle brackets."""
        return [_arguments(command, drawn) for command in self.commands]


def _arguments(command: str, drawn: Mapping[str, str]) -> list[str]:
    first, *rest = (DRAWN.sub(lambda m: drawn[m[0]], word) for word in shlex.split(command))
    return [sys.executable, *PROGRAMS[first], *rest]


def drawn_by(steps: Sequence[Step]) -> set[str]:
    """What stands in angle brackets anywhere: ``<fresh>``, ``<last:attention>``."""
    return {m[0] for step in steps for command in step.commands for m in DRAWN.finditer(command)}


def read_steps(path: Path = STEPS) -> list[Step]:
    found = []
    for entry in tomllib.loads(path.read_text(encoding="utf-8"))["step"]:
        for line in entry.pop("each", [""]):
            found.append(Step(**{key: _filled(value, line) for key, value in entry.items()}))
    return found


def _filled(value: Any, line: str) -> Any:
    if isinstance(value, list):
        return tuple(_filled(one, line) for one in value)
    return value.format(*line.split()) if isinstance(value, str) else value


def chosen(steps: Sequence[Step], wanted: Sequence[str]) -> list[Step]:
    """Those named or matched, ``try-*``, in the order that was given. Raises Unusable."""
    found: dict[str, Step] = {}
    for name in wanted:
        more = {step.name: step for step in steps if fnmatchcase(step.name, name)}
        if not more:
            raise Unusable(f"there is no step '{name}'; --list names them")
        found |= more
    return list(found.values())


def last_step(tree: Path, study: str) -> str:
    """Of a ladder: the last that chooses among those before it; without such a one, the last."""
    path = tree / "ablations" / study / "ablation.toml"
    steps = tomllib.loads(path.read_text(encoding="utf-8"))["step"]
    choices = [step for step in steps if step.get("chooses")]
    return str((choices or steps)[-1]["variant"])


def own_packages(tree: Path) -> list[str]:
    """What the workbench itself needs to measure, by the names that pip knows."""
    project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [re.split(r"[^\w.-]", wanted, maxsplit=1)[0] for wanted in project["dependencies"]]
    return ["torch", "cuda-core", "pytest", *names]


@dataclass(frozen=True)
class Machine:
    """Where steps run; ``site`` has the packages that were brought along."""

    site: Path

    def lacks(self, step: Step, own: Sequence[str]) -> list[str]:
        """Of what a step needs, and of the workbench's ``own`` packages."""
        short = cards() < step.cards
        return [
            *([f"{step.cards} GPU{'s' * (step.cards > 1)}"] if short else []),
            *(name for name in step.programs if not is_program(name)),
            *filter(None, map(self.why_not, (*own, *step.packages))),
        ]

    def why_not(self, package: str) -> str:
        """Its name where it is not there, and more where it is no use; "" for nothing."""
        if not self.has(package):
            return package
        module = IMPORTED.get(package, "")
        return f"what {package} needs" if module and not can_import(module, self.site) else ""

    def has(self, package: str) -> bool:
        places = [str(self.site), *(path for path in sys.path if path)]
        return any(metadata.distributions(name=package, path=places))


@cache
def can_import(module: str, site: Path) -> bool:
    """In a process of its own, with the packages of ``site``."""
    known = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join(filter(None, [str(site), str(site / DSL), known]))
    done = subprocess.run(
        [sys.executable, "-c", f"import {module}"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    print(done.stderr, end="", file=sys.stderr)
    return not done.returncode


@cache
def cards() -> int:
    """GPUs that nvidia-smi lists."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())


@cache
def is_program(name: str) -> bool:
    if shutil.which(name) or any(shutil.which(name, path=place) for place in PLACES):
        return True
    return name == "ncu" and any(NCU.glob("*/ncu"))


def listing(steps: Sequence[Step]) -> str:
    """A row for those that measure the same, as Markdown; packages in brackets may be missing."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for step in steps:
        told = (step.what, step.fills, step.needs, str(step.expected), str(step.limit))
        rows.setdefault(told, []).append(step.name)
    lines = ["| step | measures | for | needs | expected (s) | limit (s) |"]
    lines.append("| --- | --- | --- | --- | ---: | ---: |")
    lines += [f"| {' | '.join((', '.join(names), *told))} |" for told, names in rows.items()]
    return "\n".join(lines) + "\n"


def shown(steps: Sequence[Step], tree: Path) -> str:
    """The commands, as they would run in that tree."""
    drawn = {word: last_step(tree, study) if (study := word[1:-1].partition(":")[2]) else word
             for word in drawn_by(steps)}  # fmt: skip
    lines = []
    for step in steps:
        needs = f", needs {step.needs}" if step.needs else ""
        lines.append(f"{step.name}: {step.expected} s, at most {step.limit}{needs}")
        lines += [f"    {shlex.join(['python', *each[1:]])}" for each in step.arguments(drawn)]
    return "\n".join(lines) + "\n"
