"""What this machine has: GPU, driver, ncu, permission to read counters."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from workbench.cuda.build import arch_of
from workbench.errors import EnvironmentLacks
from workbench.evidence.layout import gpu_slug
from workbench.words import INSTALL

NCU_LOCATIONS = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute")
VISIBLE = "CUDA_VISIBLE_DEVICES"
NVIDIA_PARAMS = Path("/proc/driver/nvidia/params")


@dataclass(frozen=True)
class Gpu:
    name: str
    driver: str
    compute_capability: str

    @property
    def slug(self) -> str:
        return gpu_slug(self.name)

    @property
    def arch(self) -> str:
        """What is compiled for it: ``sm_90a``."""
        major, minor = (int(part) for part in self.compute_capability.split("."))
        return arch_of(major, minor)


@lru_cache
def find_gpu() -> Gpu | None:
    """The first GPU that this process may use, as nvidia-smi names it; None where there is none, or
    where ``CUDA_VISIBLE_DEVICES`` hides all of them.
    """
    if shutil.which("nvidia-smi") is None:
        return None
    fields = "name,driver_version,compute_cap,uuid"
    query = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = [[part.strip() for part in line.split(",")] for line in done.stdout.splitlines()]
    found = [each for each in words if len(each) == fields.count(",") + 1]
    if done.returncode != 0 or not found:
        return None
    named = os.environ.get(VISIBLE)
    if named is not None and named.startswith("MIG-"):  # slices are not in this list
        named = None
    by_uuid = {uuid: Gpu(*words) for *words, uuid in found}
    return next((by_uuid[uuid] for uuid in visible(list(by_uuid), named)), None)


def visible(uuids: Sequence[str], named: str | None) -> list[str]:
    """Those that ``CUDA_VISIBLE_DEVICES`` names, by number or by their beginning; as in CUDA, the
    first that is none ends the list. Where it is not set slices come in place of GPUs.
    """
    whole = [uuid for uuid in uuids if not uuid.startswith("MIG-")]
    if named is None:
        return [uuid for uuid in uuids if uuid not in whole] or whole
    found: list[str] = []
    for word in (part.strip() for part in named.split(",")):
        if word.isdigit():
            meant = whole[int(word) : int(word) + 1]
        else:
            meant = [uuid for uuid in uuids if word and uuid.startswith(word)][:1]
        if not meant:
            break
        found += meant
    return found


def is_divided() -> bool:
    """Whether MIG divides a GPU here into slices."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and "(UUID: MIG-" in done.stdout


def foreign_lock(folder: Path) -> Path | None:
    """ncu's lock file in a temporary folder where it belongs to another user, whose files nobody
    may open to write there, root neither (``fs.protected_regular``): ncu then fails with
    InterprocessLockFailed.
    """
    lock = folder / "nsight-compute-lock"
    try:
        owner, mode = lock.lstat().st_uid, folder.stat().st_mode
    except OSError:
        return None
    return lock if owner != os.geteuid() and mode & stat.S_ISVTX else None


@lru_cache
def find_ncu() -> str | None:
    """Path of ncu: on PATH, in the CUDA toolkit, or in the newest Nsight Compute installed."""
    found = shutil.which("ncu")
    if found:
        return found
    for location in map(Path, NCU_LOCATIONS):
        if location.is_file():
            return str(location)
        versions = sorted(location.glob("*/ncu"))
        if versions:
            return str(versions[-1])
    return None


@lru_cache
def ncu_version(ncu: str) -> str | None:
    """Such as ``2025.3.1``; None where ncu does not run."""
    try:
        done = subprocess.run([ncu, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"Version (\d+(?:\.\d+)+)", done.stdout)
    return ".".join(match[1].split(".")[:3]) if match else None


def counters_restricted() -> bool | None:
    """Whether the driver keeps performance counters to root; None where it does not say."""
    try:
        text = NVIDIA_PARAMS.read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(r"RmProfilingAdminOnly:\s*(\d)", text)
    return match[1] == "1" if match else None


def package_version(name: str) -> str | None:
    """Of an installed distribution; None where there is none of this name."""
    try:
        return metadata.version(name)
    except (metadata.PackageNotFoundError, ValueError):
        return None


def missing_packages() -> list[str]:
    """Packages of the ``gpu`` extra that cannot be found."""
    names = {"torch": "torch", "cuda.core": "cuda-core", "zstandard": "zstandard"}
    missing = []
    for module, package in names.items():
        try:
            found = find_spec(module)
        except ModuleNotFoundError:
            found = None
        if found is None:
            missing.append(package)
    return missing


def missing_to_run() -> list[str]:
    """Those of them that building and running need; zstandard is for captures alone."""
    return [name for name in missing_packages() if name != "zstandard"]


def can_measure() -> bool:
    """Whether verbs measure here instead of reading recorded evidence."""
    return find_gpu() is not None and find_ncu() is not None and not missing_packages()


def why_not_calibrating() -> EnvironmentLacks | None:
    """What stands in the way of running on the GPU without ncu; None where nothing does."""
    if find_gpu() is None:
        return _no_gpu("ceilings are measured on the GPU itself")
    missing = missing_to_run()
    return _no_packages(missing) if missing else None


def why_not_measuring() -> EnvironmentLacks:
    """What stands in the way of measuring here, as an error to raise."""
    if find_gpu() is None:
        return _no_gpu("verbs show the recorded evidence here")
    if find_ncu() is None:
        return EnvironmentLacks(
            "ncu was not found on PATH or under /usr/local/cuda",
            hint="install Nsight Compute, or put its folder on PATH",
        )
    return _no_packages(missing_packages())


def _no_gpu(so: str) -> EnvironmentLacks:
    lists = f"lists none that {VISIBLE} names" if VISIBLE in os.environ else "lists none"
    return EnvironmentLacks(
        f"no NVIDIA GPU was found (nvidia-smi {lists})",
        hint=f"{so}; `workbench doctor` says what is missing",
    )


def _no_packages(missing: list[str]) -> EnvironmentLacks:
    return EnvironmentLacks(
        f"Python packages are missing: {', '.join(missing)}",
        hint=INSTALL,
    )
