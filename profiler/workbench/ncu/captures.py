"""The tables of a report's launches: with them the report is not decoded again, or not kept.

``ncu_report`` takes tens of milliseconds a launch, and as long again for its lines. Tables belong
to one report, by its sha256. A metric that they lack is not collected. Their own checksum finds
damage, and no forgery: whoever changes them can write it, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import msgspec

from workbench.errors import BadCapture, EnvironmentLacks, WorkbenchError
from workbench.evidence.store import CONTENT, EXCHANGED, digest_of
from workbench.ncu.capture import Decoded, KeptTables, Tables, impossible
from workbench.ncu.disassembly import packed
from workbench.ncu.reader import CUT, launches
from workbench.study.files import (
    compressed,
    contents,
    decompressed,
    is_there,
    json_data,
    stands,
    write_bytes,
)

LaunchTables = list[tuple[Tables, Sequence[str]]]
LAUNCHES = b'","launches":'  # what stands between the checksum and the launches
# What begins a launch, and its last part, four fifths of it. No string of JSON holds a bare quote.
LAUNCH, INSTRUCTIONS = b'{"kernel":', b',"instructions":'


class Unusable(ValueError):
    """Why tables cannot stand for their report."""


def tables_of(
    report: Path, kept: Path | None, sha256: str = "", tell: Callable[[str], None] | None = None
) -> LaunchTables:
    """Every launch of a report with its NVTX ranges, from its tables; where these are missing or
    damaged, from the report, and the tables are written again. Without ``kept`` from the report.

    ``sha256`` is the report's where the report is not kept; "" takes any. ``tell`` is reported of
    damaged tables. Raises BadCapture where neither is there, or fits.
    """
    if kept is None:
        if not is_there(report) or digest_of(report) != sha256:
            raise BadCapture(f"{report.name} {EXCHANGED}, or was not kept", hint=CUT)
        return [(Decoded(action, report), ranges) for action, ranges in launches(report)]
    there = is_there(report)
    try:
        tables = _read(kept, report, digest_of(report) if there else sha256)
    except Unusable as error:
        if not there:
            raise BadCapture(f"{kept.name} {error}", hint=CUT) from None
        if tell is not None and stands(kept):
            tell(f"{kept.name} {error}: it was read again from {report.name}")
        tables = [(Decoded(action, report), ranges) for action, ranges in launches(report)]
        data = _packed(tables, report)
        with suppress(OSError, EnvironmentLacks):  # it only saves time
            write_bytes(kept, data)
    return tables


# By checksum: the shapes of a ladder share reports, and each is asked for on its own.
_unpacked: dict[bytes, LaunchTables] = {}


def _read(path: Path, report: Path, sha256: str) -> LaunchTables:
    """Raises Unusable for what is missing, damaged or of another report than that of ``sha256``."""
    if not stands(path):
        raise Unusable("is missing, and its report too")
    try:
        text = decompressed(contents(path))
        head, _, rest = text.partition(CONTENT)
        of = json_data(head + b"}")["of"]["report"]
        if sha256 not in ("", of):
            raise Unusable(f"is of another report than {report.name}")
        checksum, _, body = rest.partition(LAUNCHES)
        if hashlib.sha256(body).hexdigest().encode() != checksum:
            raise Unusable(EXCHANGED)
        if checksum not in _unpacked:
            _unpacked[checksum] = list(_launches(body[:-1]))
        return list(_unpacked[checksum])
    except Unusable:
        raise
    except (WorkbenchError, ValueError, LookupError, TypeError) as error:
        raise Unusable(f"cannot be read: {error}") from None


def _launches(body: bytes) -> Iterator[tuple[KeptTables, Sequence[str]]]:
    """Raises as ``json_data``."""
    texts = body[1:-1].removeprefix(LAUNCH).split(b"," + LAUNCH) if body != b"[]" else []
    for text in texts:
        head, _, instructions = text.removesuffix(b"}").partition(INSTRUCTIONS)
        launch = json_data(LAUNCH + head + b"}", finite=False)  # rules without estimates
        tables = msgspec.convert({**launch, "instructions": instructions}, KeptTables)
        if wrong := impossible(tables.metrics):
            raise Unusable(wrong)
        yield tables, launch["ranges"]


def _packed(tables: LaunchTables, report: Path) -> bytes:
    try:
        rows = [
            {
                "kernel": launch.kernel,
                "ranges": ranges,
                "metrics": launch.metrics,
                "lines": launch.lines,
                "calls": launch.calls,
                "rules": launch.rules,
                "collected": sorted(launch.collected),
                "launched": asdict(launch.launched) if launch.launched else None,
                "instructions": packed(launch.code) if launch.code else None,
            }
            for launch, ranges in tables
        ]
    except BadCapture:
        raise
    except Exception as error:  # whatever ncu_report makes of bytes that are not ncu's
        raise BadCapture(f"{report} cannot be read: {error}", hint=CUT) from None
    body = json.dumps(rows, separators=(",", ":")).encode() + b"}"
    of = json.dumps({"of": {"report": digest_of(report)}}, separators=(",", ":")).encode()
    checksum = hashlib.sha256(body).hexdigest().encode()
    return compressed(of[:-1] + CONTENT + checksum + LAUNCHES + body)
