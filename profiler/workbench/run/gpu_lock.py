"""Who measures on which GPU of this machine: one process of a user at a time."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import EnvironmentLacks
from workbench.run.gpu import VISIBLE, Gpu

OWN_FOLDER = "WORKBENCH_FOLDER"  # names the only folder that a remote worker writes to
POLL_SECONDS = 0.2


def own_folder() -> Path:
    """The only folder that a worker writes to, readable to its user alone."""
    default = Path(tempfile.gettempdir()) / f"workbench-{os.getuid()}"
    folder = Path(os.environ.get(OWN_FOLDER) or default)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise EnvironmentLacks(
            f"{folder} belongs to somebody else", hint=f"set {OWN_FOLDER} to a folder of your own"
        )
    return folder


@dataclass(frozen=True)
class Held:
    """A card, and the lock that goes with the last process that has ``handle`` open."""

    card: Gpu
    handle: int


@contextmanager
def held(found: Sequence[Gpu], go_on: Callable[[], bool] = lambda: True) -> Iterator[Held | None]:
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


def folder_of(card: Gpu) -> Path:
    """Of whoever holds the card: what others left in it, ended or killed, is gone.

    ncu serialises on a file in ``TMPDIR``, and fails where another user owns it: so there is a
    folder for each card and user.
    """
    folder = own_folder() / "cards" / _named(card)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def environment_of(card: Gpu, folder: Path) -> dict[str, str]:
    """What a process is given that is to see this card alone, and to write to its folder alone."""
    return {VISIBLE: card.uuid, "TMPDIR": str(folder), OWN_FOLDER: str(own_folder())}


def _named(card: Gpu) -> str:
    return re.sub(r"[^\w-]", "_", card.uuid)
