"""Compiles variants: for a named architecture without a GPU, and ahead of the worker that checks
them, in processes beside it. The folders of workers, with copies of what is compiled.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from workbench.children import temporary_folder
from workbench.errors import EnvironmentLacks, ToolFailed, UsageError, WorkbenchError
from workbench.run import machine
from workbench.run.machine import own_folder
from workbench.run.process import BUILDS, Worker, WorkerEnd, run_worker
from workbench.run.protocol import Broken, Built, ErrorText, Event, Failed, VariantsJob
from workbench.study.files import disk_full, readable_text
from workbench.study.model import Study, base_name
from workbench.study.sources import named_from, source_files
from workbench.words import INSTALL, Parameter, Phase

KEPT_SECONDS = 86400.0  # for shared builds


@contextmanager
def empty_scratch(prefix: str = "workbench-") -> Iterator[Path]:
    """Gone afterwards. Raises EnvironmentLacks where the disk is full."""
    with temporary_folder(prefix) as scratch:
        try:
            yield scratch
        except OSError as error:
            raise disk_full(scratch, error) or error from None


@contextmanager
def scratch_folder(study: Study, cubins: Path | None = None) -> Iterator[Path]:
    """Give a folder with a copy of the study's sources. Compiled kernels are kept in ``cubins``,
    and taken from there, since one command may measure several times.
    """
    with empty_scratch() as scratch:
        if cubins is None:
            (scratch / BUILDS).mkdir()
        else:
            (scratch / BUILDS).symlink_to(cubins.resolve(), target_is_directory=True)
        shutil.copytree(
            study.folder,
            scratch / "kernels" / study.name,
            ignore=shutil.ignore_patterns("__pycache__"),
            ignore_dangling_symlinks=True,  # such as an editor's lock
        )
        yield scratch


def shared_builds(sources: str) -> Path:
    """Return the folder in which this user's processes share what they compile of the ``sources``
    with this digest. Folders that nobody used for a day are deleted.
    """
    folder = own_folder() / "cubins" / sources
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    for other in folder.parent.iterdir():
        with suppress(OSError):  # another process was faster
            if other.stat().st_mtime < time.time() - KEPT_SECONDS:
                shutil.rmtree(other)
    return folder


def params_of(study: Study, variants: Iterable[str]) -> dict[str, dict[str, Parameter]]:
    return {name: dict(study.variants[name].params) for name in variants}


def sources_of(study: Study, variants: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Name the files that the fingerprints of variants cover, with those that the study names."""
    shared = named_from(study.folder, "study.py")
    return {
        name: tuple(path.relative_to(study.folder).as_posix() for path in (*files, *shared))
        for name in variants
        if (files := source_files(study, study.variants[name]))
    }


def build_only(
    study: Study,
    variants: list[str],
    arch: str,
    limit: float,
    on_event: Callable[[Event], None],
    cubins: Path | None = None,
) -> list[Built | Failed]:
    """Compile for ``arch`` in a worker; how it went, variant by variant, in their order.

    ``cubins`` is a folder in which compiled kernels are found again by whoever uses it.

    One that takes its process along costs only itself: the others go on in a fresh worker.
    Raises EnvironmentLacks without torch or cuda-core, ToolFailed where the worker does not come
    as far as a variant, KeyboardInterrupt when it was stopped.
    """
    if missing := machine.missing_to_run():
        raise EnvironmentLacks(
            f"building needs {' and '.join(missing)}: a GPU it does not need, but variants are "
            "imported, and most of them import torch",
            hint=INSTALL,
        )
    results: dict[str, Built | Failed] = {}
    left = list(variants)
    with scratch_folder(study, cubins) as scratch, compilers(scratch, study, left, arch):
        while left:
            outcome = run_worker(scratch, build_job(study, left, arch), limit, on_event)
            if outcome.interrupted:
                raise KeyboardInterrupt
            events = [event for event in outcome.events if isinstance(event, Built | Failed)]
            results |= {event.variant: event for event in events}
            if not outcome.finished:
                if not outcome.current:
                    raise worker_stopped(outcome)
                error = ErrorText(kind="", message=outcome.why())
                culprit = Failed(variant=outcome.current, phase=Phase.BUILD, error=error)
                results[culprit.variant] = culprit
                on_event(culprit)
            left = [name for name in left if name not in results and not outcome.finished]
    return [results[name] for name in variants if name in results]


def build_job(study: Study, variants: Sequence[str], arch: str) -> VariantsJob:
    return VariantsJob(
        study=study.name,
        variants=tuple(variants),
        params=params_of(study, variants),
        phases=(Phase.BUILD,),
        arch=arch,
    )


def worker_stopped(outcome: WorkerEnd) -> WorkbenchError:
    """Return the error of a worker that ended without an answer: its own, if it has one."""
    hint = "`workbench doctor` may say why"
    if broken := outcome.of(Broken):
        error = broken[0].error.error()
        where = f" ({outcome.line})" if outcome.line else ""
        return type(error)(f"the worker stopped: {error.message}{where}", hint=error.hint or hint)
    if outcome.line or outcome.current:
        message = f"{outcome.current or 'the code'} {outcome.why()}"
        return UsageError(message, hint=f"fix {outcome.line or 'it'}, or run the file alone")
    tail = outcome.said.splitlines()[-5:]
    how = "nothing came any more" if outcome.silent_for else f"exit {outcome.returncode}"
    return ToolFailed("\n".join([f"the worker stopped: {how}", *tail]), hint=hint)


MOST_COMPILERS = 6
CORES_EACH = 2  # the worker, the sessions' process and ncu load their libraries meanwhile
FEWEST_VARIANTS = 4  # below which a process that has to import torch first is late


def copy_sources(scratch: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    if not (folder / "kernels").exists():
        shutil.copytree(scratch / "kernels", folder / "kernels")


def has_own_compiler(scratch: Path, variant: str) -> bool:
    """Whether a module, or a file that it names, builds an extension of torch: that holds a lock
    while it does, which a process that is ended in the middle leaves behind.
    """
    modules = (scratch / "kernels").glob(f"*/{base_name(variant)}.py")
    files = (path for module in modules for path in named_from(module.parent, module.name))
    return any("cpp_extension" in readable_text(path) for path in files if path.suffix == ".py")


@contextmanager
def compilers(
    scratch: Path, study: Study, variants: Sequence[str], arch: str = ""
) -> Iterator[int]:
    """Start processes that compile ``variants`` from the last to the first, each its share, for
    every worker that shares the cubins of ``scratch``. Without ``arch`` they compile for the GPU at
    hand. The worker that asks for the same build reports its result.
    """
    gpu = machine.find_gpu()
    arch = arch or (gpu.arch if gpu else "")
    variants = [name for name in variants if not has_own_compiler(scratch, name)]
    number = min(MOST_COMPILERS, (os.cpu_count() or 1) // CORES_EACH - 1)
    if not arch or len(variants) < FEWEST_VARIANTS:
        number = 0
    started: list[Worker] = []
    try:
        for place in range(number):
            folder = scratch / f"compiler{place}"
            copy_sources(scratch, folder)
            share = list(reversed(variants))[place::number]
            if share:
                started.append(Worker(folder, build_job(study, share, arch), cubins=scratch))
        yield len(started)
    finally:
        for worker in started:
            worker.kill()
