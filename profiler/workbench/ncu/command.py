"""The command line of Nsight Compute, the NVTX ranges it looks for, what it prints, and names of
kernels that are the same in every process.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import EnvironmentLacks, ToolFailed, WorkbenchError

if TYPE_CHECKING:  # doctor runs where a package of this module's is missing
    from workbench.study.config import Profiler

REPORT = "capture.ncu-rep"
INTERVAL = "--pm-sampling-interval"


def flags(settings: Profiler) -> list[str]:
    """List the options that decide which numbers ncu collects; every capture records them."""
    options = {
        "--set": settings.set,
        "--import-source": "yes",
        "--clock-control": settings.clock_control,
        "--cache-control": settings.cache_control,
        "--replay-mode": "kernel",
    }
    return [*chain(*options.items()), *settings.extra_flags]


def counting(recorded: Sequence[str]) -> tuple[str, ...]:
    """Leave out the interval of PM samples: captures that differ in it alone count the same."""
    return tuple(
        flag
        for before, flag in zip(("", *recorded), recorded, strict=False)
        if before != INTERVAL and flag.partition("=")[0] != INTERVAL
    )


def command(ncu: str, settings: Profiler) -> list[str]:
    """The ncu prefix of a worker's command line, run in the worker's scratch directory."""
    profiled = ["--nvtx", "--nvtx-include", f"regex:{RANGE_PREFIX}.*/"]
    sources = ["--source-folders", ".", "--target-processes", "application-only"]
    return [ncu, *flags(settings), *sources, *profiled, "--force-overwrite", "--export", REPORT]


LISTED = 20_000  # launches of a program that are timed, at some milliseconds each
_ALL = ["--target-processes", "all", "--force-overwrite"]


def listing(ncu: str, report: str, log: str, clocks: str = "") -> list[str]:
    """The ncu prefix of a program whose launches are timed and not replayed: nothing is flushed.
    ``clocks`` is the clock control of a variant to be compared, whose cycles are counted too; else
    nothing is locked. nsys would cost less, and is not there where ncu is.
    """
    metrics = "gpu__time_duration.sum" + ",gpc__cycles_elapsed.avg.per_second" * bool(clocks)
    quick = ["--section", "LaunchStats", "--metrics", metrics, "--apply-rules"]
    natural = ["no", "--clock-control", clocks or "none", "--cache-control", "none"]
    limit = ["--launch-count", str(LISTED)]
    return [ncu, *quick, *natural, *limit, *_ALL, "--export", report, "--log-file", log]


def profiling(
    ncu: str,
    settings: Profiler,
    report: str,
    log: str,
    kernels: Iterable[str],
    calls: Iterable[int],
) -> list[str]:
    """The ncu prefix of a program of which the kernels of these names are profiled, each at these
    of its calls, which count from 1. A name matches where it differs in what is no word.
    """
    names = "|".join(dict.fromkeys(re.sub(r"\W", ".", name) for name in kernels))
    numbers = "|".join(map(str, sorted(set(calls))))
    chosen = ["--kernel-id", f"::regex:^({names})$:^({numbers})$", "--source-folders", "."]
    return [ncu, *flags(settings), *chosen, *_ALL, "--export", report, "--log-file", log]


RANGE_PREFIX = "workbench:"


def range_name(study: str, variant: str, shape: str) -> str:
    """The NVTX range around a variant's launches: evidence never depends on launch order."""
    return f"{RANGE_PREFIX}{study}/{variant}/{shape}"


def nvtx_ranges(action: Any) -> list[str]:
    """The workbench ranges that were open around a launch of a report."""
    state = action.nvtx_state()
    if state is None:
        return []
    ranges = (state.domain_by_id(each).push_pop_ranges() for each in state.domains())
    return [name for names in ranges for name in names if name.startswith(RANGE_PREFIX)]


_FAULT = re.compile(
    r"error|failed to|terminate called|what\(\)|segmentation fault|aborted", re.IGNORECASE
)
QUOTED = 300  # characters of a line that is quoted


def error_lines(log: str) -> list[str]:
    """List what ncu itself reports; that the application failed is no cause."""
    lines = (line.strip() for line in log.splitlines())
    return [
        line[:QUOTED]
        for line in lines
        if line.startswith("==ERROR==") and "application returned an error code" not in line
    ]


def quoted(log: str) -> str:
    """The line of a process's output that says best why it ended, "" where none does."""
    parts = [line.strip()[:QUOTED] for line in log.splitlines() if _FAULT.search(line)]
    return next(iter(error_lines(log)), parts[-1] if parts else "")


_APPLICATION = re.compile(r"application returned an error code \((\d+)\)")


def application_code(log: str) -> int | None:
    """The exit code of the profiled program, where that failed and ncu says so."""
    match = _APPLICATION.search(log)
    return int(match[1]) if match else None


def got_no_counters(log: str) -> bool:
    """Whether the machine keeps ncu from profiling; then ncu ends the process."""
    return known_error(log, "ncu") is not None


def saw_no_kernel(log: str) -> bool:
    """Whether it worked, and there was nothing to profile: it says so after an error too."""
    return "No kernels were profiled" in log and not error_lines(log) and not got_no_counters(log)


def no_kernel() -> ToolFailed:
    return ToolFailed(
        "ncu saw no kernel inside the variant's range",
        hint="does its run() launch on torch's current stream, in this process?",
    )


def failure(log: str) -> WorkbenchError:
    """Make an error of what ncu's output says went wrong, with the way out."""
    errors = error_lines(log)
    if entry := known_error(log, "ncu"):
        return EnvironmentLacks("\n".join([entry.means, *errors[:3]]), hint=entry.hint)
    if saw_no_kernel(log):
        return no_kernel()
    tail = errors[:5] or log.strip().splitlines()[-5:]
    return ToolFailed("ncu failed: " + "\n".join(tail), hint="`workbench doctor` checks ncu")


VARIANT_MODULE = "workbench_variant"
# A module is loaded more than once in a process, each time under another number, which Numba puts
# into the names of its kernels: _ZN30workbench_variant_2_with_numba4siluB2v3B96cw51...
NUMBERED = re.compile(rf"\d+({VARIANT_MODULE}_)\d+_")
# And the number of the compilation: the ABI tag that numba/cuda/itanium_mangler.py makes of a uid.
COMPILATION = re.compile(r"B(\d+)v(\d+)(?=[BE])")


def variant_module(number: int, variant: str) -> str:
    """Name the module of a variant that is loaded for the ``number``-th time in this process."""
    return f"{VARIANT_MODULE}_{number}_{variant}"


def lasting_kernel(mangled: str) -> str:
    """The mangled name without the numbers that modules and compilations have in a process."""
    if NUMBERED.search(mangled) is None:
        return mangled
    numberless = NUMBERED.sub(r"\1", mangled)
    return COMPILATION.sub(lambda m: "" if int(m[1]) == len(m[2]) + 1 else m[0], numberless)


@dataclass(frozen=True)
class KnownError:
    tool: str
    texts: list[str]
    means: str
    hint: str
    source: str


@cache
def known_errors() -> list[KnownError]:
    data = tomllib.loads(Path(__file__).with_name("support.toml").read_text(encoding="utf-8"))
    return [KnownError(**entry) for entry in data["error"]]


def known_error(text: str, tool: str = "") -> KnownError | None:
    """The first entry that a tool's output has a text of; of this ``tool`` alone where named."""
    fits = (e for e in known_errors() if tool in ("", e.tool) and any(t in text for t in e.texts))
    return next(fits, None)
