"""Find the source lines that an instruction comes from: the line tables of CUDA binaries."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from workbench import bounds
from workbench.cuda.cubin import MAGIC, sections
from workbench.errors import BadCapture
from workbench.evidence.store import digest_of
from workbench.study.files import decompressed_pieces

VERSIONS = (2, 3, 4)
EXTENDED, COPY, ADVANCE_PC, ADVANCE_LINE, SET_FILE = range(5)
CONST_ADD_PC, FIXED_ADVANCE_PC = 8, 9
END_SEQUENCE, SET_ADDRESS = 1, 2  # extended, and these of NVIDIA's:
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
            bodies = {s.name: s.body for s in sections(content, start) if s.body}
            lines = bodies.get(LINES, b"")
            left -= len(lines)
            if left > 0:
                line_tables_found += line_tables(lines, bodies.get(STRINGS, b""))
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
        tables += _functions(_Program(lines[start : start + 4 + size]), strings)
        start += 4 + size
    return tables


def _functions(program: _Program, strings: bytes) -> Iterator[LineTable]:
    """The table of each function of a program, its addresses from the function's beginning."""
    every: list[LineEntry] = []
    starts = [0]
    for state in program.states():
        if state.has_ended:
            starts.append(len(every))
            continue
        file = program.files[state.file - 1] if 0 < state.file <= len(program.files) else ""
        end = strings.find(b"\0", state.function) if state.inlined_at else -1
        function = strings[state.function : end].decode("utf-8", "replace") if end >= 0 else ""
        every.append(LineEntry(state.address, Frame(file, state.line, function), state.inlined_at))
        if len(every) > bounds.LINE_ROWS:
            raise ValueError("a line table with too many rows")
    for first, stop in pairwise([*starts, len(every)]):
        rows = every[first:stop]
        if rows:
            moved = (row._replace(address=row.address - rows[0].address) for row in rows)
            yield LineTable(tuple(moved), every)


@dataclass
class _State:
    address: int = 0
    file: int = 1
    line: int = 1
    inlined_at: int = 0
    function: int = 0
    has_ended: bool = False


class _Program:
    """A program of a ``.debug_line`` section, whose steps make the rows: DWARF 2 to 4."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 4
        version = self.fixed(2)
        if version not in VERSIONS:
            raise ValueError(f"a line table of DWARF {version}")
        size = self.fixed(4)
        start = self.at + size
        self.step = self.fixed(1)
        self.fixed(2 if version >= 4 else 1)
        base, self.line_range, first = self.fixed(1), self.fixed(1), self.fixed(1)
        self.line_base = base - 256 * (base > 127)
        self.operands = [self.fixed(1) for _ in range(first - 1)]
        if not self.line_range:
            raise ValueError("a line table whose lines do not advance")
        folders = list(iter(self.text, ""))
        self.files: list[str] = []
        for name in iter(self.text, ""):
            index, _, _ = self.unsigned(), self.unsigned(), self.unsigned()
            has_folder = 0 < index <= len(folders) and not name.startswith("/")
            self.files.append(f"{folders[index - 1]}/{name}" if has_folder else name)
        self.at = start

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

    def states(self) -> Iterator[_State]:
        """The state at each row, and at each end of a function."""
        state, special = _State(), len(self.operands) + 1
        while self.at < len(self.data):
            code = self.fixed(1)
            if code >= special:
                state.address += (code - special) // self.line_range * self.step
                state.line += self.line_base + (code - special) % self.line_range
                yield state
            elif code == EXTENDED:
                self._extended(state)
                if state.has_ended:
                    yield state
                    state = _State()
            elif code == COPY:
                yield state
            elif code == ADVANCE_PC:
                state.address += self.unsigned() * self.step
            elif code == ADVANCE_LINE:
                state.line += self.signed()
            elif code == SET_FILE:
                state.file = self.unsigned()
            elif code == CONST_ADD_PC:
                state.address += (255 - special) // self.line_range * self.step
            elif code == FIXED_ADVANCE_PC:
                state.address += self.fixed(2)
            else:
                for _ in range(self.operands[code - 1]):
                    self.unsigned()

    def _extended(self, state: _State) -> None:
        size = self.unsigned()
        stop = self.at + size
        code = self.fixed(1)
        if code == SET_ADDRESS:
            state.address = self.fixed(size - 1)
        elif code == INLINED_CALL:
            state.inlined_at, state.function = self.unsigned(), self.unsigned()
        elif code == FUNCTION_NAME:
            state.function = self.unsigned()
        state.has_ended = code == END_SEQUENCE
        self.at = stop
