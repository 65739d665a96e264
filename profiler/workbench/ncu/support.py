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


@cache
def support() -> tuple[list[KnownError], list[Unsupported]]:
    data = tomllib.loads(Path(__file__).with_name("support.toml").read_text(encoding="utf-8"))
    pairs = [Unsupported(**entry) for entry in data["unsupported"]]
    return [KnownError(**entry) for entry in data["error"]], pairs


def known_error(text: str, tool: str = "") -> KnownError | None:
    """The first entry that a tool's output has a text of; of this ``tool`` alone where named."""
    fits = (e for e in support()[0] if tool in ("", e.tool) and any(t in text for t in e.texts))
    return next(fits, None)


def unsupported(component: str, version: str, driver: str, capability: str) -> Unsupported | None:
    """The entry that says why they do not work together; None too where a version is unknown."""
    for entry in support()[1]:
        if entry.component == component and version and not _below(version, entry.since):
            limits = ((driver, entry.driver_below), (capability, entry.capability_below))
            if any(installed and _below(installed, limit) for installed, limit in limits):
                return entry
    return None


def _below(version: str, limit: str) -> bool:
    parts = [[int(part) for part in re.findall(r"\d+", text)] for text in (version, limit)]
    return parts[0] < parts[1]
