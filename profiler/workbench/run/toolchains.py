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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from workbench import bounds
from workbench.cuda.nvcc import ran
from workbench.errors import EnvironmentLacks, UsageError
from workbench.evidence.records import Timing

NEEDED = {"torch": "torch", "numpy": "numpy", "cuda.core": "cuda-core"}  # of the environment
LINKED = {"msgspec": "msgspec", "zstandard": "zstandard"}  # or else of this one
PACKAGE = Path(__file__).resolve().parents[1]
PROBE = f"""
import json, sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
def lacks(name):
    try:
        return find_spec(name) is None
    except ModuleNotFoundError:
        return True
every = list(metadata.distributions())  # the first of a name is imported
wheels = [Path(entry, "nvidia", "cu13", "bin") for entry in sys.path]
print(json.dumps({{
    "tag": sys.implementation.cache_tag,
    "python": ".".join(map(str, sys.version_info[:3])),
    "is_old": sys.version_info < (3, 11),
    "lacks": [name for name in {[*NEEDED, *LINKED]!r} if lacks(name)],
    "nvcc": next((str(bin) for bin in wheels if (bin / "nvcc").is_file()), ""),
    "versions": {{d.name.lower(): d.version for d in reversed(every) if d.name}},
}}))
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


WORKERS_OF: ContextVar[Toolchain | None] = ContextVar("WORKERS_OF", default=None)


@contextmanager
def workers_of(toolchain: Toolchain | None) -> Iterator[None]:
    """Inside, in this thread, workers are those of a toolchain; None: of this Python."""
    token = WORKERS_OF.set(toolchain)
    try:
        yield
    finally:
        WORKERS_OF.reset(token)


def named_pythons(named: Sequence[str]) -> list[tuple[str, Path]]:
    """Read the options ``NAME=PYTHON``. Raises UsageError unless they are two, each with another
    name and a Python that its folder calls ``python3``, as workers do.
    """
    pairs = [text.partition("=")[::2] for text in named]
    if len(pairs) != 2 or len({name for name, _ in pairs}) != 2:
        raise UsageError(
            "--env takes two environments with different names",
            hint="--env old=OLD/bin/python --env new=NEW/bin/python",
        )
    for name, path in pairs:
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise UsageError(f"--env '{name}={path}' has no name", hint="--env NAME=PYTHON")
        python = Path(path)
        beside = python.with_name("python3")
        if not (beside.is_file() and python.is_file() and beside.samefile(python)):
            raise UsageError(
                f"--env {name}: {path or 'nothing'} is not the python3 of an environment",
                hint="name the bin/python3 of a virtual environment",
            )
    return [(name, Path(path).absolute()) for name, path in pairs]


def toolchain_of(name: str, python: Path, folder: Path, builds: Path) -> Toolchain:
    """Ask a Python what is installed; ``folder`` takes the links. Raises EnvironmentLacks."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    code, text = ran([str(python), "-c", PROBE], "/", bounds.STARTING_SECONDS, environment)
    if code != 0:
        message = f"--env {name}: {python} does not run: {text.strip()[-500:]}"
        raise UsageError(message, hint="name the bin/python3 of a virtual environment")
    told = json.loads(text.splitlines()[-1])
    if told["is_old"]:
        message = f"--env {name}: it is Python {told['python']}"
        raise EnvironmentLacks(message, hint="make the environment with Python 3.11 or newer")
    can_link = told["tag"] == sys.implementation.cache_tag
    packages = NEEDED if can_link else {**NEEDED, **LINKED}
    if missing := [packages[module] for module in told["lacks"] if module in packages]:
        raise EnvironmentLacks(
            f"--env {name}: the environment lacks {' and '.join(missing)}",
            hint=f"{python} -m pip install {' '.join(missing)}",
        )
    folder.mkdir(parents=True)
    builds.mkdir(parents=True, exist_ok=True)
    (folder / "workbench").symlink_to(PACKAGE)
    for module in told["lacks"]:
        spec = find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        (folder / module).symlink_to(Path(spec.origin).parent)
    paths = tuple(filter(None, (str(python.parent), told["nvcc"])))
    return Toolchain(
        name, python, paths, folder, builds, {**told["versions"], "python": told["python"]}
    )


class Turns:
    """Two measurements take turns on the GPU, session by session: A B B A A B B A. Both have so
    many ``sessions``, an even number, and as many again if ``is_open`` says so of their timings.
    """

    def __init__(self, sessions: int, is_open: Callable[[Timing, Timing], bool]) -> None:
        self.wanted, self.is_open = sessions, is_open
        self.has_more = True
        self.turn = threading.Condition()
        self.holder, self.stopped = 0, False
        self.ended = [False, False]
        self.timings: list[Timing | None] = [None, None]

    @contextmanager
    def of(self, place: int) -> Iterator[None]:
        """Inside, one of both has the turn, but for while it waits between sessions."""
        try:
            self._wait(place)
            yield
        except BaseException:
            self.stop()
            raise
        finally:
            with self.turn:
                self.ended[place] = True
                self.turn.notify_all()

    def stop(self) -> None:
        with self.turn:
            self.stopped = True
            self.turn.notify_all()

    def _wait(self, place: int) -> None:
        with self.turn:
            self.turn.wait_for(
                lambda: self.stopped or self.holder == place or self.ended[1 - place]
            )
            if self.stopped:
                raise KeyboardInterrupt

    def after_session(self, place: int, timing: Timing) -> Sequence[str]:
        """Hand over where it is time, and return the variants of the next session; () after the
        last.
        """
        done = len(timing.together)
        self.timings[place] = timing
        first, second = self.timings
        if place == 0 and done == self.wanted and self.has_more and first and second:
            self.has_more = False
            self.wanted *= 1 + self.is_open(first, second)
        if done % 2 != place:
            with self.turn:
                self.holder = 1 - place
                self.turn.notify_all()
            self._wait(place)
        return sorted(timing.fingerprints) if done < self.wanted else ()
