"""Drives Nsight Compute: its command line, its output, and why it failed."""

from __future__ import annotations

import re
from pathlib import Path

from workbench.errors import BadCapture, EnvironmentLacks, ToolFailed, WorkbenchError
from workbench.study.config import Profiler

RANGE_PREFIX = "workbench:"
REPORT = "capture.ncu-rep"


def range_name(study: str, variant: str, shape: str) -> str:
    """The NVTX range around a variant's launches: evidence never depends on launch order."""
    return f"{RANGE_PREFIX}{study}/{variant}/{shape}"


def flags(settings: Profiler) -> list[str]:
    """What decides which numbers ncu collects; recorded with every capture."""
    return [
        "--set",
        settings.set,
        "--import-source",
        "yes",
        "--clock-control",
        settings.clock_control,
        "--cache-control",
        settings.cache_control,
        "--replay-mode",
        "kernel",
        *settings.extra_flags,
    ]


def command(ncu: str, settings: Profiler) -> list[str]:
    """The ncu prefix of a worker's command line, run in the worker's scratch directory."""
    return [
        ncu,
        *flags(settings),
        "--source-folders",
        ".",
        "--target-processes",
        "application-only",
        "--nvtx",
        "--nvtx-include",
        f"regex:{RANGE_PREFIX}.*/",
        "--force-overwrite",
        "--export",
        REPORT,
    ]


_PASSES = re.compile(r'Profiling "([^"]*)".*?(\d+)%(?!.*%)', re.DOTALL)


def progress(text: str) -> tuple[str, int] | None:
    """Kernel name and percent of its passes done, from the end of ncu's output."""
    start = text.rfind("==PROF== Profiling")
    match = _PASSES.search(text[start:]) if start >= 0 else None
    return (match[1], int(match[2])) if match else None


def failure(log: str) -> WorkbenchError:
    """What ncu's output says went wrong, with the way out."""
    if "ERR_NVGPUCTRPERM" in log:
        return EnvironmentLacks(
            "ncu may not read the GPU's performance counters (ERR_NVGPUCTRPERM)",
            hint="run as root, start the container with --cap-add=SYS_ADMIN, or load the driver "
            "with NVreg_RestrictProfilingToAdminUsers=0 (RmProfilingAdminOnly: 0)",
        )
    if "LibraryNotLoaded" in log or "Failed to initialize the profiler" in log:
        return EnvironmentLacks(
            "ncu could not load the driver's profiling library",
            hint="the container or sandbox hides it; profile on the host or a plain VM",
        )
    if "No kernels were profiled" in log:
        return ToolFailed(
            "ncu saw no kernel inside the variant's range",
            hint="does its run() launch on torch's current stream, in this process?",
        )
    errors = [line for line in log.splitlines() if line.startswith("==ERROR==")]
    tail = errors[:5] or log.strip().splitlines()[-5:]
    return ToolFailed("ncu failed: " + "\n".join(tail), hint="`workbench doctor` checks ncu")


def ranges_in(path: Path) -> dict[str, int]:
    """Number of kernel launches per workbench range in a report. Raises BadCapture."""
    import ncu_report

    counts: dict[str, int] = {}
    try:
        context = ncu_report.load_report(str(path))
        for action in (a for r in context for a in r):
            for name in nvtx_ranges(action):
                counts[name] = counts.get(name, 0) + 1
    except Exception as error:
        raise BadCapture(f"{path.name} cannot be read: {error}") from error
    return counts


def nvtx_ranges(action: object) -> list[str]:
    """The workbench ranges that were open around a launch."""
    state = action.nvtx_state()  # type: ignore[attr-defined]
    found = []
    if state is not None:
        for domain_id in state.domains():
            ranges = state.domain_by_id(domain_id).push_pop_ranges()
            found += [name for name in ranges if name.startswith(RANGE_PREFIX)]
    return found
