"""``workbench.toml``, read strictly: an unknown key is an error.

docs/reference.md is generated from these records: a line "key: meaning" for each key.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field

from workbench.errors import UsageError
from workbench.study.files import TomlTable, convert, read_toml

Seconds = Annotated[float, Meta(gt=0, le=86400)]
Sessions = Annotated[int, Meta(gt=0, le=100)]
Margin = Annotated[float, Meta(gt=0, le=10)]
Printable = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]*$")]  # in a command line or message


class Gates(TomlTable, frozen=True):
    """Limits of a kept step.

    min_speedup: Lowest allowed lower end of the 95 % interval over the parent's chained time.
    max_error: Largest error, as a multiple of the primary reference's on the same inputs.
    allow_warnings: Keep a step in spite of compiler warnings.
    allow_spills: Keep a step in spite of register spills.
    """

    min_speedup: Annotated[float, Meta(gt=0, le=1000)] = 1.03
    max_error: Annotated[float, Meta(gt=0, le=1e6)] = 2.0
    allow_warnings: bool = False
    allow_spills: bool = False


class TimingSettings(TomlTable, frozen=True):
    """How often each variant is timed.

    sessions: Processes per comparison. An inconclusive verdict adds as many again.
    max_sessions: Most processes per comparison.
    instances: Instances of a variant in a session, each with its own module and buffers.
    rounds: Rounds of a session, each in a new random order.
    seconds: Time limit per shape in seconds. An open verdict then stays inconclusive.
    graph_microseconds: Approximate length of a CUDA graph of repeated calls, in microseconds.
    references_alone: Time the references alone first, for the interference check.
    referee: Time each step from a process in which no variant runs; without, none is kept.
    """

    sessions: Sessions = 5
    max_sessions: Sessions = 15
    instances: Annotated[int, Meta(gt=0, le=1000)] = 4
    rounds: Annotated[int, Meta(gt=0, le=10_000)] = 6
    seconds: Seconds = 120.0
    graph_microseconds: Annotated[float, Meta(gt=0, le=1e6)] = 150.0
    references_alone: bool = True
    referee: bool = True


class Limits(TomlTable, frozen=True):
    """Time limits.

    seconds_per_step: Most seconds for the build or check of one variant.
    seconds_per_capture: Most seconds for the capture of one variant.
    """

    seconds_per_step: Seconds = 120.0
    seconds_per_capture: Seconds = 300.0


class Profiler(TomlTable, frozen=True):
    """Options of ncu.

    set: Section set to collect.
    clock_control: ``--clock-control``. ``none`` leaves the clocks of the GPU unlocked.
    cache_control: ``--cache-control``. ``all`` flushes the caches; ``none`` keeps them.
    extra_flags: Further options, passed unchanged.
    """

    set: Printable = "full"
    clock_control: Literal["base", "boost", "force-boost", "none"] = "none"
    cache_control: Literal["all", "none"] = "none"
    extra_flags: tuple[Printable, ...] = ()


class CommitGate(TomlTable, frozen=True):
    """Smallest differences that ``workbench gate`` reports.

    margin: Fraction of the chained time.
    counters: Fraction of a counter.
    registers: Registers per thread, where nothing was measured.
    """

    margin: Margin = 0.02
    counters: Margin = 0.01
    registers: Annotated[int, Meta(gt=0, le=255)] = 16


class Config(TomlTable, frozen=True):
    """Top of the file.

    study: Study that verbs use without ``--study``. Optional if there is only one.
    gpu: GPU of the evidence that is shown where this machine has none; without it, or without
        evidence of it, the newest.
    """

    study: Printable = ""
    gpu: Printable = ""
    gates: Gates = field(default_factory=Gates)
    timing: TimingSettings = field(default_factory=TimingSettings)
    limits: Limits = field(default_factory=Limits)
    profiler: Profiler = field(default_factory=Profiler)
    gate: CommitGate = field(default_factory=CommitGate)


def read_config(path: Path) -> Config:
    """Raises UsageError naming the file and the key for anything that is not a known setting."""
    result = convert(read_toml(path), Config, path)
    timing = result.timing
    if timing.sessions > timing.max_sessions:
        raise UsageError(
            f"{path}: 'timing.sessions' is {timing.sessions}, above 'timing.max_sessions', "
            f"{timing.max_sessions}",
            hint="raise max_sessions, or lower sessions",
        )
    return result
