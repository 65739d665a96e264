"""``support.toml``: what tools print where a machine lacks something, and combinations of ncu,
CUDA, driver and GPU that do not work.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class KnownError:
    tool: str
    texts: list[str]
    means: str
    hint: str
    source: str


@dataclass(frozen=True)
class Unsupported:
    component: str
    since: str
    why: str
    hint: str
    source: str
    driver_below: str = ""
    capability_below: str = ""


@dataclass(frozen=True)
class SupportTable:
    """See the head of ``support.toml``."""

    errors: list[KnownError]
    unsupported: list[Unsupported]


@cache
def support() -> SupportTable:
    data = tomllib.loads(Path(__file__).with_name("support.toml").read_text(encoding="utf-8"))
    errors = [KnownError(**each) for each in data["error"]]
    return SupportTable(errors, [Unsupported(**each) for each in data["unsupported"]])


def known_error(text: str, tool: str = "") -> KnownError | None:
    """The first entry that a tool's output has a text of; of this ``tool`` alone where named."""
    for entry in support().errors:
        if tool in ("", entry.tool) and any(part in text for part in entry.texts):
            return entry
    return None


def unsupported(component: str, version: str, driver: str, capability: str) -> Unsupported | None:
    """The entry that says why they do not work together; None too where a version is unknown."""
    for entry in support().unsupported:
        if (
            entry.component == component
            and version
            and _parts(version) >= _parts(entry.since)
            and (_below(driver, entry.driver_below) or _below(capability, entry.capability_below))
        ):
            return entry
    return None


def _below(version: str, limit: str) -> bool:
    return bool(limit and _parts(version)) and _parts(version) < _parts(limit)


def _parts(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]
