"""``workbench.toml``: read strictly, so that a misspelt key never passes for a setting."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import UsageError
from workbench.study.text import Rules, fill, read_toml

if TYPE_CHECKING:
    from workbench.study.model import Ladder


@dataclass(frozen=True)
class Gates:
    """``max_error`` is a multiple of the primary reference's error on the same inputs."""

    min_speedup: float = 1.03
    max_error: float = 2.0
    allow_warnings: bool = False
    allow_spills: bool = False


@dataclass(frozen=True)
class Timing:
    """``sessions`` processes, and while a verdict stays open as many again, up to ``max_sessions``
    or until ``seconds`` are over; in each ``instances`` of every variant, timed in ``rounds``.
    """

    sessions: int = 5
    max_sessions: int = 15
    instances: int = 4
    rounds: int = 6
    seconds: float = 120.0
    graph_microseconds: float = 150.0


@dataclass(frozen=True)
class Limits:
    seconds_per_step: float = 120.0
    seconds_per_capture: float = 300.0


@dataclass(frozen=True)
class Profiler:
    set: str = "full"
    clock_control: str = "none"
    cache_control: str = "none"
    extra_flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class CommitGate:
    """When ``workbench gate`` calls a change one: ``margin`` of the chained time and ``counters``
    of a counter, as parts of them; without a measurement so many more ``registers`` a thread.
    """

    margin: float = 0.02
    counters: float = 0.01
    registers: int = 16


@dataclass(frozen=True)
class Budget:
    """What measuring may take: 0 is no limit and no price.

    ``rate_per_hour`` is the price of a GPU's hour. ``max_gpu_seconds`` is of all that the
    workspace's ledger holds.
    """

    rate_per_hour: float = 0.0
    max_gpu_seconds: float = 0.0


@dataclass(frozen=True)
class Config:
    study: str = ""  # where there is only one, it goes without saying
    gates: Gates = field(default_factory=Gates)
    timing: Timing = field(default_factory=Timing)
    limits: Limits = field(default_factory=Limits)
    profiler: Profiler = field(default_factory=Profiler)
    gate: CommitGate = field(default_factory=CommitGate)
    budget: Budget = field(default_factory=Budget)


CHOICES = {
    "profiler.clock_control": ("base", "boost", "force-boost", "none"),
    "profiler.cache_control": ("all", "none"),
}
# Keys of earlier versions, and what to do about them.
GONE = {
    "timing.bootstrap_samples": "take it out: intervals are over [timing] sessions now",
    "profiler.samples": "take it out: ncu decides how often it samples; extra_flags can say it",
}
DAY = 86400.0
MOST = {
    "gates.min_speedup": 1000,
    "gates.max_error": 1e6,
    "timing.sessions": 100,
    "timing.max_sessions": 100,
    "timing.instances": 1000,
    "timing.rounds": 10_000,
    "timing.seconds": DAY,
    "timing.graph_microseconds": 1e6,
    "limits.seconds_per_step": DAY,
    "limits.seconds_per_capture": DAY,
    "gate.margin": 10,
    "gate.counters": 10,
    "gate.registers": 255,
    "budget.rate_per_hour": 1e6,
    "budget.max_gpu_seconds": 1e9,
}


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
    found = read_toml(path)
    result = fill(Config, path, "", found, Rules(MOST, CHOICES, GONE))
    assert isinstance(result, Config)
    timing = result.timing
    if timing.sessions > timing.max_sessions:
        raise UsageError(
            f"{path}: 'timing.sessions' is {timing.sessions}, above 'timing.max_sessions', "
            f"{timing.max_sessions}",
            hint="raise max_sessions, or lower sessions",
        )
    return result
