"""What the blocks of a command that is not done have left: the same command goes on from there."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from workbench.places import blocks
from workbench.places.blocks import Block, Left

KEPT_SECONDS = 86400.0  # older sessions are none of the same comparison


@dataclass(frozen=True)
class Spool:
    """A hidden folder beside the evidence; a file that is torn or old is as good as none."""

    folder: Path

    def put(self, left: Left) -> None:
        self._write(left.block, blocks.encode_answer(left))

    def get(self, block: str) -> Left | None:
        data = self._read(block)
        with suppress(ValueError, msgspec.DecodeError):
            found = blocks.decode_answer(data) if data else None
            return found if isinstance(found, Left) and found.block == block else None
        return None

    def cards(self, block: Block, now: int) -> int:
        """How many cards a block is taken apart for: as many as there were when that was begun."""
        name = f"cards-{blocks.id_of(blocks.encode(block))}"
        known = self._read(name).decode(errors="replace")
        if known.isdigit() and int(known) > 0:
            return int(known)
        self._write(name, str(now).encode())
        return now

    def clear(self) -> None:
        """The command is done."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write(self, name: str, data: bytes) -> None:
        """Not for good, as evidence is: whoever reads it again compares it with its hashes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.folder / f".{name}.{os.getpid()}"
        part.write_bytes(data)
        part.replace(self.folder / name)

    def _read(self, name: str) -> bytes:
        path = self.folder / name
        try:
            if path.stat().st_mtime < time.time() - KEPT_SECONDS:
                path.unlink()
                return b""
            return path.read_bytes()
        except FileNotFoundError:
            return b""
