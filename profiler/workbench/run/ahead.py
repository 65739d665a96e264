"""Compiles many variants beside the worker that builds them one by one.

They share their cubins, so that the worker finds compiled what others were faster with. Whatever
goes wrong with a variant is told by the worker.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import structs

from workbench.run.process import Worker
from workbench.run.protocol import VariantsJob
from workbench.study.params import base_name
from workbench.words import Phase

CORES = 2  # of a worker, whose compiler is not alone in its process
FEWEST = 3  # variants of a worker: importing torch takes as long as a kernel or two
MOST = 8


def helpers_for(variants: Sequence[str]) -> int:
    """How many help with so many variants."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return max(0, min(MOST, cores // CORES, len(variants) // FEWEST) - 1)


def declares_kernels(folder: Path, variant: str) -> bool:
    """Whether its module declares kernels, and has no compiler of its own: that may hold locks,
    which who is ended in the middle leaves behind.
    """
    module = folder / f"{base_name(variant)}.py"
    text = module.read_text(encoding="utf-8", errors="replace") if module.is_file() else ""
    return "cuda.kernel(" in text and "cpp_extension" not in text


@contextmanager
def compiling_ahead(scratch: Path, job: VariantsJob) -> Iterator[None]:
    """While the worker of ``job`` builds, from the first variant on, others compile from the last
    one on; they end with it.
    """
    folder = scratch / "kernels" / job.study
    variants = [name for name in job.variants[::-1] if declares_kernels(folder, name)]
    count = helpers_for(variants)
    workers: list[Worker] = []
    try:
        for number in range(count):
            own = scratch / f"ahead-{number}"
            shutil.copytree(scratch / "kernels", own / "kernels")
            part = tuple(variants[number::count])
            only = structs.replace(job, variants=part, phases=(Phase.BUILD,))
            workers.append(Worker(own, only, cubins=scratch))
        yield
    finally:
        for worker in workers:
            worker.kill()
