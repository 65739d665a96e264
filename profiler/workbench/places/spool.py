"""What the blocks of a command that is not done have left: the same command goes on from there."""

from __future__ import annotations

import os
import shutil
import struct
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import msgspec

from workbench.evidence import store
from workbench.evidence.layout import listed
from workbench.places import blocks
from workbench.places.blocks import Block, Left

KEPT_SECONDS = 86400.0  # older sessions are none of the same comparison
HEAD = struct.Struct("<II")  # length and CRC-32 of what follows


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    name: str
    at: float
    data: bytes


@dataclass
class Spool:
    """A hidden folder beside the evidence with a log for each command that was at work there; of
    several entries of a name the last one counts. What is torn or old is as good as none.
    """

    folder: Path
    _log: Path | None = field(default=None)

    @property
    def log(self) -> Path:
        """Of this command; whoever needs it on the disk forces it."""
        if self._log is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._log = self.folder / f"{time.time_ns()}-{os.getpid()}.log"
            self._log.touch()
        return self._log

    def put(self, every: Iterable[Left]) -> None:
        self._append((left.block, blocks.encode_answer(left)) for left in every)

    def get(self, block: str) -> Left | None:
        """What an earlier command has kept."""
        with suppress(ValueError, msgspec.DecodeError):
            found = blocks.decode_answer(self._read(block))
            return found if isinstance(found, Left) and found.block == block else None
        return None

    def cards(self, block: Block, now: int) -> int:
        """How many cards a block is taken apart for: as many as there were when that was begun."""
        name = f"cards-{blocks.id_of(blocks.encode(block))}"
        known = self._read(name).decode(errors="replace")
        if known.isdigit() and int(known) > 0:
            return int(known)
        self._append([(name, str(now).encode())])
        return now

    def clear(self) -> None:
        """The command is done."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._log = None

    def _append(self, named: Iterable[tuple[str, bytes]]) -> None:
        entries = [msgspec.msgpack.encode(_Entry(name, time.time(), data)) for name, data in named]
        try:
            with self.log.open("ab") as file:
                for entry in entries:
                    file.write(HEAD.pack(len(entry), zlib.crc32(entry)) + entry)
        except OSError as error:
            raise store.disk_full(self.folder, error) or error from None

    def _read(self, name: str) -> bytes:
        if name not in self._earlier:
            return b""
        path, start = self._earlier[name]
        with path.open("rb") as file:
            file.seek(start)
            entry = _next(file)
        return entry.data if entry is not None else b""

    @cached_property
    def _earlier(self) -> dict[str, tuple[Path, int]]:
        """Where the entries of earlier commands stand."""
        oldest = time.time() - KEPT_SECONDS
        return {
            entry.name: (path, start)
            for path in listed(self.folder, ".log")
            for start, entry in _entries(path)
            if entry.at > oldest
        }


def _entries(path: Path) -> Iterator[tuple[int, _Entry]]:
    """With where they stand, up to the first that a killed command left torn."""
    with path.open("rb") as file:
        while True:
            start = file.tell()
            entry = _next(file)
            if entry is None:
                return
            yield start, entry


def _next(file: BinaryIO) -> _Entry | None:
    head = file.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    length, crc = HEAD.unpack(head)
    data = file.read(length)
    if not data or len(data) < length or zlib.crc32(data) != crc:
        return None
    return msgspec.msgpack.decode(data, type=_Entry)
