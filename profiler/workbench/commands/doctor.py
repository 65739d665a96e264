"""``workbench doctor``."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from workbench.commands.options import DoctorOptions
from workbench.commands.printing import Output, show_json
from workbench.cuda import header_folders
from workbench.render.document.machine import Finding, findings
from workbench.run import machine
from workbench.run.gpu import is_divided, look, why_none
from workbench.words import INSTALL

OK, WARN, FAIL = "ok", "warn", "fail"
MIN_FREE_GB = 2.0


def package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def python_row() -> Finding:
    good = sys.version_info >= (3, 11)
    return Finding(
        "Python",
        OK if good else FAIL,
        platform.python_version(),
        "" if good else "install Python 3.11 or newer",
        "read",
    )


def package_row(name: str, needed_for: str, fix: str = INSTALL, *, label: str = "") -> Finding:
    found = package(name)
    result = OK if found else FAIL
    return Finding(label or name, result, found or "missing", "" if found else fix, needed_for)


def gpu_row() -> Finding:
    gpu = machine.find_gpu()
    if gpu is not None:
        text = f"{gpu.name}, compute capability {gpu.compute_capability}"
        return Finding("GPU", OK, text, "", "measure")
    return Finding("GPU", FAIL, "none", why_none(), "measure")


def driver_row() -> Finding:
    found = look().driver
    fix = "" if found else "install NVIDIA's driver"
    return Finding("driver", OK if found else FAIL, found or "none", fix, "measure")


def ncu_row() -> Finding:
    path = machine.find_ncu()
    if path is None:
        return Finding(
            "ncu", FAIL, "not found", "install Nsight Compute, or put ncu on PATH", "measure"
        )
    found = machine.ncu_version(path)
    return Finding(
        "ncu",
        OK if found else FAIL,
        f"{found or 'does not run'} ({path})",
        "" if found else f"run {path} --version to see why",
        "measure",
    )


def permission_row() -> Finding:
    restricted = machine.counters_restricted()
    if restricted is None:
        return Finding(
            "counter permission", WARN, "unknown: the driver does not say", "", "measure"
        )
    if restricted and os.geteuid() != 0:
        return Finding(
            "counter permission",
            FAIL,
            "RmProfilingAdminOnly: 1 (ERR_NVGPUCTRPERM)",
            "run as root, add --cap-add=SYS_ADMIN to the container, or load the driver with "
            "NVreg_RestrictProfilingToAdminUsers=0",
            "measure",
        )
    return Finding(
        "counter permission", OK, f"RmProfilingAdminOnly: {int(restricted)}", "", "measure"
    )


def headers_row() -> Finding:
    folders = header_folders()
    return Finding(
        "CUDA headers",
        OK if folders else FAIL,
        folders[0] if folders else "missing",
        "" if folders else INSTALL,
        "build",
    )


def disk_row() -> Finding:
    free = min(shutil.disk_usage(p).free for p in (Path.cwd(), Path(tempfile.gettempdir()))) / 1e9
    good = free >= MIN_FREE_GB
    return Finding(
        "disk",
        OK if good else WARN,
        f"{free:.0f} GB free",
        "" if good else f"free {MIN_FREE_GB:g} GB or more",
        "measure",
    )


def slices_row() -> Finding:
    divided = is_divided()
    return Finding(
        "MIG",
        WARN if divided else OK,
        "on: a card is divided into slices" if divided else "off",
        "a slice shares power and clocks with its neighbours, and ncu has fewer counters of it; "
        "`nvidia-smi -mig 0` (root) makes one card of them"
        if divided
        else "",
        "measure",
    )


def lock_row() -> Finding:
    """ncu waits for a lock in a file, which another user's may not be opened."""
    foreign = machine.foreign_lock(Path(tempfile.gettempdir()))
    return Finding(
        "ncu lock",
        FAIL if foreign else OK,
        f"{foreign} belongs to another user (InterprocessLockFailed)" if foreign else "free",
        "set TMPDIR to a folder of your own, or have that file removed" if foreign else "",
        "measure",
    )


CHECKS: tuple[Callable[[], Finding], ...] = (
    python_row,
    partial(package_row, "ncu-report", "read", "pip install ncu-report"),
    partial(package_row, "msgspec", "read", "pip install msgspec"),
    gpu_row,
    driver_row,
    ncu_row,
    permission_row,
    partial(package_row, "cuda-core", "build", label="NVRTC (cuda-core)"),
    headers_row,
    partial(package_row, "torch", "build"),
    partial(package_row, "zstandard", "measure"),
    disk_row,
    slices_row,
    lock_row,
)


def works(rows: Sequence[Finding]) -> dict[str, bool]:
    """What works here: reading evidence, building, measuring (which needs the other two)."""
    failed = {row.needed_for for row in rows if row.result == FAIL}
    read = "read" not in failed
    build = read and "build" not in failed
    return {"read": read, "build": build, "measure": build and "measure" not in failed}


def conclusion(can: dict[str, bool]) -> str:
    says = {
        "read": "profile, ablate, report and show on recorded evidence",
        "build": "build",
        "measure": "check, timing and profiling on this GPU",
    }
    yes = [says[k] for k, good in can.items() if good]
    no = [says[k] for k, good in can.items() if not good]
    text = f"works here: {'; '.join(yes) or 'nothing'}"
    return text + (f". Will not work: {'; '.join(no)}" if no else "")


def run(options: DoctorOptions) -> None:
    if options.on is not None:
        return run_on(options, options.on)
    found = [check() for check in CHECKS]
    can = works(found)
    told = conclusion(can)
    if options.json:
        show_json({"rows": found, "works": can, "conclusion": told})
    else:
        out = Output(options.wide, options.markdown)
        out.show(*findings(found, told))
    if not can["read"]:
        raise SystemExit(3)


def run_on(options: DoctorOptions, name: str) -> None:
    """Its own `workbench doctor`. Exit code 3 where it cannot measure."""
    from workbench.commands.streams import note
    from workbench.remote.target import remote_of

    about = remote_of(name, note).look(doctor=True)
    data = json.loads(about.doctor)
    if options.json:
        show_json({"host": about.host, **data})
    else:
        rows = [Finding(**row) for row in data["rows"]]
        told = f"{about.host}: {data['conclusion']}"
        Output(options.wide, options.markdown).show(*findings(rows, told))
    if not data["works"]["measure"]:
        raise SystemExit(3)
