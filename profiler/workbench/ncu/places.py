"""Find the source line that an instruction of a launch is charged to.

- A sample belongs to the instruction that waits, which may be another than the sampled.
- Code inlined from a library belongs to the line of the user's file that called it, where the line
  table of the kernel's binary tells: ``binaries``. Where it does not, to the library's line.
- A wait in a helper that does nothing else belongs to the line that calls it: the helper's own line
  would be that of every wait.
- A source has a name without folders of the machine: ``lasting_name``.
- All other code belongs to the line that ``source_info`` gives, as in Nsight Compute: where several
  hold, since a call was inlined, that is the first of the line table, and not always the innermost.

A sample has the address of the next instruction that the warp would issue, so the wait is often
charged to what comes after it:

- ``mbarrier.try_wait`` is ``SYNCS.PHASECHK`` into a predicate and a branch on it; the branch is
  what waits for the predicate. ptxas moves the first try out of the loop, and that copy has the
  line of whatever stood before it: the copy in the loop, where the branch goes, has its own.
- ``cp.async.wait_group`` is ``DEPBAR`` and, where that comes through, a wait of the next.
- ``__syncthreads`` is ``BAR.SYNC.DEFER_BLOCKING``, after which a warp goes on to the next
  instruction that cannot be taken back.
- ``wgmma.fence`` is ``WARPGROUP.ARRIVE``, for which the next ``HGMMA`` waits.
- after ``EXIT`` a warp waits for its stores at the address that follows.

What is not certain stays where it was sampled. The line tables of CUDA binaries, which a report
holds, are at the end.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from workbench import bounds
from workbench.cuda.cubin import MAGIC, sections
from workbench.errors import BadCapture
from workbench.evidence.store import digest_of
from workbench.study.files import decompressed_pieces
from workbench.words import GENERATED_ROOT

_GUARDED = re.compile(r"(?:@!?(U?P[0-9T]+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;?\s*")
_PREDICATE = re.compile(r"\bU?P\d\b")
_ADDRESS = re.compile(r"\b0x([0-9a-f]+)\b")
BRANCHES = ("BRA", "BRX", "JMP", "JMX", "BREAK", "BSYNC", "RET", "EXIT", "CALL")


@dataclass(frozen=True)
class Instruction:
    """One instruction at ``pc``; ``guard`` is the predicate without which it does nothing, "" for
    none. ``text`` is all of it, with single blanks.
    """

    pc: int
    opcode: str
    operands: tuple[str, ...]
    guard: str = ""
    text: str = ""

    def is_a(self, *opcodes: str) -> bool:
        """Whether its opcode begins with one of these, part by part."""
        return _begins(self.opcode, opcodes)

    @cached_property
    def waits_for_barrier(self) -> bool:
        """An mbarrier's phase: ``mbarrier.try_wait`` and ``test_wait``."""
        return self.is_a("SYNCS.PHASECHK")

    @cached_property
    def written(self) -> frozenset[str]:
        """Predicates that it writes: those of its first two operands, as SASS has it."""
        if self.is_a(*BRANCHES):
            return frozenset()
        return frozenset(o for o in self.operands[:2] if _PREDICATE.fullmatch(o))

    @cached_property
    def predicates_read(self) -> frozenset[str]:
        predicates = {p for o in self.operands for p in _PREDICATE.findall(o)} - self.written
        return frozenset(predicates | {self.guard} if self.guard else predicates)

    @cached_property
    def target(self) -> int | None:
        """The address that a branch goes to; None if it is no branch, or a register's."""
        if not self.is_a("BRA", "JMP", "CALL"):
            return None
        addresses = _ADDRESS.findall(self.operands[-1]) if self.operands else []
        return int(addresses[-1], 16) if addresses else None


@cache  # some hundred opcodes are asked for a million times
def _begins(opcode: str, others: tuple[str, ...]) -> bool:
    return any(opcode == o or opcode.startswith(f"{o}.") for o in others)


def instruction(pc: int, sass: str) -> Instruction:
    """From its text; one with no opcode where that is none."""
    text = " ".join(sass.split())
    match = _GUARDED.fullmatch(text)
    if match is None:
        return Instruction(pc, "", (), text=text)
    operands = tuple(o.strip() for o in match[3].split(",")) if match[3] else ()
    return Instruction(pc, match[2], operands, match[1] or "", text)


Place = tuple[str, int]
NOWHERE: Place = ("", 0)
HELPER = 16  # instructions for each wait in a function that does nothing but wait
# Folders that compilers and packages are installed in, and headers that are nobody's own.
LIBRARIES = (
    "/usr/",
    "/opt/nvidia/",
    "/opt/conda/",
    "/site-packages/",
    "/dist-packages/",
    "/cuda/include/",
    "/cccl/",
    "/include/cutlass/",
    "/include/cute/",
    "/Program Files/",
)

# The folder of a measurement, which has random letters, and those of its workers in it.
SCRATCH = re.compile(r"^.*/workbench-[a-z0-9_]{8}/(?:(?:ncu|timing)/)?")
INSTALLED = re.compile(r"^.*/(?:site|dist)-packages/")


def lasting_name(file: str) -> str:
    """The name of a source on any machine: as the workbench's own builds have it if it was compiled
    where it ran, in the folder of a measurement; that in its package if it is installed.
    """
    return INSTALLED.sub("", SCRATCH.sub(GENERATED_ROOT, file))


def is_library(file: str) -> bool:
    """Whether a path of a line table is of something installed, rather than the user's."""
    name = file.replace("\\", "/")
    return any(folder in name for folder in LIBRARIES)


def source_place(action: Any, pc: int) -> Place:
    """Ask ncu_report for the place of an address; ``NOWHERE`` where no line is known."""
    info = action.source_info(pc)
    return (str(info.file_name()), int(info.line())) if info else NOWHERE


class Places:
    """The places of one launch; ``tables`` are of all functions in its report, ``code`` is its
    instructions in the order of their addresses.
    """

    def __init__(self, action: Any, pcs: Iterable[int], tables: Sequence[LineTable]) -> None:
        self._action = action
        self.code = [instruction(pc, str(action.sass_by_pc(pc) or "")) for pc in sorted({*pcs})]
        self._tables = tables
        self._known: dict[int, Place] = {}

    def of(self, pc: int, counter: str) -> Place:
        """Find where a sample or count at an address belongs; ``NOWHERE`` if no line is known."""
        return self.itself(self.waiting(pc, counter))

    def itself(self, pc: int) -> Place:
        """Find where an instruction belongs that is charged with something."""
        if pc in self._known:
            return self._known[pc]
        waits = self._waits.is_wait(pc)
        file, line = source_place(self._action, pc)
        chain = self.chain(pc) if waits or is_library(file) else ()
        if chain:
            inner = chain[0]
            chosen = next((frame for frame in chain if not is_library(frame.file)), inner)
            if chosen is inner and waits and len(chain) > 1 and inner.function in self._helpers:
                chosen = chain[1]
            file, line = chosen.file, chosen.line
        self._known[pc] = lasting_name(file), line
        return self._known[pc]

    def called_at(self, pc: int) -> Place | None:
        """The line of the kernel's own file that called it, for a helper of another file."""
        chain = self.chain(pc)
        kernel_file = chain[-1].file if chain else ""
        call = next((frame for frame in chain[1:] if frame.file == kernel_file), None)
        file = lasting_name(kernel_file)
        return (file, call.line) if call and file != self.itself(pc)[0] else None

    def waiting(self, pc: int, counter: str) -> int:
        """The address of the instruction that a sample at an address is charged to."""
        return self._waits.waiting_at(pc, counter)

    def chain(self, pc: int) -> tuple[Frame, ...]:
        """List its line and those of the calls it was inlined through, innermost first; empty where
        no line table of the report is the launch's.
        """
        if self._table is None:
            return ()
        return self._table.chain(pc - self.code[0].pc)

    @cached_property
    def _waits(self) -> Waits:
        return Waits(self.code)

    @cached_property
    def _table(self) -> LineTable | None:
        """The one that says of every instruction what ``source_info`` says."""
        if not self.code or not self._tables:
            return None
        start = self.code[0].pc
        said = [(one.pc - start, source_place(self._action, one.pc)) for one in self.code]
        if all(place == NOWHERE for _, place in said):
            return None

        def agrees(table: LineTable) -> bool:
            rows = ((table.entries_at(address), place) for address, place in said)
            return all(entries and entries[0].frame[:2] == place for entries, place in rows)

        return next(filter(agrees, self._tables), None)

    @cached_property
    def _helpers(self) -> frozenset[str]:
        """Inlined functions that do nothing but wait, less what is inlined into them."""
        sizes, waiting = Counter[str](), Counter[str]()
        for one in self.code:
            for frame in self.chain(one.pc)[:1]:
                sizes[frame.function] += 1
                waiting[frame.function] += self._waits.is_wait(one.pc)
        return frozenset(
            name for name, size in sizes.items() if name and size <= HELPER * waiting[name]
        )


BACK = 64  # instructions that are searched for the one which waits
LOOP_HEAD = 4  # instructions of a loop before its wait
BARRIERS = ("BAR.SYNC", "BAR.RED", "BARRIER.SYNC", "UCGABAR_WAIT")
# Reasons that are sampled behind the instruction which makes a warp wait.
BEHIND = {"barrier": BARRIERS, "warpgroup_arrive": ("WARPGROUP.ARRIVE",)}
WAITING = (*BARRIERS, "DEPBAR", "WARPGROUP.ARRIVE", "WARPGROUP.DEPBAR", "SYNCS.PHASECHK")
OWN = ("WARPGROUP", "BAR", "BARRIER", "UCGABAR_WAIT", "WARPSYNC")  # wait for barriers themselves


class Waits:
    """The waits of one function, whose instructions are in order of their addresses."""

    def __init__(self, code: Sequence[Instruction]) -> None:
        self._code = code
        self._index = {one.pc: index for index, one in enumerate(code)}
        self._entered = {one.target for one in code if one.target is not None}
        self._mbarrier: dict[int, int] = {}
        for index in range(len(code)):
            self._find_mbarrier(index)

    def waiting_at(self, pc: int, counter: str) -> int:
        """The address of the instruction that a sample is to be charged to, or its own."""
        index = self._index.get(pc)
        if index is None:
            return pc
        if counter == "drain" and index and self._code[index - 1].is_a("EXIT"):
            return self._code[index - 1].pc
        if counter in BEHIND and (behind := self._before(index, BEHIND[counter])) is not None:
            return behind
        if counter == "long_scoreboard" and index and self._code[index - 1].is_a("DEPBAR"):
            return self._code[index - 1].pc
        return self._mbarrier.get(pc, pc)

    def is_wait(self, pc: int) -> bool:
        """Whether nothing but a wait is made of it."""
        index = self._index.get(pc)
        return pc in self._mbarrier or (index is not None and self._code[index].is_a(*WAITING))

    def _find_mbarrier(self, index: int) -> None:
        """Note the wait that an instruction is part of as the reader of its predicate."""
        instruction = self._code[index]
        if instruction.waits_for_barrier:
            self._mbarrier.setdefault(instruction.pc, instruction.pc)
        wait = next(
            (w for p in sorted(instruction.predicates_read) if (w := self._writer(index, p))), None
        )
        if wait is None or not wait.waits_for_barrier:
            return
        start = None if instruction.target is None else self._index.get(instruction.target)
        loop = self._code[start : start + LOOP_HEAD] if start is not None else ()
        same = (o for o in loop if o.waits_for_barrier and o.operands[1:] == wait.operands[1:])
        if copy := next(same, None):  # in the loop, where the branch goes
            self._mbarrier[wait.pc] = copy.pc
        self._mbarrier[instruction.pc] = self._mbarrier.get(wait.pc, wait.pc)

    def _writer(self, index: int, predicate: str) -> Instruction | None:
        """The one that wrote a predicate; None where the code comes together in between."""
        for place in range(index - 1, max(-1, index - 1 - BACK), -1):
            if self._code[place + 1].pc in self._entered:
                return None
            if predicate in self._code[place].written:
                return self._code[place]
        return None

    def _before(self, index: int, opcodes: Sequence[str]) -> int | None:
        """The last of these that an instruction after it waits for."""
        if self._code[index].is_a(*OWN):
            return None
        for place in range(index - 1, max(-1, index - 1 - BACK), -1):
            instruction = self._code[place]
            if instruction.is_a(*opcodes):
                return instruction.pc
            if instruction.is_a(*BRANCHES) and not instruction.guard:
                return None
        return None


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
