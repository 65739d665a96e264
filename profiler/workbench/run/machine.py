"""Find out about this machine: GPU, driver, ncu, permission to read counters."""

from __future__ import annotations

import re
import shutil
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from workbench import bounds
from workbench.errors import EnvironmentLacks
from workbench.run.gpu import PACKAGE as NVML_PACKAGE
from workbench.run.gpu import Gpu, gpus, why_none
from workbench.words import INSTALL

NCU_LOCATIONS = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute")


@lru_cache
def find_gpu() -> Gpu | None:
    """Return the first GPU that this process may use (see ``CUDA_VISIBLE_DEVICES``), or None."""
    return next(iter(gpus()), None)


def require_gpu(name: str | None, uuid: str | None) -> None:
    """Raises EnvironmentLacks where a worker runs on another GPU than the one whose evidence is
    written. Slices are distinguished by name: CUDA may report the UUID of the whole GPU.
    """
    here = find_gpu()
    if here is None or not here.uuid or not uuid:
        return
    same = uuid.lower() == here.uuid.lower()
    if here.profile:
        from workbench.evidence.store import gpu_slug  # reads records: not without msgspec

        same = here.slug == gpu_slug(name or "")
    if not same:
        raise EnvironmentLacks(
            f"the worker runs on {name} ({uuid}), and the evidence is that of {here.full_name} "
            f"({here.uuid})",
            hint=f"CUDA_VISIBLE_DEVICES={here.uuid} names the GPU",
        )


@lru_cache
def find_ncu() -> str | None:
    """Path of ncu: on PATH, in the CUDA toolkit, or in the newest Nsight Compute installed."""
    on_path = shutil.which("ncu")
    if on_path:
        return on_path
    for location in map(Path, NCU_LOCATIONS):
        if location.is_file():
            return str(location)
        versions = sorted(location.glob("*/ncu"))
        if versions:
            return str(versions[-1])
    return None


@lru_cache
def ncu_version(ncu: str) -> str | None:
    from workbench.cuda.compiler import ran  # with the whole package

    text = ran([ncu, "--version"], ".", bounds.TOOL_SECONDS)[1]
    match = re.search(r"Version (\d+(?:\.\d+)+)", text)
    return ".".join(match[1].split(".")[:3]) if match else None


def missing_packages() -> list[str]:
    """Packages of the ``gpu`` extra that cannot be found."""
    names = {"torch": "torch", "cuda.core": "cuda-core", "pynvml": NVML_PACKAGE}
    missing = []
    for module, package in names.items():
        try:
            spec = find_spec(module)
        except ModuleNotFoundError:
            spec = None
        if spec is None:
            missing.append(package)
    return missing


def missing_to_run() -> list[str]:
    """List the missing packages that building and running need. NVML's only describes the GPU."""
    return [name for name in missing_packages() if name != NVML_PACKAGE]


def can_measure() -> bool:
    """Whether verbs measure here instead of reading recorded evidence."""
    return find_gpu() is not None and find_ncu() is not None and not missing_packages()


def why_not_measuring() -> EnvironmentLacks:
    """Return why nothing can be measured here, as an error to raise."""
    if find_gpu() is None:
        return _no_gpu()
    if find_ncu() is None:
        return no_ncu()
    return _no_packages(missing_packages())


def no_ncu() -> EnvironmentLacks:
    return EnvironmentLacks(
        "ncu was not found on PATH or under /usr/local/cuda",
        hint="install Nsight Compute, or put its folder on PATH",
    )


def _no_gpu() -> EnvironmentLacks:
    missing = missing_packages()
    if NVML_PACKAGE in missing and shutil.which("nvidia-smi") is not None:
        return _no_packages(missing)  # there may well be one
    return EnvironmentLacks(
        f"no NVIDIA GPU was found ({why_none()})",
        hint="verbs show the recorded evidence here, and --on HOST measures on another; "
        "`workbench doctor` says what is missing",
    )


def _no_packages(missing: list[str]) -> EnvironmentLacks:
    return EnvironmentLacks(f"Python packages are missing: {', '.join(missing)}", hint=INSTALL)
