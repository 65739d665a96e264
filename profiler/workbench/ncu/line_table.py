"""Find the source lines that an instruction comes from: the line tables of CUDA binaries."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from workbench import bounds
from workbench.cuda.cubin import MAGIC, sections
from workbench.errors import BadCapture
from workbench.evidence.store import digest_of
from workbench.study.files import decompressed_pieces

VERSIONS = (2, 3, 4)
SET_ADDRESS, END_SEQUENCE = 2, 1
INLINED_CALL, FUNCTION_NAME = 0x90, 0x91


class Frame(NamedTuple):
    """A line and the function it stands in as the compiler names it: "" if unknown."""

    file: str
    line: int
    function: str


class LineEntry(NamedTuple):
    """From ``address`` on, in bytes from a function's beginning; ``inlined_at`` is 0 for none."""

    address: int
    frame: Frame
    inlined_at: int


@dataclass(frozen=True)
class LineTable:
    """One function's rows by address; ``every`` row of its program, for ``inlined_at``."""

    rows: tuple[LineEntry, ...]
    every: list[LineEntry] = field(repr=False)

    @cached_property
    def _addresses(self) -> list[int]:
        return [row.address for row in self.rows]

    def entries_at(self, address: int) -> tuple[LineEntry, ...]:
        """The rows that hold for an instruction: where there are several, each but the last is of
        a call, and ``source_info`` gives the first.
        """
        stop = bisect_right(self._addresses, address)
        if not stop:
            return ()
        return self.rows[bisect_left(self._addresses, self._addresses[stop - 1]) : stop]

    def chain(self, address: int) -> tuple[Frame, ...]:
        """The line of an instruction and those of the calls it was inlined through, innermost
        first; empty before the first row.
        """
        rows = self.entries_at(address)
        frames: list[Frame] = []
        row = rows[-1] if rows else None
        while row is not None and len(frames) < len(self.every):
            frames.append(row.frame)
            row = self.every[row.inlined_at - 1] if 0 < row.inlined_at <= len(self.every) else None
        return tuple(frames)


def line_tables(lines: bytes, strings: bytes) -> list[LineTable]:
    """Read a table for each function of a ``.debug_line`` section. Raises ValueError,
    IndexError.
    """
    tables: list[LineTable] = []
    start = 0
    while start < len(lines):
        size = int.from_bytes(lines[start : start + 4], "little")
        if size >= 0xFFFFFFF0 or start + 4 + size > len(lines):
            raise ValueError("a line table of another format, or one that is cut short")
        tables += _program(lines[start : start + 4 + size], strings)
        start += 4 + size
    return tables


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def fixed(self, size: int) -> int:
        self.at += size
        if self.at > len(self.data):
            raise ValueError("cut short")
        return int.from_bytes(self.data[self.at - size : self.at], "little")

    def unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self.fixed(1)
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def signed(self) -> int:
        start = self.at
        value, bits = self.unsigned(), 7 * (self.at - start)
        return value - (1 << bits) if value >> (bits - 1) else value

    def text(self) -> str:
        end = self.data.index(b"\0", self.at)
        text = self.data[self.at : end].decode("utf-8", "replace")
        self.at = end + 1
        return text


@dataclass
class _LineHeader:
    step: int
    line_base: int
    line_range: int
    operands: list[int]
    files: list[str]
    start: int


def _header(reader: _Reader) -> _LineHeader:
    reader.fixed(4)
    version = reader.fixed(2)
    if version not in VERSIONS:
        raise ValueError(f"a line table of DWARF {version}")
    size = reader.fixed(4)
    start = reader.at + size
    step = reader.fixed(1)
    if version >= 4:
        reader.fixed(1)
    reader.fixed(1)
    base, width, first = reader.fixed(1), reader.fixed(1), reader.fixed(1)
    operands = [reader.fixed(1) for _ in range(first - 1)]
    if not width:
        raise ValueError("a line table whose lines do not advance")
    return _LineHeader(step, base - 256 * (base > 127), width, operands, _files(reader), start)


def _files(reader: _Reader) -> list[str]:
    folders = []
    while folder := reader.text():
        folders.append(folder)
    files = []
    while name := reader.text():
        index = reader.unsigned()
        reader.unsigned()
        reader.unsigned()
        has_folder = 0 < index <= len(folders) and not name.startswith("/")
        files.append(f"{folders[index - 1]}/{name}" if has_folder else name)
    return files


@dataclass
class _State:
    address: int = 0
    file: int = 1
    line: int = 1
    inlined_at: int = 0
    function: int = 0


def _program(data: bytes, strings: bytes) -> list[LineTable]:
    reader = _Reader(data, 0)
    head = _header(reader)
    reader.at = head.start
    every: list[LineEntry] = []
    starts = [0]
    for state, ends in _steps(reader, head):
        if ends:
            starts.append(len(every))
            continue
        name = head.files[state.file - 1] if 0 < state.file <= len(head.files) else ""
        function = _name(strings, state.function) if state.inlined_at else ""
        every.append(LineEntry(state.address, Frame(name, state.line, function), state.inlined_at))
        if len(every) > bounds.LINE_ROWS:
            raise ValueError("a line table with too many rows")
    parts = [every[a:b] for a, b in zip(starts, [*starts[1:], len(every)], strict=True)]
    from_zero = (
        tuple(row._replace(address=row.address - sequence[0].address) for row in sequence)
        for sequence in parts
        if sequence
    )
    return [LineTable(rows, every) for rows in from_zero]


def _steps(reader: _Reader, head: _LineHeader) -> Iterator[tuple[_State, bool]]:
    """The state at each row, and at each end of a function."""
    state = _State()
    while reader.at < len(reader.data):
        code = reader.fixed(1)
        if code > len(head.operands):
            code -= len(head.operands) + 1
            state.address += code // head.line_range * head.step
            state.line += head.line_base + code % head.line_range
            yield state, False
        elif code == 1:
            yield state, False
        elif code == 0:
            if _extended(reader, state):
                yield state, True
                state = _State()
        else:
            _standard(reader, head, state, code)


def _extended(reader: _Reader, state: _State) -> bool:
    size = reader.unsigned()
    stop = reader.at + size
    code = reader.fixed(1)
    if code == SET_ADDRESS:
        state.address = reader.fixed(size - 1)
    elif code == INLINED_CALL:
        state.inlined_at, state.function = reader.unsigned(), reader.unsigned()
    elif code == FUNCTION_NAME:
        state.function = reader.unsigned()
    reader.at = stop
    return code == END_SEQUENCE


def _standard(reader: _Reader, head: _LineHeader, state: _State, code: int) -> None:
    if code == 2:
        state.address += reader.unsigned() * head.step
    elif code == 3:
        state.line += reader.signed()
    elif code == 4:
        state.file = reader.unsigned()
    elif code == 8:
        state.address += (255 - len(head.operands) - 1) // head.line_range * head.step
    elif code == 9:
        state.address += reader.fixed(2)
    else:
        for _ in range(head.operands[code - 1]):
            reader.unsigned()


def _name(strings: bytes, start: int) -> str:
    end = strings.find(b"\0", start)
    return strings[start:end].decode("utf-8", "replace") if end >= 0 else ""


LINES, STRINGS = ".debug_line", ".debug_str"


def tables_in(path: Path) -> list[LineTable]:
    """The line tables of all functions in a report; empty where it has none that can be read."""
    return _tables(path, digest_of(path)) if path.is_file() else []


@lru_cache(maxsize=4)
def _tables(path: Path, digest: str) -> list[LineTable]:
    content = _content(path)
    line_tables_found: list[LineTable] = []
    left = bounds.LINE_BYTES
    start = content.find(MAGIC)
    while start >= 0:
        with suppress(ValueError, IndexError, struct.error):  # bytes that only begin like one
            tables = _lines(content, start)
            lines = tables.get(LINES, b"")
            left -= len(lines)
            if left > 0:
                line_tables_found += line_tables(lines, tables.get(STRINGS, b""))
        start = content.find(MAGIC, start + len(MAGIC))
    return line_tables_found


def _content(path: Path) -> bytes:
    """Uncompressed; empty where that is more than can be looked through."""
    held, size = [], 0
    try:
        for piece in decompressed_pieces(path):
            size += len(piece)
            if size > bounds.LINES_IN:
                return b""
            held.append(piece)
    except (OSError, BadCapture):
        return b""
    return b"".join(held)


def _lines(content: bytes, start: int) -> dict[str, bytes]:
    """The sections of the lines, by name. Raises ValueError, IndexError or struct.error."""
    return {
        s.name: s.body for s in sections(content, start) if s.name in (LINES, STRINGS) and s.body
    }
