"""The cards of this machine: which there are, which are equal, and who has one for himself."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from workbench.errors import EnvironmentLacks
from workbench.run.machine import VISIBLE, visible

PLACE_FOLDER = "WORKBENCH_PLACE"  # in a worker's environment: the only folder that it writes to
FIELDS = {  # of nvidia-smi
    "uuid": "uuid",
    "name": "name",
    "driver": "driver_version",
    "compute_capability": "compute_cap",
    "memory": "memory.total",
    "sm_clock": "clocks.max.sm",
    "memory_clock": "clocks.max.memory",
    "power": "power.limit",
}
WHOLE = re.compile(r"GPU \d+:.*\(UUID: ([\w/-]+)\)")
SLICE = re.compile(r"\s+(MIG \S+).*\(UUID: ([\w/-]+)\)")
POLL_SECONDS = 0.2


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, or a slice of one, which has its profile in its name, in nvidia-smi's own words.

    Clocks and power are the highest that are allowed. ``kind`` is what equal cards have in common.
    """

    uuid: str
    name: str
    driver: str
    compute_capability: str
    memory: str
    sm_clock: str
    memory_clock: str
    power: str

    @property
    def kind(self) -> tuple[str, ...]:
        return tuple(getattr(self, name) for name in FIELDS if name != "uuid")

    def differs(self, other: Card) -> str:
        """In words; "" where they are equal."""
        return ", ".join(
            f"{name.replace('_', ' ')} {getattr(self, name)} and not {getattr(other, name)}"
            for name in FIELDS
            if name != "uuid" and getattr(self, name) != getattr(other, name)
        )


def _smi(*options: str) -> list[str]:
    """The lines of nvidia-smi; none where it does not answer."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *options], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def cards() -> list[Card]:
    """Those that this process may use: ``CUDA_VISIBLE_DEVICES`` decides among those that nvidia-smi
    lists, where it says anything.
    """
    rows = _smi(f"--query-gpu={','.join(FIELDS.values())}", "--format=csv,noheader")
    by_uuid = {card.uuid: card for card in described(rows, _smi("-L") if rows else [])}
    return [by_uuid[uuid] for uuid in visible(list(by_uuid), os.environ.get(VISIBLE))]


def described(rows: Sequence[str], listed: Sequence[str]) -> list[Card]:
    """``rows`` are GPUs by ``FIELDS``, ``listed`` is what ``nvidia-smi -L`` says: slices, each
    behind its GPU, which it is described by.
    """
    words = ([word.strip() for word in row.split(",")] for row in rows)
    whole = [Card(**dict(zip(FIELDS, w, strict=True))) for w in words if len(w) == len(FIELDS)]
    by_uuid = {card.uuid: card for card in whole}
    found, parent = dict(by_uuid), ""
    for line in listed:
        if gpu := WHOLE.match(line):
            parent = gpu[1]
        elif (one := SLICE.match(line)) and parent in by_uuid:
            of = by_uuid[parent]
            found[one[2]] = msgspec.structs.replace(of, uuid=one[2], name=f"{of.name} {one[1]}")
    return list(found.values())


def is_there(card: Card) -> bool:
    """Whether the driver still answers for it."""
    return any(card.uuid in line for line in _smi("-L"))


def largest_kind(found: Iterable[Card]) -> tuple[str, ...]:
    """That of the most of them; of as many, the one that came first."""
    counted = Counter(card.kind for card in found)
    return max(counted, key=counted.__getitem__)


def own_folder() -> Path:
    """The only folder that a worker writes to, readable to its user alone."""
    default = Path(tempfile.gettempdir()) / f"workbench-{os.getuid()}"
    folder = Path(os.environ.get(PLACE_FOLDER) or default)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise EnvironmentLacks(
            f"{folder} belongs to somebody else", hint=f"set {PLACE_FOLDER} to a folder of your own"
        )
    return folder


@dataclass(frozen=True)
class Held:
    """A card, and the lock that goes with the last process that has ``handle`` open."""

    card: Card
    handle: int


@contextmanager
def held(found: Sequence[Card], go_on: Callable[[], bool] = lambda: True) -> Iterator[Held | None]:
    """The first of the cards that nobody else of this user holds, as soon as there is one. None
    where ``go_on`` says False while it waits.
    """
    locks = own_folder() / "cards"
    locks.mkdir(exist_ok=True)
    while go_on():
        for card in found:
            handle = os.open(locks / f"{_named(card)}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                continue
            try:
                yield Held(card, handle)
            finally:
                os.close(handle)
            return
        time.sleep(POLL_SECONDS)
    yield None


def folder_of(card: Card) -> Path:
    """Of whoever holds the card: what others left in it, ended or killed, is gone.

    ncu serialises on a file in ``TMPDIR``, and fails where another user owns it: so there is a
    folder for each card and user.
    """
    folder = own_folder() / "cards" / _named(card)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def environment_of(card: Card, folder: Path) -> dict[str, str]:
    """What a process is given that is to see this card alone, and to write to its folder alone."""
    return {VISIBLE: card.uuid, "TMPDIR": str(folder), PLACE_FOLDER: str(own_folder())}


def _named(card: Card) -> str:
    return re.sub(r"[^\w-]", "_", card.uuid)
