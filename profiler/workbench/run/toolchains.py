"""Other Python environments whose compilers and libraries are compared.

Workers of an environment are started by its ``python3``. They find this package, and packages that
it needs and the environment lacks, in a folder of links: more on PYTHONPATH would hide the
environment's own.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from workbench import bounds
from workbench.cuda.compiler import ran
from workbench.errors import EnvironmentLacks, UsageError

NEEDED, LINKED = ("torch", "numpy", "cuda-core"), ("msgspec", "zstandard")  # distributions
PACKAGE = Path(__file__).resolve().parents[1]
HINT = "--env old=OLD/bin/python3 --env new=NEW/bin/python3, of virtual environments"
PROBE = """
import json, sys
from importlib import metadata
from pathlib import Path
every = list(metadata.distributions())  # the first of a name is imported
wheels = [Path(entry, "nvidia", "cu13", "bin") for entry in sys.path]
nvcc = next((str(bin) for bin in wheels if (bin / "nvcc").is_file()), "")
versions = {d.name.lower(): d.version for d in reversed(every) if d.name}
versions["python"] = ".".join(map(str, sys.version_info[:3]))
print(json.dumps([sys.implementation.cache_tag, nvcc, versions]))
"""


@dataclass(frozen=True)
class Toolchain:
    """A Python environment. ``paths`` are folders of programs, its own first; ``links`` are what
    its workers import of this one; ``builds`` keeps what they compile.
    """

    name: str
    python: Path
    paths: tuple[str, ...]
    links: Path
    builds: Path
    versions: Mapping[str, str]


# The environment whose workers a thread starts; None: this Python's.
WORKERS_OF: ContextVar[Toolchain | None] = ContextVar("WORKERS_OF", default=None)


def named_pythons(named: Sequence[str]) -> dict[str, Path]:
    """Read the options ``NAME=PYTHON``. Raises UsageError unless they are none, or two, each with
    another name and a Python that its folder calls ``python3``, as workers do.
    """
    pythons = {
        name: Path(path).absolute() for name, _, path in (each.partition("=") for each in named)
    }
    if named and (len(named) != 2 or len(pythons) != 2):
        raise UsageError("--env takes two environments with different names", hint=HINT)
    for name, python in pythons.items():
        beside = python.with_name("python3")
        is_named = re.fullmatch(r"\w[\w.-]*", name)
        if not (is_named and python.is_file() and beside.is_file() and beside.samefile(python)):
            raise UsageError(f"--env {name}: {python} is no python3 with a name", hint=HINT)
    return pythons


def toolchain_of(name: str, python: Path, folder: Path, builds: Path) -> Toolchain:
    """Ask a Python what is installed; ``folder`` takes the links. Raises EnvironmentLacks."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    code, text = ran([str(python), "-c", PROBE], "/", bounds.STARTING_SECONDS, environment)
    if code != 0:
        why = text.strip()[-500:]
        raise UsageError(f"--env {name}: {python} does not run: {why}", hint=HINT)
    tag, nvcc, versions = json.loads(text.splitlines()[-1])
    needed = NEEDED if tag == sys.implementation.cache_tag else NEEDED + LINKED
    if missing := [each for each in needed if each not in versions]:
        raise EnvironmentLacks(
            f"--env {name}: the environment lacks {' and '.join(missing)}",
            hint=f"{python} -m pip install {' '.join(missing)}",
        )
    folder.mkdir(parents=True)
    builds.mkdir(parents=True, exist_ok=True)
    (folder / "workbench").symlink_to(PACKAGE)
    for module in LINKED:
        if module not in versions:
            (folder / module).symlink_to(Path(str(import_module(module).__file__)).parent)
    paths = (str(python.parent), *filter(None, (nvcc,)))
    return Toolchain(name, python, paths, folder, builds, versions)


def even(sessions: int) -> int:
    return sessions + sessions % 2
