"""The CUDA binaries that a report holds, of which ``ncu_report`` gives the disassembly alone.

They are ELF files (System V ABI, 64 bit) that stand whole in the report; their line tables say more
than ``source_info``: through which calls an instruction was inlined.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from workbench.cuda.cubin import MAGIC, sections
from workbench.errors import BadCapture
from workbench.evidence import frames
from workbench.evidence.store import digest_of
from workbench.ncu.line_table import LineTable, line_tables

MOST = 1 << 28  # bytes of a report that are looked through
MOST_LINES = 1 << 22  # bytes of line tables that are read, some seconds each million
LINES, STRINGS = ".debug_line", ".debug_str"


def tables_in(path: Path) -> list[LineTable]:
    """The line tables of all functions in a report; empty where it has none that can be read."""
    return _tables(path, digest_of(path)) if path.is_file() else []


@lru_cache(maxsize=4)
def _tables(path: Path, digest: str) -> list[LineTable]:
    content = _content(path)
    found: list[LineTable] = []
    left = MOST_LINES
    at = content.find(MAGIC)
    while at >= 0:
        with suppress(ValueError, IndexError, struct.error):  # bytes that only begin like one
            tables = _lines(content, at)
            lines = tables.get(LINES, b"")
            left -= len(lines)
            if left > 0:
                found += line_tables(lines, tables.get(STRINGS, b""))
        at = content.find(MAGIC, at + len(MAGIC))
    return found


def _content(path: Path) -> bytes:
    """Uncompressed; empty where that is more than can be looked through."""
    held, size = [], 0
    try:
        if not frames.is_compressed(path):
            return path.read_bytes() if path.stat().st_size <= MOST else b""
        for piece in frames.pieces(path):
            size += len(piece)
            if size > MOST:
                return b""
            held.append(piece)
    except (OSError, BadCapture):
        return b""
    return b"".join(held)


def _lines(content: bytes, at: int) -> dict[str, bytes]:
    """The sections of the lines, by name. Raises ValueError, IndexError or struct.error."""
    return {s.name: s.body for s in sections(content, at) if s.name in (LINES, STRINGS) and s.body}
