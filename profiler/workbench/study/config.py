"""``workbench.toml``: read strictly, so that a misspelt key never passes for a setting."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

from workbench.errors import UsageError, nearest
from workbench.study.text import read_text


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
class Config:
    study: str = ""  # where there is only one, it goes without saying
    gates: Gates = field(default_factory=Gates)
    timing: Timing = field(default_factory=Timing)
    limits: Limits = field(default_factory=Limits)
    profiler: Profiler = field(default_factory=Profiler)


CHOICES = {
    "profiler.clock_control": ("base", "boost", "force-boost", "none"),
    "profiler.cache_control": ("all", "none"),
}
# Keys of earlier versions, and what to do about them.
GONE = {
    "timing.bootstrap_samples": "take it out: intervals are over [timing] sessions now",
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
}


def read_toml(path: Path) -> dict[str, Any]:
    """Raises UsageError naming the file for what cannot be read, or is not TOML."""
    try:
        return tomllib.loads(read_text(path))
    except ValueError as error:  # also of a number with more digits than Python reads
        named = isinstance(error, tomllib.TOMLDecodeError)
        hint = "mend the place named" if named else "write a number with fewer digits"
        raise UsageError(f"{path} is not valid TOML: {error}", hint=hint) from None
    except RecursionError:
        raise UsageError(
            f"{path} is not valid TOML here: too deeply nested", hint="nothing in it needs depth"
        ) from None


def is_number(value: object) -> bool:
    """Whether it is an integer or float of TOML that a float can hold: no inf, no nan."""
    most = sys.float_info.max
    return type(value) in (int, float) and -most <= value <= most  # type: ignore[operator]


def check_keys(path: Path, table: str, found: dict[str, Any], known: list[str]) -> None:
    """Raise UsageError for the first key of ``found`` that is not known."""
    for key in found:
        if key not in known:
            where = f"{table}.{key}" if table else key
            if where in GONE:
                raise UsageError(f"{path}: '{where}' is gone", hint=GONE[where])
            raise UsageError(f"{path}: unknown key '{where}'", hint=nearest(key, known))


def _fill(kind: Any, path: Path, table: str, found: dict[str, Any]) -> Any:
    hints = get_type_hints(kind)
    check_keys(path, table, found, [f.name for f in fields(kind)])
    values: dict[str, Any] = {}
    for key, value in found.items():
        where = f"{table}.{key}" if table else key
        want = hints[key]
        if is_dataclass(want):
            if not isinstance(value, dict):
                raise UsageError(f"{path}: '{where}' must be a table", hint=f"write [{where}]")
            values[key] = _fill(want, path, where, value)
        elif want in (int, float) and type(value) in (int, want):
            _check_range(path, where, value)
            values[key] = want(value)
        elif want in (bool, str) and type(value) is want:
            values[key] = value
        elif want not in (int, float, bool, str) and _is_strings(value):
            values[key] = tuple(value)
        else:
            name = want.__name__ if isinstance(want, type) else "list of strings"
            raise UsageError(
                f"{path}: '{where}' must be of type {name}, not {_shown(value)}",
                hint=f"leave '{key}' out for the default",
            )
        _check_text(path, where, values[key])
        if where in CHOICES and value not in CHOICES[where]:
            known = CHOICES[where]
            raise UsageError(f"{path}: '{where}' is {value!r}", hint=nearest(str(value), known))
    return kind(**values)


def _is_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _check_range(path: Path, where: str, value: float) -> None:
    most = MOST[where]
    if is_number(value) and 0 < value <= most:
        return
    raise UsageError(
        f"{path}: '{where}' must be above zero and at most {most:g}, not {_shown(value)}",
        hint=f"leave '{where.rpartition('.')[2]}' out for the default",
    )


def _check_text(path: Path, where: str, value: object) -> None:
    """No control characters: such a value goes into a command line or a file's name."""
    texts = value if isinstance(value, tuple) else (value,)
    if wrong := [text for text in texts if isinstance(text, str) and not text.isprintable()]:
        raise UsageError(
            f"{path}: '{where}' has a character that cannot be printed: {_shown(wrong[0])}",
            hint="take it out",
        )


def for_study(config: Config, cache_control: str) -> Config:
    """With the cache control that a study's ladder asks for; "" leaves the workspace's."""
    if not cache_control:
        return config
    return replace(config, profiler=replace(config.profiler, cache_control=cache_control))


def read_config(path: Path) -> Config:
    """Raises UsageError naming the file and the key for anything that is not a known setting."""
    result = _fill(Config, path, "", read_toml(path))
    assert isinstance(result, Config)
    timing = result.timing
    if timing.sessions > timing.max_sessions:
        raise UsageError(
            f"{path}: 'timing.sessions' is {timing.sessions}, above 'timing.max_sessions', "
            f"{timing.max_sessions}",
            hint="raise max_sessions, or lower sessions",
        )
    return result
