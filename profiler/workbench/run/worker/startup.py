"""A worker before it measures: its parent, the turn it waits for, and imports ahead of a fork.

A session is a process of its own: each would import again what its variants import. For
torch.compile that is six seconds on an H200's machine.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from workbench.children import WHERE, end_with, show_memory
from workbench.run.machine import Gpu
from workbench.run.protocol import (
    PARENT,
    TURN,
    Done,
    Hello,
    Job,
    SessionsJob,
    VariantsJob,
    read_job,
    read_turn,
)
from workbench.run.worker.event_log import EventLog, or_broken
from workbench.study.front_ends import imported_by

POLL_SECONDS = 0.02
LOOK_SECONDS = 1.0


class Parent:
    """The process for which this one works; without it nothing may hold a GPU any more."""

    def __init__(self) -> None:
        self.pid = int(os.environ.get(PARENT) or 0)
        self.made_our_group = False
        with suppress(ProcessLookupError):
            self.made_our_group = os.getpgid(self.pid) != os.getpgrp()

    def require(self) -> None:
        """Kill this process if the parent is gone, with an ncu around it and its session."""
        if not self.pid or is_alive(self.pid):
            return
        if self.made_our_group:
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


J = TypeVar("J", bound=Job)


@contextmanager
def job_of(kind: type[J]) -> Iterator[tuple[J, EventLog]]:
    """The job that this process was started for, and the journal that it writes: inside, it does
    all of it. It ends with its parent, for which one that forks has no thread: it looks itself.
    """
    job = read_job(Path(sys.argv[1]))
    assert isinstance(job, kind)
    if not job.forks:
        threading.Thread(target=_look, args=(Parent(),), daemon=True).start()
    faulthandler.enable()  # the log tells at which line it crashed
    faulthandler.register(WHERE, all_threads=False)
    with EventLog(Path.cwd()) as journal, or_broken(journal):
        journal.write(Hello(pid=os.getpid()))
        yield job, journal
        journal.write(Done())


def _look(parent: Parent) -> None:
    while parent.pid:
        parent.require()
        time.sleep(LOOK_SECONDS)


def wait_for_turn() -> tuple[str, ...]:
    """Off the GPU; ends the process with its parent. The next time it waits again."""
    folder, parent = Path.cwd(), Parent()
    while not (folder / TURN).is_file():
        parent.require()
        time.sleep(POLL_SECONDS)
    variants = read_turn(folder)
    (folder / TURN).unlink()
    return variants


def is_alive(pid: int) -> bool:
    """Whether a process runs: one that has ended and that nobody has waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is somebody else's
        pass
    with suppress(OSError, IndexError):
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        return state not in ("Z", "X")
    return True


@contextmanager
def keeping_bytecode() -> Iterator[None]:
    """Keep the bytecode of imports inside, which must be no user's code. Packages that uv installs
    have none, and torch's sources take seconds to compile in every process.
    """
    sys.dont_write_bytecode = False
    try:
        yield
    finally:
        sys.dont_write_bytecode = True


def import_libraries(*, on_cpu: bool = False) -> None:
    """Import what takes long and every worker needs, or every one without a GPU."""
    os.environ.update(ENVIRONMENT)
    with keeping_bytecode():
        import numpy  # noqa: F401
        import torch  # noqa: F401

        if not on_cpu:
            from cuda.core import Program  # noqa: F401

            register_ahead()


ALONE = "--alone"  # nothing is imported ahead


def sources_of(job: VariantsJob | SessionsJob) -> list[Path]:
    folder = Path.cwd() / "kernels" / job.study
    return [folder / name for names in job.sources.values() for name in names]


def import_for_forks(worker: str, job: VariantsJob | SessionsJob, gpus: Sequence[Gpu] = ()) -> None:
    """Import what takes long and forks of this process need. Where an import ahead makes forks
    impossible, the ``worker``, a module, begins again without: each fork imports it then.
    """
    import_libraries(on_cpu=isinstance(job, VariantsJob) and job.on_cpu)
    if ALONE not in sys.argv and not import_ahead(sources_of(job), gpus):
        print("what variants import uses the GPU, starts threads or changes torch", flush=True)
        os.execv(sys.executable, [sys.executable, "-m", worker, *sys.argv[1:], ALONE])


def register_ahead() -> None:
    """Register now the kernels in Triton that torch registers when it first uses the GPU, for most
    of a second: once, and not in every fork. It uses no GPU.
    """
    import torch

    queued = getattr(torch.cuda, "_queued_calls", [])
    for call in list(queued):
        if getattr(call[0], "__name__", "") == "_register_triton_kernels":
            queued.remove(call)
            call[0]()


def forked(work: Callable[[], None]) -> int:
    """Fork a process that does this work alone, and ends with this one. Return its number. What it
    runs may be a variant's: it cannot look into the memory of a process that hides it.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    here, pid = os.getpid(), os.fork()
    if pid:
        return pid
    code = 1
    try:
        show_memory()
        end_with(here, signal.SIGKILL)
        work()
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


DRIVER = "libcuda.so.1"
NOT_INITIALIZED = 3  # CUDA_ERROR_NOT_INITIALIZED of the driver API: nobody has called cuInit
# Read by torch. What was compiled in the check is not again: no pool of compilers is needed, which
# would not live through a fork, and would work beside what is timed. Whether there is a GPU is
# asked of NVML, since asking the driver is as good as using it.
ENVIRONMENT = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


def import_ahead(sources: Iterable[Path], gpus: Sequence[Gpu] = ()) -> bool:
    """Import the packages of some sources, and what torch.compile imports where one calls it.

    A package that cannot be imported is reported by the module that imports it. ``gpus`` are those
    that this process may use.

    Returns whether a process that is forked now is as one that imports them itself, watched: no
        import has started a thread, called cuInit or changed a setting, which is put back.
    """
    from workbench.run.worker.process_settings import own_settings

    before = threads()
    with answers_without_driver(gpus), own_settings("imported ahead") as changed_settings:
        for name in imported_by(sources):
            with redirect_stdout(sys.stderr), suppress(Exception, SystemExit):
                import_module(name)
        with suppress(KeyError, AttributeError):
            # The hash of Triton's library, 0.9 s, which is kept for whoever compiles in a fork.
            sys.modules["triton.runtime.cache"].triton_key()
    return not changed_settings and threads() == before and not is_driver_in_use()


@contextmanager
def answers_without_driver(gpus: Sequence[Gpu]) -> Iterator[None]:
    """While packages are imported, what they ask torch of GPUs, as those of FlashAttention-4 do, is
    answered as NVML has told the parent: torch would use the driver, or NVML, which starts a
    thread. Not where torch is not built for them, or NVML does not know what the first one can do.
    """
    import torch

    functions = {name: getattr(torch.cuda, name) for name in ANSWERS}
    is_answered = gpus and re.fullmatch(r"\d+\.\d+", gpus[0].compute_capability)
    is_answered = is_answered and torch.backends.cuda.is_built()

    def answering(name: str, answer: Callable[[Sequence[Gpu]], object]) -> Callable[..., object]:
        def answered(device: Any = None) -> object:
            if is_answered and device is None and not torch.cuda.is_initialized():
                return answer(gpus)
            return functions[name](*(() if device is None else (device,)))

        return answered

    for name, answer in ANSWERS.items():
        setattr(torch.cuda, name, answering(name, answer))
    try:
        yield
    finally:
        for name, function in functions.items():
            setattr(torch.cuda, name, function)


ANSWERS: dict[str, Callable[[Sequence[Gpu]], object]] = {  # of torch.cuda
    "is_available": bool,
    "device_count": len,
    "get_device_capability": lambda gpus: tuple(map(int, gpus[0].compute_capability.split("."))),
}


def threads() -> int:
    """Count the threads of this process, those of libraries included."""
    return len(list(Path("/proc/self/task").iterdir()))


def is_driver_in_use() -> bool:
    """Whether something in this process has called cuInit: a process forked afterwards cannot."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:  # there is none
        return False
    return bool(driver.cuCtxGetCurrent(ctypes.byref(ctypes.c_void_p())) != NOT_INITIALIZED)
