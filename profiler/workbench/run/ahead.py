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

MOST_COMPILERS = 6
CORES_EACH = 2  # the worker, the sessions' process and ncu load their libraries meanwhile
FEWEST_VARIANTS = 4  # below which a process that has to import torch first is late


def copy_sources(scratch: Path, folder: Path) -> None:
    """A folder for another worker, with a copy of what a scratch folder has."""
    folder.mkdir(exist_ok=True)
    if not (folder / "kernels").exists():
        shutil.copytree(scratch / "kernels", folder / "kernels")


@contextmanager
def compilers(
    scratch: Path, variants: Sequence[str], job: Callable[[Sequence[str], str], VariantsJob]
) -> Iterator[int]:
    """Inside, so many processes compile ``variants`` from the last to the first, each its share,
    for whoever shares the cubins of ``scratch``. ``job`` is one of some variants for an
    architecture. What comes of it is told by the worker that asks for the same build.
    """
    gpu = machine.find_gpu()
    number = min(MOST_COMPILERS, (os.cpu_count() or 1) // CORES_EACH - 1)
    if gpu is None or len(variants) < FEWEST_VARIANTS:
        number = 0
    started: list[Worker] = []
    try:
        for place in range(number):
            folder = scratch / f"compiler{place}"
            copy_sources(scratch, folder)
            share = list(reversed(variants))[place::number]
            if share and gpu:
                started.append(Worker(folder, job(share, gpu.arch), cubins=scratch))
        yield len(started)
    finally:
        for worker in started:
            worker.kill()
