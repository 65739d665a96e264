"""What ncu prints: how far it is, and why it failed."""

from __future__ import annotations

import re

from workbench.errors import EnvironmentLacks, ToolFailed, WorkbenchError

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
