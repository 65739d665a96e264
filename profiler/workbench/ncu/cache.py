"""The tables of a report's launches, kept beside it: with them nothing has to be decoded again.

``ncu_report`` takes tens of milliseconds a launch, and as long again for its lines. What is kept
belongs to one report, by its sha256, and to what is read of it now: a metric more in
``metrics.toml``, and it is read again. So it is where its own sha256 does not fit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from workbench.errors import BadCapture, EnvironmentLacks
from workbench.evidence.store import EXCHANGED, digest_of, write_bytes
from workbench.ncu import frames
from workbench.ncu.capture import Capture, Decoded, Extents, Launched, Tables
from workbench.ncu.catalog import needed_metrics
from workbench.ncu.counters import LINE_COUNTERS
from workbench.ncu.disassembly import Code, packed, unpacked
from workbench.ncu.reader import CUT, Wanted, launches, wanted_of

READING = 4  # to be raised where the functions of ncu.capture read something else
LEVEL = 9  # of the compression
Launches = list[tuple[Tables, Sequence[str]]]
CONTENT = b',"content":"'  # what stands before the checksum, and what between it and the launches
LAUNCHES = b'","launches":'
# What begins a launch, and its last part, four fifths of it. No string of JSON holds a bare quote.
LAUNCH, INSTRUCTIONS = b'{"kernel":', b',"instructions":'


@dataclass(frozen=True)
class Kept:
    """One launch from the file; see ``Tables``."""

    kernel: str
    metrics: Sequence[tuple[Any, ...]]
    lines: Sequence[tuple[Any, ...]]
    rules: Sequence[tuple[Any, ...]]
    collected: frozenset[str]
    launched: Launched | None = None
    instructions: bytes = b""
    report: str = ""  # its sha256
    index: int = 0  # among the report's launches

    @cached_property
    def code(self) -> Code | None:
        """Unpacked when it is asked for: most verbs do not look at it."""
        found = json.loads(self.instructions or b"null")
        return unpacked(found, _seen[self.report], self._action) if found else None

    def _action(self) -> Any:
        path = _seen[self.report]
        if digest_of(path) != self.report:
            raise BadCapture(f"{path} {EXCHANGED}", hint=CUT)
        return launches(path)[self.index][0]


class Edited(ValueError):
    """Kept tables whose checksum is not theirs."""


def tables_of(report: Path, kept: Path, tell: Callable[[str], None] | None = None) -> Launches:
    """Every launch of a report with its NVTX ranges: as kept, else read, and kept where that file
    can be written. ``tell`` is told of tables that somebody changed. Raises BadCapture.
    """
    try:
        found = _read(kept, report)
    except Edited as error:
        found = None
        if tell is not None:
            tell(f"{kept.name} {error}: it was read again from {report.name}")
    if found is None:
        found = [(Decoded(action, report), ranges) for action, ranges in launches(report)]
        packed = _packed(found, report)
        with suppress(OSError, EnvironmentLacks):  # it only saves time
            write_bytes(kept, packed)
    return found


def capture_of(every: Launches, wanted: Wanted, report: Path) -> Capture:
    """The wanted launches. Raises BadCapture where there is none."""
    return Capture(report, tuple(wanted_of(every, wanted, report)))


def _belongs_to(report: Path) -> dict[str, Any]:
    read = json.dumps([READING, needed_metrics(), LINE_COUNTERS])
    return {"report": digest_of(report), "reading": hashlib.sha256(read.encode()).hexdigest()}


# By checksum: the shapes of a ladder share reports, and each is asked for on its own.
_unpacked: dict[bytes, Launches] = {}
_seen: dict[str, Path] = {}  # where a report was last, by its sha256


def _read(path: Path, report: Path) -> Launches | None:
    """None where nothing is kept, or nothing that can be read or that fits. Raises Edited."""
    if not report.is_file():
        return None
    try:
        text = frames.whole(path.read_bytes())
        head, _, rest = text.partition(CONTENT)
        of = _belongs_to(report)
        if json.loads(head + b"}")["of"] != of:
            return None
        checksum, _, body = rest.partition(LAUNCHES)
        if hashlib.sha256(body).hexdigest().encode() != checksum:
            raise Edited(EXCHANGED)
        if checksum not in _unpacked:
            _unpacked[checksum] = list(_launches(body[:-1], of["report"]))
        _seen[of["report"]] = report
        return list(_unpacked[checksum])
    except Edited:
        raise
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _launches(body: bytes, report: str) -> Iterator[tuple[Kept, Sequence[str]]]:
    """Raises as ``json.loads``."""
    texts = body[1:-1].removeprefix(LAUNCH).split(b"," + LAUNCH) if body != b"[]" else []
    for index, text in enumerate(texts):
        head, _, instructions = text.removesuffix(b"}").partition(INSTRUCTIONS)
        launch = json.loads(LAUNCH + head + b"}")
        yield _kept(launch, instructions, report, index), launch["ranges"]


def _kept(launch: dict[str, Any], instructions: bytes, report: str, index: int) -> Kept:
    return Kept(
        launch["kernel"],
        [tuple(row) for row in launch["metrics"]],
        [tuple(row) for row in launch["lines"]],
        [_rule(row) for row in launch["rules"]],
        frozenset(launch["collected"]),
        _launched(launch.get("launched")),
        instructions,
        report,
        index,
    )


def _launched(found: dict[str, Any] | None) -> Launched | None:
    """None of tables that were kept before it was read."""
    if found is None:
        return None
    grid, block = _extents(found["grid"]), _extents(found["block"])
    return Launched(found["mangled"], grid, block, found["l2_bytes"])


def _extents(found: list[int] | None) -> Extents | None:
    if found is None:
        return None
    x, y, z = found
    return (x, y, z)


def _rule(row: list[Any]) -> tuple[Any, ...]:
    *texts, estimate, focus = row
    return (*texts, estimate, [(name, value) for name, value in focus])


def _packed(found: Launches, report: Path) -> bytes:
    rows = _rows(found, report)
    body = json.dumps(rows, separators=(",", ":")).encode() + b"}"
    of = json.dumps({"of": _belongs_to(report)}, separators=(",", ":")).encode()
    checksum = hashlib.sha256(body).hexdigest().encode()
    return frames.compressed(of[:-1] + CONTENT + checksum + LAUNCHES + body, LEVEL)


def _rows(found: Launches, report: Path) -> list[dict[str, Any]]:
    try:
        return [_row(launch, ranges) for launch, ranges in found]
    except BadCapture:
        raise
    except Exception as error:  # whatever ncu_report makes of bytes that are not ncu's
        raise BadCapture(f"{report} cannot be read: {error}", hint=CUT) from None


def _row(launch: Tables, ranges: Sequence[str]) -> dict[str, Any]:
    return {
        "kernel": launch.kernel,
        "ranges": ranges,
        "metrics": launch.metrics,
        "lines": launch.lines,
        "rules": launch.rules,
        "collected": sorted(launch.collected),
        "launched": asdict(launch.launched) if launch.launched else None,
        "instructions": packed(launch.code) if launch.code else None,
    }
