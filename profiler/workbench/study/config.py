"""``workbench.toml``: read strictly, so that a misspelt key never passes for a setting."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field
from msgspec.structs import replace

from workbench.errors import UsageError
from workbench.study.model import CacheControl, Ladder
from workbench.study.text import TomlTable, convert, read_toml

MaxError = Annotated[float, Meta(gt=0, le=1e6)]
Seconds = Annotated[float, Meta(gt=0, le=86400)]
Sessions = Annotated[int, Meta(gt=0, le=100)]
Margin = Annotated[float, Meta(gt=0, le=10)]


class Gates(TomlTable, frozen=True):
    """``max_error`` is a multiple of the primary reference's error on the same inputs."""

    min_speedup: Annotated[float, Meta(gt=0, le=1000)] = 1.03
    max_error: MaxError = 2.0
    allow_warnings: bool = False
    allow_spills: bool = False


class TimingSettings(TomlTable, frozen=True):
    """``sessions`` processes, and while a verdict stays open as many again, up to ``max_sessions``
    or until ``seconds`` are over; in each ``instances`` of every variant, timed in ``rounds``.
    """

    sessions: Sessions = 5
    max_sessions: Sessions = 15
    instances: Annotated[int, Meta(gt=0, le=1000)] = 4
    rounds: Annotated[int, Meta(gt=0, le=10_000)] = 6
    seconds: Seconds = 120.0
    graph_microseconds: Annotated[float, Meta(gt=0, le=1e6)] = 150.0


class Limits(TomlTable, frozen=True):
    seconds_per_step: Seconds = 120.0
    seconds_per_capture: Seconds = 300.0


class Profiler(TomlTable, frozen=True):
    set: str = "full"
    clock_control: Literal["base", "boost", "force-boost", "none"] = "none"
    cache_control: CacheControl = "none"
    extra_flags: tuple[str, ...] = ()


class CommitGate(TomlTable, frozen=True):
    """When ``workbench gate`` calls a change one: ``margin`` of the chained time and ``counters``
    of a counter, as parts of them. A verdict without a measurement names what the compiler says
    of registers where they differ by more than ``registers`` a thread.
    """

    margin: Margin = 0.02
    counters: Margin = 0.01
    registers: Annotated[int, Meta(gt=0, le=255)] = 16


class Budget(TomlTable, frozen=True):
    """What measuring may take: 0 is no limit and no price.

    ``rate_per_hour`` is the price of a GPU's hour. ``max_gpu_seconds`` is of all that the
    workspace's ledger holds.
    """

    rate_per_hour: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    max_gpu_seconds: Annotated[float, Meta(ge=0, le=1e9)] = 0.0


class Config(TomlTable, frozen=True):
    study: str = ""  # where there is only one, it goes without saying
    gates: Gates = field(default_factory=Gates)
    timing: TimingSettings = field(default_factory=TimingSettings)
    limits: Limits = field(default_factory=Limits)
    profiler: Profiler = field(default_factory=Profiler)
    gate: CommitGate = field(default_factory=CommitGate)
    budget: Budget = field(default_factory=Budget)


def for_study(config: Config, ladder: Ladder) -> Config:
    """With the cache control and the largest error that a study's ladder asks for, if any."""
    if ladder.cache_control:
        profiler = replace(config.profiler, cache_control=ladder.cache_control)
        config = replace(config, profiler=profiler)
    if ladder.max_error is not None:
        config = replace(config, gates=replace(config.gates, max_error=ladder.max_error))
    return config


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
