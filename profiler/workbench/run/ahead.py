"""Compiles many variants at once, ahead of the worker that builds them one by one.

What is compiled is passed on as cubins; whatever goes wrong here is told there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import structs

from workbench.run.process import Worker
from workbench.run.protocol import VariantsJob

CORES = 2  # of a worker, whose compiler is not alone in its process
FEWEST = (
    3  # variants that are worth a worker more: importing torch takes as long as a kernel or two
)
MOST = 8


def workers_for(variants: Sequence[str]) -> int:
    """How many compile so many variants; 1 is none ahead."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return max(1, min(MOST, cores // CORES, len(variants) // FEWEST))


def compile_ahead(scratch: Path, job: VariantsJob, limit: float) -> None:
    """``job`` is the one of building; its variants are dealt out to several workers."""
    count = workers_for(job.variants)
    if count < 2:
        return
    workers: list[Worker] = []
    try:
        for number in range(count):
            folder = scratch / f"ahead-{number}"
            shutil.copytree(scratch / "kernels", folder / "kernels")
            part = structs.replace(job, variants=job.variants[number::count])
            workers.append(Worker(folder, part, cubins=scratch))
        with ThreadPoolExecutor(count) as pool:
            try:
                list(pool.map(lambda worker: worker.watch(limit, lambda event: None), workers))
            except BaseException:
                for worker in workers:  # so that the threads that watch them end
                    worker.kill()
                raise
    finally:
        for worker in workers:
            worker.kill()
