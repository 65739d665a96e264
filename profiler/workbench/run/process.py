"""Starts a worker in a folder of its own, or a user's program under ncu, watches it, and stops it
when it hangs.

Workers of another Python environment, whose compilers and libraries are compared, are started by
its ``python3``. They find this package, and packages that it needs and the environment lacks, in a
folder of links: more on PYTHONPATH would hide the environment's own.
"""

from __future__ import annotations

import codecs
import json
import mmap
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from workbench import bounds
from workbench.children import WHERE, exit_code, kill_tree, memory_of
from workbench.cuda.compiler import CUBIN_FOLDER, ran
from workbench.errors import EnvironmentLacks, UsageError
from workbench.ncu.command import quoted
from workbench.run import machine
from workbench.run.protocol import (
    CURRENT,
    EVENTS,
    JOB,
    LOG,
    PARENT,
    TURN,
    WAITING,
    Done,
    Event,
    Failed,
    Hello,
    Job,
    SessionsJob,
    ShipJob,
    Start,
    TrialJob,
    VariantsJob,
    decode,
    write_job,
    write_turn,
)

BUILDS = "builds"  # in the folder of a measurement: compiled kernels
# Variables that name a folder, and the folder below the measurement's own. Its workers share what
# is built there: what was checked is what is timed and profiled, and an autotuner chooses once.
# They are no earlier run's, since what is kept there has the paths of the sources of that run.
EXTENSIONS_DIR = "TORCH_EXTENSIONS_DIR"
FOLDERS = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    EXTENSIONS_DIR: "extensions",
    "CUTE_DSL_CACHE_DIR": "cute",
    "CUPY_CACHE_DIR": "cupy",
    "NUMBA_CACHE_DIR": "numba",
    "TILELANG_CACHE_DIR": "tilelang",
    "CUDA_TILE_CACHE_DIR": "cutile",
    "HELION_CACHE_DIR": "helion",
    "TVM_FFI_CACHE_DIR": "tvm_ffi",
}
SETTINGS = {
    "TRITON_DISABLE_LINE_INFO": "0",
    "TRITON_CACHE_AUTOTUNING": "1",
    "CUTE_DSL_LINEINFO": "1",
    "CUPY_CACHE_SAVE_CUDA_SOURCE": "1",
}
# Two processes take turns on the cores. glibc keeps what is freed, where it would give large blocks
# back: the page faults of the next ones were a third of the time of a try with 33 M elements.
ON_CPU = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
}
NVCC_FLAGS = "NVCC_APPEND_FLAGS"
OWN_FLAGS = "-lineinfo --default-stream=per-thread"  # no graph can capture the legacy stream


def compiler_environment(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Make the variables of compilers, beside the user's ``environment``: nvcc has OWN_FLAGS after
    the user's. Links are followed: an extension is built anew where its path is another.
    """
    flags = f"{environment.get(NVCC_FLAGS, '')} {OWN_FLAGS}".strip()
    folders = {name: str((folder / below).resolve()) for name, below in FOLDERS.items()}
    return {**folders, **SETTINGS, NVCC_FLAGS: flags}


POLL_SECONDS = 0.05
STOP_SECONDS = 60.0
MAIN = "workbench.run.worker.job_worker"
MODULES = {
    SessionsJob: "workbench.run.worker.session_forks",
    ShipJob: "workbench.run.worker.shipping",
    TrialJob: "workbench.run.worker.trial_worker",
}

# What faulthandler writes of a process, and the user's lines in it, the innermost first.
LINES = re.compile(
    r"(?:Fatal Python error: .*\n\n)?^(?:Current thread|Thread|Stack) .*most recent call first.*\n"
    r"(?:  .*\n?)+(?:\nExtension modules: .*\n?)?",
    re.MULTILINE,
)
FRAME = re.compile(r'^  File "[^"]*/kernels/[^/"]+/([^"]+)", line (\d+)', re.MULTILINE)
DUMP_SECONDS, LINES_SECONDS = 0.5, 3.0  # for a process that hangs to tell its lines: one, at most

E = TypeVar("E", bound=Event)


@dataclass(frozen=True)
class WorkerEnd:
    """How a worker ended: its events, and who had the GPU when it did not end by itself."""

    events: list[Event]
    returncode: int
    silent_for: float = 0.0  # seconds after which it was stopped; 0 where it was not for that
    too_large: int = 0  # bytes of memory above which it was stopped; 0 where it was not for that
    interrupted: bool = False
    current: str = ""
    log: str = ""

    @property
    def finished(self) -> bool:
        return any(isinstance(event, Done) for event in self.events)

    @property
    def has_failed(self) -> bool:
        """Whether who had the GPU had failed before, as one does that breaks the CUDA context."""
        return any(event.variant == self.current for event in self.of(Failed))

    @property
    def line(self) -> str:
        """The user's line at which it crashed or hung, such as ``fix1.py:12``; "" for none."""
        files = [frame for dump in LINES.findall(self.log) for frame in FRAME.findall(dump)[:1]]
        return f"{files[-1][0]}:{files[-1][1]}" if files else ""

    @property
    def said(self) -> str:
        """The text that it printed, without its lines."""
        return LINES.sub("", self.log)

    def why(self, where: str = "") -> str:
        """How it ended, in words, its own last ones among them."""
        text = f": {said}" if (said := quoted(self.said)) else ""
        place = ", ".join(filter(None, (where, self.line)))
        if not (self.silent_for or self.too_large):
            how = ", ".join(filter(None, (place, f"exit {self.returncode}")))
            return f"{'crashed' if self.returncode else 'ended'} its process ({how}){text}"
        place = f" ({place})" if place else ""
        if self.silent_for:
            return f"hangs: nothing came for {self.silent_for:g} s{place}{text}"
        return f"takes more than {self.too_large / 2**30:.1f} GiB of memory{place}{text}"

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


@dataclass
class Tail:
    """New text of a growing file, ``at_once`` so many bytes at most."""

    path: Path
    position: int = 0
    at_once: int = -1
    rest: str = field(default="")
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def new_text(self) -> str:
        if not self.path.exists():
            return ""
        with self.path.open("rb") as file:
            file.seek(self.position)
            data = file.read(self.at_once)
        self.position += len(data)
        return self.decoder.decode(data)  # a letter may be half there

    def lines(self) -> Iterator[str]:
        text = self.rest + self.new_text()
        *whole, self.rest = text.split("\n")
        yield from whole


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


def worker_environment(cubins: Path) -> dict[str, str]:
    """The user's own, with this package importable and this Python first on PATH, or that of
    ``WORKERS_OF``.

    ``python3`` is called by its bare name: ncu writes its command line into every report.
    """
    toolchain = WORKERS_OF.get()
    ncu = [str(Path(tool).parent)] if (tool := machine.find_ncu()) else []
    package = str(Path(__file__).resolve().parents[2])
    paths = [package, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    paths = [str(toolchain.links)] if toolchain else paths
    programs = toolchain.paths if toolchain else (str(Path(sys.executable).parent),)
    return {
        **os.environ,
        **compiler_environment(cubins.resolve(), os.environ),
        "PYTHONPATH": os.pathsep.join(map(os.path.realpath, paths)),
        "PATH": os.pathsep.join([*programs, os.environ.get("PATH", ""), *ncu]),
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # as NVML counts
        CUBIN_FOLDER: str(cubins / BUILDS),
        PARENT: str(os.getpid()),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


class Worker:
    """A worker process in ``scratch``, under ``prefix`` (an ncu command line) where given.

    Workers that share ``cubins`` compile each kernel once.
    """

    def __init__(
        self, scratch: Path, job: Job, prefix: list[str] | None = None, cubins: Path | None = None
    ) -> None:
        for name in (EVENTS, CURRENT, TURN, WAITING, LOG):
            (scratch / name).unlink(missing_ok=True)
        write_job(scratch / JOB, job)
        module = MODULES.get(type(job), MAIN)
        environment = worker_environment(cubins or scratch)
        if isinstance(job, VariantsJob | TrialJob) and job.on_cpu:
            environment = ON_CPU | environment
        self.scratch = scratch
        # ncu tells how far it is; what a variant prints says nothing of whether it will ever end.
        self.under_ncu = prefix is not None
        self.events: list[Event] = []
        self.pieces: list[str] = []
        self.tail, self.log = Tail(scratch / EVENTS), Tail(scratch / LOG, at_once=bounds.LOG)
        with (scratch / LOG).open("wb") as output:
            self.process = subprocess.Popen(
                [*(prefix or []), "python3", "-m", module, JOB],
                cwd=scratch,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def give_turn(self, variants: list[str]) -> None:
        write_turn(self.scratch, variants)

    def drain(self, on_event: Callable[[Event], None]) -> bool:
        text = self.log.new_text()
        if text:
            kept = self.pieces if self.log.position <= bounds.LOG else self.pieces[:-1]
            self.pieces = [*kept, text]
        fresh = [decode(line) for line in self.tail.lines()]
        self.events.extend(fresh)
        for event in fresh:
            on_event(event)
        return bool(fresh or (text and self.under_ncu))

    def allowed(self, limit_seconds: float) -> float:
        """Say how long it may be silent, by its last event; a variant has ``limit_seconds``."""
        last = self.events[-1] if self.events else None
        if last is None or isinstance(last, Hello):
            return max(limit_seconds, bounds.STARTING_SECONDS)
        is_compiling = isinstance(last, Start) and last.compiling
        return max(limit_seconds, bounds.COMPILING_SECONDS if is_compiling else 0.0)

    def watch(self, limit_seconds: float, on_event: Callable[[Event], None]) -> WorkerEnd:
        """Wait for its end.

        ``limit_seconds`` is the longest silence allowed: no event, and no output of ncu; a front
        end that compiles at the first call may take longer. Ctrl-C
        stops the worker and lets ncu write what it has; the outcome says ``interrupted``.
        """
        silent_for, interrupted, too_large, most = 0.0, False, 0, memory_of_a_worker()
        last = time.monotonic()
        try:
            while exit_code(self.process, 0.0) is None:
                if self.drain(on_event):
                    last = time.monotonic()
                if not self.under_ncu and any(isinstance(one, Done) for one in self.events[-1:]):
                    break  # the end of the interpreter takes a second more
                allowed = self.allowed(limit_seconds)
                size, largest = self.memory()
                is_late = time.monotonic() - last > allowed
                if self.ended_comparing(largest if size > most else 0, is_late=is_late):
                    last = time.monotonic()
                    continue
                too_large = most if size > most else 0
                if too_large or is_late:
                    silent_for = 0.0 if too_large else allowed
                    self.tell_lines()
                    self.stop(signal.SIGKILL)
                    break
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            interrupted = True
            self.stop(signal.SIGTERM)
        finally:
            self.kill()
        self.drain(on_event)
        current = self.scratch / CURRENT
        name = current.read_text().strip() if current.exists() else ""
        return WorkerEnd(
            events=self.events,
            returncode=self.process.returncode,
            silent_for=silent_for,
            too_large=too_large,
            interrupted=interrupted,
            current=name,
            log="".join(self.pieces),
        )

    @property
    def inside(self) -> list[int]:
        """The worker's own process, where ncu is around it or not, as soon as it has said so."""
        return [event.pid for event in self.events[:1] if isinstance(event, Hello)]

    def ended_comparing(self, too_large: int, *, is_late: bool) -> bool:
        """Kill the process that compares where it is ``too_large``, or ``is_late`` and does not
        wait for a variant's. It writes its lines before, and the worker tells of its end.
        """
        is_stuck = is_late and not (self.scratch / WAITING).exists()
        for pid in [event.pid for event in self.events[1:] if isinstance(event, Hello)]:
            if pid == too_large or (is_stuck and memory_of(pid)):  # one that has ended has none
                self.write_lines(pid)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                return True
        return False

    def memory(self) -> tuple[int, int]:
        """The bytes in memory of the worker, or of a process that it forked, if that has more; and
        which process has them.
        """
        each = (self.process.pid, *self.inside, *self.forks)
        return max((memory_of(pid), pid) for pid in each)

    @property
    def forks(self) -> list[int]:
        pid = self.process.pid
        with suppress(OSError):
            return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
        return []

    def stop(self, how: signal.Signals) -> None:
        """Stop the worker itself first, so that an ncu around it can still write its report."""
        for pid in {*self.inside} - {self.process.pid}:
            with suppress(ProcessLookupError):
                os.kill(pid, how)
            exit_code(self.process, STOP_SECONDS)

    def tell_lines(self) -> None:
        """Let those that may hang write their lines to the log, one after the other."""
        for pid in [] if self.under_ncu else self.forks:
            self.write_lines(pid)
        with suppress(ProcessLookupError):
            (os.killpg if self.under_ncu else os.kill)(self.process.pid, WHERE)
        exit_code(self.process, DUMP_SECONDS)

    def write_lines(self, pid: int) -> None:
        """Ask a process for its lines, and wait until they are in the log."""
        with suppress(ProcessLookupError):
            os.kill(pid, WHERE)
        text, until = "", time.monotonic() + LINES_SECONDS
        while not LINES.search(text) and time.monotonic() < until:
            if exit_code(self.process, DUMP_SECONDS / 4) is not None:
                break
            text += self.log.new_text()
        exit_code(self.process, DUMP_SECONDS / 4)  # for the rest of them
        self.pieces.append(text + self.log.new_text())

    def kill(self) -> None:
        kill_tree(self.process.pid)
        exit_code(self.process)


@cache
def memory_of_a_worker() -> int:
    """The most bytes of this machine's, or of this container's."""
    most = os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE
    for file in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # "max" is none
            most = min(most, int(Path("/sys/fs/cgroup", file).read_text()))
    return int(most * bounds.WORKER_MEMORY)


def run_worker(
    scratch: Path, job: Job, limit_seconds: float, on_event: Callable[[Event], None]
) -> WorkerEnd:
    return Worker(scratch, job).watch(limit_seconds, on_event)


NCU_LOG, OUTPUT = "ncu.log", "output"  # in the folder of a run
KEPT = 1 << 16  # characters of the program's output, the last ones
TELL_SECONDS = 8.0  # between two lines that say how far it is
QUIET_SECONDS = 60.0  # without a new kernel, after which the likely reason is named
PROGRAM_STOP_SECONDS = 20.0  # for ncu to write its report after Ctrl-C
PROFILED = "==PROF== Profiling "
STUCK = "no kernel has ended for a minute: kernels that wait for each other never end under ncu"


@dataclass(frozen=True)
class ProgramEnd:
    """``returncode`` is ncu's, which passes the program's on."""

    returncode: int
    log: str
    output: str
    interrupted: bool


def run_program(
    command: Sequence[str], folder: Path, tell: Callable[[str], None], *, echo: bool
) -> ProgramEnd:
    """Run a command of ncu whose log is NCU_LOG in ``folder``. ``echo`` passes the program's output
    to stderr. Ctrl-C reaches both as in a terminal: ncu then writes what it has.
    """
    with suppress(OSError, ValueError):
        os.lseek(0, 0, os.SEEK_SET)  # a file as its input is read anew by each run
    terminal = os.isatty(0)  # a session of its own may not read that
    with (folder / OUTPUT).open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if terminal else None,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    log, printed = Tail(folder / NCU_LOG), Tail(folder / OUTPUT, at_once=KEPT)
    texts, interrupted, launches, kept = [""], False, 0, ""
    told = changed = time.monotonic()

    def drain() -> None:
        nonlocal kept, launches, changed
        while text := printed.new_text():
            kept = (kept + text)[-KEPT:]
            if echo:
                sys.stderr.write(text)
                sys.stderr.flush()
        if text := log.new_text():
            texts.append(text)
            launches += text.count(PROFILED)
            changed = time.monotonic()

    try:
        while exit_code(process, POLL_SECONDS) is None:
            drain()
            if time.monotonic() - told > TELL_SECONDS:
                told = time.monotonic()
                count = f"{launches:,} launches so far" if launches else "no kernel so far"
                tell(STUCK if told - changed > QUIET_SECONDS else count)
    except KeyboardInterrupt:
        interrupted = True
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        exit_code(process, PROGRAM_STOP_SECONDS)
    finally:
        kill_tree(process.pid)
        exit_code(process)
    drain()
    return ProgramEnd(process.returncode or 0, "".join(texts), kept, interrupted)


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
