"""The tables of a report's launches, kept beside it: with them nothing has to be decoded again.

``ncu_report`` takes tens of milliseconds a launch, and as long again for its lines. What is kept
belongs to one report, by its sha256, and to what is read of it now: a metric more in
``metrics.toml``, and it is read again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import EnvironmentLacks
from workbench.evidence.store import write_bytes
from workbench.ncu.capture import LINE_COUNTERS, Capture, Decoded, Tables
from workbench.ncu.catalog import needed_metrics
from workbench.ncu.reader import Wanted, digest_of, launches, wanted_of

READING = 1  # to be raised where the functions of ncu.capture read something else
LEVEL = 9  # of the compression
Launches = list[tuple[Tables, Sequence[str]]]


@dataclass(frozen=True)
class Kept:
    """One launch from the file; see ``Tables``."""

    kernel: str
    metrics: Sequence[tuple[Any, ...]]
    lines: Sequence[tuple[Any, ...]]
    rules: Sequence[tuple[Any, ...]]
    collected: frozenset[str]


def tables_of(report: Path, kept: Path) -> Launches:
    """Every launch of a report with its NVTX ranges: as kept, else read, and kept where that file
    can be written. Raises BadCapture.
    """
    found = _read(kept, report)
    if found is None:
        found = [(Decoded(action), ranges) for action, ranges in launches(report)]
        with suppress(OSError, EnvironmentLacks):  # it only saves time
            write_bytes(kept, _packed(found, report))
    return found


def capture_of(every: Launches, wanted: Wanted, report: Path) -> Capture:
    """The wanted launches. Raises BadCapture where there is none."""
    return Capture(report, tuple(wanted_of(every, wanted, report)))


def _belongs_to(report: Path) -> dict[str, Any]:
    read = json.dumps([READING, needed_metrics(), LINE_COUNTERS])
    return {"report": digest_of(report), "reading": hashlib.sha256(read.encode()).hexdigest()}


def _read(path: Path, report: Path) -> Launches | None:
    """None where nothing is kept, or nothing that can be read or that fits."""
    import zstandard

    if not report.is_file():
        return None
    try:
        data = json.loads(zstandard.ZstdDecompressor().decompress(path.read_bytes()))
        fits = data["of"] == _belongs_to(report)
        return [(_kept(launch), launch["ranges"]) for launch in data["launches"]] if fits else None
    except (OSError, ValueError, LookupError, TypeError, zstandard.ZstdError):
        return None


def _kept(launch: dict[str, Any]) -> Kept:
    return Kept(
        launch["kernel"],
        [tuple(row) for row in launch["metrics"]],
        [tuple(row) for row in launch["lines"]],
        [_rule(row) for row in launch["rules"]],
        frozenset(launch["collected"]),
    )


def _rule(row: list[Any]) -> tuple[Any, ...]:
    *texts, estimate, focus = row
    return (*texts, estimate, [(name, value) for name, value in focus])


def _packed(found: Launches, report: Path) -> bytes:
    import zstandard

    rows = [
        {
            "kernel": launch.kernel,
            "ranges": ranges,
            "metrics": launch.metrics,
            "lines": launch.lines,
            "rules": launch.rules,
            "collected": sorted(launch.collected),
        }
        for launch, ranges in found
    ]
    text = json.dumps({"of": _belongs_to(report), "launches": rows}, separators=(",", ":"))
    return zstandard.ZstdCompressor(level=LEVEL).compress(text.encode())
