"""Nsight Compute's own window on a report."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from workbench.errors import EnvironmentLacks, ToolFailed
from workbench.ncu import frames
from workbench.run import machine

VIEWER = "ncu-ui"
OPENS_PACKED = (2026, 2)  # from which version on ncu_report and the window read .ncu-repz
DIES_WITHIN_S = 1.0  # a window that cannot be shown


def find_viewer() -> str | None:
    """Beside ncu, or on PATH; None where there is none."""
    ncu = machine.find_ncu()
    for folder in (Path(ncu).parent, Path(ncu).resolve().parent) if ncu else ():
        if os.access(folder / VIEWER, os.X_OK):
            return str(folder / VIEWER)
    return shutil.which(VIEWER)


def reads_packed(viewer: str) -> bool:
    """Whether it opens compressed reports, by the version of the ncu beside it; unknown is no."""
    beside = Path(viewer).resolve().with_name("ncu")
    version = machine.ncu_version(str(beside)) if beside.is_file() else None
    return version is not None and tuple(map(int, version.split(".")[:2])) >= OPENS_PACKED


def unpacked(report: Path) -> Path:
    """The report as a plain ``.ncu-rep`` in a temporary folder of its own. Raises BadCapture."""
    folder = Path(tempfile.mkdtemp(prefix="workbench-"))
    plain = folder / f"{report.stem}.ncu-rep"
    with plain.open("wb") as file:
        for piece in frames.pieces(report):
            file.write(piece)
    return plain


def show(report: Path, viewer: str) -> Path:
    """Start the window on a report and leave it open; returns the file that it was given. Raises
    EnvironmentLacks without a screen, ToolFailed where it does not start.
    """
    screen = sys.platform != "linux" or os.environ.get("DISPLAY") or os.getenv("WAYLAND_DISPLAY")
    if not screen:
        raise EnvironmentLacks(
            "there is no screen here to open a window on", hint=elsewhere(report)
        )
    given = report
    if frames.is_compressed(report) and not reads_packed(viewer):
        given = unpacked(report)
    nothing = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            [viewer, str(given)],
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            start_new_session=True,
        )
    except OSError as error:
        why = error.strerror or str(error)
        raise ToolFailed(f"{VIEWER} does not start: {why}", hint=elsewhere(report)) from None
    try:
        code = process.wait(DIES_WITHIN_S)
    except subprocess.TimeoutExpired:
        return given
    if code:
        raise ToolFailed(
            f"{VIEWER} ended at once with exit code {code}",
            hint=elsewhere(report),
            ran=f"{viewer} {given}",
        )
    return given


def elsewhere(report: Path) -> str:
    return (
        f"copy {report.resolve()} to a machine with Nsight Compute and a screen, and open it there"
    )
