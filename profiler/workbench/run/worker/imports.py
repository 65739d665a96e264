"""Imports what variants are about to import, ahead of a fork or while a process waits.

A session is a process of its own: what it had to import itself, each session would again. For
torch.compile that is six seconds on an H200's machine.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from sys import stderr
from typing import Any

from workbench.run.cards import cards
from workbench.study.front_ends import imported_by

DRIVER = "libcuda.so.1"
NOT_INITIALIZED = 3  # CUDA_ERROR_NOT_INITIALIZED of the driver API: nobody has called cuInit
# Read by torch. What was compiled in the check is not again: no pool of compilers is needed, which
# would not live through a fork, and would work beside what is timed. Whether there is a GPU is
# asked of NVML, since asking the driver is as good as using it.
ENVIRONMENT = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


def import_ahead(sources: Iterable[Path]) -> bool:
    """What some sources import from packages, and what torch.compile imports where one calls it. A
    package that cannot be imported is told of by the module that wants it.

    Returns whether a process that is forked now is as one that imports them itself, watched: no
    import has started a thread or called cuInit, none has changed what variants may not change.
    Such changes are put back.
    """
    from workbench.run.worker.seal import Seal

    before, seal = threads(), Seal()
    with capability_without_driver():
        for name in imported_by(sources):
            with redirect_stdout(stderr), suppress(Exception, SystemExit):
                import_module(name)
    is_whole = not seal.broken()
    seal.mend()
    return is_whole and threads() == before and not is_driver_in_use()


@contextmanager
def capability_without_driver() -> Iterator[None]:
    """Where a package asks torch while it is imported what the GPU can do, as those of
    FlashAttention-4 do, nvidia-smi answers: torch would use the driver.
    """
    import torch

    own = torch.cuda.get_device_capability

    def get_device_capability(device: Any = None) -> tuple[int, int]:
        known = None if torch.cuda.is_initialized() or device is not None else _capability()
        return own(device) if known is None else known

    torch.cuda.get_device_capability = get_device_capability
    try:
        yield
    finally:
        torch.cuda.get_device_capability = own


@cache
def _capability() -> tuple[int, int] | None:
    """Of the first GPU that this process may use."""
    found = next((card.compute_capability for card in cards()), "")
    major, dot, minor = found.partition(".")
    return (int(major), int(minor)) if dot and (major + minor).isdigit() else None


def threads() -> int:
    """Of this process, those of libraries among them."""
    return len(list(Path("/proc/self/task").iterdir()))


def is_driver_in_use() -> bool:
    """Whether something in this process has called cuInit: a process forked afterwards cannot."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:  # there is none
        return False
    return bool(driver.cuCtxGetCurrent(ctypes.byref(ctypes.c_void_p())) != NOT_INITIALIZED)
