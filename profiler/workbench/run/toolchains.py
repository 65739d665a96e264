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
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from workbench import bounds
from workbench.cuda.nvcc import ran
from workbench.errors import EnvironmentLacks, UsageError
from workbench.evidence.records import Timing

R = TypeVar("R")
After = Callable[[Timing], Sequence[str]]
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


def in_turns(
    works: Sequence[Callable[[After, Callable[[], None]], R]],
    sessions: int,
    is_open: Callable[[Timing, Timing], bool],
) -> list[R]:
    """Let two measurements take turns on the GPU, session by session: A B B A A B B A. Both have so
    many ``sessions``, an even number, and as many again if ``is_open`` says so of their timings.
    Each works in a thread, with a function that waits after a session and returns the variants of
    the next, () after the last, and another that raises KeyboardInterrupt if the other has stopped.
    """
    free = threading.Semaphore(1), threading.Semaphore(0)
    timings: dict[int, Timing] = {}
    stopped, wanted = threading.Event(), sessions

    def look() -> None:
        if stopped.is_set():
            raise KeyboardInterrupt

    def after(place: int, timing: Timing) -> Sequence[str]:
        nonlocal wanted
        timings[place], done = timing, len(timing.together)
        if place == 0 and done == wanted == sessions and len(timings) == 2:
            wanted *= 1 + is_open(timings[0], timings[1])
        if done % 2 != place:
            free[1 - place].release()
            free[place].acquire()
            look()
        return sorted(timing.fingerprints) if done < wanted else ()

    def worked(place: int) -> R:
        free[place].acquire()
        try:
            look()
            return works[place](partial(after, place), look)
        except BaseException:
            stopped.set()
            raise
        finally:
            free[1 - place].release(MANY)

    with ThreadPoolExecutor(len(works)) as pool:
        futures = [pool.submit(worked, place) for place in range(len(works))]
        try:
            for future in as_completed(futures):
                future.result()  # the first error, and not how it stopped the other
        except BaseException:
            stopped.set()
            raise
    return [future.result() for future in futures]
