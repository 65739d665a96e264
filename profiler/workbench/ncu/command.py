"""The command line of Nsight Compute."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from workbench.ncu.ranges import RANGE_PREFIX
from workbench.study.config import MOST_SAMPLES, Profiler

REPORT = "capture.ncu-rep"
INTERVAL = "--pm-sampling-interval"
OWN_MICROSECONDS = 1.5  # ncu 2025.3.1 on an H200, at launches of up to 2.5 ms; longer ones: more
# Compute capabilities at which intervals are in cycles, and ncu's own is 20,000 of them: from the
# rule PMSamplingData of ncu 2025.
IN_CYCLES = ("7.5", "8.0")


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


def sampled(
    settings: Profiler, times: Collection[float | None], compute_capability: str
) -> Profiler:
    """With the interval at which ncu takes about ``samples`` PM samples of the shortest of some
    calls, in whole microseconds; ``times`` are microseconds, None where one is not on record.

    As it is where that is not above ncu's own interval, where the longest call would get more
    samples than ncu takes by itself, and where the user's own flags say an interval.
    """
    known = [time for time in times if time is not None]
    if not settings.samples or not known or len(known) < len(times):
        return settings
    microseconds = math.ceil(min(known) / settings.samples)
    if microseconds <= OWN_MICROSECONDS or max(known) / microseconds > MOST_SAMPLES:
        return settings
    is_given = any(flag.partition("=")[0] == INTERVAL for flag in settings.extra_flags)
    if is_given or compute_capability in IN_CYCLES:
        return settings
    interval = (INTERVAL, str(1000 * microseconds))
    return replace(settings, extra_flags=(*settings.extra_flags, *interval))


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
