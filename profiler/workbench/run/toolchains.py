"""Other Python environments whose compilers and libraries are compared, and their turns on the GPU.

Workers of an environment are started by its ``python3``. They find this package, and packages that
it needs and the environment lacks, in a folder of links: more on PYTHONPATH would hide the
environment's own.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from workbench import bounds
from workbench.cuda.nvcc import ran
from workbench.errors import EnvironmentLacks, UsageError
from workbench.evidence.records import Timing

NEEDED, LINKED = ("torch", "numpy", "cuda-core"), ("msgspec", "zstandard")  # distributions
MANY = 1000  # more turns than there are
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
    """Read the options ``NAME=PYTHON``. Raises UsageError unless they are two, each with another
    name and a Python that its folder calls ``python3``, as workers do.
    """
    pythons = {
        name: Path(path).absolute() for name, _, path in (each.partition("=") for each in named)
    }
    if len(named) != 2 or len(pythons) != 2:
        raise UsageError("--env takes two environments with different names", hint=HINT)
    for name, python in pythons.items():
        beside = python.with_name("python3")
        if not (re.fullmatch(r"\w[\w.-]*", name) and python.is_file() and beside.is_file()):
            raise UsageError(f"--env {name}: {python} is no Python with a name", hint=HINT)
        if not beside.samefile(python):
            raise UsageError(f"--env {name}: {beside} is another Python", hint=HINT)
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


class Turns:
    """Two measurements take turns on the GPU, session by session: A B B A A B B A. Both have so
    many ``sessions``, an even number, and as many again if ``is_open`` says so of their timings.
    """

    def __init__(self, sessions: int, is_open: Callable[[Timing, Timing], bool]) -> None:
        self.sessions = self.wanted = sessions
        self.is_open, self.stopped = is_open, False
        self.timings: dict[int, Timing] = {}
        self.free = (threading.Semaphore(1), threading.Semaphore(0))

    def take(self, place: int) -> None:
        """Wait for a turn. Raises KeyboardInterrupt where the other has stopped."""
        self.free[place].acquire()
        if self.stopped:
            raise KeyboardInterrupt

    def end(self, place: int) -> None:
        """Leave the GPU to the other."""
        self.free[1 - place].release(MANY)

    def after_session(self, place: int, timing: Timing) -> Sequence[str]:
        """Hand over where it is time, and return the variants of the next session; () after the
        last.
        """
        done = len(timing.together)
        self.timings[place] = timing
        is_last = place == 0 and done == self.wanted == self.sessions and len(self.timings) == 2
        if is_last and self.is_open(self.timings[0], self.timings[1]):
            self.wanted *= 2
        if done % 2 != place:
            self.free[1 - place].release()
            self.take(place)
        return sorted(timing.fingerprints) if done < self.wanted else ()
