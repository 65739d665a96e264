"""The command line of Nsight Compute."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.ncu.ranges import RANGE_PREFIX
from workbench.study.config import Profiler

REPORT = "capture.ncu-rep"
INTERVAL = "--pm-sampling-interval"


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


def counting(recorded: Sequence[str]) -> tuple[str, ...]:
    """Flags without the interval of PM samples: captures that differ in it alone have counted the
    same.
    """
    return tuple(
        flag
        for before, flag in zip(("", *recorded), recorded, strict=False)
        if before != INTERVAL and flag.partition("=")[0] != INTERVAL
    )


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
