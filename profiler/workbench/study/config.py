"""``workbench.toml``: read strictly, so that a misspelt key never passes for a setting."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from workbench.errors import UsageError, nearest


@dataclass(frozen=True)
class Gates:
    min_speedup: float = 1.03
    allow_warnings: bool = False
    allow_spills: bool = False


@dataclass(frozen=True)
class Timing:
    rounds: int = 100
    seconds: float = 15.0
    graph_microseconds: float = 500.0
    bootstrap_samples: int = 2000


@dataclass(frozen=True)
class Limits:
    seconds_per_step: float = 120.0
    seconds_per_capture: float = 300.0


@dataclass(frozen=True)
class Profiler:
    set: str = "full"
    clock_control: str = "none"
    cache_control: str = "all"
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


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}", hint="mend the line named") from None


def check_keys(path: Path, table: str, found: dict[str, Any], known: list[str]) -> None:
    """Raise UsageError for the first key of ``found`` that is not known."""
    for key in found:
        if key not in known:
            where = f"{table}.{key}" if table else key
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
        elif want is float and type(value) in (int, float):
            values[key] = float(value)
        elif want in (int, bool, str) and type(value) is want:
            values[key] = value
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            values[key] = tuple(value)
        else:
            name = getattr(want, "__name__", "list of strings")
            raise UsageError(f"{path}: '{where}' must be of type {name}, not {value!r}")
        if where in CHOICES and value not in CHOICES[where]:
            known = CHOICES[where]
            raise UsageError(f"{path}: '{where}' is {value!r}", hint=nearest(str(value), known))
        if want in (int, float) and type(value) is not bool and not values[key] > 0:
            raise UsageError(f"{path}: '{where}' must be above zero, not {value!r}")
    return kind(**values)


def read_config(path: Path) -> Config:
    """Raises UsageError naming the file and the key for anything that is not a known setting."""
    result = _fill(Config, path, "", read_toml(path))
    assert isinstance(result, Config)
    return result
