"""Compiles ahead of the worker that builds and checks, in processes beside it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from workbench.run import machine
from workbench.run.process import Worker
from workbench.run.protocol import VariantsJob
from workbench.study.params import base_name
from workbench.study.sources import named_from
from workbench.study.text import readable_text

MOST_COMPILERS = 6
CORES_EACH = 2  # the worker, the sessions' process and ncu load their libraries meanwhile
FEWEST_VARIANTS = 4  # below which a process that has to import torch first is late


def copy_sources(scratch: Path, folder: Path) -> None:
    """A folder for another worker, with a copy of what a scratch folder has."""
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
    scratch: Path,
    variants: Sequence[str],
    job: Callable[[Sequence[str], str], VariantsJob],
    arch: str = "",
) -> Iterator[int]:
    """Inside, so many processes compile ``variants`` from the last to the first, each its share,
    for whoever shares the cubins of ``scratch``. ``job`` is one of some variants for an
    architecture, which is that of the GPU where none is said. What comes of it is told by the
    worker that asks for the same build.
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
                started.append(Worker(folder, job(share, arch), cubins=scratch))
        yield len(started)
    finally:
        for worker in started:
            worker.kill()
